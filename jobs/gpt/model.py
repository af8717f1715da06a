"""A decoder-only transformer over bytes: the 256 byte values are its whole vocabulary.

B windows of T bytes come in; for each position the scores ("logits") of the 256 bytes that may follow
come out. Each block lets a position look back at earlier ones (attention), then think for itself (MLP).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from attention import attention

VOCABULARY = 256


@dataclass(frozen=True)
class Shape:
    """What the weights' sizes follow from, and how the model is put together."""

    context: int
    width: int
    mlp: int
    heads: int
    layers: int
    dropout: float = 0.0
    block: str = "workshop"
    attention_only: bool = False
    tie_weights: bool = False


def in_turn(blocks: Iterable[nn.Module], x: Tensor) -> Tensor:
    """One block after the other, as Python runs them."""
    for block in blocks:
        x = block(x)
    return x


class GPT(nn.Module):
    """The model. Its weights start the same on every device, by torch's seed at the time of making."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.bytes = nn.Embedding(VOCABULARY, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.scores = nn.Linear(shape.width, VOCABULARY)
        self.run_blocks: Callable[[Iterable[nn.Module], Tensor], Tensor] = in_turn  # XLA has another (device.py)
        for embedding in (self.bytes, self.positions):
            nn.init.normal_(embedding.weight, std=0.1)  # torch's own std of 1 drowns what attention adds

    def on(self, device: torch.device) -> "GPT":
        """The model moved to `device`. Only there are weights tied: on XLA a move makes two of what was one."""
        self.to(device)
        if self.shape.tie_weights:
            self.scores.weight = self.bytes.weight  # a byte is read and written as the same vector
        return self

    def forward(self, window: Tensor) -> Tensor:
        """(B, T) byte values, T at most the context -> (B, T, 256) scores of the next byte."""
        where = torch.arange(window.shape[1], device=window.device)
        x = self.dropout(self.bytes(window) + self.positions(where))  # (B, T, width)
        return self.scores(self.norm(self.run_blocks(self.blocks, x)))

    def loss(self, window: Tensor, following: Tensor) -> Tensor:
        """Mean surprise, in nats a byte, at the bytes that really followed. Both are (B, T)."""
        return functional.cross_entropy(self(window).flatten(0, 1), following.flatten())


class Block(nn.Module):
    """Attention and (unless left out) an MLP, each adding to what came in.

    That is the usual block. The workshop's adds what came in once more: the deeper a block, the smaller its part.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = Attention(shape)
        self.mlp = None if shape.attention_only else mlp(shape)
        self.adds_twice = shape.block == "workshop"

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.attention(x)
        if self.mlp is not None:
            y = y + self.mlp(y)
        return x + y if self.adds_twice else y


class Attention(nn.Module):
    """Each position gathers from the earlier ones and itself, with several heads side by side.

    Usually a projection then mixes what the heads have found. The workshop's block leaves that to the MLP.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.output = nn.Linear(shape.width, shape.width) if shape.block == "usual" else nn.Identity()
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        mixed = attention(self.query_key_value(self.norm(x)), self.heads)
        return self.dropout(self.output(mixed))


def mlp(shape: Shape) -> nn.Sequential:
    """The part of a block that works on each position by itself."""
    return nn.Sequential(
        nn.LayerNorm(shape.width),
        nn.Linear(shape.width, shape.mlp),
        nn.ReLU(),
        nn.Linear(shape.mlp, shape.width),
        nn.Dropout(shape.dropout),
    )
