"""scikit-learn's linear pipeline from texts: tf-idf of words and pairs, one SVM per label, C and one threshold by validation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from polytag import Corpus
from polytag.metrics.of_sets import micro_f1

C = (0.25, 1.0, 4.0)
THRESHOLDS = np.linspace(-1.0, 0.5, 31)
HELD = 5  # without validation documents, every fifth training document is held out


def fit_and_predict(train: Corpus, valid: Corpus | None, test: Corpus, best: int) -> tuple[csr_array, NDArray[np.int32]]:
    """The label sets of the test documents and their best labels; chosen on validation, then trained on all documents."""
    labels = train.labels.union(valid.labels) if valid is not None else train.labels
    if valid is None:
        rows = np.arange(len(train))
        train, valid = train.subset(rows[rows % HELD != 0]), train.subset(rows[rows % HELD == 0])
    train, valid = train.with_labels(labels), valid.with_labels(labels)
    _, c, threshold = max(_tried(train, valid, c) for c in C)
    margins = _margins(train.concat(valid), test, c)
    order = np.argsort(-margins, axis=1, kind="stable")[:, :best].astype(np.int32)
    return csr_array((margins >= threshold).astype(np.float32)), order


def _tried(train: Corpus, valid: Corpus, c: float) -> tuple[float, float, float]:
    margins = _margins(train, valid, c)
    found = [(float(micro_f1(valid.truth, csr_array(margins >= t))), c, float(t)) for t in THRESHOLDS]
    return max(found)


def _margins(train: Corpus, other: Corpus, c: float) -> NDArray[Any]:
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    rows = words.fit_transform(train.texts)
    truth = train.truth.toarray()
    used = np.flatnonzero(truth.any(axis=0))
    model = OneVsRestClassifier(LinearSVC(C=c, random_state=0), n_jobs=2).fit(rows, truth[:, used])
    margins = np.full((len(other), truth.shape[1]), -np.inf)
    margins[:, used] = model.decision_function(words.transform(other.texts)).reshape(len(other), len(used))
    return margins
