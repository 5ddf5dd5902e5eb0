"""Vector instructions for numba: products of sparse rows with blocks of 16 float32 columns.

numba does not vectorise ``for j in range(16): m[j] += v * w[f, j]``, because ``m`` and ``w`` might overlap. These intrinsics
emit LLVM vectors of 16 floats. LLVM splits them to the processor's width: one AVX-512 register, two AVX, four SSE or NEON.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

WIDTH = 16
_REGISTERS = 4  # vectors that are accumulated at a time
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, WIDTH)
_LONG = ir.IntType(64)


def aligned_zeros(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """An array of zeros aligned to a cache line, so that sixteen values never cross two lines."""
    size, line = math.prod(shape), 64
    room = np.zeros(size + line // 4, dtype=np.float32)
    skipped = -room.ctypes.data % line // 4
    return room[skipped : skipped + size].reshape(shape)


def _arrays(context: Any, builder: Any, signature: Any, args: Any, count: int) -> list[Any]:
    """The data pointers of the first ``count`` arguments, which are arrays."""
    return [context.make_array(signature.args[k])(context, builder, args[k]).data for k in range(count)]


def _broadcast(builder: Any, value: Any) -> Any:
    """A vector with the value in every lane."""
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(
        single, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    )


def _vector_at(builder: Any, pointer: Any, row: Any) -> Any:
    """A vector pointer to the start of row ``row`` of a (rows, WIDTH) array."""
    start = builder.gep(pointer, [builder.mul(row, ir.Constant(_LONG, WIDTH))])
    return builder.bitcast(start, _VECTOR.as_pointer())


def _aligned(instruction: Any) -> Any:
    instruction.align = 4  # rows of a numpy array are guaranteed the alignment of a float only
    return instruction


def _multiply_add(builder: Any, left: Any, right: Any, total: Any) -> Any:
    """``left * right + total`` in each lane, fused if the processor supports it."""
    return builder.fadd(builder.fmul(left, right, flags=("contract",)), total, flags=("contract",))


def _entry(builder: Any, indices: Any, data: Any, place: Any) -> tuple[Any, Any]:
    """Column index and broadcast value of one entry of a sparse row."""
    column = builder.zext(builder.load(builder.gep(indices, [place])), _LONG)
    return column, _broadcast(builder, builder.load(builder.gep(data, [place])))


def _check(indices: Any, data: Any, *blocks: Any) -> None:
    assert indices.dtype == types.int32 and data.dtype == types.float32
    assert all(block.dtype == types.float32 and block.layout == "C" for block in blocks)


@intrinsic  # type: ignore[untyped-decorator]
def row_times_block(typingctx: Any, out: Any, block: Any, indices: Any, data: Any, first: Any, last: Any) -> Any:
    """``out[:] += sum(data[p] * block[indices[p], :] for p in range(first, last))`` for 16 columns."""
    _check(indices, data, out, block)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out_at, block_at, indices_at, data_at = _arrays(context, builder, signature, args, 4)
        out_at = builder.bitcast(out_at, _VECTOR.as_pointer())
        total = cgutils.alloca_once_value(builder, _aligned(builder.load(out_at)))
        with cgutils.for_range_slice(builder, args[4], args[5], ir.Constant(_LONG, 1), _LONG) as (place, _):
            column, value = _entry(builder, indices_at, data_at, place)
            row = _aligned(builder.load(_vector_at(builder, block_at, column)))
            builder.store(_multiply_add(builder, value, row, builder.load(total)), total)
        _aligned(builder.store(builder.load(total), out_at))
        return context.get_dummy_value()

    return types.void(out, block, indices, data, types.int64, types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def add_to_block(typingctx: Any, block: Any, step: Any, indices: Any, data: Any, first: Any, last: Any) -> Any:
    """``block[indices[p], :] += data[p] * step[:] for p in range(first, last)`` for 16 columns."""
    _check(indices, data, block, step)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block_at, step_at, indices_at, data_at = _arrays(context, builder, signature, args, 4)
        step_value = _aligned(builder.load(builder.bitcast(step_at, _VECTOR.as_pointer())))
        with cgutils.for_range_slice(builder, args[4], args[5], ir.Constant(_LONG, 1), _LONG) as (place, _):
            column, value = _entry(builder, indices_at, data_at, place)
            row_at = _vector_at(builder, block_at, column)
            new = _multiply_add(builder, value, step_value, _aligned(builder.load(row_at)))
            _aligned(builder.store(new, row_at))
        return context.get_dummy_value()

    return types.void(block, step, indices, data, types.int64, types.int64), code


def _add_columns(builder: Any, out: Any, block: Any, width: Any, chosen: Any, first: Any, vectors: int) -> None:
    """Add the chosen rows of a block to the row at ``out``, for ``vectors`` * 16 columns from ``first``."""
    rows, values, count = chosen
    places = [builder.add(first, ir.Constant(_LONG, WIDTH * k)) for k in range(vectors)]
    targets = [builder.bitcast(builder.gep(out, [place]), _VECTOR.as_pointer()) for place in places]
    totals = [cgutils.alloca_once_value(builder, _aligned(builder.load(target))) for target in targets]
    with cgutils.for_range_slice(builder, ir.Constant(_LONG, 0), count, ir.Constant(_LONG, 1), _LONG) as (p, _):
        row, value = _entry(builder, rows, values, p)
        source = builder.gep(block, [builder.mul(row, width)])
        for place, total in zip(places, totals, strict=True):
            weights = _aligned(builder.load(builder.bitcast(builder.gep(source, [place]), _VECTOR.as_pointer())))
            builder.store(_multiply_add(builder, value, weights, builder.load(total)), total)
    for target, total in zip(targets, totals, strict=True):
        _aligned(builder.store(builder.load(total), target))


@intrinsic  # type: ignore[untyped-decorator]
def add_rows(typingctx: Any, out: Any, at: Any, block: Any, rows: Any, values: Any, count: Any) -> Any:
    """``out[at, :] += sum(values[p] * block[rows[p], :] for p in range(count))``, in that order.

    Both arrays have the same width, a multiple of 16; at most 64 columns are in registers at a time.
    """
    _check(rows, values, out, block)
    assert out.ndim == block.ndim == 2

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        width = cgutils.unpack_tuple(builder, context.make_array(out)(context, builder, args[0]).shape)[1]
        out_at, block_at, rows_at, values_at = (
            context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 2, 3, 4)
        )
        out_at, chosen = builder.gep(out_at, [builder.mul(args[1], width)]), (rows_at, values_at, args[5])
        most = ir.Constant(_LONG, _REGISTERS * WIDTH)
        rest = builder.urem(width, most)
        whole = builder.sub(width, rest)
        with cgutils.for_range_slice(builder, ir.Constant(_LONG, 0), whole, most, _LONG) as (first, _):
            _add_columns(builder, out_at, block_at, width, chosen, first, _REGISTERS)
        for vectors in range(1, _REGISTERS):
            with builder.if_then(builder.icmp_unsigned("==", rest, ir.Constant(_LONG, vectors * WIDTH))):
                _add_columns(builder, out_at, block_at, width, chosen, whole, vectors)
        return context.get_dummy_value()

    return types.void(out, types.int64, block, rows, values, types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def expect_row(typingctx: Any, out: Any, at: Any) -> Any:
    """Prefetch ``out[at, :]`` for writing, which hides the memory latency."""
    assert out.dtype == types.float32 and out.layout == "C" and out.ndim == 2

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(out)(context, builder, args[0])
        width, word, byte = cgutils.unpack_tuple(builder, array.shape)[1], ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        row = builder.gep(array.data, [builder.mul(args[1], width)])
        write, near, data = (ir.Constant(word, number) for number in (1, 3, 1))
        with cgutils.for_range_slice(builder, ir.Constant(_LONG, 0), width, ir.Constant(_LONG, WIDTH), _LONG) as (column, _):
            builder.call(prefetch, [builder.bitcast(builder.gep(row, [column]), byte), write, near, data])
        return context.get_dummy_value()

    return types.void(out, types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def expect(typingctx: Any, array: Any, at: Any) -> Any:
    """Prefetch ``array[at]`` for reading; any place is allowed, since nothing is read."""
    assert array.layout == "C" and array.ndim == 1

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        place = builder.gep(context.make_array(array)(context, builder, args[0]).data, [args[1]])
        builder.call(prefetch, [builder.bitcast(place, byte), *(ir.Constant(word, number) for number in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def multiply_add(typingctx: Any, left: Any, right: Any, total: Any) -> Any:
    """``left * right + total`` of float32, fused if the processor supports it, as in the vector instructions above."""
    assert left == right == total == types.float32

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _multiply_add(builder, *args)

    return types.float32(left, right, total), code
