"""Exports of annotation tools: what people chose, what they dispute, and back."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from polytag.corpus import Corpus
from polytag.errors import DataError
from polytag.formats.document import Document, ReadOptions
from polytag.formats.document_files import Reader, read_documents, write_documents

DOCUMENTS = [
    Document("7", 'Cod "quotas"\nagreed', ("fish", "trade, foreign"), "north", 2.0, ("weather",)),
    Document("x/8", "Zoll — новый", (), "south", 0.5, ()),
    Document("9", "rain", ("weather",), "south", 1.0, ("fish", "trade, foreign")),
]


def plain(documents: list[Document]) -> list[tuple[Any, ...]]:
    return [(d.id, d.text, d.labels, d.group, d.weight, d.unknown or ()) for d in documents]


@pytest.mark.parametrize("name", ["a.label-studio.json", "a.doccano.jsonl", "a.label-studio.json.gz", "b.json", "c.jsonl"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    """By the name of the file, or by a format that is named."""
    format = {"b.json": "label-studio", "c.jsonl": "doccano"}.get(name)
    assert write_documents(tmp_path / name, DOCUMENTS, format) == 3
    reader = Reader(tmp_path / name, ReadOptions(format=format if name == "c.jsonl" else None))
    assert plain(list(reader)) == plain(DOCUMENTS)
    assert reader.format == ("doccano" if "doccano" in name or name == "c.jsonl" else "label-studio")
    unlabelled = list(read_documents(tmp_path / name, ReadOptions(format=format), need_labels=False))
    assert [(d.text, d.labels) for d in unlabelled] == [(d.text, ()) for d in DOCUMENTS]


def choice(names: list[Any], tag: str = "topic", kind: str = "choices") -> dict[str, Any]:
    return {"from_name": tag, "to_name": "text", "type": kind, "value": {kind: names}}


def export(tmp_path: Path, *tasks: Any) -> Path:
    path = tmp_path / "project-1.json"
    path.write_text(json.dumps(list(tasks)))
    return path


def test_label_studio_as_it_exports(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two annotators: what both chose is true, what one chose is unknown; cancelled and missing annotations do not count."""
    both = {"result": [choice(["b", "a"]), {"type": "rating", "from_name": "stars", "value": {"rating": 3}}]}
    path = export(
        tmp_path,
        {
            "id": 1,
            "data": {"Body": "one", "url": "x"},
            "annotations": [both, {"result": [choice(["a", "c"])]}],
            "predictions": [],
        },
        {"id": 2, "data": {"Body": "two"}, "annotations": [{"result": [], "was_cancelled": False}]},
        {"id": 3, "data": {"Body": "three"}, "annotations": [{"result": [choice(["a"])], "was_cancelled": True}]},
        {"id": 4, "data": {"Body": "four"}, "annotations": []},
        {"id": 5, "data": {"Body": "five"}, "annotations": [{"result": [choice([["x", "y"], ["z"]], kind="taxonomy")]}]},
    )
    with caplog.at_level(logging.WARNING):
        found = list(read_documents(path))
    assert [(d.id, d.text, d.labels, d.unknown) for d in found] == [
        ("1", "one", ("a",), ("b", "c")), ("2", "two", (), None), ("5", "five", ("y", "z"), None),
    ]  # fmt: skip
    assert "skipped 2 tasks that nobody annotated" in caplog.text
    assert Corpus.read(path).unknown is None, "labels that nobody gave are no labels"


def test_several_sets_of_choices_need_a_name(tmp_path: Path) -> None:
    path = export(tmp_path, {"data": {"text": "one"}, "annotations": [{"result": [choice(["a"]), choice(["hot"], "mood")]}]})
    with pytest.raises(DataError, match=r"several sets of choices \(topic, mood\); name one with --label-column"):
        list(read_documents(path))
    assert next(iter(read_documents(path, ReadOptions(labels="mood")))).labels == ("hot",)
    with pytest.raises(DataError, match="no choices 'mod' among"):
        list(read_documents(path, ReadOptions(labels="mod")))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.label-studio.json", '{"data": {}}', "not a list of tasks; export the project as JSON"),
        ("a.label-studio.json", "[{", "not JSON that can be read"),
        ("a.label-studio.json", '[{"text": "one", "topic": "a"}]', "task 1: not a task of Label Studio"),
        (
            "a.json",
            json.dumps([{"data": {"text": "x"}, "annotations": [{"result": [choice([{"a": 1}])]}]}]),
            "task 1: a label is an object",
        ),
        ("a.doccano.jsonl", '{"text": "one", "label": [[0, 3, "PER"]]}\n', "line 1: the labels are spans of the text"),
    ],
)
def test_other_files_are_refused_in_one_line(polytag: Command, tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / name).write_text(content)
    told = polytag("data", "convert", tmp_path / name, "--out", tmp_path / "out.jsonl")
    assert told.code == 2 and reason in told.complaint and not (tmp_path / "out.jsonl").exists()


def test_a_corpus_goes_to_the_tool_and_back(polytag: Command, tmp_path: Path) -> None:
    first = tmp_path / "first.jsonl"
    write_documents(first, DOCUMENTS)
    steps = [first, tmp_path / "a.label-studio.json", tmp_path / "a.doccano.jsonl", tmp_path / "last.jsonl"]
    for one, other in itertools.pairwise(steps):
        assert polytag("data", "convert", one, "--out", other).code == 0
    assert Corpus.read(steps[-1]).fingerprint() == Corpus.read(first).fingerprint()
    assert polytag("data", "convert", first, "--out", first).code == 2
    assert "there is no format" in polytag("data", "convert", first, "--out", tmp_path / "b.json", "--to", "docano").complaint
