"""Forged artefacts: every part of a state that a schema names, made wrong in every way that its type allows.

A forgery is made of an artefact's encoded state (a tree of JSON values, and arrays by their places in it) and has correct
checksums, as an attacker would write it.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polytag.config.settings import declared
from polytag.models.model import model_class
from polytag.storage.array_files import file_chunks
from polytag.storage.artefact import FORMAT, MANIFEST, read_artefact
from polytag.storage.state_json import encode

HUGE = 10**400
DEEP = 100_000
DTYPES = ("float64", "float32", "float16", "int64", "int32", "int8", "uint64", "uint32", "uint16", "uint8", "bool")
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 2**16, 2**31, 2**31 - 1, 2**32, 2**62, 2**63, 2**64, HUGE, -HUGE, 0.5, -1e308, 1e308,
    {"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}, {"$float": []}, {"$float": "x"}, "", "x", "\ud800", "x" * 10_000,
    [], [[]], [1], [1, 2], {}, {"$state": []}, {"$state": {}}, {"$array": "/nowhere"}, {"$array": []}, {"$csr": "/nowhere"},
    {"$csr": "/nowhere", "shape": [1, 1]}, {"a": 1},
)  # fmt: skip


class Forgery(NamedTuple):
    """What was done, and a function that makes the files of the forged artefact, by name: most are counted, and few are tried."""

    what: str
    files: Callable[[], dict[str, bytes]]


class Original(NamedTuple):
    """A sound artefact, encoded."""

    tree: dict[str, Any]
    arrays: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Original:
        """From an artefact's folder."""
        tree, arrays = encode(read_artefact(folder))
        return cls(tree, {name: np.array(array) for name, array in arrays.items()})


def written(tree: Any, arrays: dict[str, Any], change: Callable[[bytes], bytes] = bytes) -> dict[str, bytes]:
    """The files of an artefact with correct checksums; ``change`` may alter the file of the arrays before they are made."""
    raw = change(b"".join(bytes(chunk) for chunk in file_chunks(arrays)))
    digest = hashlib.sha256(raw).hexdigest()
    name = f"arrays-{digest[:12]}.safetensors"
    return {name: raw, MANIFEST: manifest(tree, [{"name": name, "bytes": len(raw), "sha256": digest}])}


def manifest(tree: Any, files: Any, format: Any = FORMAT) -> bytes:
    """The sealed manifest."""
    parts = {"format": format, "polytag": "0.1.0", "files": files, "state": tree}
    body = (",\n".join(f'"{key}": {text(part)}' for key, part in parts.items()) + "\n}\n").encode("utf-8", "surrogatepass")
    return f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode() + body


def text(value: Any) -> str:
    """JSON, with numbers of any size."""
    return json.dumps(value, allow_nan=True)


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value of a tree that is no array, tables and lists included, with its path."""
    yield path, tree
    if isinstance(tree, dict) and not any(key in tree for key in ("$array", "$csr", "$float")):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list) and len(tree) <= 16:
        for number, value in enumerate(tree):
            yield from leaves(value, (*path, number))


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The tree with another value at a path."""
    if not path:
        return value
    found = copy.copy(tree)
    found[path[0]] = replaced(tree[path[0]], path[1:], value)
    return found


def removed(tree: Any, path: tuple[Any, ...]) -> Any:
    """The tree without what is at a path."""
    found = copy.copy(tree)
    if len(path) == 1:
        del found[path[0]]
    else:
        found[path[0]] = removed(tree[path[0]], path[1:])
    return found


def forged_values(original: Original) -> Iterator[Forgery]:
    """Every value of the tree replaced by every other, removed, or with a neighbour."""
    for path, value in leaves(original.tree):
        where = "/".join(map(str, path))
        for other in VALUES:
            if other != value or type(other) is not type(value):
                tree = replaced(original.tree, path, other)
                yield Forgery(f"{where} = {text(other)[:40]}", partial(written, tree, original.arrays))
        if path:
            yield Forgery(f"{where} removed", partial(written, removed(original.tree, path), original.arrays))
        if isinstance(value, dict):
            tree = replaced(original.tree, path, {**value, "more": 1})
            yield Forgery(f"{where} has more", partial(written, tree, original.arrays))


def forged_settings(original: Original) -> Iterator[Forgery]:
    """Every setting of the model at the limits of its range, beyond them, and at each of its choices."""
    options = original.tree["options"]
    for setting in declared(model_class(original.tree["model"])).values():
        values = [*setting.choices, setting.minimum, setting.maximum, [], ["x"], [2**40], 2**40, 1e300, "words", "bilstm"]
        for value in [value for value in values if value is not None]:
            tree = replaced(original.tree, ("options",), {**options, setting.name: value})
            yield Forgery(f"setting {setting.name} = {text(value)[:40]}", partial(written, tree, original.arrays))


def forged_arrays(original: Original) -> Iterator[Forgery]:
    """Every array with another type, rank, size or order, and with extreme values."""
    for place, array in original.arrays.items():
        for what, other in wrong_arrays(array):
            yield Forgery(f"{place} {what}", partial(written, original.tree, {**original.arrays, place: other}))
        others = dict(original.arrays)
        del others[place]
        yield Forgery(f"{place} removed", partial(written, original.tree, others))


