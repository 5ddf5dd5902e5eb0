"""LabelSet: order, encoding, tree and files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import MultiLabelBinarizer

from polytag.errors import DataError
from polytag.labels import LabelSet, indicator, indicator_of_pairs

NAMES = ["root", "left", "right", "leaf", "alone"]
TREE = LabelSet(NAMES, parents={"left": "root", "right": "root", "leaf": "left"})


@st.composite
def forests(draw: st.DrawFn) -> LabelSet:
    """Labels in random order, where each may have a parent among those made before it."""
    size = draw(st.integers(1, 12))
    parent = [draw(st.integers(-1, i - 1)) for i in range(size)]
    names = draw(st.permutations([f"l{i}" for i in range(size)]))
    return LabelSet(names, parents={f"l{i}": f"l{p}" for i, p in enumerate(parent) if p >= 0})


def ancestors(labels: LabelSet, name: str) -> set[str]:
    found = {name}
    while name in labels.parents:
        name = labels.parents[name]
        found.add(name)
    return found


@given(st.lists(st.lists(st.sampled_from("abcde")), max_size=8))
def test_encode_equals_scikit_learn_and_decodes_back(documents: list[list[str]]) -> None:
    labels = LabelSet("abcde")
    matrix = labels.encode(documents)
    expected = MultiLabelBinarizer(classes=list("abcde")).fit_transform(documents) if documents else np.zeros((0, 5))
    np.testing.assert_array_equal(matrix.toarray(), expected)
    assert matrix.dtype == np.float32
    assert labels.decode(matrix) == [sorted(set(document)) for document in documents]


def test_unknown_labels_are_counted_and_ids_are_understood() -> None:
    unknown: Counter[str] = Counter()
    labels = LabelSet(["sport", "trade"], ids={"sport": "S1"})
    matrix = labels.encode([["S1", "x"], ["trade", "x", "y"]], unknown)
    np.testing.assert_array_equal(matrix.toarray(), [[1, 0], [0, 1]])
    assert unknown == {"x": 2, "y": 1}
    assert (labels.find("S1"), labels.find("sport"), labels.find("x")) == (0, 0, None)


def test_indicator_sorts_and_removes_repetitions() -> None:
    matrix = indicator([[3, 1, 3], []], 4)
    assert matrix.indices.tolist() == [1, 3]
    assert matrix.indptr.tolist() == [0, 2, 2]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=30))
def test_pairs_in_any_order_and_several_times_make_the_same_matrix(pairs: list[tuple[int, int]]) -> None:
    documents, numbers = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    found, expected = (
        indicator_of_pairs(documents, numbers, (5, 7)),
        indicator([[b for a, b in pairs if a == i] for i in range(5)], 7),
    )
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))


@given(forests())
def test_closure_holds_exactly_the_ancestors(labels: LabelSet) -> None:
    for j, row in enumerate(labels.decode(labels.closure)):
        assert set(row) == ancestors(labels, labels[j])


@given(forests(), st.data())
def test_close_adds_every_ancestor_and_nothing_else(labels: LabelSet, data: st.DataObject) -> None:
    documents = data.draw(st.lists(st.lists(st.sampled_from(labels.names)), min_size=1, max_size=4))
    closed = labels.close(labels.encode(documents))
    for document, row in zip(documents, labels.decode(closed), strict=True):
        assert set(row) == {above for name in document for above in ancestors(labels, name)}
        assert row == sorted(row, key=labels.names.index)
    assert set(closed.data.tolist()) <= {1.0}


@given(forests())
def test_topological_order_is_a_permutation_where_subtrees_stay_together(labels: LabelSet) -> None:
    order = [labels[j] for j in labels.topological_order()]
    assert sorted(order) == sorted(labels.names)
    for name in labels:
        below = [at for at, other in enumerate(order) if name in ancestors(labels, other)]
        assert order[below[0]] == name
        assert below == list(range(below[0], below[0] + len(below)))


def test_siblings_keep_their_order() -> None:
    assert [TREE[j] for j in TREE.topological_order()] == ["root", "left", "leaf", "right", "alone"]


def test_a_flat_set_has_no_tree_and_closes_to_itself() -> None:
    labels = LabelSet("ab")
    matrix = labels.encode([["a"]])
    assert not labels.has_tree
    assert labels.close(matrix) is matrix


@pytest.mark.parametrize("parents", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}])
def test_a_cycle_of_parents_is_an_error_that_names_a_label(parents: dict[str, str]) -> None:
    labels = LabelSet("abc", parents=parents)
    with pytest.raises(DataError, match=r"label '[abc]' form a cycle"):
        _ = labels.closure
    with pytest.raises(DataError, match="cycle"):
        labels.topological_order()


def test_mistakes_are_named() -> None:
    with pytest.raises(DataError, match="'a' is listed 2 times"):
        LabelSet(["a", "b", "a"])
    with pytest.raises(DataError, match="'a' has the parent 'zz'"):
        LabelSet(["a"], parents={"a": "zz"})


def test_a_parent_may_be_given_by_id() -> None:
    assert LabelSet(["a", "b"], ids={"a": "1"}, parents={"b": "1"}).parents == {"b": "a"}


def test_frequency_order_is_stable() -> None:
    labels = LabelSet("abc")
    assert labels.frequency_order(labels.encode([["b", "c"], ["c"], ["a"]])).tolist() == [2, 0, 1]


def test_union_keeps_this_set_first() -> None:
    other = LabelSet(["new", "left"], descriptions={"left": "theirs", "new": "n"}, parents={"new": "left"})
    union = LabelSet(NAMES, descriptions={"left": "ours"}).union(other)
    assert union.names == (*NAMES, "new")
    assert union.descriptions == {"left": "ours", "new": "n"}
    assert union.parents == {"new": "left"}


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst"])
def test_label_files_keep_everything(tmp_path: Path, ending: str) -> None:
    labels = LabelSet(["ä b", "c"], ids={"c": "3"}, descriptions={"ä b": "süß, \n neu"}, parents={"c": "ä b"})
    labels.write(tmp_path / f"labels{ending}")
    assert LabelSet.read(tmp_path / f"labels{ending}") == labels
    assert LabelSet.read(tmp_path / f"labels{ending}") != LabelSet(labels.names)


def test_label_files_as_tables_and_plain_names(tmp_path: Path) -> None:
    expected = LabelSet(["a", "b, c"], descriptions={"a": "first"}, parents={"b, c": "a"})
    (tmp_path / "l.csv").write_text('name,description,parent\na,first,\n"b, c",,a\n')
    (tmp_path / "l.tsv").write_text("name\tdescription\tparent\na\tfirst\t\nb, c\t\ta\n")
    (tmp_path / "l.txt").write_text("a\r\nb, c\n\n")
    assert LabelSet.read(tmp_path / "l.csv") == expected
    assert LabelSet.read(tmp_path / "l.tsv") == expected
    assert LabelSet.read(tmp_path / "l.txt") == LabelSet(["a", "b, c"])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"name": "a"}', "{nonsense"], "line 2: not JSON"),
        (['{"title": "a"}'], "line 1: a label needs a 'name'"),
        (["[1]"], 'line 1: not an object; write one like {"name": "..."}'),
    ],
)
def test_bad_label_files_are_named_with_their_line(tmp_path: Path, lines: list[str], message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=message) as error:
        LabelSet.read(path)
    assert str(path) in str(error.value)


def test_records_are_plain() -> None:
    records = TREE.to_records()
    assert json.loads(json.dumps(records)) == records
    assert records[1] == {"name": "left", "parent": "root"}
    assert LabelSet.from_records(records) == TREE


def test_a_state_holds_everything_and_records_are_still_taken() -> None:
    for labels in (TREE, LabelSet(["b", "a"], ids={"a": "1"}, descriptions={"b": "bee"}), LabelSet(())):
        state = json.loads(json.dumps(labels.state()))
        assert LabelSet.from_state(state) == labels == LabelSet.from_state(labels.to_records())
    with pytest.raises(ValueError, match="not text"):
        LabelSet.from_state({"names": ["a", 1]})
