"""The artefact: one folder of JSON and safetensors, written atomically, verified and memory-mapped when read.

``artefact.json`` holds the tree of plain values and names every array file with its size and checksum;
``arrays-<checksum>.safetensors`` hold the arrays, each named by its place in the tree (a JSON pointer).
Because array files are named by their content, a new artefact never overwrites the files of the old one, and
replacing ``artefact.json`` is the only switch between the two.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from polytag.errors import ArtefactError
from polytag.models.model import State

FORMAT = 1
MANIFEST = "artefact.json"
SHARD_BYTES = 1 << 30
_ARRAY_FILE = re.compile(r"arrays-[0-9a-f]{12}\.safetensors")
_TEMPORARY = re.compile(r"\.writing-[0-9a-f]{32}\.tmp")
_SEAL = re.compile(rb'\{"sha256": "([0-9a-f]{64})",\n')
_CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in _CODES.items()}
_REMEDY = "copy the folder again from where it was saved, or train again"

_NESTED = (list, dict)  # a tuple: making the union of types for every label of half a million takes longer than the rest

Arrays = dict[str, NDArray[Any]]


class ArtefactInfo(NamedTuple):
    """What an artefact says about itself: the number of its format, the version that wrote it, its files and their size."""

    format: int
    polytag: str
    files: tuple[str, ...]
    bytes: int


def polytag_version() -> str:
    """The installed version of this package."""
    try:
        return metadata.version("polytag")
    except metadata.PackageNotFoundError:
        return "unknown"


def artefact_folder(path: str | Path) -> Path:
    """The folder that holds the artefact, given that folder or the run around it."""
    path = Path(path)
    for folder in (path, path / "model"):
        if (folder / MANIFEST).is_file():
            return folder
    if not path.exists():
        raise ArtefactError(f"{path}: no such folder; name the folder of a run or of its model")
    if not path.is_dir():
        raise ArtefactError(f"{path} is a file; name the folder of a run or of its model")
    if (path / "log.jsonl").exists():
        raise ArtefactError(f"{path}: this run has no model yet; let its training finish, or start it again with --resume")
    raise ArtefactError(f"{path} is not an artefact (there is no {MANIFEST}); name the folder of a run or of its model")


# --- writing ---------------------------------------------------------------------------------------------------------


def write_artefact(folder: str | Path, state: State) -> None:
    """Save a state into a folder, new or not; killed at any moment, the folder holds what it held before or the new state."""
    folder = Path(folder)
    arrays: Arrays = {}
    tree = _encode(state, "", arrays)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [_write_shard(folder, shard) for shard in _shards(arrays)]
        _sync_folder(folder)
        os.replace(_write_temporary(folder, [_manifest(tree, files)])[0], folder / MANIFEST)
        _sync_folder(folder)
    except OSError as error:
        _remove_leftovers(folder, None)
        reason = error.strerror or str(error)
        raise ArtefactError(
            f"{folder}: cannot save here ({reason}); make room or name another folder; nothing was lost"
        ) from None
    _remove_leftovers(folder, {file["name"] for file in files})


def _encode(value: Any, place: str, arrays: Arrays) -> Any:
    """The JSON form of a value; arrays are put aside under their place. Keys with a dollar sign mark what JSON lacks."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, np.ndarray):
        return _put_aside(value, place, arrays)
    if issparse(value):
        return _encode_sparse(value, place, arrays)
    if isinstance(value, list | tuple):
        return [_encode(item, f"{place}/{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return _encode_mapping(value, place, arrays)
    raise TypeError(
        f"{place or '/'}: a {type(value).__name__} cannot be saved; use arrays, csr_array, JSON values and dicts of these"
    )


def _put_aside(array: NDArray[Any], place: str, arrays: Arrays) -> dict[str, str]:
    if array.dtype.name not in _CODES:
        raise TypeError(f"{place}: an array of {array.dtype} cannot be saved; use numbers or bool")
    arrays[place] = array
    return {"$array": place}


def _encode_sparse(matrix: Any, place: str, arrays: Arrays) -> dict[str, Any]:
    if matrix.format != "csr" or matrix.ndim != 2:
        raise TypeError(f"{place}: a sparse {matrix.ndim}-dimensional {matrix.format} cannot be saved; convert it to csr_array")
    for part in ("data", "indices", "indptr"):
        _put_aside(getattr(matrix, part), f"{place}/{part}", arrays)
    return {"$csr": place, "shape": [int(size) for size in matrix.shape]}


def _encode_mapping(value: Mapping[Any, Any], place: str, arrays: Arrays) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{place or '/'}: the key {key!r} cannot be saved; keys are text")
    tree = {str(k): _encode(v, f"{place}/{k.replace('~', '~0').replace('/', '~1')}", arrays) for k, v in value.items()}
    return {"$state": tree} if any(key.startswith("$") for key in tree) else tree


def _shards(arrays: Arrays) -> Iterator[Arrays]:
    """Fill files up to the limit in the order of the tree; an array larger than that has a file to itself."""
    shard: Arrays = {}
    size = 0
    for name, array in arrays.items():
        if shard and size + array.nbytes > SHARD_BYTES:
            yield shard
            shard, size = {}, 0
        shard[name] = array
        size += array.nbytes
    if shard:
        yield shard


def _write_shard(folder: Path, shard: Arrays) -> dict[str, Any]:
    # Wide types first: every array then starts at a multiple of its item size, so that it can be mapped as it lies.
    ordered = dict(sorted(shard.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
    temporary, digest, size = _write_temporary(folder, chain([_shard_header(ordered)], map(_array_bytes, ordered.values())))
    target = folder / f"arrays-{digest[:12]}.safetensors"
    if target.is_file() and target.stat().st_size == size and _file_digest(target) == digest:
        temporary.unlink()  # the same arrays are there already, perhaps mapped by whoever is saving them
    else:
        os.replace(temporary, target)
    return {"name": target.name, "bytes": size, "sha256": digest}


def _shard_header(arrays: Arrays) -> bytes:
    entries, offset = {}, 0
    for name, array in arrays.items():
        end = offset + array.nbytes
        entries[name] = {"dtype": _CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _array_bytes(array: NDArray[Any]) -> memoryview:
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8).data


def _manifest(tree: Any, files: list[dict[str, Any]]) -> bytes:
    """The text of artefact.json: the checksum of everything behind the first line, then that."""
    parts = {"format": FORMAT, "polytag": polytag_version(), "files": files, "state": tree}
    lines = ",\n".join(f'"{key}": {json.dumps(part, allow_nan=False)}' for key, part in parts.items())
    body = f"{lines}\n}}\n".encode("ascii")
    return f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode("ascii") + body


def _write_temporary(folder: Path, chunks: Any) -> tuple[Path, str, int]:
    """Write chunks into a file of its own until they are safe on the disk; its path, checksum and size."""
    path = folder / f".writing-{uuid.uuid4().hex}.tmp"
    digest, size = hashlib.sha256(), 0
    with open(path, "xb") as out:
        for chunk in chunks:
            out.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        out.flush()
        os.fsync(out.fileno())
    return path, digest.hexdigest(), size


def _sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, where the system can do so."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_leftovers(folder: Path, named: set[str] | None) -> None:
    """Remove unfinished files and, if the named ones are given, array files of earlier artefacts."""
    with contextlib.suppress(OSError):  # a file that cannot go now (mapped, on some systems) goes at the next save
        for path in sorted(folder.iterdir()):
            old = named is not None and _ARRAY_FILE.fullmatch(path.name) and path.name not in named
            if old or _TEMPORARY.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()


# --- reading ---------------------------------------------------------------------------------------------------------


def read_artefact(folder: str | Path, *, verify: bool = True) -> State:
    """The saved state, its arrays read-only and mapped from the disk; without ``verify`` the arrays' checksums are trusted."""
    folder = Path(folder)
    while True:
        raw = _manifest_bytes(folder)
        manifest = _parse_manifest(folder / MANIFEST, raw)
        try:
            return _assemble(folder, manifest, verify)
        except FileNotFoundError as error:
            # Another process may have saved a new artefact meanwhile; if so, read that one.
            if _manifest_bytes(folder) == raw:
                raise ArtefactError(f"{error.filename}: the file is missing; {_REMEDY}") from None


def artefact_info(folder: str | Path) -> ArtefactInfo:
    """What an artefact says about itself, without touching its arrays."""
    folder = Path(folder)
    raw = _manifest_bytes(folder)
    manifest = _parse_manifest(folder / MANIFEST, raw)
    files = tuple(str(file["name"]) for file in manifest["files"])
    return ArtefactInfo(
        manifest["format"], manifest["polytag"], files, len(raw) + sum(file["bytes"] for file in manifest["files"])
    )


def _manifest_bytes(folder: Path) -> bytes:
    try:
        return (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if not folder.is_dir():
            raise ArtefactError(f"{folder}: no such folder; name the folder of a trained model") from None
        raise ArtefactError(f"{folder} is not an artefact (there is no {MANIFEST}); name the folder of a trained model") from None
    except OSError as error:
        raise ArtefactError(f"{folder / MANIFEST}: cannot be read ({error.strerror})") from None


def _parse_manifest(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError):
        raise ArtefactError(f"{path} is not valid JSON: damaged or cut short; {_REMEDY}") from None
    number = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(number, int):
        raise ArtefactError(f"{path} does not describe a Polytag artefact; name the folder of a trained model")
    if number > FORMAT:
        raise ArtefactError(f"{path} has format {number}, and this Polytag reads up to {FORMAT}: update Polytag, or train again")
    seal = _SEAL.match(raw)
    if not seal or hashlib.sha256(raw[seal.end() :]).hexdigest().encode("ascii") != seal[1]:
        raise ArtefactError(f"{path} was changed after it was saved (its checksum differs); {_REMEDY}")
    _check_manifest(path, manifest)
    return dict(manifest)


def _check_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Refuse what no writer of ours makes; above all file names that point out of the folder."""
    files = manifest.get("files")
    sound = isinstance(manifest.get("polytag"), str) and isinstance(manifest.get("state"), dict) and isinstance(files, list)
    for file in files if sound and files else []:
        sound = sound and isinstance(file, dict) and isinstance(file.get("bytes"), int) and isinstance(file.get("sha256"), str)
        sound = sound and isinstance(file.get("name"), str) and _ARRAY_FILE.fullmatch(file["name"]) is not None
    if not sound:
        raise ArtefactError(f"{path} does not describe a Polytag artefact as it should; {_REMEDY}")


def _assemble(folder: Path, manifest: dict[str, Any], verify: bool) -> State:
    files = {folder / file["name"]: file for file in manifest["files"]}
    for path, file in files.items():
        size = path.stat().st_size
        if size != file["bytes"]:
            what = "cut short" if size < file["bytes"] else "changed"
            raise ArtefactError(f"{path} was {what} ({size} bytes instead of {file['bytes']}); {_REMEDY}")
    with ThreadPoolExecutor(1) as pool:  # checksums of a large model take as long as everything else
        digests = pool.map(_file_digest, files if verify else ())
        try:
            return _mapped(folder, manifest, files, verify)
        finally:  # also where the content made no sense: that the file was changed is the better reason
            for (path, file), digest in zip(files.items(), digests, strict=False):
                if digest != file["sha256"]:
                    raise ArtefactError(f"{path} was changed after it was saved (its checksum differs); {_REMEDY}") from None


def _mapped(folder: Path, manifest: dict[str, Any], files: Iterable[Path], verify: bool) -> State:
    arrays: Arrays = {}
    for path in files:
        arrays.update(_map_shard(path, path.stat().st_size))
    try:
        state = _decode(manifest["state"], arrays, verify)
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise ArtefactError(f"{folder / MANIFEST} and its array files do not fit together ({error}); {_REMEDY}") from None
    assert isinstance(state, dict)
    return state


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _map_shard(path: Path, size: int) -> Arrays:
    """The arrays of one safetensors file: 8 bytes with the length of a JSON header, the header, the arrays' bytes."""
    try:
        if size < 8:
            raise ValueError("no header")
        content = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
        start = 8 + int.from_bytes(content[:8].tobytes(), "little")
        if start > size:
            raise ValueError("the header is longer than the file")
        header = json.loads(content[8:start].tobytes())
        return {name: _map_array(content[start:], entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtefactError(f"{path} is not a sound safetensors file ({error}); {_REMEDY}") from None


def _map_array(content: NDArray[np.uint8], entry: dict[str, Any]) -> NDArray[Any]:
    dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if not all(isinstance(n, int) and n >= 0 for n in (*shape, begin, end)):
        raise ValueError("a size or an offset is not a whole number")
    if not begin <= end <= len(content) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError("an offset does not fit")
    return content[begin:end].view(dtype).reshape(shape)


def _decode(node: Any, arrays: Arrays, verify: bool) -> Any:
    if isinstance(node, list):
        return [_decode(item, arrays, verify) if isinstance(item, _NESTED) else item for item in node]
    if "$array" in node:
        return arrays[node["$array"]]
    if "$csr" in node:
        return _decode_sparse(node["$csr"], node["shape"], arrays, verify)
    if "$float" in node:
        return float(node["$float"])
    plain = node.get("$state", node).items()
    return {key: _decode(value, arrays, verify) if isinstance(value, _NESTED) else value for key, value in plain}


def _decode_sparse(place: str, shape: list[int], arrays: Arrays, verify: bool) -> csr_array:
    data, indices, indptr = (arrays[f"{place}/{part}"] for part in ("data", "indices", "indptr"))
    rows, columns = shape
    # Compiled code trusts these numbers, so an artefact from a stranger must not be able to point outside the arrays.
    if (
        data.ndim != 1
        or indices.shape != data.shape
        or indptr.shape != (rows + 1,)
        or {indices.dtype.kind, indptr.dtype.kind} != {"i"}
    ):
        raise ValueError(f"{place} is not a sparse matrix")
    if indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        raise ValueError(f"{place} has rows that do not fit")
    if verify and len(indices) and (indices.min() < 0 or indices.max() >= columns):
        raise ValueError(f"{place} has columns that do not exist")
    # Set one by one: the constructor would copy mapped indices to change their type.
    matrix: Any = csr_array((rows, columns), dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return cast("csr_array", matrix)
