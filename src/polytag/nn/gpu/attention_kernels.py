"""Attention over padded texts on a GPU, in Triton: padding is skipped, and the attention weights are never written to memory.

Texts are short, so blocks are small. The backward pass computes the weights again, once for the queries and once for keys and
values, without atomic sums, so its result does not depend on the order of programs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

SIZES = (16, 32, 64, 128)  # sizes of a head
_LOG2_E = 1.4426950408889634
_BLOCK = 64  # queries or keys of a block


@triton.jit
def _kept(seed, pair, row, column, length, share):
    """Which attention weights dropout keeps: a hash of the seed and the place of a weight, as a number from 0 to 1."""
    mixed = ((pair * length + row) * length + column).to(tl.uint32) * 0x9E3779B1 ^ seed
    mixed ^= mixed >> 16
    mixed *= 0x85EBCA6B
    mixed ^= mixed >> 13
    mixed *= 0xC2B2AE35
    mixed ^= mixed >> 16
    return (mixed >> 8).to(tl.float32) * (1.0 / 16777216.0) >= share


@triton.jit
def _forward(
    queries, keys, values, lengths, seeds, found, sums, asked, length, scale, share,
    HEADS: tl.constexpr, SIZE: tl.constexpr, DROPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The states of some queries of one head of one text; ``sums`` are the logarithms of the sums of the softmax, to base 2."""
    text, head, first = tl.program_id(2), tl.program_id(1), tl.program_id(0) * ROWS
    tokens = tl.load(lengths + text)
    row, size = first + tl.arange(0, ROWS), tl.arange(0, SIZE)
    at = ((text * asked + row[:, None]) * HEADS + head) * SIZE + size[None, :]
    inside = row[:, None] < asked
    if (first >= tokens) & (first > 0):
        tl.store(found + at, tl.zeros((ROWS, SIZE), tl.float32).to(found.dtype.element_ty), inside)
        return
    query = tl.load(queries + at, inside, 0.0)
    seed = tl.load(seeds).to(tl.uint32)
    most = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    state = tl.zeros((ROWS, SIZE), tl.float32)
    for start in range(0, tokens, BLOCK):
        column = start + tl.arange(0, BLOCK)
        place = ((text * length + column[:, None]) * HEADS + head) * SIZE + size[None, :]
        real = column < tokens
        key = tl.load(keys + place, real[:, None], 0.0)
        value = tl.load(values + place, real[:, None], 0.0)
        energy = tl.where(real[None, :], tl.dot(query, tl.trans(key)) * scale, float("-inf"))
        higher = tl.maximum(most, tl.max(energy, 1))
        shrunk = tl.exp2(most - higher)
        weight = tl.exp2(energy - higher[:, None])
        total = total * shrunk + tl.sum(weight, 1)
        if DROPS:
            kept = _kept(seed, text * HEADS + head, row[:, None], column[None, :], length, share)
            weight = tl.where(kept, weight / (1 - share), 0.0)
        state = tl.dot(weight.to(value.dtype), value, state * shrunk[:, None])
        most = higher
    tl.store(found + at, (state / total[:, None]).to(found.dtype.element_ty), inside)
    tl.store(sums + (text * HEADS + head) * asked + row, most + tl.log2(total), row < asked)


