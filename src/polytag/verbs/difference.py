"""``polytag diff`` as functions: which documents change labels between two runs, why, and whether that is better."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polytag.analysis.label_changes import Change, LabelChanges, Reason, label_changes
from polytag.analysis.result import Result
from polytag.analysis.significance import SystemComparison, compare_systems
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError, DataError
from polytag.formats.document_files import Reader, ReadOptions
from polytag.metrics.of_sets import evaluate
from polytag.metrics.outcome import Outcome
from polytag.run import Run

_BOUND = re.compile(r"\s*([\w@]+)\s*=\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")
_LOWER_IS_BETTER = {"hamming_loss": "hamming_accuracy"}
_COUNTS = ("documents", "true_labels_per_document", "predicted_labels_per_document")  # described, not judged


@dataclass(frozen=True)
class MetricChange(Result):
    """A metric of both runs, and new minus old."""

    metric: str
    old: float
    new: float
    difference: float


@dataclass(frozen=True)
class Failure(Result):
    """A metric whose difference is below its bound."""

    metric: str
    difference: float
    bound: float


@dataclass(frozen=True)
class RunDifference(Result):
    """Two runs on the same documents; without true labels there are no metrics and no significance."""

    old: str
    new: str
    documents: int
    metrics: tuple[MetricChange, ...]
    significance: SystemComparison | None
    failures: tuple[Failure, ...]
    changes: LabelChanges


def parsed_bounds(texts: Sequence[str]) -> dict[str, float]:
    """Bounds by metric, from texts such as ``micro_f1=-.005``."""
    bounds = {}
    for text in texts:
        match = _BOUND.fullmatch(text)
        if match is None:
            raise ConfigError(f"--fail-below {text!r} is not METRIC=NUMBER; write it as in micro_f1=-.005")
        name = match[1]
        if name in _LOWER_IS_BETTER:
            raise ConfigError(f"{name} is better when it is lower; use {_LOWER_IS_BETTER[name]}")
        bounds[name] = float(match[2])
    return bounds


def diff_runs(
    old: str | Path,
    new: str | Path,
    documents: str | Path,
    *,
    options: ReadOptions | None = None,
    labelled: bool = True,
    bounds: Mapping[str, float] | None = None,
    explained: int = 100,
    words: int = 3,
    rounds: int = 1000,
) -> RunDifference:
    """Compare two runs on a file of documents; ``explained`` changes get the ``words`` that speak most for the label."""
    if bounds and not labelled:
        raise ConfigError("without labels there is no metric to check; leave --unlabelled or --fail-below out")
    first, second = Classifier.load(old), Classifier.load(new)
    corpus = _read(documents, second, options, labelled)
    names = (str(old), str(new))
    return diff_classifiers(
        first, second, corpus, names=names, labelled=labelled, bounds=bounds, explained=explained, words=words, rounds=rounds
    )


def diff_classifiers(
    first: Classifier,
    second: Classifier,
    corpus: Corpus,
    *,
    names: tuple[str, str],
    labelled: bool = True,
    bounds: Mapping[str, float] | None = None,
    explained: int = 100,
    words: int = 3,
    rounds: int = 1000,
) -> RunDifference:
    """Compare two classifiers on a corpus, as ``diff_runs`` does with runs and a file."""
    before, after = first.outcome(corpus), second.outcome(corpus)
    labels = before.labels.union(after.labels)
    before, after = before.over(labels), after.over(labels)
    metrics = _metrics(before, after) if labelled else ()
    failures = _failures(metrics, bounds or {})
    significance = None
    if labelled:
        significance = compare_systems(before.truth, before.predicted, after.predicted, names=names, rounds=rounds)
    changes = label_changes(
        before.predicted, after.predicted, before.labels.names, corpus.ids,
        truth=before.truth if labelled else None, old_scores=before.scores, new_scores=after.scores,
    )  # fmt: skip
    changes = _with_reasons(changes, first, second, corpus.texts, explained, words)
    return RunDifference(*names, len(corpus), metrics, significance, failures, changes)


def _read(path: str | Path, classifier: Classifier, options: ReadOptions | None, labelled: bool) -> Corpus:
    """The documents, with their labels if they have any."""
    options = classifier.reading(options)
    if labelled:
        return Corpus.read(path, labels=classifier.labels, options=options)
    found = [replace(document, labels=()) for document in Reader(path, replace(options, labels=None), need_labels=False)]
    if not found:
        raise DataError(f"{path}: no documents; the file is empty")
    return Corpus.of_documents(found, label_set=classifier.labels, where=str(path))


def _metrics(before: Outcome, after: Outcome) -> tuple[MetricChange, ...]:
    old, new = (evaluate(one.truth, one.predicted, one.scores) for one in (before, after))
    return tuple(MetricChange(key, old[key], new[key], new[key] - old[key]) for key in old if key not in _COUNTS)


def _failures(metrics: Sequence[MetricChange], bounds: Mapping[str, float]) -> tuple[Failure, ...]:
    known = {row.metric: row.difference for row in metrics}
    if unknown := [name for name in bounds if name not in known]:
        raise ConfigError(f"there is no metric {unknown[0]!r}; known: {', '.join(known)}")
    return tuple(Failure(name, known[name], bound) for name, bound in bounds.items() if known[name] < bound)


# -- reasons -----------------------------------------------------------------------------------------------------------


def _with_reasons(
    changes: LabelChanges, old: Classifier, new: Classifier, texts: Sequence[str], explained: int, words: int
) -> LabelChanges:
    """The changes with words: first one change of every label, then a second one, and so on, until ``explained`` have some."""
    turns = [(at, label) for label, row in enumerate(changes.rows) for at in range(len(row.documents))]
    chosen = sorted(turns)[: max(explained, 0)]
    rows = [list(row.documents) for row in changes.rows]
    for at, label in Run().track(chosen, "explaining changes"):
        change, name = rows[label][at], changes.rows[label].label
        giver = new if change.change == "gained" else old
        rows[label][at] = replace(change, reasons=_reasons(giver, texts[change.row], name, words))
    full = (replace(row, documents=tuple(own)) for row, own in zip(changes.rows, rows, strict=True))
    return replace(changes, rows=tuple(full))


def _reasons(classifier: Classifier, text: str, label: str, words: int) -> tuple[Reason, ...]:
    """The words that speak most for a label, in the eyes of the classifier that gives it."""
    found = classifier.explain(text, [label])
    return tuple(Reason(word.text, word.contribution) for word in found.labels[0].strongest(words))


def examples(changes: Sequence[Change], count: int) -> list[Change]:
    """The changes of a label to show: those with reasons first."""
    return sorted(changes, key=lambda change: not change.reasons)[:count]