def wrong_arrays(array: Any) -> Iterator[tuple[str, Any]]:
    """Other arrays in the place of one."""
    for dtype in DTYPES:
        if dtype != array.dtype.name:
            with np.errstate(all="ignore"):
                yield f"as {dtype}", array.astype(dtype)
    yield "flat", np.ascontiguousarray(array.reshape(-1))[None]
    yield "of rank 0", np.zeros((), dtype=array.dtype)
    yield "empty", array[:0] if array.ndim else array
    if not array.size:
        return
    array = np.atleast_1d(array)
    yield "shorter", np.ascontiguousarray(array[:-1])
    yield "longer", np.concatenate([array, array[-1:]])
    yield "doubled", np.concatenate([array, array])
    yield "reversed", np.ascontiguousarray(array[::-1])
    yield "all equal", np.full_like(array, array.flat[0])
    extremes: list[Any] = [0, 1]
    if array.dtype.kind == "f":
        extremes += [np.nan, np.inf, -np.inf, np.finfo(array.dtype).max]
    elif array.dtype.kind in "iu":
        low, high = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max
        extremes += [low, high, high - 1, high // 2 + 1, array.size, array.size + 1, array.size - 1]
    for extreme in extremes:
        for where in (0, array.size // 2, array.size - 1):
            other = array.copy()
            with np.errstate(all="ignore"):
                other.flat[where] = np.array(extreme).astype(array.dtype)
            yield f"[{where}] = {extreme}", other


def forged_headers(original: Original) -> Iterator[Forgery]:
    """The header of the array file: its length, its JSON, and every entry's type, shape and offsets."""
    raw = b"".join(bytes(chunk) for chunk in file_chunks(original.arrays))
    length = int.from_bytes(raw[:8], "little")
    header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]

    def file(header: Any) -> bytes:
        new = (header if isinstance(header, bytes) else json.dumps(header).encode()) + b""
        new += b" " * (-len(new) % 8)
        return len(new).to_bytes(8, "little") + new + body

    def forged(what: str, made: bytes) -> Forgery:
        return Forgery(what, partial(written, original.tree, original.arrays, lambda _: made))

    for size in (0, 1, 7, 8, length - 1, length + 1, len(raw), 2**31, 2**63, 2**64 - 1):
        yield forged(f"header of {size} bytes", size.to_bytes(8, "little") + raw[8:])
    for what, other in (("list", []), ("number", 1), ("nested", b"[" * DEEP), ("nested tables", b'{"a":' * DEEP), ("empty", {})):
        yield forged(f"header is {what}", file(other))
    for name, entry in list(header.items())[:12]:
        begin, end = entry["data_offsets"]
        for key, values in (
            ("dtype", ["F8", "BF16", "", None, 1, []]),
            ("shape", [[], [2**62], [0, 2**62], [-1], [1.5], ["1"], None, [True], [[1]], 1]),
            (
                "data_offsets",
                [[begin + 1, end + 1], [end, begin], [-1, end], [begin, 2**63], [begin], [], None, [0, HUGE], [0.5, 1]],
            ),
        ):
            for value in values:
                yield forged(f"header {name} {key} = {text(value)[:30]}", file({**header, name: {**entry, key: value}}))
        yield forged(f"header {name} removed", file({other: header[other] for other in header if other != name}))
        yield forged(f"header {name} = null", file({**header, name: None}))


def forged_manifests(original: Original) -> Iterator[Forgery]:
    """The manifest itself: its format, its files, its state, its nesting."""
    files = written(original.tree, original.arrays)
    array_file = next(name for name in files if name != MANIFEST)
    entry = {"name": array_file, "bytes": len(files[array_file]), "sha256": hashlib.sha256(files[array_file]).hexdigest()}

    def forged(what: str, made: bytes) -> Forgery:
        return Forgery(what, lambda: {**files, MANIFEST: made})

    for format in (0, -1, 2, HUGE, "1", None, True, 1.0, []):
        yield forged(f"format {text(format)[:20]}", manifest(original.tree, [entry], format))
    for key, values in (("name", ["../x", "", None, "arrays-000000000000.safetensors", 1]), ("bytes", [-1, 0, HUGE, None, "1"])):
        for value in values:
            yield forged(f"file {key} = {text(value)[:20]}", manifest(original.tree, [{**entry, key: value}]))
    for listed in (None, {}, [], [None], [[]], [entry, entry], "x"):
        yield forged(f"files {text(listed)[:20]}", manifest(original.tree, listed))
    nested: Any = '{"a":' * DEEP + "1" + "}" * DEEP
    body = files[MANIFEST].split(b"\n", 1)[1].replace(b'"state": ', b'"deep": ' + nested.encode() + b',\n"state": ', 1)
    sealed = f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode() + body
    yield forged("nested manifest", sealed)


KINDS = (forged_values, forged_settings, forged_arrays, forged_headers, forged_manifests)


def forgeries(folder: Path) -> Iterator[Forgery]:
    """All forgeries of an artefact."""
    original = Original.read(folder)
    for kind in KINDS:
        yield from kind(original)
