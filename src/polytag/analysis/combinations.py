"""Label combinations: how many different sets a model predicts, and which of them training never had (LACO, table 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from polytag.analysis.result import Result
from polytag.metrics.of_sets import per_document


@dataclass(frozen=True)
class CombinationRow(Result):
    """A label set, the documents that have it and for which it is predicted, and whether training has it."""

    labels: tuple[str, ...]
    true: int
    predicted: int
    right: int
    in_training: bool


@dataclass(frozen=True)
class Combinations(Result):
    """Different label sets: ``true`` and ``predicted`` in these documents, ``train`` in training.

    ``unseen_*`` are about sets that no training document has: different sets, documents, and the share of these documents
    whose set is predicted exactly. ``new_sets_right`` counts documents with a predicted unseen set that is right.
    """

    documents: int
    train: int
    true: int
    predicted: int
    subset_accuracy: float
    seen_documents: int
    seen_accuracy: float
    unseen_true: int
    unseen_predicted: int
    unseen_documents: int
    unseen_accuracy: float
    new_sets_predicted: int
    new_sets_right: int
    rows: tuple[CombinationRow, ...]


def combinations(
    truth: csr_array, predicted: csr_array, train: csr_array, names: Sequence[str], *, most: int = 20
) -> Combinations:
    """Count the label sets that are true, predicted and in training; ``rows`` has the ``most`` frequent predicted ones."""
    known, true, guessed = set(_sets(train)), _sets(truth), _sets(predicted)
    exact = per_document(truth, predicted).exact > 0
    seen = np.array([one in known for one in true], dtype=np.bool_)
    new = np.array([one not in known for one in guessed], dtype=np.bool_)
    counts, references = Counter(guessed), Counter(true)
    right = Counter(one for one, hit in zip(guessed, exact.tolist(), strict=True) if hit)
    frequent = sorted(counts, key=lambda one: (-counts[one], one))[:most]
    return Combinations(
        documents=len(true), train=len(known), true=len(references), predicted=len(counts), subset_accuracy=_share(exact),
        seen_documents=int(seen.sum()), seen_accuracy=_share(exact[seen]),
        unseen_true=len(references.keys() - known), unseen_predicted=len(counts.keys() - known),
        unseen_documents=int((~seen).sum()), unseen_accuracy=_share(exact[~seen]),
        new_sets_predicted=int(new.sum()), new_sets_right=int((new & exact).sum()),
        rows=tuple(
            CombinationRow(tuple(names[j] for j in one), references[one], counts[one], right[one], one in known)
            for one in frequent
        ),
    )  # fmt: skip


def _sets(matrix: csr_array) -> list[tuple[int, ...]]:
    """Every document's set as label numbers in ascending order."""
    indices = matrix.indices.tolist()
    return [tuple(sorted(indices[start:end])) for start, end in pairwise(matrix.indptr.tolist())]


def _share(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
