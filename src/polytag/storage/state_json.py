"""Encoding and decoding of states as JSON, with separate arrays. Keys with a dollar sign mark types that JSON lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from polytag.storage.array_files import CODES, Arrays

State: TypeAlias = dict[str, Any]
"""A learned state: numpy arrays, sparse matrices, JSON values and nested states, by name."""
_NESTED = (list, dict)  # a tuple, as building a type union for each of half a million labels is slow


def encode(state: Any) -> tuple[Any, Arrays]:
    """The JSON form of a state, and its arrays by their JSON pointers."""
    arrays: Arrays = {}
    return _encode(state, "", arrays), arrays


def _encode(value: Any, place: str, arrays: Arrays) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, np.ndarray):
        return _store_array(value, place, arrays)
    if issparse(value):
        return _encode_sparse(value, place, arrays)
    if isinstance(value, list | tuple):
        return [_encode(item, f"{place}/{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return _encode_mapping(value, place, arrays)
    raise TypeError(
        f"{place or '/'}: a {type(value).__name__} cannot be saved; use arrays, csr_array, JSON values and dicts of these"
    )


def _store_array(array: NDArray[Any], place: str, arrays: Arrays) -> dict[str, str]:
    if array.dtype.name not in CODES:
        raise TypeError(f"{place}: an array of {array.dtype} cannot be saved; use numbers or bool")
    arrays[place] = array
    return {"$array": place}


def _encode_sparse(matrix: Any, place: str, arrays: Arrays) -> dict[str, Any]:
    if matrix.format != "csr" or matrix.ndim != 2:
        raise TypeError(f"{place}: a sparse {matrix.ndim}-dimensional {matrix.format} cannot be saved; convert it to csr_array")
    for part in ("data", "indices", "indptr"):
        _store_array(getattr(matrix, part), f"{place}/{part}", arrays)
    return {"$csr": place, "shape": [int(size) for size in matrix.shape]}


def _encode_mapping(value: Mapping[Any, Any], place: str, arrays: Arrays) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{place or '/'}: the key {key!r} cannot be saved; keys are text")
    tree = {str(k): _encode(v, f"{place}/{k.replace('~', '~0').replace('/', '~1')}", arrays) for k, v in value.items()}
    return {"$state": tree} if any(key.startswith("$") for key in tree) else tree


def decode(node: Any, arrays: Arrays, verify: bool) -> Any:
    """The state of a JSON form; without ``verify`` the columns of sparse matrices are not checked.

    Raises KeyError, TypeError, ValueError or IndexError if the tree and the arrays are inconsistent.
    """
    if isinstance(node, list):
        return [decode(item, arrays, verify) if isinstance(item, _NESTED) else item for item in node]
    if "$array" in node:
        return arrays[node["$array"]]
    if "$csr" in node:
        return _decode_sparse(node["$csr"], node["shape"], arrays, verify)
    if "$float" in node:
        return float(node["$float"])
    plain = node.get("$state", node).items()
    return {key: decode(value, arrays, verify) if isinstance(value, _NESTED) else value for key, value in plain}


def _decode_sparse(place: str, shape: list[int], arrays: Arrays, verify: bool) -> csr_array:
    data, indices, indptr = (arrays[f"{place}/{part}"] for part in ("data", "indices", "indptr"))
    rows, columns = shape
    # Compiled code does not check these indices, so an untrusted artefact must not be able to point outside the arrays.
    if (
        data.ndim != 1
        or indices.shape != data.shape
        or indptr.shape != (rows + 1,)
        or {indices.dtype.kind, indptr.dtype.kind} != {"i"}
    ):
        raise ValueError(f"{place} is not a sparse matrix")
    if indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        raise ValueError(f"{place} has invalid row offsets")
    if verify and len(indices) and (indices.min() < 0 or indices.max() >= columns):
        raise ValueError(f"{place} has columns that do not exist")
    # Set one by one: the constructor would copy mapped indices to convert their type.
    matrix: Any = csr_array((rows, columns), dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return cast("csr_array", matrix)
