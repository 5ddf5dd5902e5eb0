"""Vocabularies: SKOS in three formats, Annif's table, several parents, and one that goes through a classifier and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import FAST, Command
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.datasets import load_sample
from polytag.errors import DataError
from polytag.labels import LabelSet

rdflib = pytest.importorskip("rdflib")

TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix sea: <http://example.org/sea/> .

sea:scheme a skos:ConceptScheme ; dct:title "Sea"@en, "Meer"@de ; skos:hasTopConcept sea:1, sea:2 .
sea:1 a skos:Concept ; skos:prefLabel "animals"@en, "Tiere"@de ; skos:notation "1" ; skos:inScheme sea:scheme .
sea:2 a skos:Concept ; skos:prefLabel "food"@en, "Essen"@de ; skos:definition "What people eat."@en, "Was Leute essen."@de .
sea:3 a skos:Concept ; skos:prefLabel "fish"@en, "Fisch"@de ; skos:broader sea:1, sea:2 ; skos:altLabel "fishes"@en ;
    skos:definition "untagged \\"text\\"\\nin two lines" ; skos:notation "1.3"^^sea:code .
sea:4 a skos:Concept ; skos:prefLabel "cod"@en, "Dorsch"@de ; skos:broader sea:3 ; skos:related sea:5 .
sea:5 a skos:Concept ; skos:prefLabel "whale"@en, "Wal"@de ; owl:deprecated true ; skos:exactMatch <http://example.org/other/7> .
sea:1 skos:narrower sea:5 .
sea:6 a skos:Concept ; skos:prefLabel "bank"@en, "Sandbank"@de ; skos:notation "6" .
sea:7 a skos:Concept ; skos:prefLabel "bank"@en, "Geldinstitut"@de .
"""
WORDS = {
    "animals": "creature living", "food": "meal dish", "fish": "fin gill", "cod": "atlantic liver", "whale": "mammal blubber",
    "bank (6)": "shoal sand", "bank (http://example.org/sea/7)": "money loan",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "sea.ttl").write_text(TURTLE, encoding="utf-8")
    return tmp_path / "sea.ttl"


def triples(path: Path) -> set[Any]:
    """The statements of a file, those about a narrower concept in the other direction too."""
    graph = rdflib.Graph().parse(path)
    skos = rdflib.SKOS
    return {*graph, *((o, skos.broader, s) for s, o in graph.subject_objects(skos.narrower))}


def test_what_a_concept_says_is_known_of_its_label(path: Path) -> None:
    labels = LabelSet.read(path)
    assert list(labels) == list(WORDS), "by URI; names that several concepts have get their notation or their URI"
    assert labels.find("http://example.org/sea/3") == labels.find("fish") == 2
    assert labels.titles["fish"] == {"en": "fish", "de": "Fisch"} and labels.notations == {
        "animals": "1",
        "fish": "1.3",
        "bank (6)": "6",
    }
    assert labels.descriptions == {"food": "What people eat.", "fish": 'untagged "text"\nin two lines'}
    assert labels.statuses == {"whale": "deprecated"}
    assert labels.parents_of("fish") == ("animals", "food") and labels.parents_of("whale") == ("animals",)
    german = LabelSet.read(path, language="de")
    assert german.names[2:4] == ("Fisch", "Dorsch") and german.descriptions["Essen"] == "Was Leute essen."


def test_several_parents_close_and_are_in_order(path: Path) -> None:
    labels = LabelSet.read(path)
    (closed,) = labels.decode(labels.close(labels.encode([["cod"]])))
    assert closed == ["animals", "food", "fish", "cod"]
    order = [labels[j] for j in labels.topological_order()]
    assert sorted(order) == sorted(labels) and all(order.index(p) < order.index(n) for n in labels for p in labels.parents_of(n))


@pytest.mark.parametrize("ending", ["ttl", "rdf", "xml", "nt", "jsonl", "ttl.gz"])
def test_nothing_is_lost_in_any_format(path: Path, ending: str) -> None:
    labels = LabelSet.read(path)
    other = path.parent / f"other.{ending}"
    labels.write(other)
    again = LabelSet.read(other)
    assert again == labels and LabelSet.from_state(json.loads(json.dumps(labels.state()))) == labels
    again.write(path.parent / "again.ttl")
    assert triples(path.parent / "again.ttl") == triples(path)


def test_a_vocabulary_goes_through_training_prediction_and_renaming_and_back(path: Path, polytag: Command) -> None:
    """By the command line; the only statement that changes is the preferred label of the renamed concept."""
    folder = path.parent
    rows = [
        {"text": f"{words} {words.split()[i % 2]}", "labels": [f"http://example.org/sea/{1 + n}"]}
        for i in range(8) for n, words in enumerate(WORDS.values())
    ]  # fmt: skip
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert polytag("train", folder / "train.jsonl", "--labels", path, "--closed", "--out", folder / "run", *FAST).code == 0
    assert polytag("labels", "rename", folder / "run", "cod=codfish", "--out", folder / "renamed").code == 0
    assert polytag("labels", "write", folder / "renamed", "--out", folder / "back.ttl").code == 0
    (predicted,) = Classifier.load(folder / "renamed").predict(["atlantic liver"])
    assert predicted[0] == "codfish" and set(predicted) == {"codfish", "animals", "food", "fish"}
    cod, name, literal = rdflib.URIRef("http://example.org/sea/4"), rdflib.SKOS.prefLabel, rdflib.Literal
    changed = triples(folder / "back.ttl") ^ triples(path)
    assert changed == {(cod, name, literal("cod", lang="en")), (cod, name, literal("codfish", lang="en"))}
    assert polytag("labels", "drop", folder / "run", "http://example.org/sea/3", "--out", folder / "dropped").code == 0
    assert Classifier.load(folder / "dropped").labels.parents_of("cod") == ("animals", "food")


