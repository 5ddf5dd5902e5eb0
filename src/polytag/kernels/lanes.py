"""Vector instructions for numba that compare sixteen int32 values at once; LLVM splits them to the processor's width."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
_WORD, _LONG = ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, LANES)


def _lanes_at(builder: Any, pointer: Any, place: Any) -> Any:
    """Load sixteen values from this position."""
    found = builder.load(builder.bitcast(builder.gep(pointer, [place]), _VECTOR.as_pointer()))
    found.align = 4
    return found


def _broadcast(builder: Any, value: Any) -> Any:
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(single, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(_VECTOR, [0] * LANES))


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


@intrinsic  # type: ignore[untyped-decorator]
def count_from(typingctx: Any, numbers: Any, size: Any, limit: Any) -> Any:
    """Count the values >= limit among the first ``size``, a multiple of 16."""
    assert numbers.dtype == types.int32 and numbers.layout == "C"

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, limits = _data(context, builder, numbers, args[0]), _broadcast(builder, args[2])
        total = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0] * LANES))
        with cgutils.for_range_slice(builder, ir.Constant(_LONG, 0), args[1], ir.Constant(_LONG, LANES), _LONG) as (place, _):
            reached = builder.icmp_signed(">=", _lanes_at(builder, pointer, place), limits)
            builder.store(builder.sub(builder.load(total), builder.sext(reached, _VECTOR)), total)
        found = builder.load(total)
        parts = [builder.extract_element(found, ir.Constant(_WORD, lane)) for lane in range(LANES)]
        while len(parts) > 1:
            parts = [builder.add(left, right) for left, right in zip(parts[::2], parts[1::2], strict=True)]
        return builder.sext(parts[0], _LONG)

    return types.int64(numbers, types.int64, types.int32), code


@intrinsic  # type: ignore[untyped-decorator]
def lanes_from(typingctx: Any, numbers: Any, place: Any, limit: Any) -> Any:
    """A bit mask of the values >= limit among the sixteen from this position."""
    assert numbers.dtype == types.int32 and numbers.layout == "C"

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = _lanes_at(builder, _data(context, builder, numbers, args[0]), args[1])
        reached = builder.icmp_signed(">=", found, _broadcast(builder, args[2]))
        return builder.zext(builder.bitcast(reached, ir.IntType(LANES)), _LONG)

    return types.int64(numbers, types.int64, types.int32), code


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(typingctx: Any, bits: Any) -> Any:
    """The index of the lowest bit that is set; at least one must be."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), code
