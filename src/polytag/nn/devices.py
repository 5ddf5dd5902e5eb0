"""Which device computes, and how precisely."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from polytag.errors import ConfigError

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("auto", "fp32", "bf16", "fp16")
_TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(name: str) -> torch.device:
    """The device asked for; ``auto`` takes a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda' but torch finds no GPU; set it to 'auto' or 'cpu'")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def pick_precision(name: str, device: torch.device) -> torch.dtype | None:
    """The type that matrix products are done in, or None for float32; ``auto`` takes bf16, else fp16, on a GPU."""
    if name != "auto":
        return _TYPES[name]
    if device.type != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def autocast(device: torch.device, dtype: torch.dtype | None) -> torch.autocast:
    """The context in which a forward pass is made."""
    return torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


@contextmanager
def quick_products(device: torch.device, dtype: torch.dtype | None) -> Iterator[None]:
    """Inside, a GPU may round what goes into float32 products to TF32, where products in less than float32 were asked for.

    That is for what stays in float32 beside them, forward and backward: TF32 has more digits than bf16, and as many as fp16.
    """
    if device.type != "cuda" or dtype is None:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
