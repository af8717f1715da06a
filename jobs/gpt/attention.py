"""Causal attention: torch's own, and the same by hand for heads so small that torch's CPU kernel wastes its time.

A head of the workshop's model has 8 channels. torch's kernel multiplies with matrices 8 numbers wide; laid the
other way, with the positions innermost, the same products take a quarter of the time (docs/jobs.md has figures).
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

SMALL_HEAD = 8  # channels
SHORT = 256  # positions: by hand, memory grows with their square


def attention(query_key_value: Tensor, heads: int) -> Tensor:
    """(B, T, 3 * width) -> (B, T, width): each position's values mixed with those of earlier ones, head by head."""
    qkv = query_key_value.unflatten(2, (3, heads, -1))  # (B, T, 3, heads, size)
    if _worth_doing_by_hand(qkv):
        batch, places = qkv.shape[:2]
        channels_first = qkv.permute(2, 0, 3, 4, 1).reshape(3, batch * heads, -1, places)
        mixed: Tensor = SmallHeads.apply(channels_first)  # pyright: ignore[reportAssignmentType]  it is untyped
        return mixed.view(batch, -1, places).transpose(1, 2)
    query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (B, heads, T, size)
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return mixed.transpose(1, 2).flatten(2)


def _worth_doing_by_hand(qkv: Tensor) -> bool:
    """Only where gradients are wanted: forward alone, torch's kernel is as quick."""
    _, places, _, _, size = qkv.shape
    small = size <= SMALL_HEAD and places <= SHORT
    plain = qkv.device.type == "cpu" and qkv.dtype == torch.float32 and qkv.requires_grad
    return small and plain and not torch.compiler.is_compiling()


class SmallHeads(torch.autograd.Function):
    """(3, N, size, T), the queries, keys and values of N heads -> (N, size, T), with its gradient written out."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor) -> Tensor:
        query, key, value = qkv
        places = qkv.shape[3]
        future = torch.full((places, places), -math.inf).triu(1)
        attended = torch.baddbmm(future, query.transpose(1, 2), key, alpha=qkv.shape[2] ** -0.5)
        torch.softmax(attended, 2, out=attended)  # in place: fresh memory costs as much as the sums
        ctx.save_for_backward(qkv, attended)
        return torch.bmm(value, attended.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        qkv, attended = ctx.saved_tensors
        query, key, value = qkv
        gradient = gradients[0].contiguous()
        result = torch.empty_like(qkv)
        torch.bmm(gradient, attended, out=result[2])
        inner = torch.bmm(gradient.transpose(1, 2), value)
        torch._softmax_backward_data(inner, attended, 2, inner.dtype, grad_input=inner)
        torch.bmm(key, inner.transpose(1, 2), out=result[0])
        torch.bmm(query, inner, out=result[1])
        result[:2].mul_(qkv.shape[2] ** -0.5)
        return result
