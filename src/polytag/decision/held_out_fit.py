"""Calibration, decision and abstention, fitted together on held-out scores."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.label_costs import cost_table
from polytag.config.recipe import Recipe
from polytag.decision.abstention import Abstention
from polytag.decision.calibration import Platt
from polytag.decision.decision import Decision
from polytag.decision.rare_labels import favour_rare
from polytag.decision.thresholds import select
from polytag.errors import DataError
from polytag.labels import LabelSet
from polytag.metrics.of_sets import calibration_error, main_metrics
from polytag.scores import Scores

log = logging.getLogger(__name__)


class Fitted(NamedTuple):
    """What turns the scores of a model into label sets, and says how sure they are."""

    calibration: Platt | None
    decision: Decision
    abstention: Abstention | None


class Before(NamedTuple):
    """What an earlier training fitted on other documents, and the share of each label's documents that are new."""

    calibration: Platt | None
    decision: Decision
    share: NDArray[np.float64]


def fit_on_held_out(
    held: tuple[Scores, csr_array] | None,
    labels: LabelSet,
    recipe: Recipe,
    rule: str,
    fewest: int,
    before: Before | None,
    training: Mapping[str, Any],
) -> Fitted:
    """Fit on held-out scores and true labels; ``fewest`` is the minimum number of labels of a document.

    ``training`` has the counts of the labels, for ``favour_rare``.
    """
    fewest = 0 if recipe.costs else fewest
    least = fewest if recipe.min_labels is None else recipe.min_labels
    decision = Decision(rule, recipe.optimise, least, recipe.closed, promise=recipe.promise or "")
    if held is None or not len(held[0]) or not held[1].nnz:
        _refuse_without_hold_out(recipe)
        return Fitted(None, decision, None)
    calibration, scores, truth = _calibrated(*held, recipe, before)
    scores = favour_rare(scores, recipe.favour_rare, training)
    if recipe.costs:
        decision.fit_costs(scores, truth, labels, cost_table(recipe.costs, labels.names))
    else:
        decision.fit(scores, truth, labels)
        if before is not None:
            decision.blend(before.decision, before.share, scores, truth, labels)
    sets = decision.held_out_sets(scores, truth, labels)
    decision.report["metrics"] = {"documents": len(scores), **main_metrics(truth, sets)}
    if scores.kind == "probability" and not recipe.favour_rare:
        decision.report["calibration_error"] = calibration_error(truth, scores)
    return Fitted(calibration, decision, Abstention.fit(scores, truth, sets))


def _refuse_without_hold_out(recipe: Recipe) -> None:
    if recipe.costs:
        raise DataError("too few documents for a hold-out, so costs cannot be minimised; give more, or --valid")
    if recipe.promise:
        raise DataError(f"too few documents for a hold-out, so {recipe.promise} cannot be promised; give more, or --valid")
    if recipe.favour_rare:
        raise DataError("too few documents for a hold-out, so there are no probabilities for favour_rare; give more, or --valid")
    log.warning("too few documents for a hold-out: the thresholds are not fitted")


def _calibrated(
    scores: Scores, truth: csr_array, recipe: Recipe, before: Before | None
) -> tuple[Platt | None, Scores, csr_array]:
    """The calibration of margins, and calibrated scores with their true labels to decide on."""
    if not recipe.calibrate or scores.kind != "margin":
        return None, scores, truth
    if recipe.promise:  # what is promised is measured on documents that the calibration did not see
        half = np.random.default_rng(recipe.seed).permutation(len(scores)) % 2 == 0
        calibration = Platt.fit(select(scores, half), truth[half])
        scores, truth = select(scores, ~half), truth[~half]
    else:
        calibration = Platt.fit(scores, truth)
    if before is not None and before.calibration is not None:
        calibration = calibration.blended(before.calibration, before.share)
    return calibration, calibration.apply(scores), truth
