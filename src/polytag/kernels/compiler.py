"""numba's compiler, through which every kernel goes: it always compiles, and its cache has a folder that can be written to.

By default numba keeps compiled code next to the source, or in the user's cache folder. In a container neither may be writable.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba import config
from numba.core.caching import UserProvidedCacheLocator
from numba.core.runtime import rtsys

if config.CPU_NAME and config.CPU_FEATURES is None:
    config.CPU_FEATURES = ""  # those of the named processor; numba would add what the processor of this machine can do

_TRIED = ("0.68.",)  # versions of numba whose cache can be read without the compiler's tables
KERNELS: dict[str, tuple[Any, str]] = {}
"""The kernels that Python calls and the modules imported so far have: a compiled function and its signature, by full name."""


def kernel(signature: str, *, fastmath: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """A function that Python calls: compiled for this signature when it is first called, stored on disk, without the GIL.

    Callers pass contiguous, writeable arrays of exactly these types. Others would be compiled for anew, which takes a second or
    more; ``polytag warm`` compiles the signatures, and a test counts what each verb compiles.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        found = _quick_to_load(njit(nogil=True, cache=True, fastmath=fastmath)(function))
        KERNELS[f"{function.__module__}.{function.__name__}"] = found, signature
        return found

    return compiled


def njit(*, nogil: bool = False, cache: bool = False, fastmath: bool = False, inline: str = "never") -> Any:
    """``numba.njit``, also where NUMBA_DISABLE_JIT is set: vector instructions have no form in Python.

    Without ``cache`` it is a part of kernels, which Python does not call: it has no wrapper for that.
    """
    options = {"nogil": nogil, "fastmath": fastmath, "inline": inline, "no_cfunc_wrapper": True}

    def compiled(function: Callable[..., Any]) -> Any:
        with _setting("DISABLE_JIT", 0):
            if not cache:
                return numba.njit(no_cpython_wrapper=True, **options)(function)
            if _is_read_only(config.CACHE_DIR):
                try:
                    return _only_read(function, options)
                except RuntimeError:  # nothing was compiled for this file
                    pass
            if _default_folder():
                try:
                    return numba.njit(cache=True, **options)(function)
                except RuntimeError:  # numba has no folder for this file
                    pass
            folder = own_folder()
            with _setting("CACHE_DIR", folder or ""):
                return numba.njit(cache=folder is not None, **options)(function)

    return compiled


class ReadOnlyFolder(UserProvidedCacheLocator):  # type: ignore[misc]  # numba has no types
    """The folder that NUMBA_CACHE_DIR names, where it was filled before and cannot be written to, as in a container."""

    def ensure_cache_path(self) -> None:
        """Raise an error if there is nothing to read."""
        if not os.path.isdir(self.get_cache_path()):
            raise FileNotFoundError(self.get_cache_path())


def _is_read_only(folder: str) -> bool:
    """Whether a folder can be read and not written to; older versions of numba cannot use one."""
    readable = bool(folder) and os.path.isdir(folder) and not os.access(folder, os.W_OK)
    return readable and hasattr(config, "CACHE_LOCATOR_CLASSES")


def _only_read(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """A function whose compiled code is loaded from a folder that is never written to."""
    with _setting("CACHE_LOCATOR_CLASSES", f"{__name__}.{ReadOnlyFolder.__name__}"):
        found = numba.njit(cache=True, **options)(function)
    found._cache.save_overload = lambda *_: None
    return found


def _quick_to_load(found: Any) -> Any:
    """A compiled function that is loaded from the cache without the compiler's tables, which take a third of a second to fill.

    numba fills them before it looks into the cache; only a compilation needs them, and fills them itself. Loaded code needs the
    runtime alone. This is not documented, so it is done for versions that were tried.
    """
    cache = found._cache
    if not numba.__version__.startswith(_TRIED) or not hasattr(cache, "_load_overload"):
        return found

    def load_overload(signature: Any, target: Any) -> Any:
        rtsys.initialize(target)
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, target)

    cache.load_overload = load_overload
    return found


def host_cpu() -> str:
    """The LLVM name of the processor that numba compiles for."""
    return str(config.CPU_NAME or binding.get_host_cpu_name())


@contextmanager
def _setting(name: str, value: Any) -> Iterator[None]:
    """Change a setting of numba while a function is decorated; other code keeps its own."""
    before = getattr(config, name)
    setattr(config, name, value)
    try:
        yield
    finally:
        setattr(config, name, before)


def _default_folder() -> bool:
    """Whether numba may choose the folder; for a user without a home it would make a folder ``~`` in the working directory."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~")
    return bool(config.CACHE_DIR) or os.path.isabs(home) or os.access(Path(__file__).parent, os.W_OK)


def own_folder() -> str | None:
    """A folder of this user below the temporary one; None if there is none that only this user can write to.

    numba unpickles what it finds there, so nobody else may have put it there.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"polytag-numba-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except (OSError, AttributeError):  # no temporary folder, or a system without user numbers
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return str(folder) if private and os.access(folder, os.W_OK) else None