@triton.jit
def _query_gradients(
    queries, keys, values, lengths, seeds, found, sums, gradients, products, to_queries, length, scale, back, share,
    HEADS: tl.constexpr, SIZE: tl.constexpr, DROPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of some queries; ``products`` are the inner products of states and their gradients."""
    text, head, first = tl.program_id(2), tl.program_id(1), tl.program_id(0) * BLOCK
    tokens = tl.load(lengths + text)
    row, size = first + tl.arange(0, BLOCK), tl.arange(0, SIZE)
    at = ((text * length + row[:, None]) * HEADS + head) * SIZE + size[None, :]
    inside = row[:, None] < length
    if first >= tokens:
        tl.store(to_queries + at, tl.zeros((BLOCK, SIZE), tl.float32).to(to_queries.dtype.element_ty), inside)
        return
    query = tl.load(queries + at, inside, 0.0)
    gradient = tl.load(gradients + at, inside, 0.0)
    product = tl.sum(gradient.to(tl.float32) * tl.load(found + at, inside, 0.0).to(tl.float32), 1)
    line = (text * HEADS + head) * length + row
    tl.store(products + line, product, row < length)
    log_sum = tl.load(sums + line, row < length, 0.0)
    seed = tl.load(seeds).to(tl.uint32)
    total = tl.zeros((BLOCK, SIZE), tl.float32)
    for start in range(0, tokens, BLOCK):
        column = start + tl.arange(0, BLOCK)
        place = ((text * length + column[:, None]) * HEADS + head) * SIZE + size[None, :]
        real = column < tokens
        key = tl.load(keys + place, real[:, None], 0.0)
        value = tl.load(values + place, real[:, None], 0.0)
        weight = tl.exp2(tl.where(real[None, :], tl.dot(query, tl.trans(key)) * scale, float("-inf")) - log_sum[:, None])
        to_weight = tl.dot(gradient, tl.trans(value))
        if DROPS:
            kept = _kept(seed, text * HEADS + head, row[:, None], column[None, :], length, share)
            to_weight = tl.where(kept, to_weight / (1 - share), 0.0)
        to_energy = weight * (to_weight - product[:, None])
        total = tl.dot(to_energy.to(key.dtype), key, total)
    tl.store(to_queries + at, (total * back).to(to_queries.dtype.element_ty), inside)


@triton.jit
def _key_gradients(
    queries, keys, values, lengths, seeds, sums, gradients, products, to_keys, to_values, length, scale, back, share,
    HEADS: tl.constexpr, SIZE: tl.constexpr, DROPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of some keys and values; those of padding are zero."""
    text, head, first = tl.program_id(2), tl.program_id(1), tl.program_id(0) * BLOCK
    tokens = tl.load(lengths + text)
    column, size = first + tl.arange(0, BLOCK), tl.arange(0, SIZE)
    at = ((text * length + column[:, None]) * HEADS + head) * SIZE + size[None, :]
    real = column < tokens
    to_key = tl.zeros((BLOCK, SIZE), tl.float32)
    to_value = tl.zeros((BLOCK, SIZE), tl.float32)
    if first < tokens:
        key = tl.load(keys + at, real[:, None], 0.0)
        value = tl.load(values + at, real[:, None], 0.0)
        seed = tl.load(seeds).to(tl.uint32)
        for start in range(0, tokens, BLOCK):
            row = start + tl.arange(0, BLOCK)
            asks = row < tokens
            place = ((text * length + row[:, None]) * HEADS + head) * SIZE + size[None, :]
            line = (text * HEADS + head) * length + row
            query = tl.load(queries + place, asks[:, None], 0.0)
            gradient = tl.load(gradients + place, asks[:, None], 0.0)
            log_sum = tl.load(sums + line, asks, 0.0)
            product = tl.load(products + line, asks, 0.0)
            energy = tl.where(real[:, None] & asks[None, :], tl.dot(key, tl.trans(query)) * scale, float("-inf"))
            weight = tl.exp2(energy - log_sum[None, :])  # (keys, queries)
            to_weight = tl.dot(value, tl.trans(gradient))
            kept_weight = weight
            if DROPS:
                kept = _kept(seed, text * HEADS + head, row[None, :], column[:, None], length, share)
                kept_weight = tl.where(kept, weight / (1 - share), 0.0)
                to_weight = tl.where(kept, to_weight / (1 - share), 0.0)
            to_value = tl.dot(kept_weight.to(gradient.dtype), gradient, to_value)
            to_energy = weight * (to_weight - product[None, :])
            to_key = tl.dot(to_energy.to(query.dtype), query, to_key)
    inside = column[:, None] < length
    tl.store(to_keys + at, (to_key * back).to(to_keys.dtype.element_ty), inside)
    tl.store(to_values + at, to_value.to(to_values.dtype.element_ty), inside)


@torch.library.custom_op("polytag::attend", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, seed: Tensor, scale: float, dropout: float
) -> tuple[Tensor, Tensor]:
    batch, asked, heads, size = query.shape
    found, sums = torch.empty_like(query), torch.empty(batch, heads, asked, dtype=torch.float32, device=query.device)
    rows = _BLOCK if asked > 16 else 16
    _forward[(-(-asked // rows), heads, batch)](
        query, key, value, lengths, seed, found, sums, asked, key.shape[1], scale * _LOG2_E, dropout,
        HEADS=heads, SIZE=size, DROPS=dropout > 0, ROWS=rows, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return found, sums


@_attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, seed: Tensor, scale: float, dropout: float
) -> tuple[Tensor, Tensor]:
    batch, asked, heads, _ = query.shape
    return torch.empty_like(query), query.new_empty(batch, heads, asked, dtype=torch.float32)


@torch.library.custom_op("polytag::attend_backward", mutates_args=())
def _attend_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, seed: Tensor, found: Tensor, sums: Tensor,
    scale: float, dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    batch, length, heads, size = query.shape
    to_query, to_key, to_value = (torch.empty_like(part) for part in (query, key, value))
    products = torch.empty_like(sums)
    grid = -(-length // _BLOCK), heads, batch
    told = {"HEADS": heads, "SIZE": size, "DROPS": dropout > 0, "BLOCK": _BLOCK, "num_warps": 4}
    given = query, key, value, lengths, seed
    numbers = length, scale * _LOG2_E, scale, dropout
    _query_gradients[grid](*given, found, sums, gradient, products, to_query, *numbers, **told)
    _key_gradients[grid](*given, sums, gradient, products, to_key, to_value, *numbers, **told)
    return to_query, to_key, to_value


@_attend_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, seed: Tensor, found: Tensor, sums: Tensor,
    scale: float, dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, lengths, seed, ctx.scale, ctx.dropout = inputs
    ctx.save_for_backward(query, key, value, lengths, seed, *output)


def _gradients(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    found = _attend_backward(gradient.contiguous(), *ctx.saved_tensors, ctx.scale, ctx.dropout)
    return (*found, None, None, None, None)


_attend.register_autograd(_gradients, setup_context=_keep)


def attend(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, scale: float, dropout: float = 0.0) -> Tensor:
    """The attention of queries over the tokens of their texts, all (batch, length, heads, size); ``lengths`` is (batch,) int32.

    The states of padding have no meaning. With gradients there must be one query per token.
    """
    kind = torch.int32
    seed = torch.randint(0, 2**31 - 1, (1,), dtype=kind, device=query.device) if dropout else lengths[:1]
    found: Tensor = _attend(query.contiguous(), key.contiguous(), value.contiguous(), lengths, seed, scale, dropout)[0]
    return found
