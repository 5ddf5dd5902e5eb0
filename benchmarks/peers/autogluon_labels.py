"""AutoGluon's TabularPredictor from texts, one for every label; each gets an equal share of the time.

Runs in an environment of its own: ``pip install "autogluon.tabular[lightgbm]"`` and Polytag's core dependencies.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag import Corpus
from polytag.metrics.of_sets import micro_f1

FEWEST = 5  # documents with a label, and without it, that a predictor needs
HELD = 5  # without validation documents, every fifth training document is held out
THRESHOLDS = np.linspace(0.02, 0.98, 49)


def fit_and_predict(
    train: Corpus, valid: Corpus | None, test: Corpus, best: int, seconds: float
) -> tuple[csr_array, NDArray[np.int32]]:
    """The label sets of the test documents and their best labels; a label with few documents is never predicted.

    Validation documents stop each predictor, and choose one threshold for all labels. A threshold of each predictor's own, which
    AutoGluon offers, comes from the few of these documents that have its label, and many labels are predicted everywhere.
    """
    labels = train.labels.union(valid.labels) if valid is not None else train.labels
    if valid is None:
        rows = np.arange(len(train))
        train, valid = train.subset(rows[rows % HELD != 0]), train.subset(rows[rows % HELD == 0])
    train, valid = train.with_labels(labels), valid.with_labels(labels)
    held, scores = _probabilities(train, valid, test, seconds)
    threshold = max(THRESHOLDS.tolist(), key=lambda t: float(micro_f1(valid.truth, csr_array(held >= t))))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :best].astype(np.int32)
    return csr_array((scores >= threshold).astype(np.float32)), order


def _probabilities(train: Corpus, valid: Corpus, test: Corpus, seconds: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The probability of every label for validation and test documents, by one predictor for each label."""
    import pandas
    from autogluon.tabular import TabularPredictor

    end, truth, tuned = time.monotonic() + seconds, train.truth.toarray(), valid.truth.toarray()
    counts = truth.sum(axis=0)
    used = np.flatnonzero((counts >= FEWEST) & (len(train) - counts >= FEWEST))
    tables = [pandas.DataFrame({"text": part.texts}) for part in (train, valid, test)]
    held, scores = (np.zeros((len(part), truth.shape[1]), dtype=np.float32) for part in (valid, test))
    for done, label in enumerate(used.tolist()):
        share = (end - time.monotonic()) / (len(used) - done)
        if share < 1:
            raise TimeoutError(f"{done} of {len(used)} labels were trained in {seconds:.0f} s")
        known, told = (table.assign(y=part[:, label].astype(int)) for table, part in zip(tables, (truth, tuned), strict=False))
        with tempfile.TemporaryDirectory() as folder:
            found: Any = TabularPredictor("y", "binary", "log_loss", path=folder, verbosity=0)
            found.fit(known, tuning_data=told if told["y"].nunique() == 2 else None, time_limit=share)
            for place, table in ((held, tables[1]), (scores, tables[2])):
                place[:, label] = found.predict_proba(table)[1].to_numpy()
    return held, scores
