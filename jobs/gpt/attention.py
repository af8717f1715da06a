"""Causal attention: torch's own, and the same by hand for heads so small that torch's CPU kernel wastes its time.

A head of the workshop's model has 8 channels. torch's kernel multiplies with matrices 8 numbers wide; laid the
other way, with the positions innermost, the same products take a quarter of the time (docs/jobs.md has figures).
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

SMALL_HEAD = 8  # channels
CHUNK = 32  # positions
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
    """(3, N, size, T), the queries, keys and values of N heads -> (N, size, T), with its gradient written out.

    Goes by chunks of positions that ask, and multiplies with no position after a chunk's end: three eighths of the
    table of who looks at whom, all future, is never made.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor) -> Tensor:
        query, key, value = qkv
        future = torch.full((CHUNK, CHUNK), -math.inf).triu(1)
        mixed, tables = torch.empty_like(query), list[Tensor]()
        for begin, end in _chunks(query.shape[2]):
            table = torch.bmm(query[:, :, begin:end].mT * query.shape[1] ** -0.5, key[:, :, :end])
            table[:, :, begin:] += future[: end - begin, : end - begin]
            torch.softmax(table, 2, out=table)  # in place: fresh memory costs as much as the sums
            mixed[:, :, begin:end] = torch.bmm(value[:, :, :end], table.mT)
            tables.append(table)
        ctx.save_for_backward(qkv, *tables)
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        qkv, *tables = ctx.saved_tensors
        query, key, value = qkv
        result = torch.zeros_like(qkv)
        for (begin, end), table in zip(_chunks(query.shape[2]), tables, strict=True):
            gradient = gradients[0][:, :, begin:end].contiguous()
            result[2, :, :, :end] += torch.bmm(gradient, table)
            inner = torch.bmm(gradient.mT, value[:, :, :end])
            torch._softmax_backward_data(inner, table, 2, inner.dtype, grad_input=inner)
            result[0, :, :, begin:end] = torch.bmm(key[:, :, :end], inner.mT)
            result[1, :, :, :end] += torch.bmm(query[:, :, begin:end], inner)
        result[:2] *= query.shape[1] ** -0.5
        return result


def _chunks(places: int) -> Iterator[tuple[int, int]]:
    """Where each chunk of `places` positions begins and ends."""
    return ((begin, min(begin + CHUNK, places)) for begin in range(0, places, CHUNK))
