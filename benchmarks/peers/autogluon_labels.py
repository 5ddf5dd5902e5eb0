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

FEWEST = 5  # documents with a label, and without it, that a predictor needs


def fit_and_predict(
    train: Corpus, valid: Corpus | None, test: Corpus, best: int, seconds: float
) -> tuple[csr_array, NDArray[np.int32]]:
    """The label sets of the test documents and their best labels; a label with few documents is never predicted.

    Thresholds are those that a predictor chooses for F1 on documents that it holds out.
    """
    import pandas
    from autogluon.tabular import TabularPredictor

    labels = train.labels.union(valid.labels) if valid is not None else train.labels
    whole = train.with_labels(labels) if valid is None else train.with_labels(labels).concat(valid.with_labels(labels))
    truth, end = whole.truth.toarray(), time.monotonic() + seconds
    counts = truth.sum(axis=0)
    used = np.flatnonzero((counts >= FEWEST) & (len(whole) - counts >= FEWEST))
    table, asked = pandas.DataFrame({"text": whole.texts}), pandas.DataFrame({"text": test.texts})
    scores = np.zeros((len(test), len(labels)), dtype=np.float32)
    sets = np.zeros(scores.shape, dtype=np.float32)
    for done, label in enumerate(used.tolist()):
        share = (end - time.monotonic()) / (len(used) - done)
        if share < 1:
            raise TimeoutError(f"{done} of {len(used)} labels were trained in {seconds:.0f} s")
        with tempfile.TemporaryDirectory() as folder:
            found: Any = TabularPredictor("y", "binary", "f1", path=folder, verbosity=0)
            found.fit(table.assign(y=truth[:, label].astype(int)), time_limit=share, calibrate_decision_threshold=True)
            scores[:, label] = found.predict_proba(asked)[1].to_numpy()
            sets[:, label] = found.predict(asked).to_numpy()
    return csr_array(sets), np.argsort(-scores, axis=1, kind="stable")[:, :best].astype(np.int32)
