"""Calibration: from scores to probabilities that match observed frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.kernels.compiler import kernel, njit
from polytag.kernels.threads import in_threads
from polytag.scores import Scores
from polytag.storage.schema import Array, Table

PLATT = Table({"slopes": Array(("float32",), ("labels",)), "offsets": Array(("float32",), ("labels",))})
"""What a calibration looks like when it is saved."""
_MAX_ENTRIES = 200_000  # the global curve is fitted on at most this many entries, evenly spaced
_LABELS = 16  # labels per task of a thread
_PRIOR = 5.0  # informative entries after which a label's own curve weighs about as much as the global one


def logit(values: NDArray[Any]) -> NDArray[np.float64]:
    """Log-odds of probabilities, bounded."""
    p = np.clip(values.astype(np.float64), 1e-7, 1 - 1e-7)
    return np.asarray(np.log(p) - np.log1p(-p))


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _fit_sigmoid(x: Any, y: Any, slope0: float, offset0: float, prior: float) -> Any:
    """Newton's method for p = 1 / (1 + exp(-(slope x + offset))), with a Gaussian prior around the start."""
    slope, offset = slope0, offset0
    for _ in range(50):
        g0, g1 = prior * (slope - slope0), prior * (offset - offset0)
        h00, h01, h11 = prior + 1e-9, 0.0, prior + 1e-9
        for i in range(len(x)):
            p = 1.0 / (1.0 + np.exp(-(slope * x[i] + offset)))
            error, weight = p - y[i], p * (1.0 - p)
            g0 += error * x[i]
            g1 += error
            h00 += weight * x[i] * x[i]
            h01 += weight * x[i]
            h11 += weight
        determinant = h00 * h11 - h01 * h01
        if determinant <= 0.0:
            break
        step0, step1 = (h11 * g0 - h01 * g1) / determinant, (h00 * g1 - h01 * g0) / determinant
        longest = max(abs(step0), abs(step1))
        if longest > 2.0:  # far from the optimum the quadratic model overshoots
            step0, step1 = step0 * 2.0 / longest, step1 * 2.0 / longest
        slope, offset = slope - step0, offset - step1
        if longest < 1e-6:
            break
    return slope, offset


@kernel("void(float64[::1],float64[::1],int64[::1],int64,int64,float64,float64[::1],float64[::1])")
def _fit_labels(x: Any, y: Any, ends: Any, first: int, last: int, prior: float, slopes: Any, offsets: Any) -> None:
    start = ends[first - 1] if first else 0
    for label in range(first, last):
        if ends[label] > start:
            slopes[label], offsets[label] = _fit_sigmoid(
                x[start : ends[label]], y[start : ends[label]], slopes[label], offsets[label], prior
            )
        start = ends[label]


def _fit(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """The global curve."""
    slope, offset = np.ones(1), np.zeros(1)
    _fit_labels(x, y, np.array([len(x)]), 0, 1, 1.0, slope, offset)
    return float(slope[0]), float(offset[0])


def blended(values: NDArray[Any], earlier: NDArray[Any], share: NDArray[np.float64]) -> NDArray[np.float32]:
    """The median of the values, and the mean of how each label differs from it and differed earlier; new labels come last."""
    centre, before = np.median(values), np.median(earlier)
    old = np.append(earlier - before, (values - centre)[len(earlier) :])
    return np.asarray(centre + share * (values - centre) + (1 - share) * old, dtype=np.float32)


@dataclass
class Platt:
    """Platt scaling: a sigmoid per label, shrunk towards the global one if the label has few entries."""

    slopes: NDArray[np.float32]
    offsets: NDArray[np.float32]

    @classmethod
    def fit(cls, scores: Scores, truth: csr_array) -> Platt:
        """Fit on scores of held-out documents."""
        n_labels = int(scores.matrix.shape[1])
        x, y = _inputs(scores, scores.matrix.data), scores.hits(truth).astype(np.float64)
        few = slice(None, None, 1 + len(x) // _MAX_ENTRIES)
        slope, offset = _fit(np.ascontiguousarray(x[few]), np.ascontiguousarray(y[few]))
        slopes, offsets = np.full(n_labels, slope), np.full(n_labels, offset)
        order = np.argsort(scores.matrix.indices, kind="stable")
        x, y, ends = x[order], y[order], np.cumsum(np.bincount(scores.matrix.indices, minlength=n_labels))

        def some_labels(first: int) -> None:
            _fit_labels(x, y, ends, first, min(first + _LABELS, n_labels), _PRIOR, slopes, offsets)

        for _ in in_threads(some_labels, range(0, n_labels, _LABELS)):
            pass
        return cls(np.maximum(slopes, 1e-3).astype(np.float32), offsets.astype(np.float32))

    def apply(self, scores: Scores) -> Scores:
        """The same entries as probabilities."""
        values, labels = scores.matrix.data, scores.matrix.indices
        if scores.is_full and scores.kind == "margin":
            found = self.probabilities(values.reshape(len(scores), len(self.slopes)))
        else:
            found = _sigmoid(self.slopes[labels] * _inputs(scores, values) + self.offsets[labels])
        return scores.with_values(found.reshape(-1), "probability")

    def probabilities(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """The probabilities of all labels, from margins (documents, labels)."""
        return _sigmoid(margins * self.slopes + self.offsets)  # float32

    def blended(self, earlier: Platt, share: NDArray[np.float64]) -> Platt:
        """With what the labels of an earlier calibration differed by; ``share`` is the weight of this one, for every label."""
        slopes = blended(self.slopes, earlier.slopes, share)
        return Platt(np.maximum(slopes, 1e-3), blended(self.offsets, earlier.offsets, share))

    def extended(self, new: int, *, log_odds: bool = False) -> Platt:
        """For ``new`` more labels, with the medians of the known slopes and offsets; ``log_odds``: their margins are log-odds."""
        slope, offset = (1.0, 0.0) if log_odds else (np.median(self.slopes), np.median(self.offsets))
        more = np.full(new, slope, dtype=np.float32), np.full(new, offset, dtype=np.float32)
        return Platt(np.append(self.slopes, more[0]), np.append(self.offsets, more[1]))

    def state(self) -> dict[str, Any]:
        """The slopes and offsets."""
        return {"slopes": self.slopes, "offsets": self.offsets}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Platt:
        """Restore what ``state`` returned."""
        return cls(np.asarray(state["slopes"]), np.asarray(state["offsets"]))


def _inputs(scores: Scores, values: NDArray[Any]) -> NDArray[np.float64]:
    return logit(values) if scores.kind == "probability" else values.astype(np.float64)


def _sigmoid(z: NDArray[Any]) -> NDArray[Any]:
    """1 / (1 + exp(-z)), in place."""
    np.negative(z, out=z)
    with np.errstate(over="ignore"):  # 1 / infinity = 0 is correct
        np.exp(z, out=z)
    z += 1
    np.reciprocal(z, out=z)
    return z
