"""Scores that favour rare labels: each is multiplied by a power of the label's inverse propensity (Jain et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polytag.decision.calibration import Platt
from polytag.errors import ConfigError
from polytag.linear.class_weights import propensities
from polytag.scores import Scores


def favour_rare(scores: Scores, power: float, training: Mapping[str, Any]) -> Scores:
    """Probabilities times (inverse propensity / the largest one)^power; 0 leaves them as they are.

    ``training`` has the number of documents and the counts of the labels. The result ranks and decides; it is at most the
    probability, and no probability any more.
    """
    if not power:
        return scores
    if scores.kind != "probability":
        raise ConfigError("favour_rare needs probabilities, and this model has margins; train it with more documents, or --valid")
    rarity = 1 / propensities(np.asarray(training["label_counts"]), int(training["documents"]))
    factors = ((rarity / rarity.max()) ** power).astype(np.float32)
    return scores.with_values(scores.matrix.data * factors[scores.matrix.indices], "probability")


def calibrated(scores: Scores, calibration: Platt | None, power: float, training: Mapping[str, Any]) -> Scores:
    """A model's scores as a classifier shows them: calibrated, and with rare labels favoured."""
    return favour_rare(scores if calibration is None else calibration.apply(scores), power, training)
