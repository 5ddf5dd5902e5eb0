"""Drift: whether the texts that arrive are like those of training, and whether the promise still stands.

Held-out documents of training fall evenly into the hundredths of sureness that the classifier stores, and the words of training
texts into bins by their document frequency. A sample of the texts that arrive is counted in the same bins. The population
stability index compares both: below 0.1 they are alike, above 0.25 they are not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polytag.config.promise import Promise
from polytag.models.base.tfidf_model import TfidfModel
from polytag.server.hosting.hosted_model import HostedModel
from polytag.text.preprocess import prepare
from polytag.text.words import word_hashes

_BINS = 10
_SAMPLE = 500  # texts that are remembered until somebody asks
_RECENT = 2_000  # texts whose counts matter
_FEWEST = 200  # texts below which nothing is said
_DIFFERENT = 0.25  # stability index above which texts differ from those of training
_CORRECTED = 30  # corrected texts from which a promise is checked


class Drift:
    """Counts of recent texts of one version of a model; texts themselves are forgotten as soon as they are counted."""

    def __init__(self, model: HostedModel) -> None:
        """Nothing arrived yet."""
        self.model = model
        self.arrived = 0
        self._waiting: deque[str] = deque(maxlen=_SAMPLE)
        self._sure: deque[int] = deque(maxlen=_RECENT)
        self._words: deque[NDArray[np.int64]] = deque(maxlen=_RECENT)
        self._lock = threading.Lock()
        self._bins = _frequency_bins(model)

    def see(self, texts: Sequence[str]) -> None:
        """Remember one text of a request; all of them are not needed."""
        self.arrived += len(texts)
        if texts:
            self._waiting.append(texts[self.arrived % len(texts)])

    def report(self) -> dict[str, Any]:
        """The stability indices of scores and words, the share of unknown words, and whether they are those of training."""
        with self._lock:
            self._count()
            sure = np.bincount(np.array(self._sure, dtype=np.int64), minlength=_BINS)
            words = np.sum(self._words, axis=0) if self._words else np.zeros(_BINS + 1, dtype=np.int64)
            seen = len(self._words)
        enough = seen >= _FEWEST
        scores = stability(sure, np.full(_BINS, 1 / _BINS)) if enough and sure.sum() else None
        known = unknown = None
        if self._bins is not None and words.sum():
            known = stability(words[:_BINS], self._bins.shares) if enough else None
            unknown = float(words[-1] / words.sum())
        found = {"texts": self.arrived, "sampled": seen, "scores": scores, "words": known, "unknown_words": unknown}
        return {**found, "drifted": any(value is not None and value > _DIFFERENT for value in (scores, known))}

    def _count(self) -> None:
        """Count the texts that wait."""
        texts = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not texts:
            return
        classifier = self.model.classifier
        if classifier.abstention is not None:
            scores = classifier.scores(texts)
            sureness = classifier.abstention.sureness(scores, classifier.decision.decide(scores, classifier.labels))
            place = np.searchsorted(classifier.abstention.levels[1:-1], sureness, side="right")
            self._sure.extend((place * _BINS // (len(classifier.abstention.levels) - 1)).tolist())
        self._words.extend(self._word_counts(texts))

    def _word_counts(self, texts: Sequence[str]) -> Iterable[NDArray[np.int64]]:
        model = self.model.classifier.model
        if self._bins is None or not isinstance(model, TfidfModel):
            yield from (np.zeros(_BINS + 1, dtype=np.int64) for _ in texts)
            return
        for text in prepare(texts, model.texts.preprocess, model.texts.max_words):
            hashes = word_hashes([text], ngrams=1, lowercase=model.tfidf.lowercase)[0]
            columns = model.tfidf.columns(np.unique(hashes))
            bins = np.where(columns >= 0, self._bins.of_words[np.maximum(columns, 0)], _BINS)
            yield np.bincount(bins, minlength=_BINS + 1).astype(np.int64)


def stability(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """The population stability index of counts in bins, against the shares that are expected."""
    share = (counts + 0.5) / (counts.sum() + 0.5 * len(counts))
    even = (expected * 1_000 + 0.5) / (1_000 + 0.5 * len(counts))  # an empty bin is expected to be nearly empty
    return float(np.sum((share - even) * np.log(share / even)))


class _Bins(NamedTuple):
    """The bin of every word, and the share of each bin in training."""

    of_words: NDArray[np.int64]
    shares: NDArray[np.float64]


def _frequency_bins(model: HostedModel) -> _Bins | None:
    """Bins of words, rare words first, of about the same sum of document frequencies."""
    tfidf_model = model.classifier.model
    if not isinstance(tfidf_model, TfidfModel) or tfidf_model.tfidf.given:
        return None
    tfidf = tfidf_model.tfidf
    single = np.array([" " not in term for term in tfidf.terms])
    frequency = np.where(single, np.exp(1 - tfidf.idf.astype(np.float64)), 0.0)  # up to a factor
    order = np.argsort(frequency, kind="stable")
    whole = max(float(frequency.sum()), 1e-12)
    middle = (np.cumsum(frequency[order]) - frequency[order] / 2) / whole
    bins = np.empty(len(order), dtype=np.int64)
    bins[order] = np.minimum(_BINS - 1, (middle * _BINS).astype(np.int64))
    return _Bins(bins, np.bincount(bins, weights=frequency, minlength=_BINS) / whole)


def promise_state(model: HostedModel, drifted: bool, corrections: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Whether a promise still stands: the texts are like those of training, and people's corrections do not contradict it."""
    if not model.classifier.decision.promise:
        return None
    promise = Promise.parse(model.classifier.decision.promise)
    values = [value for row in corrections if (value := _kept(row, promise.goal, model.version)) is not None]
    mean = float(np.mean(values)) if values else None
    broken = False
    if mean is not None and len(values) >= _CORRECTED:
        broken = mean + 2 * float(np.std(values)) / np.sqrt(len(values)) < promise.level
    reason = "corrections contradict it" if broken else "texts differ from those of training" if drifted else None
    return {"promise": str(promise), "stands": reason is None, "reason": reason, "measured": mean, "corrected": len(values)}


def _kept(row: dict[str, Any], goal: str, version: str) -> float | None:
    """The recall, or the precision, of a prediction that a person corrected."""
    right, missed, wrong = (len(row[name]) for name in ("accepted", "added", "removed"))
    other = missed if goal == "recall" else wrong
    if row["version"] != version or not right + other:
        return None
    return right / (right + other)
