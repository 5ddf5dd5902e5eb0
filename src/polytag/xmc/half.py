"""Half precision for numba, which has no arithmetic for it on processors: numbers are kept as 16 bits and widened when read."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD = ir.IntType(32)
_SCALE = 2.0**112  # between the exponents of half and of single precision


@intrinsic  # type: ignore[untyped-decorator]
def as_single(typingctx: Any, value: Any) -> Any:
    """A float32 from the 16 bits of a finite half (as uint16); a float32 passes through."""
    if value == types.float32:
        return types.float32(value), lambda context, builder, signature, args: args[0]
    assert value == types.uint16

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.zext(args[0], _WORD)
        magnitude = builder.shl(builder.and_(bits, ir.Constant(_WORD, 0x7FFF)), ir.Constant(_WORD, 13))
        sign = builder.shl(builder.and_(bits, ir.Constant(_WORD, 0x8000)), ir.Constant(_WORD, 16))
        small = builder.bitcast(builder.or_(magnitude, sign), ir.FloatType())
        return builder.fmul(small, ir.Constant(ir.FloatType(), _SCALE))

    return types.float32(value), code
