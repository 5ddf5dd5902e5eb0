"""The candidate that others have to beat, and how far weights from few documents may move away from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision.decision import NOISE
from polytag.metrics.bootstrap import paired_bootstrap

_ROUNDS = 400
_WIDTH = 2 * 1.96  # standard errors in a 95 % interval


class Caution(NamedTuple):
    """How much a hold-out must say; chosen by ``benchmarks/auto_small.py``, and without effect if it is large.

    ``clear`` and ``sure`` are standard errors by which another candidate, and a mixture, must be better than the lead. With
    ``prior`` held-out documents, half of each weight comes from them and half from the lead.
    """

    clear: float = 2.0
    prior: float = 200.0
    sure: float = 1.0

    def shrunk(self, weights: Sequence[float], documents: int) -> list[float]:
        """Weights from this number of documents, moved towards the first one, the lead."""
        share = documents / (documents + self.prior)
        return [share * weight + (1 - share) * (at == 0) for at, weight in enumerate(weights)]


def first_of_best(values: NDArray[np.float64]) -> int:
    """The best value; of equals the first one, which is the cheapest."""
    return int(np.flatnonzero(values >= values.max() - NOISE / 2)[0])


def standard_error(truth: csr_array, one: csr_array, other: csr_array, metric: str) -> float:
    """The standard error of the difference of two predictions, by drawing documents."""
    found = paired_bootstrap(truth, one, other, metric, _ROUNDS)
    return (found.high - found.low) / _WIDTH
