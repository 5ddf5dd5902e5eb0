"""Files of the extreme classification repository: raw text with label numbers, and rows of features without any text."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.datasets.synthetic import Shape, features_and_truth
from polytag.errors import ConfigError, DataError
from polytag.formats.document_files import Document, ReadOptions, read_documents, write_documents
from polytag.labels import LabelSet
from polytag.text.tfidf import Tfidf

RAW: list[dict[str, Any]] = [
    {"uid": "a1", "title": "Fish quotas", "content": "Ministers agreed.", "target_ind": [0, 2], "target_rel": [1.0, 1.0]},
    {"uid": "a2", "title": "Storm", "content": "", "target_ind": [1], "target_rel": [1.0]},
    {"uid": "a3", "title": "A year", "content": "Nothing else", "target_ind": [], "target_rel": []},
]
TITLES = ["Fishing", "Weather", "Trade", "Weather", "", "2"]
SMALL: dict[str, Any] = {"branching": 3, "max_leaf": 8, "beam": 6}
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False, width=32).filter(lambda value: abs(value) > 1e-6)


def lines(path: Path, records: list[Any]) -> Path:
    content = "".join((json.dumps(record) if isinstance(record, dict) else record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def as_lines(rows: csr_array, truth: csr_array) -> list[str]:
    """Rows in the repository's own words, with their header."""
    found = [f"{rows.shape[0]} {rows.shape[1]} {truth.shape[1]}"]
    for i in range(rows.shape[0]):
        row, own = (slice(m.indptr[i], m.indptr[i + 1]) for m in (rows, truth))
        pairs = zip(rows.indices[row].tolist(), rows.data[row].tolist(), strict=True)
        found.append(" ".join([",".join(map(str, truth.indices[own])), *(f"{j}:{v!r}" for j, v in pairs)]))
    return found


# -- raw text ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trn.json", "trn.json.gz"])
def test_raw_text_is_title_and_content_with_label_titles(tmp_path: Path, name: str) -> None:
    titles = lines(tmp_path / "lbl.json", [{"uid": f"L{j}", "title": title} for j, title in enumerate(TITLES)])
    found = Corpus.read(lines(tmp_path / name, RAW), labels=titles)
    assert found.ids == ["a1", "a2", "a3"] and found.texts == ["Fish quotas Ministers agreed.", "Storm", "A year Nothing else"]
    assert found.label_lists() == [["Fishing", "Trade"], ["Weather #1"], []]


def test_titles_are_told_apart_and_never_taken_for_numbers(tmp_path: Path) -> None:
    """Every number finds its own line, also where a title is missing, there twice, or a number that means another label."""
    read = LabelSet.read(lines(tmp_path / "lbl.json.gz", [{"uid": "x", "title": title} for title in TITLES]))
    assert list(read) == ["Fishing", "Weather #1", "Trade", "Weather #3", "4", "2 #5"]
    assert [read.find(str(j)) for j in range(len(TITLES))] == list(range(len(TITLES)))


def test_without_titles_labels_are_numbers(tmp_path: Path) -> None:
    path = lines(tmp_path / "tst.json", RAW)
    assert [document.labels for document in read_documents(path)] == [("0", "2"), ("1",), ()]
    assert [document.text for document in read_documents(path, ReadOptions(text="title"), need_labels=False)][1] == "Storm"
    bare = lines(tmp_path / "new.json", [{key: record[key] for key in ("uid", "title", "content")} for record in RAW])
    assert next(read_documents(bare, need_labels=False)).text == "Fish quotas Ministers agreed."


def test_a_bad_line_of_raw_text_is_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "trn.json", [RAW[0], {"uid": "x", "title": "no labels", "content": ""}])
    with pytest.raises(DataError, match=r"trn\.json, line 2: no 'target_ind' here"):
        Corpus.read(path)
    with pytest.raises(DataError, match=r"lbl\.json, line 2: not JSON"):
        LabelSet.read(lines(tmp_path / "lbl.json", [{"uid": "x", "title": "Fishing"}, "{"]))


def test_a_classifier_answers_with_titles_and_is_measured_by_numbers(polytag: Callable[..., Any], tmp_path: Path) -> None:
    records = []
    for i in range(120):
        own = [i % 6, (i + 1) % 6][: 1 + i % 2]
        text = " ".join(f"word{j} sign{j}" for j in own)
        records.append({"uid": str(i), "title": f"item {i}", "content": text, "target_ind": own, "target_rel": [1.0] * len(own)})
    train, test = lines(tmp_path / "trn.json.gz", records[:90]), lines(tmp_path / "tst.json.gz", records[90:])
    titles = lines(tmp_path / "lbl.json", [{"uid": str(j), "title": title} for j, title in enumerate(TITLES)])
    assert polytag("train", train, "--labels", titles, "--model", "br", "--out", tmp_path / "run").code == 0
    assert polytag("evaluate", tmp_path / "run", test, "--json").json["micro_f1"] > 0.95
    first = json.loads(polytag("predict", tmp_path / "run", test, "--top", 1).out.splitlines()[0])
    assert first["labels"] == ["Fishing"]


