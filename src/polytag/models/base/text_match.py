"""Fitting what makes separators from the texts of labels, on labels of training that are treated as if they were new."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision.thresholds import common
from polytag.labels import LabelSet
from polytag.linear.svm import Problem
from polytag.linear.text_separators import (
    EXAMPLES,
    LabelTexts,
    Relatives,
    Source,
    TextWeights,
    comparisons,
    logistic_weights,
    pair_features,
)
from polytag.scores import Scores

_FEWEST = 60  # documents below which nothing is fitted
_MOST_DOCUMENTS, _MOST_LABELS = 3_000, 400  # documents and labels that weights are fitted on
_SEEN, _ASKED = (
    3,
    2,
)  # documents with a label, at least: among those that examples come from, and those that weights are fitted on
_NEGATIVES = 0.1  # share of the negatives that weights are fitted on
_POWER = 0.5  # a label with n documents has weight n^-power: rare labels count as much as frequent ones, nearly


def readable(name: str) -> str:
    """The name of a label as words."""
    return " ".join("".join(letter if letter.isalnum() else " " for letter in name).split())


def texts_of(labels: LabelSet) -> tuple[list[str], list[str]]:
    """The text of every label, and its name alone."""
    names = [readable(name) for name in labels.names]
    return [f"{name}. {labels.descriptions.get(own, '')}".strip() for name, own in zip(names, labels.names, strict=True)], names


def fit_text_weights(problem: Problem, dense: int, texts: LabelTexts, seed: int) -> TextWeights | None:
    """The weights of the comparisons and the thresholds, or None if there are too few documents or labels.

    A third of the documents is asked; the others are the source of feedback and of examples.
    """
    n = int(problem.features.shape[0])
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    asked, rest = order[: min(n // 3, _MOST_DOCUMENTS)], order[min(n // 3, _MOST_DOCUMENTS) :]
    counts = [np.bincount(problem.truth[rows].indices, minlength=int(problem.truth.shape[1])) for rows in (rest, asked)]
    labels = np.flatnonzero((counts[0] >= _SEEN) & (counts[1] >= _ASKED))
    if n < _FEWEST or len(labels) < 2:
        return None
    labels = np.sort(rng.permutation(labels)[:_MOST_LABELS])
    source = Source.of(csr_array(problem.features[rest]), dense)
    known = Relatives.of(texts, csr_array(problem.truth[rest]), source)
    columns = csr_array(problem.truth[rest][:, labels].T)  # (labels, documents)
    truth = csr_array(problem.truth[asked][:, labels])
    fitted = []
    for count in EXAMPLES:
        parts = comparisons(texts.some(labels), source, known, source.rows, _drawn(columns, count, rng), labels)
        pairs = pair_features(csr_array(problem.features[asked]), parts, source)
        fitted.append(_fitted(pairs, truth, rng))
    return TextWeights(np.stack([one[0] for one in fitted]), np.array([one[1] for one in fitted]))


def _drawn(columns: csr_array, count: int, rng: np.random.Generator) -> csr_array:
    """At most ``count`` random documents of every label."""
    rows, documents = [], []
    for label in range(columns.shape[0]):
        own = columns.indices[columns.indptr[label] : columns.indptr[label + 1]]
        chosen = rng.permutation(own)[:count]
        rows.append(np.full(len(chosen), label))
        documents.append(chosen)
    places = np.concatenate(rows), np.concatenate(documents)
    return csr_array((np.ones(len(places[0])), places), shape=columns.shape)


def _fitted(pairs: NDArray[np.float64], truth: csr_array, rng: np.random.Generator) -> tuple[NDArray[np.float64], float]:
    """Weights on all positives and some negatives, and the threshold with the best macro-F1: all labels count alike."""
    true = truth.toarray() > 0
    importance = np.broadcast_to(np.maximum(1, true.sum(axis=0)) ** -_POWER, true.shape)
    used = true | (rng.random(true.shape) < _NEGATIVES)
    weight = np.where(true, importance, importance / _NEGATIVES)[used]
    weights = logistic_weights(pairs[used], true[used].astype(np.float64), weight / weight.mean())
    margins: Any = (pairs @ weights[:-1] + weights[-1]).astype(np.float32)
    scores = Scores.full(margins, [str(number) for number in range(true.shape[1])], "margin")
    return weights, float(common(scores, truth, "macro_f1", 0)[0])
