"""Separators of labels from their texts, and from a few examples: made, not trained.

A label's text is compared with documents: as vectors, if features have a dense part, and by words. Its best documents among many
without any labels (pseudo-relevance feedback), its examples, and the documents of known labels with similar texts give
prototypes. Every comparison is a scalar product with the features of a document, so their weighted sum is a separator. Weights
and thresholds are fitted on labels of training, as if nobody had labelled a document with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack

from polytag.kernels.sparse_rows import unit_rows
from polytag.linear.svm import Separators
from polytag.storage.schema import Array, Table

EXAMPLES = (0, 1, 4, 16)  # numbers of examples that weights are fitted for
_FEEDBACK = (10, 30)  # documents that feedback takes
_RELATIVES, _SHARPNESS = 3, 20.0  # known labels that a label is compared with, and how much more the nearest one counts
_FEWEST = 3  # documents of a relative
_PARTS = 4 + 2 * len(_FEEDBACK) + 2 + 2  # comparisons
_RIDGE = 1.0

TEXT_WEIGHTS = Table(
    {"weights": Array(("float64",), (len(EXAMPLES), _PARTS + 1)), "thresholds": Array(("float64",), (len(EXAMPLES),))}
)
"""What the weights look like when they are saved."""


class LabelTexts(NamedTuple):
    """The features of the texts of labels: name with description, and name alone."""

    long: csr_array
    short: csr_array

    def some(self, labels: NDArray[Any]) -> LabelTexts:
        """Those of some labels."""
        return LabelTexts(csr_array(self.long[labels]), csr_array(self.short[labels]))


class Source(NamedTuple):
    """Documents without labels, for feedback: their features, the number of dense ones, and the mean of these."""

    rows: csr_array
    dense: int
    centre: NDArray[np.float64]

    @classmethod
    def of(cls, rows: csr_array, dense: int) -> Source:
        """From the features of documents."""
        return cls(rows, dense, np.asarray(csr_array(rows[:, :dense]).mean(axis=0)).reshape(-1))


class Relatives(NamedTuple):
    """Known labels: their texts, the mean features of their documents, and whether these are enough."""

    texts: LabelTexts
    means: csr_array
    enough: NDArray[np.bool_]

    @classmethod
    def of(cls, texts: LabelTexts, truth: csr_array, source: Source) -> Relatives:
        """From the labels of the documents of a source."""
        counts = np.bincount(truth.indices, minlength=int(truth.shape[1]))
        means = csr_array(csr_array(truth.T).multiply(1 / np.maximum(1, counts)[:, None])) @ source.rows
        return cls(texts, means, counts >= _FEWEST)

    def near(self, texts: LabelTexts, dense: int, own: NDArray[Any] | None) -> csr_array:
        """The shares (labels, known labels) of those with the most similar texts; ``own`` are the places of the labels here."""
        mine, theirs = ((some.long + some.short)[:, : dense or None] for some in (texts, self.texts))
        if dense:
            centre = csr_array(theirs.mean(axis=0).reshape(1, -1))
            mine, theirs = (some - vstack([centre] * int(some.shape[0])) for some in (mine, theirs))
        similar = (unit_rows(mine) @ unit_rows(theirs).T).toarray()
        similar[:, ~self.enough] = -np.inf
        if own is not None:
            similar[np.arange(len(own)), own] = -np.inf
        best = np.argsort(-similar, axis=1, kind="stable")[:, :_RELATIVES]
        values = np.take_along_axis(similar, best, axis=1)
        shares = np.exp(_SHARPNESS * (values - np.maximum(values[:, :1], -1)))  # none where no known label has documents
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-9)
        rows = np.repeat(np.arange(len(best)), best.shape[1])
        return csr_array((shares.ravel(), (rows, best.ravel())), shape=similar.shape)


class TextWeights(NamedTuple):
    """The weights of the comparisons and a bias, and a threshold, for every number of examples in ``EXAMPLES``."""

    weights: NDArray[np.float64]
    thresholds: NDArray[np.float64]

    def made(
        self, texts: LabelTexts, source: Source, known: Relatives, examples: csr_array, of_label: csr_array
    ) -> tuple[Separators, NDArray[np.float64]]:
        """Separators of new labels, and the threshold of each; ``of_label`` (labels, examples) says whose each example is."""
        counts = np.diff(of_label.indptr)
        kind = np.searchsorted(EXAMPLES, counts, side="right") - 1
        parts = comparisons(texts, source, known, examples, of_label)
        weights = self.weights[kind]  # (labels, parts and bias)
        columns = [csr_array(part.multiply(weights[:, [number]])) for number, part in enumerate(parts)]
        total = csr_array(sum(columns[1:], start=columns[0]))
        bias = weights[:, -1] - total[:, : source.dense] @ source.centre
        return Separators(csr_array(total.T).astype(np.float32), bias.astype(np.float32)), self.thresholds[kind]

    def state(self) -> dict[str, Any]:
        """The arrays for an artefact."""
        return {"weights": self.weights, "thresholds": self.thresholds}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TextWeights:
        """Rebuild from the arrays."""
        return cls(np.asarray(state["weights"]), np.asarray(state["thresholds"]))


def comparisons(
    texts: LabelTexts,
    source: Source,
    known: Relatives,
    examples: csr_array,
    of_label: csr_array,
    own: NDArray[Any] | None = None,
) -> list[csr_array]:
    """What documents are compared with, for every label: vectors (labels, features), each with one part of the features.

    The vector of the whole text, that of the name, the words of both, and the mean of all texts; then, of the best documents, of
    the examples and of the documents of known labels with similar texts, the vectors and the words. ``own`` are the places of the
    labels among the known ones, if they are: none is a relative of itself.
    """
    dense, width = source.dense, int(source.rows.shape[1])
    words = unit_rows(_only(texts.long, dense, width) + _only(texts.short, dense, width))
    found = [_only(texts.long, 0, dense), _only(texts.short, 0, dense), words]
    hub = csr_array(found[0].mean(axis=0).reshape(1, -1)) if dense else csr_array((1, width))
    found.append(csr_array(vstack([hub] * int(words.shape[0]), format="csr")))
    shares = of_label.multiply(1 / np.maximum(1, np.diff(of_label.indptr))[:, None])
    mean, has = csr_array(shares) @ examples, (np.diff(of_label.indptr) > 0).astype(np.float64)[:, None]
    shown = [csr_array(_centred(mean, source).multiply(has)), unit_rows(_only(mean, dense, width))]
    asked = 0.5 * (found[0] + found[1]) + 0.5 * words + shown[0] + shown[1]
    similar = (source.rows @ asked.T).toarray()  # (documents, labels)
    for count in _FEEDBACK:
        mean = _best(similar, count) @ source.rows
        found += [_centred(mean, source), unit_rows(_only(mean, dense, width))]
    kin = csr_array(known.near(texts, dense, own) @ known.means)
    return [*found, *shown, _centred(kin, source), unit_rows(_only(kin, dense, width))]


def _best(similar: NDArray[Any], count: int) -> csr_array:
    """The weights (labels, documents) of the best documents of every label: by how much they are above the mean."""
    n, n_labels = similar.shape
    count = min(count, n)
    best = np.argpartition(-similar, count - 1, axis=0)[:count]  # (count, labels)
    weights = np.take_along_axis(similar, best, axis=0) - similar.mean(axis=0) + 1e-9
    weights = weights / weights.sum(axis=0)
    labels = np.broadcast_to(np.arange(n_labels), best.shape)
    return csr_array((weights.ravel(), (labels.ravel(), best.ravel())), shape=(n_labels, n))


def _only(rows: csr_array, first: int, last: int) -> csr_array:
    """The same rows with the features first..last alone."""
    entries = (rows.indices >= first) & (rows.indices < last)
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[entries]
    return csr_array((rows.data[entries].astype(np.float64), (row, rows.indices[entries])), shape=rows.shape)


def _centred(rows: csr_array, source: Source) -> csr_array:
    """The dense part of rows without the mean of all documents, with unit length."""
    part = csr_array(rows[:, : source.dense]).toarray() - source.centre
    norms = np.linalg.norm(part, axis=1, keepdims=True)
    rest = csr_array((part.shape[0], int(rows.shape[1]) - source.dense))
    return csr_array(hstack([csr_array(part / np.where(norms > 0, norms, 1)), rest], format="csr"))


def pair_features(rows: csr_array, parts: Sequence[csr_array], source: Source) -> NDArray[np.float64]:
    """The comparisons of documents with labels (documents, labels, parts); dense parts are compared with the mean taken off."""
    found = np.empty((int(rows.shape[0]), int(parts[0].shape[0]), len(parts)))
    for number, part in enumerate(parts):
        found[:, :, number] = (rows @ part.T).toarray() - part[:, : source.dense] @ source.centre
    return found


def logistic_weights(x: NDArray[np.float64], y: NDArray[np.float64], importance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights and bias of a logistic regression with a ridge on standardised features, by Newton's method."""
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-9
    z = np.column_stack([(x - mean) / spread, np.ones(len(x))])
    ridge = np.append(np.full(x.shape[1], _RIDGE), 1e-6)
    w = np.zeros(z.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-(z @ w)))
        curvature = (z * (importance * p * (1 - p))[:, None]).T @ z + np.diag(ridge)
        step = np.linalg.solve(curvature, z.T @ (importance * (p - y)) + ridge * w)
        w -= step
        if np.abs(step).max() < 1e-6:
            break
    raw = w[:-1] / spread
    return np.append(raw, w[-1] - raw @ mean)