# -- rows of features --------------------------------------------------------------------------------------------------


@given(st.lists(st.dictionaries(st.integers(0, 9), NUMBERS, max_size=6), min_size=2, max_size=8))
def test_rows_keep_their_weights_and_get_length_one(rows: list[dict[int, float]]) -> None:
    """Against the numbers themselves, divided by the length of the row."""
    texts = [" ".join(f"{j}:{v!r}" for j, v in row.items()) for row in [{0: 1.0}, *rows]]
    found = Tfidf(min_df=1).fit(texts)
    assert found.given and found.terms == [str(key) for key in found.keys]
    dense = np.zeros((len(texts), 10))
    for i, row in enumerate([{0: 1.0}, *rows]):
        dense[i, list(row)] = list(row.values())
    dense /= np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-12)
    matrix = found.transform(texts)
    assert matrix.has_sorted_indices and matrix.dtype == np.float32
    np.testing.assert_allclose(matrix.toarray(), dense[:, found.keys.astype(int)], atol=1e-5)


def test_text_with_numbers_in_it_stays_text() -> None:
    assert not Tfidf(min_df=1).fit(["1:0.5 2:1", "at 12:30 today"]).given
    rows = Tfidf(min_df=1).fit(["1:0.5 2:1", "1:3"])
    with pytest.raises(DataError, match=r"text 1 \('plain words'\.\.\.\) is not a feature vector"):
        rows.transform(["1:2", "plain words"])


def test_the_format_is_detected_with_and_without_its_first_line(tmp_path: Path) -> None:
    rows = ["3 10 5", "0,4 1:0.5 9:1e-2", " 2:1", "3"]
    expected = [Document("1", "1:0.5 9:1e-2", ("0", "4")), Document("2", "2:1"), Document("3", "", ("3",))]
    for number, (name, content) in enumerate({"trn.txt": rows, "trn.txt.gz": rows, "x.svm": rows[1:], "none": rows[1:]}.items()):
        assert list(read_documents(lines(tmp_path / name, content))) == expected, number
    assert list(read_documents(lines(tmp_path / "a.txt", rows), ReadOptions(format="svmlight"))) == expected


def test_long_lines_are_detected_and_times_of_day_are_not(tmp_path: Path) -> None:
    long = lines(tmp_path / "long.txt", ["7 " + " ".join(f"{j}:0.5" for j in range(3000))])
    assert next(read_documents(long)).labels == ("7",)
    for first in ("12:30", "3 10:30 Meeting", "9 7:15 8:30 9:45 breakfast"):
        assert next(read_documents(lines(tmp_path / "day.txt", [first]), need_labels=False)).text == first
    rows = read_documents(lines(tmp_path / "day.txt", ["12:30"]), ReadOptions(format="libsvm"), need_labels=False)
    assert next(rows) == Document("1", "12:30"), "rows to predict on need no labels"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["2 10 5", "1 2:1", "1 two:1"], "line 3: not a row of features"),
        (["2 10 5", "1 2:1", "1 2:1:4"], "line 3: not a row of features"),
        (["1 10 5", "1 10:1"], "line 2: feature 10, but line 1 announces 10 of them"),
        (["1 10 5", "0,5 1:1"], "line 2: label 5, but line 1 announces 5 of them"),
        (["3 10 5", "0 1:1", "2 1:1"], "line 1: 3 documents are announced, but there are 2"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(DataError, match=f"rows.svm, {message}"):
        Corpus.read(lines(tmp_path / "rows.svm", rows))


def test_rows_are_read_and_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is read, not written"):
        write_documents(tmp_path / "rows.svm", [])


@pytest.mark.parametrize(("model", "options"), [("xlinear", SMALL), ("br", {"ngrams": 1, "c": 1.0})])
def test_rows_train_as_well_as_the_same_counts_as_words(tmp_path: Path, model: str, options: dict[str, Any]) -> None:
    """A classifier from rows of features finds the labels, is saved and loaded, and refuses plain text."""
    counts, truth = features_and_truth(Shape(documents=900, labels=30, vocabulary=600, labels_per_document=2, group=6))
    rows = lines(tmp_path / "trn.txt", as_lines(counts[:700], truth[:700]))
    test = lines(tmp_path / "tst.txt", as_lines(counts[700:], truth[700:]))
    train = Corpus.read(rows)
    assert len(train) == 700 and train.labels.find("29") is not None
    Classifier(model, options).fit(train).save(tmp_path / "run")
    loaded = Classifier.load(tmp_path / "run")
    assert loaded.evaluate(Corpus.read(test, labels=loaded.labels))["p@1"] > 0.8
    with pytest.raises(DataError, match="not a feature vector"):
        loaded.predict(["plain words"])
