"""Edits of the labels of a trained classifier, without training: model, calibration, decision and counts follow."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.decision.abstention import Abstention
from polytag.decision.calibration import Platt
from polytag.decision.decision import Decision
from polytag.decision.rare_labels import calibrated
from polytag.errors import DataError, brief
from polytag.labels import LabelSet
from polytag.models.base.relabelled import Relabelled
from polytag.models.base.saved_model import TrainedParts
from polytag.models.model import Model
from polytag.relabelling.edit import Edit, edited
from polytag.relabelling.origins import Origins

log = logging.getLogger(__name__)
_FULL = 50_000_000  # documents x labels up to which thresholds are fitted on the scores of all labels
_BEST = 1_000  # labels per document otherwise


def apply_edits(classifier: TrainedParts, edits: Sequence[Edit], fit: Corpus | None = None) -> None:
    """Make edits of one kind at once; after an error the classifier is as before.

    A renamed label keeps everything. After other edits labels keep their thresholds, promises and sureness do not hold any more.
    With a corpus, thresholds of merged and split labels, promises and sureness are fitted on its documents.
    """
    if not isinstance(fit, Corpus | None):
        raise DataError(f"the documents to fit on are {brief(fit)}; pass a Corpus")
    model, labels, calibration, decision = classifier.model, classifier.labels, classifier.calibration, classifier.decision
    abstention, counts = classifier.abstention, np.asarray(classifier.training["label_counts"])
    found = edited(labels, *edits)
    if edits[0].kind == "rename":
        model = model.renamed(found.labels)
    else:
        origins = Origins.of(found.sources, len(labels))
        model, calibration = Relabelled.of(model, calibration, found.labels, origins), None
        decision, abstention = decision.relabelled(origins), None
        counts = np.minimum(origins.matrix @ counts, int(classifier.training["documents"])).astype(np.int64)
    labels, done = found.labels, found.edits
    training = {**classifier.training, "label_counts": counts}
    if fit is not None:
        judged = _judged(fit, classifier.labels, labels, done)
        decision, abstention = _fitted((model, calibration, decision), classifier.recipe, training, judged, done)
    elif classifier.decision.promise and not decision.promise:
        log.warning(
            "%s is no longer promised, as the labels are others now; give documents to fit it again", classifier.decision.promise
        )
    classifier.model, classifier.labels, classifier.calibration = model, labels, calibration
    classifier.decision, classifier.abstention = decision, abstention
    classifier.training = training
    classifier.edits = [*classifier.edits, *(edit.recorded() for edit in done)]


def _fitted(
    parts: tuple[Model, Platt | None, Decision], recipe: Recipe, training: dict[str, Any], corpus: Corpus, edits: Sequence[Edit]
) -> tuple[Decision, Abstention]:
    """Decision and abstention, fitted on documents with the new labels."""
    model, calibration, decision = parts
    k = None if len(corpus) * len(model.labels) <= _FULL else min(_BEST, len(model.labels))
    scores = calibrated(model.score(corpus.texts, k), calibration, recipe.favour_rare, training)
    scores = scores if corpus.unknown is None else scores.without(corpus.unknown)
    touched = _touched(model.labels, edits)
    if recipe.promise:
        decision = replace(decision, promise=recipe.promise)
    found = decision.refit(scores, corpus.truth, model.labels, touched)
    return found, Abstention.fit(scores, corpus.truth, found.held_out_sets(scores, corpus.truth, model.labels))


def _touched(labels: LabelSet, edits: Sequence[Edit]) -> NDArray[np.bool_]:
    """Whether a label is one of those that were made."""
    made = {name for edit in edits if edit.kind in ("merge", "split") for name in edit.new}
    return np.array([name in made for name in labels], dtype=np.bool_)


def _judged(corpus: Corpus, before: LabelSet, labels: LabelSet, edits: Sequence[Edit]) -> Corpus:
    """The documents with the new labels; nobody judged the parts of a label that was split where it was given."""
    become: dict[str, tuple[str, ...]] = {name: (name,) for name in (*before, *labels)}
    for edit in edits:
        become |= dict.fromkeys(set(edit.old) - set(edit.new), edit.new)
    whole = {name for edit in edits if edit.kind == "split" for name in edit.old if name not in edit.new}
    lists, unknown = [], []
    pairs = [[]] * len(corpus) if corpus.unknown is None else corpus.labels.decode(corpus.unknown)
    for own, unjudged in zip(corpus.label_lists(), pairs, strict=True):
        given = {new for name in own if name not in whole for new in become.get(name, ())}
        parts = {new for name in (*unjudged, *(name for name in own if name in whole)) for new in become.get(name, ())}
        lists.append(sorted(given))
        unknown.append(sorted(parts - given))
    if not any(lists):
        raise DataError("none of the documents to fit on has one of the labels; give documents with the new labels")
    return Corpus.of(corpus.texts, lists, label_set=labels, unknown=unknown)
