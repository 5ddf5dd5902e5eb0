"""The audit of a corpus: all questions asked, and what was found, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.audit.label_synonyms import SameLabels, label_synonyms
from polytag.audit.near_duplicates import close_documents
from polytag.audit.out_of_fold import is_flat, out_of_fold
from polytag.audit.planted_errors import planted_errors
from polytag.audit.speaking_words import speaking_words
from polytag.audit.suspicion import NEIGHBOURS, Suspicion, suspicion
from polytag.audit.unlearnable_labels import Unlearnable, unlearnable_labels
from polytag.errors import DataError
from polytag.kernels.nearest_rows import Nearest, nearest_rows
from polytag.linear.svm import Problem
from polytag.run import Run
from polytag.text.tfidf import Tfidf

if TYPE_CHECKING:
    from polytag.corpus import Corpus

FOLDS, FEWER_FOLDS = 5, 3  # of a corpus with one separator per label, and of one with a label tree
SUSPECTS = 1000  # suspects that are reported, by default
PROPOSED = 0.5  # probability of an error above which a correction is proposed
SHOWN_NEIGHBOURS = 3
_FEWEST = 10  # documents that an audit needs


@dataclass(frozen=True)
class Suspect:
    """A label that was probably wrongly given, or is wrongly missing, with the evidence."""

    document: int
    id: str
    label: str
    given: bool
    error: float
    text: float
    context: float
    agreement: float
    words: list[tuple[str, float]]
    nearest: list[tuple[str, float, bool]]
    """Ids of the most similar documents, their cosine, and whether they have the label."""


@dataclass(frozen=True)
class Copies:
    """Two documents with nearly the same text and different labels."""

    one: int
    other: int
    ids: tuple[str, str]
    similarity: float
    only_one: list[str]
    only_other: list[str]


@dataclass(frozen=True)
class Audit:
    """What was found, each list with the most suspect first."""

    suspects: list[Suspect]
    copies: list[Copies]
    same: list[SameLabels]
    unlearnable: list[Unlearnable]
    labels: tuple[str, ...]
    documents: int
    assignments: int


def audit(corpus: Corpus, run: Run | None = None, *, seed: int = 0, suspects: int = SUSPECTS) -> Audit:
    """Audit a corpus; same seed, same result."""
    corpus.require_trainable()
    if len(corpus) < _FEWEST:
        raise DataError(f"{len(corpus)} documents are too few for an audit; give at least {_FEWEST}")
    run = run or Run()
    tfidf = Tfidf()
    problem = Problem(tfidf.fit(corpus.texts).transform(corpus.texts), corpus.truth)
    folds = corpus.folds(FOLDS if is_flat(corpus.truth) else FEWER_FOLDS, seed=seed)
    planted = planted_errors(problem.features, corpus.truth, seed)
    found = out_of_fold(problem, corpus.labels, folds, planted, run, seed=seed)
    nearest = nearest_rows(problem.features, NEIGHBOURS)
    weighed = suspicion(found, corpus.truth, planted, nearest)
    pairs, entries = most_suspect(weighed, suspects)
    words = speaking_words(problem, folds, tfidf.terms, pairs, seed=seed)
    return Audit(
        _described(corpus, weighed, pairs, entries, words, nearest),
        copies_that_differ(corpus, seed),
        label_synonyms(problem.features, corpus.truth, corpus.labels, seed),
        unlearnable_labels(found, corpus.truth, problem.features, seed),
        corpus.labels.names,
        len(corpus),
        int(corpus.truth.nnz),
    )


def most_suspect(weighed: Suspicion, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pairs (document, label) with the highest probability of an error, and the numbers of their entries."""
    m = weighed.matrix
    order = np.argsort(-m.data, kind="stable")[:most]
    order = order[m.data[order] > 0]
    document = np.searchsorted(m.indptr, order, side="right") - 1
    return np.stack([document, m.indices[order]], axis=1).astype(np.int64), order


def _described(
    corpus: Corpus, weighed: Suspicion, pairs: NDArray[np.int64], entries: NDArray[np.int64], words: list[Any], nearest: Nearest
) -> list[Suspect]:
    """The suspects with names and evidence."""
    holders = [set(_row(corpus.truth, i)) for i in range(len(corpus))] if len(pairs) else []
    found = []
    for (document, label), entry, own in zip(pairs.tolist(), entries.tolist(), words, strict=True):
        similar = zip(nearest.rows[document].tolist(), nearest.similarity[document].tolist(), strict=True)
        close = [(corpus.ids[i], round(s, 4), label in holders[i]) for i, s in similar if i >= 0][:SHOWN_NEIGHBOURS]
        found.append(
            Suspect(
                document, corpus.ids[document], corpus.labels.names[label], bool(weighed.given[entry]),
                float(weighed.matrix.data[entry]), float(weighed.text[entry]), float(weighed.context[entry]),
                float(weighed.agreement[entry]), own, close,
            )
        )  # fmt: skip
    return found


def _row(truth: csr_array, i: int) -> list[int]:
    row: list[int] = truth.indices[truth.indptr[i] : truth.indptr[i + 1]].tolist()
    return row


def copies_that_differ(corpus: Corpus, seed: int = 0) -> list[Copies]:
    """Near-duplicates whose labels differ, the most similar first."""
    close = close_documents(corpus.texts, seed=seed)
    found = []
    for (one, other), similarity in zip(close.pairs.tolist(), close.similarity.tolist(), strict=True):
        mine, others = set(_row(corpus.truth, one)), set(_row(corpus.truth, other))
        if mine != others:
            ids = (corpus.ids[one], corpus.ids[other])
            found.append(Copies(one, other, ids, similarity, _names(corpus, mine - others), _names(corpus, others - mine)))
    return sorted(found, key=lambda pair: (-pair.similarity, pair.one, pair.other))


def _names(corpus: Corpus, labels: set[int]) -> list[str]:
    return [corpus.labels.names[label] for label in sorted(labels)]


def proposals(corpus: Corpus, suspects: Sequence[Suspect], least: float = PROPOSED) -> dict[int, list[str]]:
    """The proposed labels of the documents that have a suspect with at least this probability of an error."""
    changed: dict[int, set[str]] = {}
    lists: dict[int, list[str]] = {}
    for suspect in suspects:
        if suspect.error >= least:
            lists.setdefault(suspect.document, [corpus.labels.names[j] for j in _row(corpus.truth, suspect.document)])
            changed.setdefault(suspect.document, set()).add(suspect.label)
    return {
        document: [name for name in own if name not in changed[document]] + sorted(changed[document] - set(own))
        for document, own in lists.items()
    }
