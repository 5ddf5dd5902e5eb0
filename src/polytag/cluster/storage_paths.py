"""Files on this machine and in object stores, both through fsspec, which Ray and Spark use too."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polytag.errors import ConfigError, DataError

_LOCAL = "file"


def file_system(path: str) -> tuple[Any, str]:
    """The file system of a path such as ``s3://bucket/folder``, and the path in it; paths without a scheme are local."""
    fsspec = _fsspec()
    try:
        system, inner = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{path} cannot be reached ({error}); install what its scheme needs, as s3fs for s3://") from None
    return system, inner


def matching(pattern: str) -> list[str]:
    """The files that a path or a pattern names, sorted, with their scheme; an error if there are none."""
    system, inner = file_system(pattern)
    found = [inner]
    if any(sign in inner for sign in "*?["):
        found = sorted(path for path in system.glob(inner) if not _hidden(path))
    elif system.isdir(inner):
        found = sorted(path for path in system.ls(inner, detail=False) if not _hidden(path))
    found = [path for path in found if system.isfile(path)]
    if not found:
        raise DataError(f"{pattern}: there is no such file; name a file, a folder or a pattern such as 'in/*.parquet'")
    return [system.unstrip_protocol(path) if _LOCAL not in _protocols(system) else path for path in found]


def local_copy(path: str, folder: Path) -> Path:
    """A file on this machine: itself, or its copy in a folder."""
    system, inner = file_system(path)
    if _LOCAL in _protocols(system):
        return Path(inner)
    copy = folder / Path(inner).name
    system.get_file(inner, str(copy))
    return copy


def publish(made: Path, path: str) -> None:
    """Give a finished local file its final name; nobody ever sees a part of it."""
    system, inner = file_system(path)
    system.makedirs(system._parent(inner), exist_ok=True)
    if _LOCAL not in _protocols(system):
        system.put_file(str(made), inner)  # object stores show a file when all of it is there
        return
    beside = Path(inner).with_name(f".{Path(inner).name}.{made.parent.name}")
    try:
        beside.write_bytes(made.read_bytes())
        beside.replace(inner)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise DataError(f"{inner}: cannot be written ({error.strerror})") from None


def names_in(folder: str) -> set[str]:
    """The names of the files in a folder; none if it does not exist."""
    system, inner = file_system(folder)
    if not system.isdir(inner):
        return set()
    return {Path(path).name for path in _fresh(system, inner)}


def _fresh(system: Any, inner: str) -> Iterator[str]:
    system.invalidate_cache()
    yield from system.ls(inner, detail=False)


def _hidden(path: str) -> bool:
    return Path(path).name.startswith((".", "_"))


def _protocols(system: Any) -> tuple[str, ...]:
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)


def _fsspec() -> Any:
    try:
        return importlib.import_module("fsspec")
    except ModuleNotFoundError:
        raise ConfigError("a cluster needs the package 'fsspec'; install polytag[cluster]") from None
