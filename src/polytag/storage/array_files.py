"""Array files in the safetensors format: serialisation and memory mapping."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CODES = {
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
_DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in CODES.items()}

Arrays = dict[str, NDArray[Any]]


def file_chunks(arrays: Arrays) -> Iterator[bytes | memoryview]:
    """The bytes of a file, in chunks."""
    # Wide types first: every array then starts at a multiple of its item size and can be mapped without a copy.
    ordered = dict(sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
    yield _header(ordered)
    yield from map(_array_bytes, ordered.values())


def _header(arrays: Arrays) -> bytes:
    entries, offset = {}, 0
    for name, array in arrays.items():
        end = offset + array.nbytes
        entries[name] = {"dtype": CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _array_bytes(array: NDArray[Any]) -> memoryview:
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8).data


def map_arrays(path: Path) -> Arrays:
    """The memory-mapped arrays of a file; ValueError if it is invalid.

    The file has the length of the JSON header in 8 bytes, the header, and the bytes of the arrays.
    """
    size = path.stat().st_size
    if size < 8:
        raise ValueError("no header")
    content = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    if start > size:
        raise ValueError("the header is longer than the file")
    header = json.loads(content[8:start].tobytes())
    try:
        return {name: _map_array(content[start:], entry) for name, entry in header.items() if name != "__metadata__"}
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(error) from None


def _map_array(content: NDArray[np.uint8], entry: dict[str, Any]) -> NDArray[Any]:
    dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise ValueError("a size or an offset is not a whole number")
    if not begin <= end <= len(content) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError("an offset is wrong")
    return content[begin:end].view(dtype).reshape(shape)
