"""Half precision for numba, which has no float16 arithmetic on CPUs: values are stored as 16 bits and converted on load."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD = ir.IntType(32)
_SCALE = 2.0**112  # the difference of the exponent biases of single and half precision


@intrinsic  # type: ignore[untyped-decorator]
def as_single(typingctx: Any, value: Any) -> Any:
    """Convert the 16 bits of a finite float16 (a uint16) to float32; a float32 is returned unchanged."""
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
