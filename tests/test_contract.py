"""What every registered model promises; a new row in the table of models is covered here without a line more."""

from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from conftest import Toy, toy_corpus
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError, DataError, NotFittedError
from polytag.labels import LabelSet
from polytag.metrics.of_sets import micro_f1
from polytag.models.model import HeldOut, Model, model_class
from polytag.run import Run
from polytag.scores import Scores
from quick import AVAILABLE, LINEAR, OPTIONS, make_encoders

UNICODE = {
    "погода": "дождь ветер гроза",
    "食べ物": "寿司 ご飯 味噌",
    "رياضة": "كرة هدف ملعب",
    "x 😀": "zebra крокодил ümlaut",
}
FEW = toy_corpus(36, 9), toy_corpus(12, 10)  # for training and for validation
EDGE = "a\x00b\ud7ff\U0010ffff"
STRANGE = [
    "",
    " \n\t",
    "?!... --",
    "zzz unknown",
    "😀 trawler 🚀",
    "海 storm 嵐 カタカナ",
    "مرحبا rain שלום",
    EDGE,
    "e\u0301a " * 9,
]


@pytest.fixture(scope="module", autouse=True)
def encoder() -> None:
    if "embed" in AVAILABLE:
        make_encoders([*toy_corpus(144, 1).texts, *UNICODE.values(), "red apple blue sky rose sea wine"])


@pytest.fixture(scope="module", params=AVAILABLE)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def options(name: str) -> dict[str, Any]:
    return OPTIONS.get(name, {})


@pytest.fixture(scope="module")
def fitted(name: str, options: dict[str, Any], toy: Toy) -> Classifier:
    """A trained classifier; tests must not change it."""
    return Classifier(name, options).fit(toy.train, toy.valid)


@pytest.fixture(scope="module")
def small(name: str, options: dict[str, Any]) -> Classifier:
    """One that was trained on few documents."""
    return Classifier(name, options).fit(*FEW)


class Again(NamedTuple):
    """The training of ``fitted`` once more, now with a folder to write to."""

    classifier: Classifier
    held: HeldOut | None
    folder: Path


