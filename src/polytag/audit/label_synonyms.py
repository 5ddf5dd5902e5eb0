"""Pairs of labels that probably mean the same: given together almost always, or one instead of the other for similar texts.

For labels given instead of each other, the documents that have only the one are compared with those that have only the other.
Their mean cosine is divided by what two halves of one label reach. So 1 means: as alike as a label is with itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.audit.planted_errors import similar_labels
from polytag.kernels.compiler import njit
from polytag.labels import LabelSet
from polytag.linear.svm import Rows, rows_of

FEWEST = 4  # documents that a label needs
TOGETHER = 0.9  # Jaccard similarity of the documents of two labels
_LIKELY = 0.9  # similarity to itself above which two labels are reported
_NEAREST = 5  # labels that each is compared with
_SAMPLE = 200  # documents of a label that are compared
_NAME = 0.2  # how much equal names add to the score


class SameLabels(NamedTuple):
    """Two labels that probably mean the same."""

    one: int
    other: int
    how: str  # "together" or "instead"
    score: float
    texts: float  # similarity of the texts, relative to that of two halves of one label
    overlap: float  # Jaccard similarity of the documents
    names: float  # similarity of the names, by letter trigrams


def label_synonyms(features: csr_array, truth: csr_array, labels: LabelSet, seed: int = 0) -> list[SameLabels]:
    """Pairs of labels, the most probable first."""
    counts = np.bincount(truth.indices, minlength=truth.shape[1])
    used = np.flatnonzero(counts >= FEWEST)
    if len(used) < 2:
        return []
    by_label = csr_array(truth.tocsc()[:, used].T.tocsr())
    by_label.sort_indices()
    near = similar_labels(features, csr_array(truth[:, used]), _NEAREST)
    pairs = {(min(a, b), max(a, b)) for a in range(len(used)) for b in near[a].tolist() if b >= 0}
    pairs |= _co_occurring(by_label)
    rng = np.random.default_rng(seed)
    cosines = Cosines.of(features)
    halves = [cosines.mean(*_split(_members(by_label, a), rng)) for a in range(len(used))]
    found = []
    for a, b in sorted(pairs):
        pair = _compared(cosines, labels, by_label, used, (a, b), halves)
        if pair is not None:
            found.append(pair)
    return sorted(found, key=lambda pair: (-pair.score, pair.one, pair.other))


def _compared(
    cosines: Cosines,
    labels: LabelSet,
    by_label: csr_array,
    used: NDArray[np.int64],
    pair: tuple[int, int],
    halves: list[float],
) -> SameLabels | None:
    """The evidence about one pair; None unless the labels probably mean the same."""
    a, b = pair
    mine, other = _members(by_label, a), _members(by_label, b)
    both = len(np.intersect1d(mine, other, assume_unique=True))
    overlap = both / (len(mine) + len(other) - both)
    names = name_similarity(labels.names[used[a]], labels.names[used[b]])
    one, two = int(used[a]), int(used[b])
    if overlap >= TOGETHER:
        return SameLabels(one, two, "together", overlap + _NAME * names, 1.0, overlap, names)
    if _related(labels, one, two):
        return None  # a parent's texts contain those of the child
    alone, without = np.setdiff1d(mine, other, True)[:_SAMPLE], np.setdiff1d(other, mine, True)[:_SAMPLE]
    itself = float(np.sqrt(halves[a] * halves[b]))
    if min(len(alone), len(without)) < FEWEST or itself <= 0:
        return None
    alike = min(1.0, cosines.mean(alone, without) / itself)
    if alike < _LIKELY:
        return None
    return SameLabels(one, two, "instead", alike * (1 - overlap) + _NAME * names, alike, overlap, names)


def name_similarity(one: str, other: str) -> float:
    """Jaccard similarity of the letter trigrams of two names in lower case; punctuation but + and # is a space."""
    sets = []
    for name in (one, other):
        plain = " ".join("".join(c if c.isalnum() or c in "+#" else " " for c in name.lower()).split())
        padded = f"  {plain} "
        sets.append({padded[i : i + 3] for i in range(len(padded) - 2)})
    return len(sets[0] & sets[1]) / max(len(sets[0] | sets[1]), 1)


def _related(labels: LabelSet, one: int, other: int) -> bool:
    return labels[one] in labels.parents_of(labels[other]) or labels[other] in labels.parents_of(labels[one])


def _members(by_label: csr_array, label: int) -> NDArray[np.int32]:
    return by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]


def _split(members: NDArray[np.int32], rng: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    shuffled = rng.permutation(members)[: 2 * _SAMPLE]
    return shuffled[::2], shuffled[1::2]


@dataclass
class Cosines:
    """Mean cosines between sets of documents; unlike the cosine of mean vectors they do not grow with the sets' sizes."""

    rows: Rows
    room: NDArray[np.float32]

    @classmethod
    def of(cls, features: csr_array) -> Cosines:
        """Of rows of unit length."""
        return cls(rows_of(features), np.zeros(features.shape[1], dtype=np.float32))

    def mean(self, one: NDArray[np.int32], other: NDArray[np.int32]) -> float:
        """The mean over all pairs of a document of the one set and one of the other."""
        return float(_product(*self.rows, one, other, self.room)) / max(len(one) * len(other), 1)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _product(indptr: Any, indices: Any, data: Any, one: Any, other: Any, room: Any) -> float:
    """The product of the sums of two sets of rows; ``room`` is zero before and after."""
    for i in one:
        for p in range(indptr[i], indptr[i + 1]):
            room[indices[p]] += data[p]
    total = 0.0
    for i in other:
        for p in range(indptr[i], indptr[i + 1]):
            total += room[indices[p]] * data[p]
    for i in one:
        for p in range(indptr[i], indptr[i + 1]):
            room[indices[p]] = 0.0
    return total


def _co_occurring(by_label: csr_array) -> set[tuple[int, int]]:
    """Pairs of labels that are given together almost always."""
    counts = np.diff(by_label.indptr)
    found: set[tuple[int, int]] = set()
    together = (by_label @ by_label.T).tocoo()
    union = counts[together.row] + counts[together.col] - together.data
    keep = (together.row < together.col) & (together.data >= TOGETHER * union)
    found.update(zip(together.row[keep].tolist(), together.col[keep].tolist(), strict=True))
    return found
