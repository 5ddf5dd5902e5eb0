"""Choice of the device and of the precision; what a forked process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from polytag.errors import ConfigError


def _use_one_thread() -> None:
    """The threads of the parent do not exist in a forked process, and torch would wait for them without end."""
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread)
_TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(name: str) -> torch.device:
    """The device of this name; ``auto`` is a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda' but torch finds no GPU; set it to 'auto' or 'cpu'")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if torch.cuda._is_in_bad_fork():
        raise ConfigError("a forked process cannot use the GPU; start processes with 'spawn', or set device to 'cpu'")
    return torch.device("cuda", torch.cuda.current_device())


def pick_precision(name: str, device: torch.device) -> torch.dtype | None:
    """The type of matrix products, or None for float32; on a GPU, ``auto`` is bf16 if supported, else fp16."""
    if name != "auto":
        return _TYPES[name]
    if device.type != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def autocast(device: torch.device, dtype: torch.dtype | None) -> torch.autocast:
    """The autocast context of a forward pass."""
    return torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


@contextmanager
def quick_products(device: torch.device, dtype: torch.dtype | None) -> Iterator[None]:
    """Inside, a GPU may round the inputs of float32 products to TF32, if the precision ``dtype`` is below float32.

    This affects the products that autocast leaves in float32, forward and backward. The mantissa of TF32 is longer than that of
    bf16, and as long as that of fp16.
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
