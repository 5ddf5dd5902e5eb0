"""A sort for compiled code: numpy's takes numba more than a second to compile for each type."""

from __future__ import annotations

from typing import Any

from polytag.kernels.compiler import njit

_FEW = 24  # up to this number, values are sorted by insertion


@njit(inline="always")  # type: ignore[untyped-decorator]
def parted(values: Any, i: int, j: int, pivot: Any) -> Any:
    """Hoare's partition of ``values[i : j + 1]`` in place; returns where the upper part begins and the lower part ends."""
    while i <= j:
        while values[i] < pivot:
            i += 1
        while pivot < values[j]:
            j -= 1
        if i <= j:
            one = values[i]
            values[i] = values[j]
            values[j] = one
            i += 1
            j -= 1
    return i, j


@njit(nogil=True)  # type: ignore[untyped-decorator]
def sort_part(values: Any, low: int, high: int) -> None:
    """Sort ``values[low:high]`` in place: quicksort, whose smaller part is sorted by a call and the larger one by the loop."""
    while high - low > _FEW:
        i, j = parted(values, low, high - 1, values[(low + high) >> 1])
        if j + 1 - low < high - i:
            sort_part(values, low, j + 1)
            low = i
        else:
            sort_part(values, i, high)
            high = j + 1
    for p in range(low + 1, high):
        value = values[p]
        q = p
        while q > low and value < values[q - 1]:
            values[q] = values[q - 1]
            q -= 1
        values[q] = value


@njit(nogil=True)  # type: ignore[untyped-decorator]
def heap_sort(values: Any, count: int) -> None:
    """Sort the first values in place by a heap: slower than ``sort_part``, and compiled in a third of the time."""
    build = count >> 1
    while count > 1:
        if build > 0:
            build -= 1
            at = build
            value = values[at]
        else:
            count -= 1
            at = 0
            value = values[count]
            values[count] = values[0]
        while 2 * at + 1 < count:
            child = 2 * at + 1
            if child + 1 < count and values[child] < values[child + 1]:
                child += 1
            if values[child] <= value:
                break
            values[at] = values[child]
            at = child
        values[at] = value
