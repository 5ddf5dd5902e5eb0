"""What the page shows of a labelled file: errors, and the threshold that keeps a promise; computed once per version."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polytag.analysis.label_map import co_occurrence_vectors, label_map
from polytag.config.promise import Promise
from polytag.corpus import Corpus
from polytag.decision.risk_control import Sets, keep
from polytag.metrics.outcome import Outcome
from polytag.server.hosting.hosted_model import HostedModel
from polytag.server.problem import Problem

T = TypeVar("T")
_KEPT = 8  # results that are kept, of several models and versions


class EvaluationSet:
    """A labelled corpus that no model was trained on, and what each version makes of it."""

    def __init__(self, corpus: Corpus | None) -> None:
        """Nothing is computed yet."""
        self.corpus = corpus
        self._known: dict[tuple[str, str, str], Any] = {}
        self._lock = threading.Lock()

    def documents(self) -> Corpus:
        """The documents; a Problem if there are none."""
        if self.corpus is None:
            raise Problem(409, "the service knows no labelled documents; start it with --test FILE")
        return self.corpus

    def errors(self, model: HostedModel, label: str | None, limit: int) -> dict[str, Any]:
        """Documents with missed or wrong labels, most errors first; with a label, those where it is the error."""
        corpus, found = self.documents(), self.outcome(model)
        truth, predicted = found.labels.decode(found.truth), found.labels.decode(found.predicted)
        rows = []
        for number, (true, given) in enumerate(zip(truth, predicted, strict=True)):
            missed, wrong = sorted(set(true) - set(given)), sorted(set(given) - set(true))
            if label in missed + wrong or (label is None and missed + wrong):
                row = {"id": corpus.ids[number], "text": corpus.texts[number], "labels": true, "predicted": given}
                rows.append({**row, "missed": missed, "wrong": wrong})
        rows.sort(key=lambda row: -len(row["missed"]) - len(row["wrong"]))
        return {"documents": len(corpus), "with_errors": len(rows), "errors": rows[:limit]}

    def promise(self, model: HostedModel, goal: str) -> dict[str, Any]:
        """The threshold that keeps a promise, with what it means for these documents."""
        promise, found, decision = Promise.parse(goal), self.outcome(model), model.classifier.decision
        least = 0 if promise.goal == "precision" else decision.min_labels
        sets = Sets.of(found.scores, found.truth, found.labels, least, decision.closed)
        kept = keep(promise, sets)
        inside = sets.values >= kept.threshold
        sizes, right = (np.bincount(sets.documents[rows], minlength=len(sets.true)) for rows in (inside, inside & sets.hit))
        return {
            "promise": str(promise),
            "threshold": float(kept.threshold) if np.isfinite(kept.threshold) else 1.0,
            "labels_per_document": kept.labels_per_document,
            "precision": _mean_ratio(right, sizes),
            "recall": _mean_ratio(right, sets.true),
            "documents": len(sets.true),
        }

    def label_map(self, model: HostedModel) -> dict[str, Any]:
        """Labels as points in the plane; by their weights, or by the documents that they share."""
        return self._once(model, "map", lambda: _map(model, self.corpus))

    def outcome(self, model: HostedModel) -> Outcome:
        """Truth, predicted sets and scores of the documents."""
        corpus = self.documents()
        return self._once(model, "outcome", lambda: model.classifier.outcome(corpus))

    def _once(self, model: HostedModel, what: str, make: Callable[[], T]) -> T:
        key = (model.name, model.version, what)
        with self._lock:
            if key not in self._known:
                while len(self._known) >= _KEPT:
                    del self._known[next(iter(self._known))]
                self._known[key] = make()
            found: T = self._known[key]
            return found


def _mean_ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> float:
    """The mean over documents, as a promise counts; nothing of nothing is 1."""
    return float(np.mean(np.where(whole > 0, part / np.maximum(whole, 1), 1.0)))


def _map(model: HostedModel, corpus: Corpus | None) -> dict[str, Any]:
    classifier = model.classifier
    vectors = classifier.model.label_vectors()
    counts = np.asarray(classifier.training["label_counts"])
    if vectors is None:
        if corpus is None:
            raise Problem(409, "this model has no vectors of labels; start the service with --test FILE")
        vectors = co_occurrence_vectors(corpus.with_labels(classifier.labels.union(corpus.labels)).truth[:, : len(counts)])
    found = label_map(vectors, classifier.labels, counts)
    number = {name: at for at, name in enumerate(classifier.labels.names)}
    points = [
        {"label": name, "x": float(x), "y": float(y), "group": group, "count": int(counts[number[name]])}
        for name, (x, y), group in zip(found.names, found.places.tolist(), found.groups, strict=True)
    ]
    return {"method": found.method, "kept": found.kept, "points": points}
