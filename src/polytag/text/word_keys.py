"""Sorted keys of words, and how often they occur: union, membership, shorter keys."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

KeyCounts: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""Sorted keys and their counts."""


def among(values: NDArray[Any], ordered: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is among others, which are sorted and many."""
    if not len(ordered):
        return np.zeros(len(values), dtype=np.bool_)
    return np.asarray(ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values)


def short_keys(keys: NDArray[np.uint64], *, ordered: bool = True) -> NDArray[np.uint32]:
    """Shorter hashes, sorted and unique unless ``ordered`` is False: enough to say that a word was there before."""
    short = ((keys * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)).astype(np.uint32)
    return np.unique(short) if ordered else short


def merged(one: KeyCounts, other: KeyCounts) -> KeyCounts:
    """The union of the keys, and the sums of their counts."""
    keys = np.concatenate([one[0], other[0]])
    order = np.argsort(keys, kind="stable")  # merges two sorted runs in linear time
    keys, counts = keys[order], np.concatenate([one[1], other[1]])[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    return keys[first], np.add.reduceat(counts, first) if len(first) else counts
