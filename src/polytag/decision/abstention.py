"""Abstention: how sure a decision is of each document, and which documents to leave to people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import ConfigError, DataError, brief
from polytag.scores import Scores
from polytag.storage.schema import Array, Table, Text

Floats = NDArray[np.float64]
_STEPS = 101  # shares of asked documents from 0 to 1, in hundredths
_BEST = 20  # labels per document that a likelihood looks at: held-out scores of many labels are not complete
_ONE_SIDED = 1.2816  # standard errors of a lower bound with a confidence of 0.9


def _certainty(scores: Scores, decided: csr_array) -> tuple[NDArray[np.int64], Floats, NDArray[np.bool_]]:
    """Per entry: its document, the probability that the decision about it is right, and whether the label was decided."""
    values = scores.matrix.data.astype(np.float64)
    chance = 1 / (1 + np.exp(-values)) if scores.kind == "margin" else values
    inside = scores.hits(decided)
    rows = np.repeat(np.arange(len(scores)), np.diff(scores.matrix.indptr))
    return rows, np.clip(np.where(inside, chance, 1 - chance), 1e-6, 1.0), inside


def _likelihood(scores: Scores, decided: csr_array) -> Floats:
    rows, right, _ = _certainty(scores.best(_BEST), decided)
    return np.asarray(np.bincount(rows, weights=np.log(right), minlength=len(scores)), dtype=np.float64)


def _weakest(scores: Scores, decided: csr_array) -> Floats:
    rows, right, _ = _certainty(scores, decided)
    found = np.ones(len(scores))
    np.minimum.at(found, rows, right)
    return found


def _expected(scores: Scores, decided: csr_array) -> Floats:
    rows, right, inside = _certainty(scores, decided)
    size = np.bincount(rows[inside], minlength=len(scores))
    total = np.bincount(rows[inside], weights=right[inside], minlength=len(scores))
    return np.asarray(np.where(size > 0, total / np.maximum(size, 1), _weakest(scores, decided)))


MEASURES = {"likelihood": _likelihood, "weakest": _weakest, "expected": _expected}
"""Ways to say how sure a set is: the log-likelihood of the decisions about the best labels, the probability of the least sure
label (given or left out), and the expected precision. Higher is surer."""

ABSTENTION = Table(
    {
        "measure": Text(tuple(MEASURES)),
        **{name: Array(("float64",), (_STEPS,)) for name in ("levels", "precision", "recall", "least_precision", "least_recall")},
    }
)
"""What an abstention looks like when it is saved."""


@dataclass(frozen=True)
class Abstention:
    """How sure held-out documents were, and how right: per hundredth of documents that are asked about."""

    measure: str
    levels: Floats  # a document is automated if its sureness reaches the level of the share
    precision: Floats  # micro-averaged, of automated held-out documents
    recall: Floats
    least_precision: Floats  # lower bounds, each with a confidence of 0.9
    least_recall: Floats

    @classmethod
    def fit(cls, scores: Scores, truth: csr_array, decided: csr_array) -> Abstention:
        """Choose the measure with the best F1 over all coverages, from held-out documents and the sets decided for them."""
        hits, sizes, true = _numbers(truth, decided)
        f1 = 2 * hits / np.maximum(sizes + true, 1) + ((sizes + true) == 0)
        found = {name: measure(scores, decided) for name, measure in MEASURES.items()}
        measure = max(found, key=lambda name: _area(found[name], f1))
        levels = np.quantile(found[measure], np.linspace(0, 1, _STEPS), method="higher")
        levels[0] = -np.inf
        kept = [found[measure] >= level for level in levels]
        precision = np.array([_ratio(hits[rows], sizes[rows]) for rows in kept])
        recall = np.array([_ratio(hits[rows], true[rows]) for rows in kept])
        return cls(measure, levels, precision[:, 0], recall[:, 0], precision[:, 1], recall[:, 1])

    def sureness(self, scores: Scores, decided: csr_array) -> Floats:
        """How sure the decision is of every document."""
        return MEASURES[self.measure](scores, decided)

    def asked(self, scores: Scores, decided: csr_array, share: float) -> NDArray[np.bool_]:
        """Whether a document is among the least sure ones; ``share`` is their share of documents like the held-out ones."""
        return np.asarray(self.sureness(scores, decided) < self.level(share))

    def level(self, share: float) -> float:
        """The sureness below which a document is asked about."""
        return float(self.levels[round(checked_share(share) * (_STEPS - 1))])

    def share_for(self, goal: str) -> float:
        """The smallest share to ask about so that ``precision=.95``, or recall, holds for the rest with a confidence of 0.9."""
        name, _, number = (part.strip() for part in goal.partition("="))
        bounds = {"precision": self.least_precision, "recall": self.least_recall}
        if name not in bounds:
            raise ConfigError(f"cannot ask until {brief(goal)}; write precision=.95 or recall=.95")
        value = checked_share(number, name)
        enough = bounds[name][:-1] >= value
        if not enough.any():
            most = float(bounds[name][:-1].max())
            raise DataError(f"{name} {value:g} is out of reach for any share of the held-out documents; {most:.3f} is the most")
        return float(np.argmax(enough)) / (_STEPS - 1)

    def state(self) -> dict[str, Any]:
        """All fields."""
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: dict[str, Any] | None) -> Abstention | None:
        """Restore what ``state`` returned."""
        return None if state is None else cls(**state)


def automated(truth: csr_array, decided: csr_array, sureness: Floats, level: float) -> dict[str, float]:
    """Coverage, precision, recall and subset accuracy of the documents that reach a level; and the curve over coverages."""
    hits, sizes, true = _numbers(truth, decided)

    def values(rows: NDArray[Any]) -> tuple[float, float]:
        return _ratio(hits[rows], sizes[rows])[0], _ratio(hits[rows], true[rows])[0]

    kept = sureness >= level
    precision, recall = values(kept)
    exact = float(np.mean((hits == sizes)[kept] & (hits == true)[kept])) if kept.any() else 1.0
    found = {"coverage": float(kept.mean()), "automated_precision": precision, "automated_recall": recall}
    found["automated_subset_accuracy"] = exact
    order = np.argsort(-sureness, kind="stable")
    for share in range(10, 100, 10):
        precision, recall = values(order[: max(1, len(order) * share // 100)])
        found |= {f"precision@coverage={share / 100:g}": precision, f"recall@coverage={share / 100:g}": recall}
    return found


def checked_share(value: Any, name: str = "the share to ask about") -> float:
    """A number from 0 to 1."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = -1.0
    if not 0 <= found <= 1:
        raise ConfigError(f"{name} is {brief(value)}; it must be a number from 0 to 1")
    return found


def _numbers(truth: csr_array, decided: csr_array) -> tuple[Floats, Floats, Floats]:
    """Per document: correct, predicted and true labels."""
    hits = np.diff(csr_array(truth.multiply(decided)).indptr)
    return hits.astype(np.float64), np.diff(decided.indptr).astype(np.float64), np.diff(truth.indptr).astype(np.float64)


def _area(sureness: Floats, value: Floats) -> float:
    """The mean, over all coverages, of the mean value of the surest documents."""
    order = np.argsort(-sureness, kind="stable")
    return float(np.mean(np.cumsum(value[order]) / np.arange(1, len(order) + 1)))


def _ratio(part: Floats, whole: Floats) -> tuple[float, float]:
    """The ratio of sums over documents, and its lower bound from the spread between documents; 1 and 0 if nothing is there."""
    total = float(whole.sum())
    if not total:
        return 1.0, 0.0
    ratio = float(part.sum()) / total
    error = float(np.sqrt(((part - ratio * whole) ** 2).sum())) / total
    return ratio, max(0.0, ratio - _ONE_SIDED * error - 1 / total)
