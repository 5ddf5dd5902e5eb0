"""Attention over padded texts on a GPU, in Triton: padding is skipped, and the attention weights are never written to memory.

Texts are short, so blocks are small. The backward pass computes the weights once more. One program has all gradients of a head
of a text, so that there are no atomic sums, and the result does not depend on the order of programs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

SIZES = (16, 32, 64, 128)  # sizes of a head
_LOG2_E = 1.4426950408889634
# queries and keys of a block, warps and stages of a program: of the forward pass, and of the backward pass by the size of a head,
# there with the registers of a thread
_FORWARD = (64, 64, 4, 2)
_TILES = {16: (64, 64, 4, 1, 168), 32: (64, 64, 4, 1, 168), 64: (32, 64, 4, 1, 168), 128: (32, 32, 4, 1, None)}


@triton.jit
def _query_numbers(seed, place):
    """Two random numbers per query, from the seed and the place of the query among those of all heads and texts."""
    mixed = place.to(tl.uint32) * 0x9E3779B1 ^ seed
    mixed ^= mixed >> 16
    mixed *= 0x85EBCA6B
    mixed ^= mixed >> 13
    factor, term = mixed * 0xC2B2AE35, mixed * 0x27D4EB2F
    return factor ^ (factor >> 16) | 1, term ^ (term >> 15)  # with the factor 0, all keys would have the same number


@triton.jit
def _key_number(column):
    """A random number per key, the same for all queries, heads and texts."""
    mixed = column.to(tl.uint32) * 0x9E3779B1
    mixed ^= mixed >> 15
    return mixed * 0x2C1B3C6D


@triton.jit
def _kept(factor, term, number, least):
    """Which attention weights dropout keeps: random linear functions of the numbers of keys, one function per query.

    Any two decisions are independent, at the price of a multiplication per weight.
    """
    return (factor[:, None] * number[None, :] + term[:, None]).to(tl.int32) >= least


@triton.jit
def _forward(
    queries, keys, values, lengths, seeds, found, sums, asked, length, stride, scale, spread, least,
    HEADS: tl.constexpr, SIZE: tl.constexpr, DROPS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The states of some queries of one head of one text; ``sums`` are the logarithms of the sums of the softmax, to base 2."""
    text, head, first = tl.program_id(2), tl.program_id(1), tl.program_id(0) * ROWS
    tokens = tl.load(lengths + text)
    row, size = first + tl.arange(0, ROWS), tl.arange(0, SIZE)
    inside = row[:, None] < asked
    out = found + text.to(tl.int64) * asked * (HEADS * SIZE) + head * SIZE
    at = row[:, None] * (HEADS * SIZE) + size[None, :]
    if (first >= tokens) & (first > 0):
        tl.store(out + at, tl.zeros((ROWS, SIZE), tl.float32).to(found.dtype.element_ty), inside)
        return
    query = tl.load(
        queries + text.to(tl.int64) * asked * stride + head * SIZE + row[:, None] * stride + size[None, :], inside, 0.0
    )
    base = text.to(tl.int64) * length * stride + head * SIZE
    if DROPS:
        factor, term = _query_numbers(tl.load(seeds).to(tl.uint32), (text * HEADS + head) * length + row)
    most = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    state = tl.zeros((ROWS, SIZE), tl.float32)
    for start in range(0, tokens, KEYS):
        column = start + tl.arange(0, KEYS)
        place = column[:, None] * stride + size[None, :]
        real = column < tokens
        key = tl.load(keys + base + place, real[:, None], 0.0)
        value = tl.load(values + base + place, real[:, None], 0.0)
        energy = tl.where(real[None, :], tl.dot(query, tl.trans(key)), float("-inf"))
        higher = tl.maximum(most, tl.max(energy, 1))
        shrunk = tl.exp2((most - higher) * scale)
        weight = tl.exp2(energy * scale - (higher * scale)[:, None])
        total = total * shrunk + tl.sum(weight, 1)
        if DROPS:
            weight = tl.where(_kept(factor, term, _key_number(column), least), weight, 0.0)
        state = tl.dot(weight.to(value.dtype), value, state * shrunk[:, None])
        most = higher
    tl.store(out + at, (state * (spread / total)[:, None]).to(found.dtype.element_ty), inside)
    tl.store(sums + (text * HEADS + head) * asked + row, most * scale + tl.log2(total), row < asked)


