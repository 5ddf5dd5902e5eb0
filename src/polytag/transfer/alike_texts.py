"""Which unlabelled texts are of the kind of the labelled documents: a teacher is sure of itself about the others too."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polytag.corpus import Corpus
from polytag.models.model import model_class
from polytag.run import Run

log = logging.getLogger(__name__)
_LIKE = 0.1  # a text is left out if it looks less like the labelled documents than this share of them does not
_FEWEST = 50  # texts of each kind that a separator needs
_OWN, _OTHER = "labelled", "unlabelled"


def alike(own: Sequence[str], others: Sequence[str], run: Run) -> NDArray[np.int64]:
    """The rows of the other texts that look like the own ones, sorted; all of them where there are few texts.

    A linear separator learns to tell the two apart, and scores every text out of fold. A text is alike if its score is above that
    of a tenth of the own ones. Where both come from one source, nine of ten others are.
    """
    if min(len(own), len(others)) < _FEWEST:
        return np.arange(len(others))
    both = Corpus.of([*own, *others], [[_OWN]] * len(own) + [[_OTHER]] * len(others))
    kind = model_class("br")
    model = kind.build(kind.check_options({"ngrams": 1, "c": 1}))
    held = model.fit(both, None, Run(None, progress=False))
    assert held is not None and held.rows is not None
    scores = np.empty(len(both))
    scores[held.rows] = held.scores.matrix.toarray()[:, both.labels.names.index(_OWN)]
    rows = np.flatnonzero(scores[len(own) :] >= np.quantile(scores[: len(own)], _LIKE))
    run.log("alike", {"texts": len(others), "alike": len(rows)})
    if len(rows) < len(others) / 2:
        log.warning("%s of %s unlabelled texts are like the labelled ones; the others are left out", len(rows), len(others))
    return rows
