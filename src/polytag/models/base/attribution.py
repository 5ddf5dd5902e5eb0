"""What the words of a text contribute to the scores of labels, and the default way to find out: leaving words out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision.calibration import logit
from polytag.kernels.sparse_rows import places_of
from polytag.scores import Scores
from polytag.text.word_shares import WordShares

Values: TypeAlias = NDArray[np.float64]
Scorer: TypeAlias = Callable[[Sequence[str]], Values]
"""From texts to log-odds or margins (texts, labels)."""
_PHRASES = 16  # pieces of a text that are left out first
_PIECES = 4  # pieces of a piece that matters
_KEPT = 4  # pieces that are divided further, at every size
_FEW = 32  # up to this number of words, every word is left out
_AT_ONCE = 256  # texts that are scored at once


@dataclass(frozen=True)
class Attribution:
    """The words of a text, and what each contributes to the scores of labels.

    ``spans`` (words, 2) are start and end of each word in the text. ``values`` (words, labels) are contributions to the margin
    or the log-odds. A model whose score is a sum has a ``margin`` too: ``bias`` plus the sum over the words, both (labels,).
    ``details`` has what else a model knows about each label, such as the path through its tree.
    """

    spans: NDArray[np.int64]
    values: Values
    bias: Values | None = None
    details: Sequence[dict[str, Any]] = field(default=())

    @property
    def margin(self) -> Values | None:
        """The scores that the contributions sum to; None unless the model's score is a sum."""
        return None if self.bias is None else self.bias + self.values.sum(axis=0)


class Attention(NamedTuple):
    """Attention weights (words, labels) of the words of a text, for the labels in the order in which they were generated."""

    spans: NDArray[np.int64]
    labels: NDArray[np.int64]
    weights: Values


def margins_in(scores: Scores, labels: NDArray[np.int64]) -> Values:
    """The scores (documents, labels) of some labels as margins or log-odds."""
    found = scores_of(scores, labels)
    return logit(found) if scores.kind == "probability" else found


def scores_of(scores: Scores, labels: NDArray[np.int64]) -> Values:
    """The scores (documents, labels) of some labels; a label that was not scored is impossible."""
    order = np.argsort(labels, kind="stable")
    size = (len(scores), len(labels))
    asked = csr_array(
        (np.ones(size[0] * size[1]), np.tile(labels[order], size[0]), np.arange(size[0] + 1) * size[1]),
        shape=scores.matrix.shape,
    )
    at, known = places_of(asked, scores.matrix)
    found = np.full(size, scores.absent, dtype=np.float64)
    found[:, order] = np.where(known, scores.matrix.data[at] if scores.matrix.nnz else 0.0, scores.absent).reshape(size)
    return found


def linear_parts(found: WordShares, weights: csr_array, labels: NDArray[np.int64], bias: NDArray[Any]) -> Attribution:
    """Exact contributions to margins ``weights^T x + bias``, for the columns ``labels`` of the weights."""
    used = np.unique(found.shares.indices)
    own = np.asarray(csr_array(weights[used])[:, labels].toarray(), dtype=np.float64)  # (features of the text, labels)
    values = np.asarray(found.shares[:, used] @ own)
    return Attribution(found.spans, values, np.asarray(bias, dtype=np.float64)[labels])


def leave_words_out(text: str, spans: NDArray[np.int64], score: Scorer, *, exact: bool) -> Values:
    """By how much the scores fall (words, labels) if a word is left out.

    With ``exact`` every word is left out once. Otherwise phrases are left out first, then pieces of the phrases that matter,
    down to single words; the words of other phrases share the effect of their phrase evenly.
    """
    whole = score([text])[0]  # (labels,)
    values = np.zeros((len(spans), len(whole)))
    every = exact or len(spans) <= _FEW
    pieces = _divided(0, len(spans), len(spans) if every else _PHRASES)
    while pieces:
        effect = whole - _scored(score, [text[: spans[a, 0]] + text[spans[b - 1, 1] :] for a, b in pieces])  # (pieces, labels)
        for (a, b), own in zip(pieces, effect, strict=True):
            values[a:b] = own / (b - a)
        chosen = [] if every else _strongest(pieces, effect)
        pieces = [piece for a, b in chosen for piece in _divided(a, b, _PIECES)]
    return values


def _divided(first: int, last: int, parts: int) -> list[tuple[int, int]]:
    """The range of words in at most this number of even parts."""
    bounds = np.linspace(first, last, min(parts, last - first) + 1).astype(int).tolist()
    return list(pairwise(bounds))


def _strongest(pieces: Sequence[tuple[int, int]], effect: Values) -> list[tuple[int, int]]:
    """The pieces of several words with the strongest effects, relative to the strongest effect on the same label."""
    strength = np.abs(effect) / np.maximum(np.abs(effect).max(axis=0, initial=0.0), 1e-9)
    order = np.argsort(-strength.max(axis=1, initial=0.0), kind="stable")[:_KEPT]
    return [pieces[at] for at in sorted(order.tolist()) if pieces[at][1] - pieces[at][0] > 1]


def _scored(score: Scorer, texts: Sequence[str]) -> Values:
    return np.concatenate([score(texts[at : at + _AT_ONCE]) for at in range(0, len(texts), _AT_ONCE)])