@pytest.fixture(scope="module")
def again(name: str, options: dict[str, Any], toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Again:
    classifier, folder = Classifier(name, options), tmp_path_factory.mktemp("contract") / "run"
    fit, said = classifier.model.fit, []

    def listened(*given: Any) -> HeldOut | None:
        said.append(fit(*given))
        return said[-1]

    with pytest.MonkeyPatch.context() as patch, Run(folder, progress=False) as run:
        patch.setattr(classifier.model, "fit", listened)
        classifier.fit(toy.train, toy.valid, run)
    return Again(classifier, said[-1], folder)


def equal(a: Scores, b: Scores) -> bool:
    """Whether two scores are the same to the last bit, decoded sets included."""
    pairs = [(a.matrix, b.matrix)]
    if (a.decoded is None) != (b.decoded is None):
        return False
    if a.decoded is not None and b.decoded is not None:
        pairs.append((a.decoded, b.decoded))
    same = all(np.array_equal(getattr(x, part), getattr(y, part)) for x, y in pairs for part in ("data", "indices", "indptr"))
    return same and tuple(a.names) == tuple(b.names) and (a.kind, a.absent) == (b.kind, b.absent)


def check_scores(scores: Scores, documents: int, labels: LabelSet, k: int | None = None) -> None:
    """What holds for all scores: sorted unique labels per row, float32, finite, the names, a kind and its absent value."""
    m = scores.matrix
    assert m.shape == (documents, len(labels)) and len(scores) == documents
    assert m.data.dtype == np.float32 and np.isfinite(m.data).all()
    assert m.indptr[0] == 0 and m.indptr[-1] == len(m.indices) == len(m.data)
    for numbers, values in scores:
        assert len(numbers) == len(values) and (np.diff(numbers) > 0).all()
        assert not len(numbers) or (numbers[0] >= 0 and numbers[-1] < len(labels))
        assert k is None or len(numbers) <= k
    assert tuple(scores.names) == labels.names
    assert (scores.kind, scores.absent) in (("probability", 0.0), ("margin", float("-inf")))
    if scores.kind == "probability":
        assert (m.data >= 0).all() and (m.data <= 1).all()
    if scores.decoded is not None:
        assert scores.decoded.shape == m.shape and (scores.decoded.data == 1).all()


# -- before training ---------------------------------------------------------------------------------------------------

CONSTRUCT = """
import json, os, sys
from polytag.models.model import model_class
for name, options in json.loads(sys.argv[1]).items():
    cls = model_class(name)
    before = set(sys.modules), set(os.listdir())
    cls.build(options)
    print(name, sorted(set(sys.modules) - before[0]), sorted(set(os.listdir()) - before[1]), "torch" in sys.modules)
"""


def test_constructing_imports_nothing_writes_nothing_and_linear_models_need_no_torch(tmp_path: Path) -> None:
    known = [name for name in AVAILABLE if isinstance(name, str)]
    told = json.dumps({name: OPTIONS.get(name, {}) for name in sorted(known, key=lambda name: name not in LINEAR)})
    done = subprocess.run([sys.executable, "-c", CONSTRUCT, told], cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(known)
    assert all(" [] [] " in line for line in lines), done.stdout
    assert [line for line in lines if line.split()[0] in LINEAR] == [f"{name} [] [] False" for name in LINEAR]


def test_constructor_stores_the_fields_and_no_more(name: str, options: dict[str, Any]) -> None:
    cls = model_class(name)
    model = cls.build({**options, "seed": 7})
    assert set(vars(model)) <= {f.name for f in dataclasses.fields(cls)}
    assert model.options() == {**cls().options(), **options, "seed": 7}
    assert all(value is model.options()[key] for key, value in options.items())
    assert not len(model.labels)


def test_options_build_the_same_model_again(name: str, options: dict[str, Any]) -> None:
    model = model_class(name).build({**options, "seed": 3, "optimise": "macro_f1"})
    again = type(model).build(model.options())
    assert again.options() == model.options()
    plain = json.loads(json.dumps(model.options()))  # as recipe and artefact hold them
    assert type(model).check_options(plain, idle=False) == model.options()


def test_two_models_share_no_default(name: str) -> None:
    first, second = model_class(name)(), model_class(name)()
    for field in dataclasses.fields(first):
        value = getattr(first, field.name)
        if field.init and (isinstance(value, list | dict) or "group" in field.metadata):
            assert value is not getattr(second, field.name)
    mine, other = first.options(), second.options()
    assert not any(value is other[key] for key, value in mine.items() if isinstance(value, list | dict))


def test_an_untrained_model_says_so(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = model_class(name).build({**options})
    classifier = Classifier(name, options)
    for ask in (
        lambda: model.score(["a"]),
        model.state,
        lambda: classifier.scores(["a"]),
        lambda: classifier.predict(["a"]),
        lambda: classifier.predict([]),
        lambda: classifier.evaluate(toy_corpus(4, 0)),
        lambda: classifier.save(tmp_path / "run"),
    ):
        with pytest.raises(NotFittedError, match="not trained"):
            ask()
    assert not (tmp_path / "run").exists()


# -- learning ----------------------------------------------------------------------------------------------------------


def test_learns_the_toy_corpus(fitted: Classifier, toy: Toy) -> None:
    predicted = fitted.labels.encode(fitted.predict(toy.test.texts))
    assert micro_f1(toy.test.truth, predicted) > 0.9
    assert fitted.evaluate(toy.test)["micro_f1"] == pytest.approx(micro_f1(toy.test.truth, predicted))


def test_learns_from_the_training_documents_alone(name: str, options: dict[str, Any], toy: Toy) -> None:
    assert Classifier(name, options).fit(toy.train).evaluate(toy.test)["micro_f1"] > 0.9


def test_does_not_learn_what_is_not_there(name: str, options: dict[str, Any], toy: Toy) -> None:
    """The micro-F1 above comes from the words: with the labels of other documents it is gone."""
    shuffled = np.random.default_rng(0).permutation(len(toy.train))
    wrong = Corpus.of(toy.train.texts, [toy.train.label_lists()[i] for i in shuffled], label_set=toy.train.labels)
    assert Classifier(name, options).fit(wrong).evaluate(toy.test)["micro_f1"] < 0.6


def test_same_seed_same_scores(again: Again, fitted: Classifier, toy: Toy) -> None:
    assert equal(again.classifier.scores(toy.test.texts), fitted.scores(toy.test.texts))
    assert np.array_equal(again.classifier.decision.thresholds, fitted.decision.thresholds)
    assert again.classifier.predict(toy.test.texts) == fitted.predict(toy.test.texts)


def test_training_twice_starts_anew(name: str, options: dict[str, Any], small: Classifier, toy: Toy) -> None:
    classifier = Classifier(name, options).fit(toy_corpus(24, 8))
    assert not equal(classifier.scores(toy.test.texts), small.scores(toy.test.texts))
    classifier.fit(*FEW)
    assert equal(classifier.scores(toy.test.texts), small.scores(toy.test.texts))


def test_held_out_scores_are_about_the_documents_they_say(again: Again, toy: Toy) -> None:
    """Row by row, truth and scores of the held-out documents belong together."""
    held = again.held
    assert held is not None
    check_scores(held.scores, held.truth.shape[0], toy.train.labels)
    best, truth = held.scores.ranked(1)[0][:, 0], held.truth.toarray() > 0
    hits = [np.mean(truth[np.roll(np.arange(len(best)), shift), best]) for shift in range(len(best))]
    assert hits[0] > 0.75 > 2 * np.mean(hits[1:])  # as they stand, and with truth moved on by some documents


# -- scores ------------------------------------------------------------------------------------------------------------


def test_scores_have_the_shape_of_scores(fitted: Classifier, toy: Toy) -> None:
    texts = toy.test.texts
    for found in (fitted.model.score(texts), fitted.scores(texts)):
        check_scores(found, len(texts), fitted.labels)
    check_scores(fitted.scores(texts, k=3), len(texts), fitted.labels, k=3)
    check_scores(fitted.scores([]), 0, fitted.labels)
    check_scores(fitted.scores([], k=2), 0, fitted.labels, k=2)


@pytest.mark.parametrize("k", [1, 2, 8, 9, 1000])
def test_k_best_are_the_head_of_all(fitted: Classifier, toy: Toy, k: int) -> None:
    best, everything = fitted.model.score(toy.test.texts, k), fitted.model.score(toy.test.texts)
    check_scores(best, len(toy.test), fitted.labels, k)
    tolerance = 0.0 if fitted.recipe.model in LINEAR else 1e-5
    for row, whole in zip(best.top(k), everything.top(k), strict=True):
        assert [label for label, _ in row] == [label for label, _ in whole]
        assert [value for _, value in row] == pytest.approx([value for _, value in whole], abs=tolerance, rel=0)


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_an_error(fitted: Classifier, k: int) -> None:
    with pytest.raises(ConfigError, match=f"k is {k}"):
        fitted.scores(["trawler"], k=k)


@pytest.mark.parametrize("size", [1, 7])
def test_neighbours_do_not_matter(fitted: Classifier, toy: Toy, size: int) -> None:
    texts = [*toy.test.texts[:20], *STRANGE]
    whole = fitted.scores(texts)
    parts = Scores.stack([fitted.scores(texts[at : at + size]) for at in range(0, len(texts), size)])
    if fitted.recipe.model in LINEAR:
        assert equal(parts, whole)
    assert np.array_equal(parts.matrix.indices, whole.matrix.indices) and np.array_equal(parts.matrix.indptr, whole.matrix.indptr)
    assert np.abs(parts.matrix.data - whole.matrix.data).max() <= 1e-5


def test_order_of_the_texts_does_not_matter(fitted: Classifier, toy: Toy) -> None:
    there, back = fitted.scores(toy.test.texts), fitted.scores(toy.test.texts[::-1])
    for (one, a), (two, b) in zip(there, reversed(list(back)), strict=True):
        assert np.array_equal(one, two) and np.allclose(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("text", STRANGE, ids=ascii)
def test_strange_texts_get_scores_and_labels(fitted: Classifier, text: str) -> None:
    """Empty, blank, without a known word, emoji, CJK, right to left, at the edge of unicode, combining marks."""
    check_scores(fitted.scores([text]), 1, fitted.labels)
    (labels,) = fitted.predict([text])
    assert set(labels) <= set(fitted.labels) and len(labels) >= 1, "no training document has fewer than one label"


def test_unicode_words_are_learned(name: str, options: dict[str, Any]) -> None:
    """Words in other scripts, and label names in them, work as any others do."""
    generator = np.random.default_rng(4)
    labels = [list(UNICODE)[i % 4] for i in range(120)]
    texts = [" ".join(generator.choice(UNICODE[label].split(), 3)) for label in labels]
    classifier = Classifier(name, options).fit(texts, [[label] for label in labels])
    assert classifier.predict(list(UNICODE.values())) == [[label] for label in UNICODE]


# -- corpora at the edge -----------------------------------------------------------------------------------------------


def edge_corpus() -> Corpus:
    """Documents without labels, without text and with every label; a label without documents and one that all have."""
    base = toy_corpus(48, 5)
    labels = [[*own, "always"] for own in base.label_lists()]
    for row in range(0, 48, 6):
        labels[row] = []
    labels[7] = ["always", *list(base.labels)]
    texts = ["" if row in (6, 9) else text for row, text in enumerate(base.texts)]
    return Corpus.of(texts, labels, label_set=LabelSet(["never", *base.labels, "always"]))


def test_documents_without_labels_and_labels_without_documents(name: str, options: dict[str, Any], toy: Toy) -> None:
    corpus = edge_corpus()
    classifier = Classifier(name, options).fit(corpus)
    assert classifier.decision.min_labels == 0
    check_scores(classifier.scores(toy.test.texts), len(toy.test), corpus.labels)
    predicted = [label for labels in classifier.predict(toy.test.texts) for label in labels]
    assert "never" not in predicted and predicted.count("always") > 30


def test_a_valid_corpus_may_have_other_labels(name: str, options: dict[str, Any]) -> None:
    train, valid = FEW
    other = Corpus.of([*valid.texts, "abacus"], [*valid.label_lists(), ["counting"]])
    classifier = Classifier(name, options).fit(train, other)
    assert set(classifier.labels) == {*train.labels, "counting"}
    check_scores(classifier.scores(["abacus"]), 1, classifier.labels)


def test_few_documents_are_enough_to_train(name: str, options: dict[str, Any]) -> None:
    for count in (2, 3, 5):
        texts = ["red apple", "blue sky", "red rose", "blue sea", "red wine"][:count]
        classifier = Classifier(name, options).fit(texts, [["red"], ["blue"], ["red"], ["blue"], ["red"]][:count])
        check_scores(classifier.scores(["a red thing"]), 1, classifier.labels)
    assert classifier.scores(["red red"]).top(1)[0][0][0] == "red"


def test_one_document_with_two_labels_trains(name: str, options: dict[str, Any]) -> None:
    classifier = Classifier(name, options).fit(["red apple"], [["red", "fruit"]])
    assert set(classifier.predict(["red apple"])[0]) == {"red", "fruit"}


def test_nothing_to_learn_is_a_data_error(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="no labels at all"):
        Classifier(name, options).fit(["a b", "c d"], [[], []])
    with pytest.raises(DataError, match="one label only"):
        Classifier(name, options).fit(["a b", "c d"], [["x"], []])


# -- files -------------------------------------------------------------------------------------------------------------


def test_loaded_is_equal_to_saved(fitted: Classifier, toy: Toy, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    for folder in (tmp_path, tmp_path / "model"):
        loaded = Classifier.load(folder)
        texts = [*toy.test.texts, *STRANGE]
        assert equal(loaded.scores(texts), fitted.scores(texts))
        assert equal(loaded.model.score(texts, 2), fitted.model.score(texts, 2))
        assert loaded.predict(texts) == fitted.predict(texts)
        assert loaded.evaluate(toy.test) == fitted.evaluate(toy.test)
        assert loaded.labels == fitted.labels and loaded.model.options() == fitted.model.options()
        assert type(loaded.model) is type(fitted.model)


def test_what_is_saved_again_is_the_same(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "one")
    Classifier.load(tmp_path / "one").save(tmp_path / "two")
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / run / "model").iterdir()} for run in ("one", "two"))
    assert first == second


def test_a_loaded_classifier_can_be_trained_again(fitted: Classifier, small: Classifier, toy: Toy, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    loaded = Classifier.load(tmp_path).fit(*FEW)
    assert equal(loaded.scores(toy.test.texts), small.scores(toy.test.texts))


# -- edits of labels ---------------------------------------------------------------------------------------------------


def saved_and_loaded(classifier: Classifier, folder: Path, texts: list[str]) -> Classifier:
    """The classifier after saving and loading, which is the same."""
    classifier.save(folder)
    loaded = Classifier.load(folder)
    assert equal(loaded.scores(texts), classifier.scores(texts))
    assert loaded.predict(texts) == classifier.predict(texts)
    assert loaded.labels == classifier.labels and loaded.edits == classifier.edits
    return loaded


def test_renaming_keeps_scores_to_the_bit(fitted: Classifier, toy: Toy, tmp_path: Path) -> None:
    """Two labels swap names, others get new ones; scores, sets and thresholds are those of before, also after loading."""
    first, second, *others = fitted.labels
    names = {first: second, second: first, **{name: f"new {name}, {name}" for name in others}}
    texts, before = [*toy.test.texts, *STRANGE], fitted.scores([*toy.test.texts, *STRANGE])
    renamed = copy.copy(fitted).rename(names)
    assert list(renamed.labels) == [names[name] for name in fitted.labels] != list(fitted.labels)
    assert renamed.labels.parents == {names[child]: names[parent] for child, parent in fitted.labels.parents.items()}
    for found in (renamed, saved_and_loaded(renamed, tmp_path, texts)):
        scores = found.scores(texts)
        assert tuple(scores.names) == renamed.labels.names
        assert equal(dataclasses.replace(scores, names=before.names), before)
        assert found.predict(texts) == [[names[name] for name in row] for row in fitted.predict(texts)]
        assert np.array_equal(found.decision.thresholds, fitted.decision.thresholds)
        assert found.asking(0.3) == 0.3 and type(found.model) is type(fitted.model)
    back = {new: old for old, new in names.items()}
    assert equal(copy.copy(found).rename(back).scores(texts), before)
    assert equal(fitted.scores(texts), before)


def test_merge_drop_and_split_give_the_scores_that_they_say(fitted: Classifier, toy: Toy, tmp_path: Path) -> None:
    a, b, c, d, e, *_ = fitted.labels
    texts = toy.test.texts
    whole = fitted.scores(texts)
    assert whole.kind == "probability"
    old = {name: whole.matrix.toarray()[:, j].astype(np.float64) for j, name in enumerate(fitted.labels)}
    one = copy.copy(fitted).merge({"both": [a, b]}).drop([c])
    two = saved_and_loaded(one, tmp_path / "one", texts).split({d: [d, "twin"]}).merge({"three": ["both", e]}).rename({d: "kept"})
    expected = {name: old[name] for name in fitted.labels[5:]} | {"kept": old[d], "twin": old[d]}
    expected["three"] = 1 - (1 - old[a]) * (1 - old[b]) * (1 - old[e])
    for found in (two, saved_and_loaded(two, tmp_path / "two", texts)):
        scores = found.scores(texts)
        check_scores(scores, len(texts), found.labels)
        assert found.labels.names == ("three", "kept", "twin", *fitted.labels[5:])
        for j, name in enumerate(found.labels):
            tolerance = 1e-6 if name == "three" else 0.0
            np.testing.assert_allclose(scores.matrix.toarray()[:, j], expected[name], rtol=0, atol=tolerance)
        assert found.model.core.labels is not found.labels and type(found.model.core) is type(fitted.model), "not wrapped twice"
        assert [edit.kind for edit in found.edits] == ["merge", "drop", "split", "merge", "rename"]
        assert equal(found.model.score(texts, 2), scores.best(2))
        limits = fitted.decision.limits("probability", len(fitted.labels))
        for i, (row, new) in enumerate(zip(fitted.predict(texts), found.predict(texts), strict=True)):
            # of labels that reached their threshold, not of the best one that a document gets in any case
            own = {n for n in row if limits is None or old[n][i] >= limits[fitted.labels.number(n)]}
            assert {"kept", "twin"} <= set(new) or d not in own
            assert "three" in new or not own & {a, b, e}
    assert found.explain(texts[0], ["three"]).labels and found.explain(texts[0], ["kept", "twin"]).labels
    assert equal(fitted.scores(texts), whole)


def test_artefact_holds_only_json_safetensors_and_the_card(fitted: Classifier, tmp_path: Path) -> None:
    from safetensors import safe_open

    fitted.save(tmp_path)
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in found} == {".json", ".safetensors", ".md"}
    for path in found:
        if path.suffix == ".json":
            json.loads(path.read_text("utf-8"))
        elif path.suffix == ".safetensors":
            with safe_open(path, "numpy") as arrays:
                assert all(arrays.get_tensor(key).dtype.kind in "fiub" for key in arrays.keys())  # noqa: SIM118, it is no dict


def test_state_and_restore_are_a_round_trip(fitted: Classifier, toy: Toy) -> None:
    model: Model = fitted.model
    again = type(model).from_state(model.options(), model.labels, model.state())
    assert equal(again.score(toy.test.texts), model.score(toy.test.texts))


def test_the_run_is_told_what_happens(again: Again) -> None:
    events = [json.loads(line)["event"] for line in (again.folder / "log.jsonl").read_text().splitlines()]
    assert events[0] == "start" and "decision" in events
