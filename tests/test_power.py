"""Powers of equation 1 are judged by what they rank first, and those nearest to 1 come first."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.models.base.match_quality import precision_by_power


def test_every_power_is_judged_by_the_ranking_that_it_gives() -> None:
    truth = csr_array(np.eye(6, dtype=np.float32))

    def ranked(power: float) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The true label comes first below a power of 0.5, and last above."""
        others = np.array([[j for j in range(6) if j != i] for i in range(6)], dtype=np.int32)
        own = np.arange(6, dtype=np.int32)[:, None]
        labels = np.hstack([own, others] if power < 0.5 else [others, own])
        return labels, np.tile(-np.arange(6, dtype=np.float32), (6, 1))

    found = precision_by_power(ranked, truth, [str(j) for j in range(6)])
    assert list(found) == [1.0, 0.75, 1.5, 0.5, 2.0, 3.0, 0.25, 4.0, 0.125]
    assert [power for power, value in found.items() if value > 0.5] == [0.25, 0.125] and found[1.0] == 0
    assert max(found, key=lambda power: found[power]) == 0.25
    assert found[0.25] == pytest.approx((1 + 1 / 3 + 1 / 5) / 3)  # P@1, P@3 and P@5 of one label that comes first


@pytest.mark.parametrize(("optimum", "chosen"), [(1.5, 1.5), (4.0, 4.0), (5.0, 4.0), (12.0, 13.5), (1e9, 45.5625)])
def test_the_grid_goes_on_while_its_largest_power_is_the_best(optimum: float, chosen: float) -> None:
    """Of one hundred documents, the more have their true label first the nearer a power is to the optimum."""
    truth = csr_array((np.ones(100, np.float32), np.zeros(100, np.int32), np.arange(101)), shape=(100, 2))

    def ranked(power: float) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        right = 100 - 2 * min(49, round(10 * abs(np.log(power / optimum)))) if optimum < 1e6 else round(10 * np.log2(power) + 40)
        first = (np.arange(100) >= right).astype(np.int32)
        return np.stack([first, 1 - first], axis=1), np.tile(np.array([0, -1], np.float32), (100, 1))

    found = precision_by_power(ranked, truth, ["a", "b"])
    assert max(found, key=lambda power: found[power]) == chosen
