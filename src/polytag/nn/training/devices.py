"""Choice of the device and of the precision; what a forked process may use."""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from polytag.errors import ConfigError


def _use_one_thread() -> None:
    """The threads of the parent do not exist in a forked process, and torch would wait for them without end."""
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread)
_PATIENCE = 5.0  # seconds for one product in another process
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


def pick_precision(name: str, device: torch.device, network: nn.Module | None = None) -> torch.dtype | None:
    """The type of matrix products, or None for float32.

    ``auto`` is bf16 on a GPU that supports it, else fp16. On a CPU it is bf16 for a ``network`` that gains by it, if the
    processor multiplies in bf16, else float32.
    """
    if name == "bf16" and device.type == "cpu" and ended_by_bf16():
        raise ConfigError("this processor announces products in bf16 and fails at them; set precision to 'auto' or 'fp32'")
    if name != "auto":
        return _TYPES[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    gains = network is not None and any(getattr(module, "gains_by_bf16", False) for module in network.modules())
    return torch.bfloat16 if device.type == "cpu" and gains and multiplies_in_bf16() else None


@functools.cache
def multiplies_in_bf16() -> bool:
    """Whether this processor has products in bf16, and oneDNN is allowed to use them."""
    found = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    return found and _allowed("BF16", "FP16", "AMX") and not ended_by_bf16()


@functools.cache
def ended_by_bf16() -> bool:
    """Whether a product in bf16 ends the process: some virtual machines announce the tiles of AMX, and do not have them."""
    return _has_tiles() and not survives(_product_in_bf16)


def multiplies_in_tiles() -> bool:
    """Whether products in bf16 use the tiles of AMX, and oneDNN is allowed to use them."""
    return _has_tiles() and _allowed("AMX") and multiplies_in_bf16()


def _has_tiles() -> bool:
    return bool(getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)())


def _allowed(*parts: str) -> bool:
    """Whether oneDNN may use instructions with one of these names."""
    most = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    return any(part in most for part in ("ALL", "DEFAULT", *parts))


def _product_in_bf16() -> None:
    ones = torch.ones((64, 64), dtype=torch.bfloat16)
    ones @ ones


def _leave_no_core() -> None:
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def survives(work: Callable[[], None]) -> bool:
    """Whether a forked process ends well that does this; True where processes cannot be forked."""
    if not hasattr(os, "fork"):
        return True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the child runs none of ours
        child = os.fork()
    if not child:
        code = 1
        try:
            faulthandler.disable()  # an expected end is no news
            _leave_no_core()
            work()
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


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
