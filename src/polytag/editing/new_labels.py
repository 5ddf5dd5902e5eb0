"""Labels that a trained classifier gets later: by their texts, by examples, or with a few more documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polytag.corpus import Corpus
from polytag.errors import DataError, brief
from polytag.labels import LabelSet
from polytag.models.base.saved_model import TrainedParts
from polytag.models.model import Examples, Extension
from polytag.relabelling.edit import Edit


def add_new_labels(classifier: TrainedParts, labels: LabelSet | Mapping[str, str], examples: Corpus | None) -> None:
    """Add labels that were not in training; the model scores them by their texts and by examples."""
    new = _checked(labels, classifier.labels)
    found = classifier.model.extend(new, None if examples is None else _examples_of(new, examples))
    _make_room(classifier, classifier.model.labels, found)
    classifier.edits = [*classifier.edits, Edit("add", (), new.names).recorded()]


def learn_from(classifier: TrainedParts, corpus: Corpus) -> None:
    """Learn from a few more documents, whose labels may be new; calibration and thresholds stay."""
    grown = classifier.labels.union(corpus.labels)
    corpus = corpus.with_labels(grown)
    classifier.model.learn(corpus)
    _make_room(classifier, grown, Extension())
    counts = np.asarray(classifier.training["label_counts"]) + np.bincount(corpus.truth.indices, minlength=len(grown))
    documents = int(classifier.training["documents"]) + len(corpus)
    classifier.training = {"documents": documents, "label_counts": counts.astype(np.int64)}


def _make_room(classifier: TrainedParts, labels: LabelSet, found: Extension) -> None:
    """Make room for new labels, which come last, in what decides about scores."""
    new = len(labels) - len(classifier.labels)
    if new:
        limit = found.threshold
        if classifier.calibration is not None:
            classifier.calibration = classifier.calibration.extended(new, log_odds=found.log_odds)
            limit = 1 / (1 + np.exp(-np.asarray(limit))) if found.log_odds else limit
        classifier.decision.extend(len(classifier.labels), new, limit)
        counts = np.pad(np.asarray(classifier.training["label_counts"]), (0, new))
        classifier.training = {**classifier.training, "label_counts": counts}
    classifier.labels = labels


def _checked(labels: Any, known: LabelSet) -> LabelSet:
    """The new labels; those that are known are refused."""
    if not isinstance(labels, LabelSet | Mapping):
        raise DataError(f"the new labels are {brief(labels)}; pass a dict such as {{'name': 'description'}}, or a LabelSet")
    new = labels if isinstance(labels, LabelSet) else LabelSet(labels, descriptions=labels)
    if again := [name for name in new if name in known]:
        raise DataError(f"the label {again[0]!r} is known already; leave it out")
    if not len(new):
        raise DataError("there is no label to add; give at least one name")
    return new


def _examples_of(new: LabelSet, examples: Corpus) -> Examples:
    """The examples of labels that are added; others are refused."""
    if not isinstance(examples, Corpus):
        raise DataError(f"the examples are {brief(examples)}; pass a Corpus, as in Corpus.of(['a text'], [['a label']])")
    for label in np.unique(examples.truth.indices).tolist():
        if new.find(examples.labels[label]) is None:
            raise DataError(f"an example has the label {examples.labels[label]!r}, which is not added; add it, or leave it out")
    return Examples(examples.texts, examples.with_labels(new).truth)
