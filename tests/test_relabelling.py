"""Edits of labels: the scores that follow from origins, the label set and its tree, and a classifier after an edit."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import expit, logit

from conftest import Command, Toy, toy_corpus
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ArtefactError, ConfigError, DataError
from polytag.labels import LabelSet, indicator
from polytag.relabelling.edit import Edit, edited
from polytag.relabelling.origins import ORIGINS, Origins
from polytag.scores import Kind, Scores
from polytag.storage.artefact import read_artefact, write_artefact
from polytag.storage.schema import check
from polytag.verbs.inspection import describe_run
from polytag.verbs.vocabulary import merge_labels, rename_labels, split_labels, write_label_file

FAST = {"c": [1.0], "ngrams": [1]}


@st.composite
def origins(draw: st.DrawFn, trained: int | None = None) -> Origins:
    count = draw(st.integers(1, 5)) if trained is None else trained
    return Origins.of(draw(st.lists(st.sets(st.integers(0, count - 1), min_size=1), min_size=1, max_size=6)), count)


def noisy_or(table: np.ndarray[Any, Any], found: Origins, kind: Kind) -> np.ndarray[Any, Any]:
    """The oracle, label by label: the probability that one of the sources applies."""
    p = expit(table) if kind == "margin" else table
    joined = np.stack([1 - np.prod(1 - p[:, found.row(j)], axis=1) for j in range(len(found))], axis=1)
    return logit(joined) if kind == "margin" else joined


@given(origins(), st.integers(0, 4), st.integers(0, 2**32 - 1), st.sampled_from(["probability", "margin"]))
def test_full_scores_are_the_noisy_or_of_their_sources(found: Origins, documents: int, seed: int, kind: Kind) -> None:
    generator = np.random.default_rng(seed)
    table = (
        generator.random((documents, found.trained))
        if kind == "probability"
        else generator.normal(0, 2, (documents, found.trained))
    )
    table = table.astype(np.float32)
    sets = csr_array((generator.random(table.shape) < 0.4).astype(np.float32))
    names = [f"n{j}" for j in range(len(found))]
    scores = found.scores(Scores.full(table, [str(j) for j in range(found.trained)], kind, decoded=sets), names)
    assert scores.is_full and scores.kind == kind and list(scores.names) == names
    values = scores.matrix.toarray() if documents else np.zeros((0, len(found)))
    np.testing.assert_allclose(values, noisy_or(table.astype(np.float64), found, kind), rtol=2e-5, atol=2e-6)
    for j in np.flatnonzero(found.single):
        assert np.array_equal(values[:, j], table[:, found.first[j]]), "a single source is copied"
    assert scores.decoded is not None
    assert np.array_equal(scores.decoded.toarray(), (sets.toarray() @ found.matrix.toarray().T > 0).astype(np.float32))


@given(origins(), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_candidates_are_as_full_scores_where_others_have_probability_0(found: Origins, documents: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    table = generator.random((documents, found.trained)).astype(np.float32)
    kept = generator.random(table.shape) < 0.5
    kept[:, :1] = False  # so that they are not full
    sparse = csr_array((table[kept], np.nonzero(kept)), shape=table.shape)
    scores = found.scores(Scores(sparse, [str(j) for j in range(found.trained)], "probability", 0.0), [""] * len(found))
    np.testing.assert_allclose(
        scores.matrix.toarray(), noisy_or(np.where(kept, table, 0).astype(np.float64), found, "probability"), atol=1e-6
    )
    stored = np.zeros((documents, len(found)))
    for row, (labels, _) in enumerate(scores):
        assert (np.diff(labels) > 0).all()
        stored[row, labels] = 1
    assert np.array_equal(stored, (kept @ found.matrix.toarray().T > 0).astype(float)), (
        "an entry for every label with a candidate"
    )
    asked = found.asked(indicator([range(len(found))] * documents, len(found)))
    assert np.array_equal(asked.toarray(), np.tile(found.matrix.toarray().max(axis=0), (documents, 1)))


@given(st.data())
def test_origins_compose(data: st.DataObject) -> None:
    first = data.draw(origins())
    second = data.draw(origins(trained=len(first)))
    both = first.then(second)
    for j in range(len(second)):
        assert set(both.row(j)) == {source for label in second.row(j) for source in first.row(label)}
    check(ORIGINS, both.state(), {"labels": len(both), "trained": both.trained})
    assert both.extended(2).row(len(both) + 1) == [both.trained + 1]


# -- label sets --------------------------------------------------------------------------------------------------------

TREE = LabelSet(
    ["root", "a", "b", "leaf", "alone"],
    ids={"a": "http://example.org/a", "b": "http://example.org/b"},
    descriptions={"a": "first", "leaf": "last"},
    parents={"a": "root", "b": "root", "leaf": ["a", "b"]},
    titles={"a": {"en": "a", "de": "ein a"}},
    statements={"leaf": ["<http://www.w3.org/2004/02/skos/core#related> <http://example.org/a>"]},
)


def parents(labels: LabelSet) -> dict[str, tuple[str, ...]]:
    return {name: labels.parents_of(name) for name in labels if labels.parents_of(name)}


def test_a_renamed_label_keeps_all_that_is_known_of_it() -> None:
    found = edited(TREE, Edit("rename", ("http://example.org/a", "b"), ("b", "a")))
    assert found.labels.names == ("root", "b", "a", "leaf", "alone") and found.edits[0].old == ("a", "b")
    assert found.labels.ids == {"b": "http://example.org/a", "a": "http://example.org/b"}
    assert found.labels.titles == {"b": {"en": "b", "de": "ein a"}} and found.labels.descriptions["b"] == "first"
    assert parents(found.labels) == {"b": ("root",), "a": ("root",), "leaf": ("b", "a")}
    assert found.labels.statements == TREE.statements


@pytest.mark.parametrize(
    ("edit", "names", "expected"),
    [
        (Edit("drop", ("a",)), ["root", "b", "leaf", "alone"], {"b": ("root",), "leaf": ("root", "b")}),
        (Edit("drop", ("a", "root")), ["b", "leaf", "alone"], {"leaf": ("b",)}),
        (Edit("merge", ("b", "a"), ("c",)), ["root", "c", "leaf", "alone"], {"c": ("root",), "leaf": ("c",)}),
        (Edit("merge", ("leaf", "a"), ("a",)), ["root", "a", "b", "alone"], {"a": ("b", "root"), "b": ("root",)}),
        (
            Edit("split", ("a",), ("a", "new")),
            ["root", "a", "new", "b", "leaf", "alone"],
            {"a": ("root",), "new": ("root",), "b": ("root",), "leaf": ("a", "new", "b")},
        ),
    ],
)
def test_the_tree_follows(edit: Edit, names: list[str], expected: dict[str, tuple[str, ...]]) -> None:
    found = edited(TREE, edit)
    assert list(found.labels) == names and parents(found.labels) == expected
    assert (found.labels.ids.get("a") == TREE.ids["a"]) == ("a" in names)
    assert not ("leaf" in names and "a" not in names and found.labels.statements), "no statement about a label that is gone"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("merge", ("root", "leaf"), ("c",)), "form a cycle: 'c' -> '[ab]' -> 'c'; break it"),
        (Edit("merge", ("a", "unknown"), ("c",)), "there is no label 'unknown'"),
        (Edit("merge", ("a", "b"), ("leaf",)), "the label 'leaf' exists already; merge it too"),
        (Edit("merge", ("a",), ("c",)), "at least two labels"),
        (Edit("merge", ("a", "http://example.org/a"), ("c",)), "'a' is named twice"),
        (Edit("rename", ("a",), ("b",)), "the label 'b' exists already; choose another name"),
        (Edit("rename", ("a",), (" ",)), "a label needs a name"),
        (Edit("rename", ("a", "b"), ("c", "c")), "'c' is named twice"),
        (Edit("drop", ()), "no label to drop"),
        (Edit("drop", TREE.names), "no label would be left"),
        (Edit("split", ("a",), ("c",)), "at least two new labels"),
        (Edit("split", ("a",), ("c", "b")), "the label 'b' exists already"),
    ],
)
def test_impossible_edits_are_refused_in_one_line(edit: Edit, message: str) -> None:
    with pytest.raises(DataError, match=message):
        edited(TREE, edit)


def test_edits_of_one_kind_happen_at_once() -> None:
    found = edited(TREE, Edit("merge", ("a", "b"), ("leaf",)), Edit("merge", ("leaf", "alone"), ("a",)))
    assert found.labels.names == ("root", "leaf", "a") and found.sources == [(0,), (1, 2), (3, 4)]
    assert parents(found.labels) == {"leaf": ("root",), "a": ("leaf",)}
    for other in (Edit("merge", ("b", "leaf"), ("c",)), Edit("merge", ("leaf", "alone"), ("x",))):
        with pytest.raises(DataError, match="is named twice in one merge"):
            edited(TREE, Edit("merge", ("a", "b"), ("x",)), other)


def test_the_history_keeps_a_hundred_names_of_an_edit() -> None:
    names = tuple(map(str, range(250)))
    found = Edit("rename", names, tuple(f"new {name}" for name in names)).recorded()
    assert str(found) == "rename '0', '1', '2' and 247 more = 'new 0', 'new 1', 'new 2' and 247 more"
    assert len(found.old) == 100 and Edit.from_record(found.record()) == found
    assert Edit("drop", ("a",)).recorded().record() == {"edit": "drop", "old": ["a"], "new": []}


# -- classifiers -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("relabelling") / "run"
    Classifier("br", {**FAST, "promise": "recall=.8"}).fit(toy.train, toy.valid).save(folder)
    return folder


def test_promises_and_sureness_end_with_an_edit_and_come_back_with_documents(run: Path, toy: Toy) -> None:
    renamed = Classifier.load(run).rename({"music": "sound"})
    assert renamed.decision.promise == "recall=0.8" and renamed.abstention is not None
    merged = Classifier.load(run).merge({"games": ["sport", "football"]})
    assert merged.decision.promise == "" and merged.decision.rule == "threshold"
    with pytest.raises(ConfigError, match="has edited labels"):
        merged.asking(0.3)
    again = Classifier.load(run).merge({"games": ["sport", "football"]}, fit=toy.test)
    assert again.decision.promise == "recall=0.8" and again.asking(0.3) == 0.3
    true = [{"games" if name in ("sport", "football") else name for name in own} for own in toy.test.label_lists()]
    recall = [len(own & set(found)) / len(own) for own, found in zip(true, again.predict(toy.test.texts), strict=True)]
    assert np.mean(recall) >= 0.8


def test_thresholds_stay_or_follow_or_are_fitted(toy: Toy) -> None:
    classifier = Classifier("br", FAST).fit(toy.train, toy.valid)
    limits = np.linspace(0.1, 0.8, 8).astype(np.float32)
    classifier.decision.rule, classifier.decision.thresholds = "per_label", limits
    own = dict(zip(classifier.labels, limits.tolist(), strict=True))
    merged = copy.copy(classifier).merge({"games": ["football", "sport"]}).split({"music": ["loud", "quiet"]}).drop(["space"])
    found = dict(zip(merged.labels, merged.decision.thresholds.tolist(), strict=True))
    assert found["games"] == own["sport"] < own["football"] and found["loud"] == found["quiet"] == own["music"]
    assert all(found[name] == own[name] for name in ("fishing", "trade", "weather", "opera"))
    for old, new in zip(classifier.predict(toy.test.texts), merged.predict(toy.test.texts), strict=True):
        assert "games" in new or not {"football", "sport"} & set(old), "decided wherever one of its sources was"
    fitted = copy.copy(classifier).merge({"games": ["football", "sport"]}, fit=toy.valid)
    found = dict(zip(fitted.labels, fitted.decision.thresholds.tolist(), strict=True))
    assert found["games"] not in own.values() and all(found[name] == own[name] for name in fitted.labels if name != "games")
    counts = dict(zip(classifier.labels, classifier.training["label_counts"], strict=True))
    assert merged.training["label_counts"][merged.labels.number("games")] == counts["sport"] + counts["football"]


def test_split_labels_are_fitted_on_documents_that_have_them(toy: Toy) -> None:
    corpus = Corpus.of(
        [*toy.valid.texts, "orbit rocket"],
        [*[["comet" if name == "space" else name for name in own] for own in toy.valid.label_lists()], ["space"]],
    )
    found = Classifier("br", FAST).fit(toy.train, toy.valid).split({"space": ["comet", "moon"]}, fit=corpus)
    assert found.decision.rule == "per_label" and found.predict(["orbit rocket comet lunar"])[0][0] == "comet"
    limits = dict(zip(found.labels, found.decision.thresholds.tolist(), strict=True))
    assert limits["moon"] > limits["comet"], "no document had it"
    with pytest.raises(DataError, match="none of the documents to fit on"):
        found.merge({"sky": ["comet", "moon"]}, fit=Corpus.of(["a"], [["unknown"]]))
    with pytest.raises(DataError, match="pass a Corpus"):
        found.drop(["moon"], fit=["a"])  # type: ignore[arg-type]


def test_label_vectors_follow(run: Path) -> None:
    plain = Classifier.load(run)
    merged = Classifier.load(run).merge({"games": ["sport", "football"]}).drop(["space"])
    before, after = plain.model.label_vectors(), merged.model.label_vectors()
    assert before is not None and after is not None and after.shape[0] == len(merged.labels)
    rows = {name: np.asarray(before.toarray())[j] for j, name in enumerate(plain.labels)}  # type: ignore[union-attr]
    rows["games"] = (rows["sport"] + rows["football"]) / 2
    np.testing.assert_allclose(after.toarray(), np.stack([rows[name] for name in merged.labels]), rtol=1e-6)  # type: ignore[union-attr]


def test_an_edit_that_fails_changes_nothing(run: Path, toy: Toy) -> None:
    classifier = Classifier.load(run)
    before = dict(vars(classifier))
    for fails in (
        lambda: classifier.merge({"c": ["sport", "football"], "d": ["music", "nothing"]}),
        lambda: classifier.rename({"sport": 5}),  # type: ignore[dict-item]
        lambda: classifier.drop(7),  # type: ignore[arg-type]
        lambda: classifier.split(["a"]),  # type: ignore[arg-type]
    ):
        with pytest.raises(DataError):
            fails()
    assert vars(classifier) == before


def test_an_edited_classifier_trains_anew_and_does_not_continue(run: Path, toy: Toy) -> None:
    merged = Classifier.load(run).merge({"games": ["sport", "football"]})
    with pytest.raises(ConfigError, match="cannot continue"):
        Classifier("lp", FAST).continue_from(Classifier("lp", FAST).fit(toy.train).merge({"games": ["sport", "football"]}))
    plain = Classifier.load(run).fit(toy.train)
    again = merged.fit(toy.train)
    assert again.edits == [] and again.labels == toy.train.labels and type(again.model) is type(plain.model)
    assert np.array_equal(again.scores(toy.test.texts).matrix.data, plain.scores(toy.test.texts).matrix.data)


def test_a_mixture_takes_edited_runs(toy: Toy) -> None:
    """Its members may be classifiers with edited labels; their sources are what is scored."""
    from polytag.models.mixed import Mixed

    names = {"sport": "games", "football": "games"}
    part = Classifier("br", FAST).fit(toy.train).merge({"games": ["sport", "football"]})
    other = Classifier("lp", FAST).fit(toy.train).merge({"games": ["football", "sport"]})
    held = Corpus.of(
        toy.test.texts, [sorted({names.get(n, n) for n in own}) for own in toy.test.label_lists()], label_set=part.labels
    )
    mixed = Classifier(Mixed.of({"one": part, "other": other}, weights=[1.0, 1.0]))
    mixed.recipe.data["fingerprint"] = ""
    mixed.fit(held, toy_corpus(12, 30).with_labels(part.labels))
    both = (part.scores(held.texts).matrix.toarray() + other.scores(held.texts).matrix.toarray()) / 2
    np.testing.assert_allclose(mixed.model.score(held.texts).matrix.toarray(), both, atol=1e-6)


@pytest.mark.parametrize("change", ["source", "offsets", "empty", "nested", "labels", "history"])
def test_a_forged_edit_is_refused(run: Path, tmp_path: Path, change: str) -> None:
    Classifier.load(run).merge({"games": ["sport", "football"]}).save(tmp_path)
    state = read_artefact(tmp_path / "model")
    own = state["state"]["origins"]
    if change == "source":
        own["sources"] = np.full_like(own["sources"], 99)
    elif change == "offsets":
        own["starts"] = own["starts"][::-1].copy()
    elif change == "empty":
        own["starts"] = np.where(np.arange(len(own["starts"])) == 1, 0, own["starts"])
    elif change == "nested":
        state["state"]["model"] = "relabelled"
    elif change == "labels":
        state["state"]["labels"] = {"names": ["a"]}
    else:
        state["edits"] = [{"edit": "forge", "old": [], "new": []}]
    write_artefact(tmp_path / "model", state)
    with pytest.raises(ArtefactError):
        Classifier.load(tmp_path)


# -- the command line --------------------------------------------------------------------------------------------------


def test_verbs_write_a_run_and_leave_the_old_one(run: Path, toy: Toy, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in (run / "model").iterdir()}
    (run / "recipe.toml").write_text('model = "br"\n')
    rename_labels(run, [r"sport=a\=b\,c", "music=sound"], tmp_path / "one")
    merge_labels(tmp_path / "one", [r"a\=b\,c,football=games"], tmp_path / "two")
    found = split_labels(tmp_path / "two", ["sound=loud,quiet"], tmp_path / "three")
    assert "games" in found.labels and "loud" in found.labels and (tmp_path / "three" / "recipe.toml").exists()
    told = describe_run(tmp_path / "three")
    assert told["model"] == "br" and told["calibrated"] and told["labels"] == 8 and told["options"]["c"] == [1.0]
    assert told["edits"] == [
        "rename 'sport', 'music' = 'a=b,c', 'sound'",
        "merge 'a=b,c', 'football' = 'games'",
        "split 'sound' = 'loud', 'quiet'",
    ]
    assert {path.name: path.read_bytes() for path in (run / "model").iterdir()} == before
    card = (tmp_path / "three" / "model" / "README.md").read_text()
    assert "# A br model for 8 labels" in card and "- split sound = loud, quiet" in card and "nothing was measured since" in card
    write_label_file(tmp_path / "three", tmp_path / "labels.jsonl")
    assert LabelSet.read(tmp_path / "labels.jsonl") == found.labels


@pytest.mark.parametrize("pair", ["sport", "a=b=c", "=b", "sport=", "sport= "])
def test_a_pair_that_is_none_is_refused(run: Path, tmp_path: Path, pair: str) -> None:
    with pytest.raises(ConfigError, match="is not OLD=NEW; inside of a name write"):
        rename_labels(run, [pair], tmp_path / "out")
    assert not (tmp_path / "out").exists()


MISTAKES = [
    (("merge", "sport,nothing=c"), "there is no label 'nothing' in this classifier"),
    (("merge", "sport,football"), "'sport,football' is not A,B=C"),
    (("drop", "sport", "sport"), "'sport' is named twice"),
    (("split", "sport=games,music"), "the label 'music' exists already"),
    (("rename", "sport=games", "sport=play"), "'sport' is renamed twice"),
    (("rename", "sport=music"), "the label 'music' exists already"),
    (("merge", "sport,football=games", "music,opera=games"), "'games' is given twice"),
    (("drop", "sport", "--fit", "no-such-file.jsonl"), "no-such-file.jsonl: no such file"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(arguments) for arguments, _ in MISTAKES])
def test_mistakes_are_one_line_and_nothing_is_written(
    polytag: Command, run_folder: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    verb, *rest = arguments
    told = polytag("labels", verb, run_folder, *rest, "--out", tmp_path / "out")
    assert message in told.complaint and not (tmp_path / "out").exists()


def test_the_verbs_by_the_command_line(polytag: Command, run_folder: Path, files: Path, tmp_path: Path) -> None:
    for number, arguments in enumerate(
        (
            ["rename", "music=sound"],
            ["merge", "sport,football=games", "--fit", files / "valid.jsonl"],
            ["drop", "space"],
            ["split", "sound=loud,quiet"],
        )
    ):
        verb, *rest = arguments
        told = polytag(
            "labels", verb, run_folder if not number else tmp_path / str(number - 1), *rest, "--out", tmp_path / str(number)
        )
        assert told.code == 0 and told.out.startswith(f"{tmp_path / str(number)}: "), told
    rows = polytag("predict", tmp_path / "3", files / "test.jsonl").out.splitlines()
    assert len(rows) == 60 and any("games" in row for row in rows) and any("loud" in row and "quiet" in row for row in rows)
    assert "split 'sound' = 'loud', 'quiet'" in polytag("info", tmp_path / "3").out
