"""Corpus: one label set for all documents, from files, lists and frames; nothing is lost without a word."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polytag.corpus import Corpus
from polytag.errors import ConfigError, DataError
from polytag.formats.document import Document, ReadOptions
from polytag.labels import LabelSet

NAMES = [["fish", "trade"], [], ["trade"], ["weather", "fish"]]
TEXTS = ["Fish quotas", "Nothing", "Trade talks", "Rain on fish"]
CORPORA = st.lists(st.tuples(st.text(max_size=5), st.sets(st.sampled_from("abcdef"))), min_size=1, max_size=12).map(
    lambda pairs: Corpus.of([text for text, _ in pairs], [sorted(labels) for _, labels in pairs])
)


@pytest.fixture
def corpus() -> Corpus:
    return Corpus.of(TEXTS, NAMES, ids=["a", "b", "c", "d"])


def rows(corpus: Corpus) -> list[tuple[str, str, list[str]]]:
    return [(d.id, d.text, sorted(d.labels)) for d in corpus.documents()]


# -- making one --------------------------------------------------------------------------------------------------------


def test_plain_lists(corpus: Corpus) -> None:
    assert corpus.labels.names == ("fish", "trade", "weather")
    np.testing.assert_array_equal(corpus.truth.toarray(), [[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1]])
    assert corpus.truth.dtype == np.float32
    assert corpus.truth.has_sorted_indices
    assert [sorted(names) for names in corpus.label_lists()] == [sorted(names) for names in NAMES]
    assert Corpus.of(TEXTS, NAMES).ids == ["1", "2", "3", "4"]
    assert len(corpus) == 4


def test_the_label_order_does_not_depend_on_the_documents_order() -> None:
    assert Corpus.of(["x", "y"], [["b"], ["a", "c"]]).labels.names == ("a", "b", "c")


@pytest.mark.parametrize("kind", ["object", "path", "str"])
def test_labels_that_the_set_lacks_are_added_counted_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    known = LabelSet(["z", "root"], descriptions={"z": "last"}, parents={"z": "root"}, ids={"z": "Z1"})
    path = tmp_path / "train.jsonl"
    Corpus.of(["one", "two"], [["new", "Z1"], ["also new", "new"]]).write(path)
    known.write(tmp_path / "labels.jsonl")
    given_as = {"object": known, "path": tmp_path / "labels.jsonl", "str": str(tmp_path / "labels.jsonl")}[kind]
    with caplog.at_level(logging.WARNING):
        corpus = Corpus.read(path, labels=given_as)
    assert corpus.labels.names == ("z", "root", "also new", "new")
    assert corpus.labels.descriptions == {"z": "last"}
    assert corpus.labels.parents == {"z": "root"}
    assert [sorted(names) for names in corpus.label_lists()] == [["new", "z"], ["also new", "new"]]
    assert "added 2 labels that the label set lacks (3 uses): 'new'" in caplog.text


def test_duplicate_ids_are_kept_counted_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        corpus = Corpus.of(list("wxyz"), [["a"]] * 4, ids=["1", "2", "1", "1"])
    assert len(corpus) == 4
    assert corpus.duplicate_ids == {"1": 3}
    assert "1 ids occur more than once" in caplog.text


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv.xz", ".parquet"])
def test_files_keep_everything(tmp_path: Path, ending: str) -> None:
    corpus = Corpus.of(TEXTS, NAMES, ids=["a", "b", "c", "d"], groups=["", "g", "g", ""])
    corpus.write(tmp_path / f"x{ending}")
    again = Corpus.read(tmp_path / f"x{ending}")
    assert rows(again) == rows(corpus)
    assert again.groups == ["", "g", "g", ""]
    assert again.labels == corpus.labels
    assert again.fingerprint() == corpus.fingerprint()


def test_files_without_documents(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("\n")
    with pytest.raises(DataError, match=r"x\.jsonl: no documents; the file is empty"):
        Corpus.read(path)
    path.write_text("{oops\n{oops\n")
    with pytest.raises(DataError, match="no documents, 2 bad lines; the first: line 1: not JSON"):
        Corpus.read(path, options=ReadOptions(on_bad="skip"))
    with pytest.raises(DataError, match="no documents"):
        Corpus.of([], [])


def test_lists_that_do_not_fit_are_named() -> None:
    with pytest.raises(DataError, match="2 texts but 1 labels"):
        Corpus.of(["a", "b"], [["x"]])
    with pytest.raises(DataError, match="1 texts but 2 ids"):
        Corpus.of(["a"], [["x"]], ids=["1", "2"])
    with pytest.raises(DataError, match=r"text 1 are the plain string 'sport'; put them into a list: \['sport'\]"):
        Corpus.of(["a", "b"], [["x"], "sport"])
    with pytest.raises(DataError, match="text 1 is of type int"):
        Corpus.of(["a", 3], [["x"], ["y"]])  # type: ignore[list-item]


# -- frames ------------------------------------------------------------------------------------------------------------


def test_pandas_frames_with_lists_arrays_and_missing_values() -> None:
    frame = pandas.DataFrame(
        {
            "title": ["Fish", None, "Talks"],
            "body": ["quotas", "rain", float("nan")],
            "tags": [["fish"], np.array(["weather", "rain"]), None],
            "id": [10, 11, 12],
            5: [0, 0, 0],
        },
        index=[7, 8, 9],
    )
    corpus = Corpus.from_frame(frame, text=["title", "body"], labels="tags")
    assert rows(corpus) == [("10", "Fish quotas", ["fish"]), ("11", "rain", ["rain", "weather"]), ("12", "Talks", [])]
    assert rows(Corpus.from_frame(frame, text="title,body")) == rows(corpus)


def test_pandas_frames_with_strings_and_groups() -> None:
    frame = pandas.DataFrame({"text": ["x", "y"], "labels": ["a;b", pandas.NA], "source": ["s", "t"]})
    corpus = Corpus.from_frame(frame, group="source")
    assert rows(corpus) == [("1", "x", ["a", "b"]), ("2", "y", [])]
    assert corpus.groups == ["s", "t"]


class Features:
    """What a Hugging Face dataset says about a column of class numbers."""

    names = ("fish", "trade")


class ListOfFeatures:
    feature = Features()


class Dataset:
    """The part of a Hugging Face dataset that is used."""

    def __init__(self, features: dict[str, Any], **columns: Sequence[Any]) -> None:
        self.features, self.columns_of, self.column_names = features, columns, list(columns)

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self.columns_of[name]


def test_hugging_face_datasets_and_their_class_names() -> None:
    many = Dataset({"labels": ListOfFeatures()}, text=["x", "y"], labels=[[0, 1], []])
    assert rows(Corpus.from_frame(many)) == [("1", "x", ["fish", "trade"]), ("2", "y", [])]
    single = Dataset({"label": Features()}, text=["x", "y", "z"], label=[1, -1, 0])
    assert [r[2] for r in rows(Corpus.from_frame(single))] == [["trade"], [], ["fish"]]
    plain = Dataset({"label": object()}, text=["x"], label=[3])
    assert rows(Corpus.from_frame(plain)) == [("1", "x", ["3"])]


def test_mistakes_in_frames_are_named() -> None:
    frame = pandas.DataFrame({"text": ["x", "y"], "labels": [["a"], {"b": 1}]})
    with pytest.raises(DataError, match="the frame, row 2: the labels are an object"):
        Corpus.from_frame(frame)
    with pytest.raises(DataError, match=r"no text column 'txt' among .* did you mean 'text'"):
        Corpus.from_frame(frame, text="txt")
    splits = Dataset({})
    splits.column_names = {"train": ["text"]}  # type: ignore[assignment]
    with pytest.raises(DataError, match="dictionary of datasets"):
        Corpus.from_frame(splits)


# -- making others of it -----------------------------------------------------------------------------------------------


@given(CORPORA, st.data())
def test_a_subset_by_rows_or_mask_is_those_documents(corpus: Corpus, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(corpus) - 1), max_size=8))
    assert rows(corpus.subset(chosen)) == [rows(corpus)[i] for i in chosen]
    mask = np.isin(np.arange(len(corpus)), chosen)
    assert rows(corpus.subset(mask)) == [row for row, keep in zip(rows(corpus), mask, strict=True) if keep]
    assert corpus.subset(chosen).labels is corpus.labels


@given(CORPORA, st.permutations("abcdefgh"), st.integers(1, 8))
def test_another_label_set_keeps_what_it_knows(corpus: Corpus, names: list[str], size: int) -> None:
    known = LabelSet(names[:size])
    again = corpus.with_labels(known)
    assert again.labels is known
    assert again.truth.has_sorted_indices
    expected = [(i, text, [name for name in labels if name in known]) for i, text, labels in rows(corpus)]
    assert rows(again) == expected
    np.testing.assert_array_equal(again.truth.toarray(), known.encode([labels for _, _, labels in expected]).toarray())


def test_dropped_labels_are_counted(corpus: Corpus, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        corpus.with_labels(LabelSet(["weather"]))
    assert "dropped 2 labels (4 uses)" in caplog.text


def test_two_names_of_one_label_become_one() -> None:
    corpus = Corpus.of(["x"], [["S1", "sport"]])
    assert corpus.with_labels(LabelSet(["sport"], ids={"sport": "S1"})).truth.toarray().tolist() == [[1]]


@given(CORPORA, CORPORA)
def test_concat_is_the_documents_of_both(one: Corpus, two: Corpus) -> None:
    both = one.concat(two)
    assert rows(both) == rows(one) + rows(two)
    assert set(both.labels) == set(one.labels) | set(two.labels)
    assert both.labels.names[: len(one.labels)] == one.labels.names
    assert one.concat(one).labels is one.labels


def test_concat_keeps_groups_where_only_one_side_has_them(corpus: Corpus) -> None:
    grouped = Corpus.of(["x"], [["y"]], groups=["g"])
    assert corpus.concat(grouped).groups == ["", "", "", "", "g"]
    assert grouped.concat(corpus).groups == ["g", "", "", "", ""]


@pytest.mark.parametrize("by", ["random", "group", "stratified"])
def test_split_gives_every_document_once_with_one_label_set(by: Any) -> None:
    corpus = Corpus.of(
        [f"t{i}" for i in range(60)], [["a"] if i % 3 else ["b"] for i in range(60)], groups=[str(i // 2) for i in range(60)]
    )
    parts = corpus.split(0.5, 0.3, 0.2, seed=3, by=by)
    assert sorted(text for part in parts for text in part.texts) == sorted(corpus.texts)
    assert all(part.labels is corpus.labels for part in parts)
    for part in parts:
        assert all(part.label_lists()[i] == (["a"] if int(text[1:]) % 3 else ["b"]) for i, text in enumerate(part.texts))
        assert part.texts == sorted(part.texts, key=lambda text: int(text[1:]))
    again = corpus.split(0.5, 0.3, 0.2, seed=3, by=by)
    assert [part.ids for part in parts] == [part.ids for part in again]


def test_folds_hold_out_every_document_once(corpus: Corpus) -> None:
    folds = corpus.folds(2, seed=1, by="stratified")
    assert sorted(np.concatenate([held for _, held in folds]).tolist()) == [0, 1, 2, 3]


def test_splits_that_cannot_be(corpus: Corpus) -> None:
    with pytest.raises(DataError, match=r"the part of 0\.01 would have no documents \(of 4\)"):
        corpus.split(0.99, 0.01)
    with pytest.raises(ConfigError, match="sum to 1"):
        corpus.split(0.8, 0.1)
    with pytest.raises(DataError, match="no group to split by"):
        corpus.split(0.5, 0.5, by="group")


# -- looking at it -----------------------------------------------------------------------------------------------------


def test_the_fingerprint_follows_ids_texts_and_labels_but_not_the_label_order() -> None:
    def fingerprint(ids: str = "12", texts: str = "xy", labels: Sequence[str] = ("a", "bc"), order: str = "abc") -> str:
        return Corpus.of(list(texts), [list(names) for names in labels], ids=list(ids), label_set=LabelSet(order)).fingerprint()

    assert fingerprint() == fingerprint(order="cba") == fingerprint(labels=("a", "cb"))
    assert len({fingerprint(), fingerprint(ids="13"), fingerprint(texts="xz"), fingerprint(labels=("a", "b"))}) == 4
    assert len({fingerprint(), fingerprint(texts="yx")}) == 2
    assert len(fingerprint()) == 64
    assert Corpus.of(["\ud800"], [["a"]]).fingerprint()  # half a character must not stop a training


def test_the_fewest_labels_of_a_document_are_counted() -> None:
    assert Corpus.of(["x", "y"], [["a", "b"], ["a", "b", "c"]]).fewest_labels == 2
    one = Corpus.of(["x", "y"], [["a"], []])
    assert one.fewest_labels == one.subset([]).fewest_labels == 0


def test_what_cannot_be_trained_on_is_named(corpus: Corpus) -> None:
    corpus.require_trainable()
    with pytest.raises(DataError, match="no labels at all"):
        Corpus.of(["x", "y"], [[], []], label_set=LabelSet("ab")).require_trainable()
    with pytest.raises(DataError, match=r"one label only \('b'\)"):
        Corpus.of(["x", "y"], [["b"], []], label_set=LabelSet("ab")).require_trainable()


def test_documents_carry_their_groups() -> None:
    corpus = Corpus.of(["x", "y"], [["a"], []], groups=["g", ""])
    assert list(corpus.documents()) == [Document("1", "x", ("a",), "g"), Document("2", "y", (), "")]
