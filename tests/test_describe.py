"""The description of a corpus: facts that can be counted by hand, and a table that shows them."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from polytag.analysis.corpus_summary import describe, render
from polytag.audit.near_duplicates import copies_between
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.verbs.description import describe_parts

TREE = LabelSet(
    ["root", "leaf", "deep", "alone", "unused"], parents={"leaf": "root", "deep": "leaf"}, descriptions={"leaf": "x", "deep": "y"}
)
TRAIN = Corpus.of(
    ["one two three", "one  two\nthree", "four", "", "five six", "seven"],
    [["root", "leaf"], ["leaf", "root"], ["alone"], [], ["root", "leaf", "deep"], ["root"]],
    ids=["1", "2", "2", "2", "3", "4"],
    groups=["g", "g", "", "", "h", "h"],
    label_set=TREE,
)
TEST = Corpus.of(["one two three", "", "new"], [["leaf", "[odd]"], ["[odd]"], ["other"]])


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return describe({"train": TRAIN, "test": TEST})


def test_what_is_counted_per_part(found: dict[str, Any]) -> None:
    train = found["parts"]["train"]
    assert (train["documents"], train["labels_used"], train["assignments"]) == (6, 4, 9)
    assert train["labels_per_document"] == {"mean": 1.5, "median": 1.5, "p95": pytest.approx(2.75), "min": 0, "max": 3}
    assert train["label_count_distribution"] == {"0": 1, "1": 2, "2": 2, "3": 1}
    assert train["words_per_document"]["max"] == 3
    assert train["words_per_document"]["mean"] == pytest.approx(10 / 6)
    assert train["label_sets"] == 5
    assert train["label_density"] == pytest.approx(9 / (6 * 7))  # seven labels in both parts together
    assert (train["without_labels"], train["empty_texts"], train["duplicate_ids"]) == (1, 1, 2)
    assert (train["duplicate_texts"], train["groups"]) == (1, 4)
    assert found["parts"]["test"]["groups"] is None


def test_what_is_counted_across_parts(found: dict[str, Any]) -> None:
    assert found["duplicate_texts_across"] == [{"part": "test", "also_in": "train", "documents": 1}]
    assert found["unseen_labels"] == {"test": {"labels": 2, "assignments": 3, "examples": ["[odd]", "other"]}}


def test_what_is_said_about_labels(found: dict[str, Any]) -> None:
    labels = found["labels"]
    assert (labels["labels"], labels["without_documents"], labels["rare"], labels["descriptions"]) == (5, 1, 4, 2)
    assert labels["tree"] == {"depth": 3, "roots": 1, "with_parent": 2}
    assert labels["most_frequent"][:2] == [{"name": "root", "documents": 4}, {"name": "leaf", "documents": 3}]
    assert {row["name"] for row in labels["rarest"][:2]} == {"deep", "alone"}
    assert sum(group["labels"] for group in labels["groups"].values()) == 5
    assert sum(group["share"] for group in labels["groups"].values()) == pytest.approx(1)
    assert labels["groups"]["head"]["share"] >= 4 / 9


def test_it_can_be_written_as_json(found: dict[str, Any]) -> None:
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def shown(found: dict[str, Any], width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render(found))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_table_shows_the_facts_and_the_problems(found: dict[str, Any]) -> None:
    text = shown(found)
    assert "a tree of depth 3 with 1 root" in text
    assert "root 4, leaf 3" in text
    assert "test has 1 text also in train" in text
    assert "test has 2 labels (3 uses) never seen in train: [odd], other" in text  # brackets are not taken for markup
    assert "repeated ids" in text
    assert "groups" in text
    assert max(map(len, shown(found, 80).splitlines())) <= 80


def test_the_table_leaves_out_what_is_not_there() -> None:
    text = shown(describe({"all": Corpus.of(["x", "y"], [["a"], ["b"]])}))
    for absent in ("repeated ids", "groups", "empty texts", "!"):
        assert absent not in text
    assert "no tree" in text


def test_corpora_without_any_label_can_be_described() -> None:
    found = describe({"all": Corpus.of(["x"], [[]])})
    assert found["labels"]["labels"] == 0
    assert found["parts"]["all"]["without_labels"] == 1
    assert "labels" in shown(found)


def test_nothing_to_describe() -> None:
    with pytest.raises(ConfigError, match="nothing to describe"):
        describe({})


def test_eight_labels_of_each_kind_are_named() -> None:
    names = [f"label {number}" for number in range(20)]
    train = Corpus.of(["text"] * 20, [names[: number + 1] for number in range(20)])
    other = Corpus.of(["text"], [[f"new {number}" for number in range(20)]])
    found = describe({"train": train, "test": other})
    assert [row["name"] for row in found["labels"]["most_frequent"]] == names[:8]
    assert [row["name"] for row in found["labels"]["rarest"]] == names[:-9:-1]
    assert len(found["unseen_labels"]["test"]["examples"]) == 8


def test_near_duplicates_between_parts_are_those_of_a_comparison_of_all_pairs() -> None:
    """Brute force over word n-grams: documents of the later part with a similarity of 0.8 or more in the earlier one."""
    rng = np.random.default_rng(0)
    words = [f"word{n}" for n in range(60)]
    texts = [list(rng.choice(words, 40)) for _ in range(60)]
    copies = [[*text[:-1], "changed"] for text in texts[:25]] + [[*text[:20], *rng.choice(words, 20)] for text in texts[25:40]]
    parts = [[" ".join(text) for text in part] for part in (texts[:30], copies[:20] + texts[50:], copies[20:] + texts[55:])]
    parts[2].append("")

    def ngrams(text: str) -> set[tuple[str, ...]]:
        own = text.split()
        return {tuple(own[at : at + size]) for size in (1, 2, 3) for at in range(len(own) - size + 1)}

    def near(one: str, other: str) -> bool:
        a, b = ngrams(one), ngrams(other)
        return bool(a) and bool(b) and len(a & b) / len(a | b) >= 0.8

    expected = {
        (i, j): sum(any(near(text, earlier) for earlier in parts[i]) for text in parts[j])
        for i, j in itertools.combinations(range(3), 2)
    }
    assert copies_between(parts) == expected and expected[0, 1] == 20 and expected[1, 2] == 5
    corpora = {name: Corpus.of(part, [["a"], *[["b"]] * (len(part) - 1)]) for name, part in zip("xyz", parts, strict=True)}
    found = describe_parts(corpora)
    assert [row["documents"] for row in found["near_duplicate_texts_across"]] == list(expected.values())
    shown = io.StringIO()
    Console(file=shown, width=160).print(render(found))
    assert "20 texts of y have near-duplicates, copies included, in x" in shown.getvalue()
    assert describe_parts({"x": corpora["x"]})["near_duplicate_texts_across"] == []
