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
from numba import config


def njit(*, nogil: bool = False, cache: bool = False, fastmath: bool = False, inline: str = "never") -> Any:
    """``numba.njit``, also where NUMBA_DISABLE_JIT is set: vector instructions have no form in Python."""
    options = {"nogil": nogil, "fastmath": fastmath, "inline": inline}

    def compiled(function: Callable[..., Any]) -> Any:
        with _setting("DISABLE_JIT", 0):
            if not cache:
                return numba.njit(**options)(function)
            if _default_folder():
                try:
                    return numba.njit(cache=True, **options)(function)
                except RuntimeError:  # numba has no folder for this file
                    pass
            folder = own_folder()
            with _setting("CACHE_DIR", folder or ""):
                return numba.njit(cache=folder is not None, **options)(function)

    return compiled


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
