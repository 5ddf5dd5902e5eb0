"""Vector instructions against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from polytag.kernels.vectors import WIDTH, add_rows, aligned_zeros


@njit  # type: ignore[untyped-decorator]
def _add(out: Any, at: int, block: Any, rows: Any, values: Any, count: int) -> None:
    add_rows(out, at, block, rows, values, count)


@given(vectors=st.integers(0, 10), count=st.integers(0, 9), seed=st.integers(0, 999))
@settings(max_examples=60)
def test_rows_are_added_to_one_row_and_to_no_other(vectors: int, count: int, seed: int) -> None:
    """For every number of vectors that is left over after whole groups of registers."""
    generator = np.random.default_rng(seed)
    out, block = (generator.integers(-9, 9, (n, vectors * WIDTH)).astype(np.float32) for n in (3, 5))
    rows, values = generator.integers(0, 5, 9).astype(np.int32), generator.integers(-9, 9, 9).astype(np.float32)
    expected = out.copy()
    expected[1] += values[:count] @ block[rows[:count]]
    _add(out, 1, block, rows, values, count)
    assert np.array_equal(out, expected)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=3))
def test_aligned_zeros_are_zeros_and_aligned(shape: list[int]) -> None:
    found = aligned_zeros(tuple(shape))
    assert found.shape == tuple(shape) and found.dtype == np.float32 and not found.any() and found.flags.c_contiguous
    assert found.ctypes.data % 64 == 0 or not found.size