def test_labels_without_a_uri_get_one_and_lose_it_again(tmp_path: Path) -> None:
    labels = LabelSet(["role::a b", "ä"], ids={"ä": "12"}, parents={"ä": "role::a b"}, statuses={"ä": "draft"})
    labels.write(tmp_path / "labels.ttl")
    assert LabelSet.read(tmp_path / "labels.ttl").to_records() == sorted(labels.to_records(), key=lambda r: r["name"] != "ä")
    assert "urn:polytag:label:role%3A%3Aa%20b" in (tmp_path / "labels.ttl").read_text()


def test_debtags_go_to_skos_and_back(tmp_path: Path) -> None:
    labels = load_sample()[0].labels
    labels.write(tmp_path / "debtags.rdf")
    again = LabelSet.read(tmp_path / "debtags.rdf")
    assert sorted(map(repr, again.to_records())) == sorted(map(repr, labels.to_records())) and again.has_tree


def test_the_table_of_annif(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text("<http://example.org/1>\tfish\t7.1\n<http://example.org/2>\tcod\n<http://example.org/3>\tcod\n")
    labels = LabelSet.read(path)
    assert labels.names == ("fish", "cod (http://example.org/2)", "cod (http://example.org/3)") and labels.notations == {
        "fish": "7.1"
    }
    LabelSet(["a", "b"], ids={"a": "http://example.org/a"}, notations={"a": "A"}).write(path)
    assert path.read_text() == "<http://example.org/a>\ta\tA\n<urn:polytag:label:b>\tb\n"
    assert LabelSet.read(path).ids == {"a": "http://example.org/a"}
    with pytest.raises(DataError, match="has a tab or a line break"):
        LabelSet(["a\tb"]).write(path)
    path.write_text("<http://example.org/1>\tfish\nonly one cell\n")
    with pytest.raises(DataError, match="line 2: not <URI>, tab, name"):
        LabelSet.read(path)


HEAD = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix x: <http://example.org/> . "
BAD = [
    (HEAD + "x:1 a skos:Concept .", "the concept http://example.org/1 has no skos:prefLabel"),
    (HEAD + "x:1 x:2 x:3 .", "no concept with a skos:prefLabel"),
    ("", "no concept with a skos:prefLabel"),
    ("this is no turtle", "not a SKOS file in turtle"),
    (
        HEAD + 'x:1 skos:prefLabel "a" ; skos:broader x:2 . x:2 skos:prefLabel "b" ; skos:broader x:3 . x:3 skos:prefLabel "c" ; '
        "skos:broader x:2 .",
        "the parents of label 'b' form a cycle: 'b' -> 'c' -> 'b'; break it",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_vocabulary_is_one_line_and_nothing_is_written(tmp_path: Path, polytag: Command, text: str, message: str) -> None:
    path = tmp_path / "bad.ttl"
    path.write_text(text)
    told = polytag("labels", "write", path, "--out", tmp_path / "out.jsonl")
    assert message in told.complaint and str(path) in told.complaint and not (tmp_path / "out.jsonl").exists()


def test_without_the_package_one_line_names_the_extra(tmp_path: Path, polytag: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "rdflib", None)
    monkeypatch.delitem(sys.modules, "polytag.formats.skos", raising=False)
    (tmp_path / "a.ttl").write_text(TURTLE)
    assert "install polytag[skos]" in polytag("labels", "write", tmp_path / "a.ttl", "--out", tmp_path / "out.jsonl").complaint


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"name": "a", "parents": "b"}, "line 1: 'parents' is 'b'; it must be a list of texts"),
        ({"name": "a", "titles": {"en": 5}}, "line 1: 'titles' is .* a table of texts by language"),
        ({"name": "a", "parents": ["b"]}, "'a' has the parent 'b', which is not in the label set"),
        ({"name": "a", "parents": ["a"]}, "the parents of label 'a' form a cycle: 'a' -> 'a'"),
    ],
)
def test_bad_records_are_named(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    (tmp_path / "labels.jsonl").write_text(json.dumps(record))
    with pytest.raises(DataError, match=message):
        LabelSet.read(tmp_path / "labels.jsonl")


def test_a_table_has_several_parents_in_one_cell(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("name,parents,notation,titles\na,,1,\nb,,,x\nc,a | b,3,\n")
    labels = LabelSet.read(tmp_path / "l.csv")
    assert labels.parents_of("c") == ("a", "b") and labels.notations == {"a": "1", "c": "3"} and not labels.titles


def test_statements_that_are_none_are_refused_when_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="are not N-Triples"):
        LabelSet(["a"], statements={"a": ["nonsense"]}).write(tmp_path / "a.ttl")


def test_a_language_that_is_none_is_refused_when_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written in turtle"):
        LabelSet(["a"], titles={"a": {"no language!": "a"}}).write(tmp_path / "a.ttl")
    assert not (tmp_path / "a.ttl").exists()


def test_a_corpus_may_use_ids(path: Path) -> None:
    corpus = Corpus.of(["a"], [["http://example.org/sea/4"]], label_set=LabelSet.read(path))
    assert corpus.label_lists() == [["cod"]]