@triton.jit
def _multiply(gradients, states, products, tokens, spread, STRIDE: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """The inner products of the states of a head and their gradients, over ``spread``."""
    size = tl.arange(0, SIZE)
    for start in range(0, tokens, ROWS):
        row = start + tl.arange(0, ROWS)
        at = row[:, None] * STRIDE + size[None, :]
        asks = row < tokens
        gradient = tl.load(gradients + at, asks[:, None], 0.0).to(tl.float32)
        state = tl.load(states + at, asks[:, None], 0.0).to(tl.float32)
        tl.store(products + row, tl.sum(gradient * state, 1) / spread, asks)


@triton.jit
def _clear(places, tokens, length, stride, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """Write zeros for the padding of a head."""
    size = tl.arange(0, SIZE)
    nothing = tl.zeros((ROWS, SIZE), tl.float32).to(places.dtype.element_ty)
    for start in range(tokens, length, ROWS):
        row = start + tl.arange(0, ROWS)
        tl.store(places + row[:, None] * stride + size[None, :], nothing, row[:, None] < length)


@triton.jit
def _backward(
    queries, keys, values, lengths, seeds, found, sums, gradients, products, partial, to_queries, to_keys, to_values,
    length, stride, scale, back, spread, least,
    HEADS: tl.constexpr, SIZE: tl.constexpr, DROPS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """All gradients of one head of one text; those of padding are zero.

    ``products`` are the inner products of states and their gradients, over ``spread``. ``partial`` has the sums of the gradients
    of queries over the blocks of keys so far; the last block writes them out.
    """
    text, head, size = tl.program_id(1), tl.program_id(0), tl.arange(0, SIZE)
    tokens = tl.load(lengths + text)
    base = text.to(tl.int64) * length * stride + head * SIZE
    flat = text.to(tl.int64) * length * (HEADS * SIZE) + head * SIZE
    line = (text * HEADS + head) * length
    own = partial + line.to(tl.int64) * SIZE
    _multiply(gradients + flat, found + flat, products + line, tokens, spread, HEADS * SIZE, SIZE, ROWS)
    tl.debug_barrier()
    seed = tl.load(seeds).to(tl.uint32)
    for first in range(0, tokens, KEYS):
        column = first + tl.arange(0, KEYS)
        real = column < tokens
        place = column[:, None] * stride + size[None, :]
        key = tl.load(keys + base + place, real[:, None], 0.0)
        value = tl.load(values + base + place, real[:, None], 0.0)
        number = _key_number(column)
        to_key = tl.zeros((KEYS, SIZE), tl.float32)
        to_value = tl.zeros((KEYS, SIZE), tl.float32)
        for start in range(0, tokens, ROWS):
            row = start + tl.arange(0, ROWS)
            asks = row < tokens
            at = row[:, None] * stride + size[None, :]
            query = tl.load(queries + base + at, asks[:, None], 0.0)
            gradient = tl.load(gradients + flat + row[:, None] * (HEADS * SIZE) + size[None, :], asks[:, None], 0.0)
            log_sum = tl.load(sums + line + row, asks, 0.0)
            product = tl.load(products + line + row, asks, 0.0)
            sofar = own + row[:, None] * SIZE + size[None, :]
            energy = tl.dot(query, tl.trans(key))
            to_weight = tl.dot(gradient, tl.trans(value))
            # Keys of padding are zero, and so is what their weights add; these must be finite, so they are at most 1 too.
            weight = tl.exp2(tl.minimum(energy * scale - log_sum[:, None], 0.0))
            kept_weight = weight
            if DROPS:
                factor, term = _query_numbers(seed, line + row)
                kept_weight = tl.where(_kept(factor, term, number, least), weight, 0.0)
            to_energy = (kept_weight * to_weight - weight * product[:, None]).to(key.dtype)
            to_value = tl.dot(tl.trans(kept_weight.to(gradient.dtype)), gradient, to_value)
            to_key = tl.dot(tl.trans(to_energy), query, to_key)
            earlier = tl.load(sofar, asks[:, None] & (first > 0), 0.0)
            to_query = tl.dot(to_energy, key) * back + earlier
            if first + KEYS < tokens:
                tl.store(sofar, to_query, asks[:, None])
            else:
                tl.store(to_queries + base + at, to_query.to(to_queries.dtype.element_ty), asks[:, None])
        tl.store(to_keys + base + place, (to_key * back).to(to_keys.dtype.element_ty), real[:, None])
        tl.store(to_values + base + place, (to_value * spread).to(to_values.dtype.element_ty), real[:, None])
        tl.debug_barrier()  # the next block of keys reads what other threads have written
    _clear(to_queries + base, tokens, length, stride, SIZE, ROWS)
    _clear(to_keys + base, tokens, length, stride, SIZE, ROWS)
    _clear(to_values + base, tokens, length, stride, SIZE, ROWS)


def _numbers(scale: float, dropout: float) -> tuple[float, float, int]:
    """The scale of energies to base 2, the factor of kept weights, and the least random number of a kept weight (int32)."""
    return scale * _LOG2_E, 1 / (1 - dropout), min(round(dropout * 2**32), 2**32 - 1) - 2**31


def _states(
    parts: tuple[Tensor, ...], lengths: Tensor, seed: Tensor, stride: int, scale: float, dropout: float
) -> tuple[Tensor, Tensor]:
    """The states and the logarithms of sums; ``stride`` is the distance of tokens in memory, in all three parts."""
    query, key, value = parts
    batch, asked, heads, size = query.shape
    found = query.new_empty(query.shape)
    sums = query.new_empty(batch, heads, asked, dtype=torch.float32)
    rows, keys, warps, stages = _FORWARD
    rows = rows if asked > 16 else 16
    _forward[(-(-asked // rows), heads, batch)](
        query, key, value, lengths, seed, found, sums, asked, key.shape[1], stride, *_numbers(scale, dropout),
        HEADS=heads, SIZE=size, DROPS=dropout > 0, ROWS=rows, KEYS=keys, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return found, sums


def _differentiate(
    gradient: Tensor, parts: tuple[Tensor, ...], lengths: Tensor, seed: Tensor, found: Tensor, sums: Tensor,
    to_parts: tuple[Tensor, ...], stride: int, scale: float, dropout: float,
) -> None:  # fmt: skip
    """Write the gradients of queries, keys and values, which lie in memory as these do."""
    batch, length, heads, size = found.shape
    rows, keys, warps, stages, registers = _TILES[size]
    products = torch.empty_like(sums)
    partial = sums if length <= keys else sums.new_empty(batch, heads, length, size)  # one block of keys has no partial sums
    base_two, spread, least = _numbers(scale, dropout)
    limit = {"maxnreg": registers} if registers and torch.version.hip is None else {}  # an option of NVIDIA's compiler
    _backward[(heads, batch)](
        *parts, lengths, seed, found, sums, gradient, products, partial, *to_parts,
        length, stride, base_two, scale * spread, spread, least,
        HEADS=heads, SIZE=size, DROPS=dropout > 0, ROWS=rows, KEYS=keys,
        num_warps=warps, num_stages=stages, **limit,
    )  # fmt: skip


@torch.library.custom_op("polytag::attend", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, seed: Tensor, scale: float, dropout: float
) -> tuple[Tensor, Tensor]:
    return _states((query, key, value), lengths, seed, query.shape[2] * query.shape[3], scale, dropout)


@_attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, seed: Tensor, scale: float, dropout: float
) -> tuple[Tensor, Tensor]:
    batch, asked, heads, _ = query.shape
    return query.new_empty(query.shape), query.new_empty(batch, heads, asked, dtype=torch.float32)


@torch.library.custom_op("polytag::attend_backward", mutates_args=())
def _attend_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, seed: Tensor, found: Tensor, sums: Tensor,
    scale: float, dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    to_query, to_key, to_value = (torch.empty_like(part) for part in (query, key, value))
    stride = query.shape[2] * query.shape[3]
    _differentiate(
        gradient, (query, key, value), lengths, seed, found, sums, (to_query, to_key, to_value), stride, scale, dropout
    )
    return to_query, to_key, to_value


@_attend_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, seed: Tensor, found: Tensor, sums: Tensor,
    scale: float, dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *kept, ctx.scale, ctx.dropout = inputs
    ctx.save_for_backward(*kept, *output)


def _gradients(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    found = _attend_backward(gradient.contiguous(), *ctx.saved_tensors, ctx.scale, ctx.dropout)
    return (*found, None, None, None, None)


_attend.register_autograd(_gradients, setup_context=_keep)


@torch.library.custom_op("polytag::attend_packed", mutates_args=())
def _attend_packed(qkv: Tensor, lengths: Tensor, seed: Tensor, scale: float, dropout: float) -> tuple[Tensor, Tensor]:
    return _states(qkv.unbind(2), lengths, seed, 3 * qkv.shape[3] * qkv.shape[4], scale, dropout)


@_attend_packed.register_fake
def _(qkv: Tensor, lengths: Tensor, seed: Tensor, scale: float, dropout: float) -> tuple[Tensor, Tensor]:
    batch, length, _, heads, size = qkv.shape
    return qkv.new_empty(batch, length, heads, size), qkv.new_empty(batch, heads, length, dtype=torch.float32)


@torch.library.custom_op("polytag::attend_packed_backward", mutates_args=())
def _attend_packed_backward(
    gradient: Tensor, qkv: Tensor, lengths: Tensor, seed: Tensor, found: Tensor, sums: Tensor, scale: float, dropout: float
) -> Tensor:
    to_qkv, stride = torch.empty_like(qkv), 3 * qkv.shape[3] * qkv.shape[4]
    _differentiate(gradient, qkv.unbind(2), lengths, seed, found, sums, to_qkv.unbind(2), stride, scale, dropout)
    return to_qkv


@_attend_packed_backward.register_fake
def _(
    gradient: Tensor, qkv: Tensor, lengths: Tensor, seed: Tensor, found: Tensor, sums: Tensor, scale: float, dropout: float
) -> Tensor:
    return torch.empty_like(qkv)


def _packed_gradients(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    found = _attend_packed_backward(gradient.contiguous(), *ctx.saved_tensors, ctx.scale, ctx.dropout)
    return found, None, None, None, None


_attend_packed.register_autograd(_packed_gradients, setup_context=_keep)


def _seed(lengths: Tensor, dropout: float) -> Tensor:
    return torch.randint(0, 2**31 - 1, (1,), dtype=torch.int32, device=lengths.device) if dropout else lengths[:1]


def attend(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, scale: float, dropout: float = 0.0) -> Tensor:
    """The attention of queries over the tokens of their texts, all (batch, length, heads, size); ``lengths`` is (batch,) int32.

    The states of padding have no meaning. With gradients there must be one query per token. ``scale`` is positive.
    """
    parts = query.contiguous(), key.contiguous(), value.contiguous()
    found: Tensor = _attend(*parts, lengths, _seed(lengths, dropout), scale, dropout)[0]
    return found


def attend_packed(qkv: Tensor, lengths: Tensor, scale: float, dropout: float = 0.0) -> Tensor:
    """The attention of ``attend``, from queries, keys and values in one tensor (batch, length, 3, heads, size).

    The gradient is one tensor, too.
    """
    found: Tensor = _attend_packed(qkv.contiguous(), lengths, _seed(lengths, dropout), scale, dropout)[0]
    return found
