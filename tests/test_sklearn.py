"""The scikit-learn estimator: scikit-learn's own checks, its tools, and every form of labels.

``python tests/test_sklearn.py`` writes the list of checks again.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import validate_data

from polytag import Classifier
from polytag.sklearn import PolytagClassifier
from toys import toy_corpus

LISTED = Path(__file__).parents[1] / "benchmarks" / "results" / "sklearn_checks.json"
QUICK = {"c": [1.0], "ngrams": [1]}
EXCUSED = {"check_classifier_multioutput": "it expects a threshold of 0.5; thresholds are fitted here"}


class NumbersAsWords(PolytagClassifier):
    """The estimator for matrices of numbers, which scikit-learn's checks are made of: every value becomes a word."""

    def _texts(self, X: Any) -> list[str]:
        X = validate_data(self, X, reset=not hasattr(self, "classifier_"))
        return [" ".join(f"c{column}v{int(np.floor(4 * value))}" for column, value in enumerate(row)) for row in X.astype(float)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string, tags.input_tags.one_d_array = True, False, False
        return tags


def checks() -> list[dict[str, str]]:
    """What scikit-learn's checks say, each with its reason if it was skipped or is excused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(NumbersAsWords(options={**QUICK, "min_df": 1}), expected_failed_checks=EXCUSED, on_fail=None)
    rows = []
    for each in found:
        row = {"check": each["check_name"], "status": each["status"]}
        if each["status"] != "passed":
            row["reason"] = EXCUSED.get(each["check_name"]) or str(each["exception"]).splitlines()[0]
        rows.append(row)
    return rows


def test_the_checks_of_scikit_learn_pass_as_listed() -> None:
    found = checks()
    assert {row["check"] for row in found if row["status"] not in ("passed", "skipped")} == set(EXCUSED)
    assert sum(row["status"] == "passed" for row in found) >= 50
    listed = {row["check"] for row in json.loads(LISTED.read_text())["checks"]}
    assert len(listed & {row["check"] for row in found}) > 40, "write the list again: python tests/test_sklearn.py"


@pytest.fixture(scope="module")
def documents() -> tuple[list[str], list[list[str]]]:
    corpus = toy_corpus(120)
    return corpus.texts, corpus.labels.decode(corpus.truth)


def test_predictions_are_those_of_the_classifier(documents: tuple[list[str], list[list[str]]]) -> None:
    texts, labels = documents
    found = PolytagClassifier(options=QUICK).fit(texts, labels)
    plain = Classifier("br", QUICK).fit(texts, labels)
    assert [sorted(row) for row in found.predict(texts)] == [sorted(row) for row in plain.predict(texts)]
    assert list(found.classes_) == sorted({label for row in labels for label in row})


@pytest.mark.parametrize("form", ["array", "sparse", "frame", "lists"])
def test_labels_come_back_in_the_form_they_were_given(documents: tuple[list[str], list[list[str]]], form: str) -> None:
    texts, labels = documents
    binarizer = MultiLabelBinarizer()
    matrix = binarizer.fit_transform(labels)
    y: Any = {
        "array": matrix, "sparse": csr_array(matrix), "frame": pd.DataFrame(matrix, columns=binarizer.classes_), "lists": labels
    }[form]  # fmt: skip
    found = PolytagClassifier(options=QUICK).fit(pd.Series(texts), y)
    predicted = found.predict(np.array(texts, dtype=object))
    dense = binarizer.transform(predicted) if form == "lists" else predicted.toarray() if form == "sparse" else predicted
    assert dense.shape == matrix.shape and f1_score(matrix, dense, average="micro") > 0.8
    assert found.score(texts, y) == pytest.approx(f1_score(matrix, dense, average="micro"))
    chance = found.predict_proba(texts)
    assert chance.shape == matrix.shape and ((chance >= 0) & (chance <= 1)).all()


def test_one_label_per_text_is_plain_classification(documents: tuple[list[str], list[list[str]]]) -> None:
    texts, labels = documents
    y = np.array([row[0] for row in labels])
    found = PolytagClassifier(options=QUICK).fit(texts, y)
    assert found.predict(texts).shape == y.shape and found.score(texts, y) > 0.7
    assert found.predict_proba(texts).sum(axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-5)


def test_the_tools_of_scikit_learn_work(documents: tuple[list[str], list[list[str]]]) -> None:
    texts, labels = documents
    matrix = MultiLabelBinarizer().fit_transform(labels)
    estimator = PolytagClassifier(options=QUICK)
    assert clone(estimator).get_params() == estimator.get_params()
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    searched = GridSearchCV(
        Pipeline([("lower", lower), ("polytag", estimator)]),
        {"polytag__options": [{**QUICK, "c": [c]} for c in (0.01, 1.0)]},
        cv=2,
    )
    searched.fit(texts, matrix)
    assert searched.best_params_["polytag__options"]["c"] == [1.0] and searched.predict(texts[:3]).shape == (3, matrix.shape[1])
    assert cross_val_predict(estimator, texts, matrix, cv=3).shape == matrix.shape
    assert len(cross_val_predict(estimator, texts, labels, cv=KFold(3))) == len(texts), "scikit-learn cannot stratify lists"
    frame = pd.DataFrame({"body": texts, "number": range(len(texts))})
    chosen = Pipeline([("body", ColumnTransformer([("text", "passthrough", ["body"])])), ("polytag", estimator)])
    assert chosen.fit(frame, matrix).predict(frame[:5]).shape == (5, matrix.shape[1])


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (["a b", "c"], [["x"]], "2 texts but labels of 1"),
        (np.zeros((2, 3)), [["x"], ["y"]], "the texts have 3 columns"),
        (csr_array(np.eye(2)), [["x"], ["y"]], "leave the vectoriser out"),
        (["a", 7], [["x"], ["y"]], "text 1"),
        (["a", "b"], ["x", "x"], "one class only"),
        (["a", "b"], None, "requires y"),
    ],
)
def test_wrong_input_is_a_value_error(x: Any, y: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PolytagClassifier(options=QUICK).fit(x, y)


if __name__ == "__main__":
    import sklearn

    result = {"command": "python tests/test_sklearn.py", "scikit-learn": sklearn.__version__, "checks": checks()}
    LISTED.write_text(json.dumps(result, indent=1) + "\n")
