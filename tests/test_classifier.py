"""The classifier: what goes in as lists or corpora comes out as label names, measured and streamed by the same path."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import polytag
import polytag.classifier as module
from conftest import Toy, toy_documents
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.decision.predicted_sets import Prediction
from polytag.errors import ArtefactError, ConfigError, DataError
from polytag.formats.document import ReadOptions
from polytag.labels import LabelSet, indicator
from polytag.metrics.of_sets import evaluate
from polytag.models.binary_relevance import BinaryRelevance
from polytag.models.model import MODELS, HeldOut, Model, State, param
from polytag.run import Run
from polytag.scores import Scores
from polytag.verbs.prediction import predict_file
from polytag.verbs.training import DataPlan, train_run


@dataclass
class Stub(Model):
    """A model that knows what it scores beforehand: the number in a text is the place of its score in a table."""

    table: ClassVar[Any] = np.zeros((1, 3))
    kind: ClassVar[Any] = "margin"
    held: ClassVar[Any] = None
    answers: ClassVar[bool] = True
    size: int = param(1, "nothing")
    seen: list[int] = field(init=False, default_factory=list)

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        self.labels = train.labels
        return type(self).held  # type: ignore[no-any-return]

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        assert type(self).answers, "the model was asked to score"
        self.seen.append(len(texts))
        found = Scores.full(self.table[[int(text) for text in texts]], self.labels.names, self.kind)
        return found if k is None else found.best(k)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> type[Stub]:
    monkeypatch.setitem(MODELS, "stub", f"{__name__}:Stub")
    for name, value in (("table", np.zeros((1, 3))), ("kind", "margin"), ("held", None), ("answers", True)):
        monkeypatch.setattr(Stub, name, value)
    return Stub


LISTS = (["0", "0", "0"], [["a"], ["b", "c"], ["a", "c"]])


# -- training ----------------------------------------------------------------------------------------------------------


def test_plain_lists_are_enough() -> None:
    texts, labels = toy_documents(96, 1)
    classifier = Classifier("br", {"c": [1.0]}).fit(texts, labels)
    found = classifier.predict(["the trawler and its net and cod", "an aria for soprano and tenor, with violin and chord"])
    assert [sorted(row) for row in found] == [["fishing"], ["music", "opera"]]


def test_lists_and_corpora_give_the_same(toy: Toy) -> None:
    texts, labels = toy_documents(48, 1)
    label_set = LabelSet(sorted({name for row in labels for name in row}))
    one = Classifier("br", {"c": [1.0]}).fit(texts, labels)
    two = Classifier("br", {"c": [1.0]}).fit(Corpus.of(texts, labels, label_set=label_set))
    assert one.labels == two.labels
    assert np.array_equal(one.scores(toy.test.texts).matrix.data, two.scores(toy.test.texts).matrix.data)


def test_lists_without_labels_are_refused(toy: Toy) -> None:
    with pytest.raises(DataError, match=r"fit\(texts, labels\)"):
        Classifier().fit(["a", "b"])
    with pytest.raises(DataError, match=r"fit\(texts, labels\)"):
        Classifier().fit(["a", "b"], toy.valid)
    with pytest.raises(DataError, match="2 texts but 1 labels"):
        Classifier().fit(["a", "b"], [["x"]])


@pytest.mark.parametrize("model", ["br", "cc", "lp"])
def test_texts_without_words_are_refused(model: str) -> None:
    with pytest.raises(DataError, match="texts are empty"):
        Classifier(model).fit(["", " ..."], [["x"], ["y"]])


def test_one_string_is_not_a_list_of_texts(br: Classifier) -> None:
    for ask in (br.predict, br.scores):
        with pytest.raises(DataError, match="list of texts"):
            ask("trawler")


def test_a_model_object_with_its_settings(toy: Toy) -> None:
    model = BinaryRelevance.build({"c": [0.5], "seed": 4, "optimise": "macro_f1"})
    classifier = Classifier(model)
    assert classifier.model is model and classifier.recipe == Recipe("br", classifier.recipe.options, 4, "macro_f1")
    named = Classifier("br", {"c": [0.5], "seed": 4, "optimise": "macro_f1"})
    assert named.model.options() == model.options()
    one, two = (c.fit(toy.train).scores(toy.test.texts).matrix.data for c in (classifier, named))
    assert np.array_equal(one, two)
    with pytest.raises(ConfigError, match="has its settings already"):
        Classifier(model, {"c": [1.0]})


def test_wrong_settings_are_configuration_errors() -> None:
    with pytest.raises(ConfigError, match=r"no model 'bf'.*\bbr\b"):
        Classifier("bf")
    with pytest.raises(ConfigError, match="ngram"):
        Classifier("br", {"ngram": 2})
    with pytest.raises(ConfigError, match="optimise"):
        Classifier("br", {"optimise": "f1"})


def test_the_public_names_are_there() -> None:
    assert polytag.Classifier is Classifier and polytag.Corpus is Corpus
    assert all(getattr(polytag, name) for name in polytag.__all__)
    with pytest.raises(AttributeError, match="Clasifier"):
        _ = polytag.Clasifier


# -- thresholds come from held-out documents ---------------------------------------------------------------------------


def test_thresholds_are_fitted_on_held_out_scores_and_nothing_else(stub: type[Stub]) -> None:
    """A model that refuses to score can be trained: what it held out is all that thresholds and calibration see."""
    held = Scores.full(np.array([[3.0, 1.0, 1.2], [1.1, 4.0, 3.5]] * 5), ["a", "b", "c"], "margin")
    stub.held = HeldOut(indicator([[0], [1, 2]] * 5, 3), held)
    stub.answers = False
    classifier = Classifier("stub", {"calibrate": False}).fit(*LISTS)
    assert classifier.decision.rule == "threshold" and 1.2 < classifier.decision.thresholds[0] <= 3.0
    assert classifier.decision.report["fitted"] == 1.0
    stub.answers, stub.table = True, np.array([[5.0, 1.1, 4.0]])
    assert classifier.predict(["0"]) == [["a", "c"]]
    before = classifier.decision.state()
    classifier.evaluate(Corpus.of(["0"] * 4, [["b"]] * 4))
    assert classifier.decision.state() == before, "measuring changes nothing"


def test_calibration_is_fitted_on_held_out_scores_too(stub: type[Stub]) -> None:
    held = Scores.full(np.array([[3.0, 1.0, 1.2], [1.1, 4.0, 3.5]] * 20), ["a", "b", "c"], "margin")
    stub.held = HeldOut(indicator([[0], [1, 2]] * 20, 3), held)
    stub.answers = False
    classifier = Classifier("stub").fit(*LISTS)
    assert classifier.calibration is not None and "calibration_error" in classifier.decision.report
    stub.answers, stub.table = True, np.array([[3.5, 1.0, 1.0]])
    found = classifier.scores(["0"])
    assert found.kind == "probability" and found.top(1)[0][0][1] > 0.7
    assert classifier.predict(["0"]) == [["a"]]


def test_without_held_out_documents_zero_or_a_half_is_the_threshold(stub: type[Stub], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        classifier = Classifier("stub", {"min_labels": 0}).fit(*LISTS)
    assert "thresholds" in caplog.text
    stub.table = np.array([[0.2, -0.3, 1.0], [-1.0, -2.0, -3.0]])
    assert classifier.predict(["0", "1"]) == [["c", "a"], []]
    stub.kind, stub.table = "probability", np.array([[0.2, 0.6, 0.49]])
    stub.held = None
    assert Classifier("stub", {"min_labels": 0}).fit(*LISTS).predict(["0"]) == [["b"]]


@pytest.mark.parametrize(("labels", "least"), [([["a"], ["b", "c"]], 1), ([["a"], [], ["b"]], 0), ([["a", "b"], ["b", "c"]], 2)])
def test_fewest_labels_come_from_the_training_documents(stub: type[Stub], labels: list[list[str]], least: int) -> None:
    corpus = Corpus.of(["0"] * len(labels), labels, label_set=LabelSet("abc"))
    classifier = Classifier("stub").fit(corpus)
    assert classifier.decision.min_labels == least
    stub.table = np.array([[-1.0, -2.0, -3.0]])
    assert classifier.predict(["0"]) == [["a", "b", "c"][:least]]
    assert Classifier("stub", {"min_labels": 3}).fit(corpus).predict(["0"]) == [["a", "b", "c"]]


def test_a_validation_document_without_labels_counts(stub: type[Stub]) -> None:
    """Whoever validates on documents without labels wants to be able to predict none."""
    train, valid = Corpus.of(*LISTS), Corpus.of(["0"], [[]], label_set=LabelSet("abc"))
    assert Classifier("stub").fit(train, valid).decision.min_labels == 0


def test_linear_models_choose_on_all_documents_and_learn_from_all(toy: Toy) -> None:
    """Validation documents are training documents too: a label that only they have is learned."""
    extra = Corpus.of(["abacus bead sum"] * 6, [["counting"]] * 6)
    classifier = Classifier("br", {"c": [1.0]}).fit(toy.train, toy.valid.concat(extra))
    assert classifier.predict(["bead abacus"]) == [["counting"]]
    assert classifier.training["documents"] == len(toy.train) + len(toy.valid) + 6
    assert classifier.training["label_counts"][classifier.labels.names.index("counting")] == 6


def test_optimise_is_what_the_decision_is_made_for(toy: Toy) -> None:
    for metric in ("micro_f1", "macro_f1", "subset_accuracy"):
        classifier = Classifier("br", {"optimise": metric, "c": [1.0]}).fit(toy.train)
        assert classifier.decision.report["metric"] == metric == classifier.model.optimise


# -- the tree ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["br", "cc", "lp"])
def test_closed_predictions_hold_every_ancestor(toy: Toy, model: str) -> None:
    """Trained on leaves alone, so that only the closing can add the parents."""
    leaves = [[name for name in row if name not in ("sport", "music") or len(row) == 1] for row in toy.train.label_lists()]
    corpus = Corpus.of(toy.train.texts, leaves, label_set=toy.train.labels)
    for closed in (True, False):
        predicted = Classifier(model, {"closed": closed, "c": [1.0]}).fit(corpus).predict(toy.test.texts)
        children = [row for row in predicted if "football" in row or "opera" in row]
        assert len(children) > 10
        kept = [
            {"football": "sport", "opera": "music"}[name] in row
            for row in children
            for name in row
            if name in ("football", "opera")
        ]
        assert all(kept) if closed else not all(kept)


# -- answering ---------------------------------------------------------------------------------------------------------


def test_no_texts_no_labels(br: Classifier) -> None:
    assert br.predict([]) == []
    assert list(br.stream([])) == []
    assert len(br.scores([])) == 0


def test_predictions_are_the_decided_labels_best_first(br: Classifier, toy: Toy) -> None:
    scores = br.scores(toy.test.texts)
    decided = br.labels.decode(br.decision.decide(scores, br.labels))
    for (_, prediction), names, row in zip(br.stream((None, t) for t in toy.test.texts), decided, scores.top(8), strict=True):
        assert sorted(prediction.labels) == sorted(names)
        assert prediction == Prediction([n for n, _ in row if n in names], [v for n, v in row if n in names])


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_stream_keeps_the_order_and_passes_items_through(
    br: Classifier, toy: Toy, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    whole = br.predict(toy.test.texts)
    monkeypatch.setattr(module, "_MOST", size)
    items = [object() for _ in toy.test.texts]
    found = list(br.stream(zip(items, toy.test.texts, strict=True)))
    assert [item for item, _ in found] == items
    assert [prediction.labels for _, prediction in found] == whole
    assert br.evaluate(toy.test)["documents"] == len(toy.test)


def test_a_stream_reads_no_further_than_it_must(stub: type[Stub]) -> None:
    """An endless source: documents are taken batch by batch, and answers come before the next batch is read."""
    classifier = Classifier("stub", {"min_labels": 0}).fit(*LISTS)
    taken = 0

    def endless() -> Iterator[tuple[int, str]]:
        nonlocal taken
        for taken in itertools.count(1):
            yield taken, "0"

    first = list(itertools.islice(classifier.stream(endless()), 10))
    assert [number for number, _ in first] == list(range(1, 11))
    assert taken <= module._MOST


def test_batches_shrink_when_there_are_many_labels(stub: type[Stub], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CELLS", 30)
    classifier = Classifier("stub", {"min_labels": 0}).fit(*LISTS)
    classifier.predict(["0"] * 25)
    assert classifier.model.seen == [10, 10, 5]  # type: ignore[attr-defined]


def test_top_gives_that_many_whatever_the_decision(br: Classifier, toy: Toy) -> None:
    for top in (1, 3, 8, 20):
        found = [prediction for _, prediction in br.stream(((None, t) for t in toy.test.texts[:5]), top)]
        expected = br.scores(toy.test.texts[:5]).top(top)
        assert [list(zip(*p, strict=True)) for p in found] == expected
        assert all(len(p.labels) == min(top, 8) for p in found)


# -- measuring ---------------------------------------------------------------------------------------------------------


def test_evaluating_is_the_metrics_of_the_predictions(br: Classifier, toy: Toy) -> None:
    scores = br.scores(toy.test.texts)
    predicted = br.labels.encode(br.predict(toy.test.texts))
    counts = np.bincount(toy.train.concat(toy.valid).truth.indices, minlength=8)
    expected = evaluate(toy.test.truth, predicted, scores, train_counts=counts, train_documents=192)
    found = br.evaluate(toy.test)
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    along = {f"hierarchical_{name}" for name in ("precision", "recall", "f1")}
    assert set(found) - set(expected) == {"unseen_labels", "calibration_error", *along}
    for key in ("micro_f1", "macro_f1", "samples_f1", "subset_accuracy", "hamming_loss", "p@1", "p@3", "p@5", "psp@5"):
        assert key in found


def test_labels_that_training_never_saw_count_as_missed(br: Classifier, toy: Toy) -> None:
    labels = [[*row, "unheard", f"of {i % 2}"] for i, row in enumerate(toy.test.label_lists())]
    found = br.evaluate(Corpus.of(toy.test.texts, labels))
    before = br.evaluate(toy.test)
    assert found["unseen_labels"] == 3 and before["unseen_labels"] == 0
    right = before["micro_recall"] * toy.test.truth.nnz
    assert found["micro_recall"] == pytest.approx(right / (toy.test.truth.nnz + 2 * len(toy.test)))
    assert found["micro_precision"] == pytest.approx(before["micro_precision"])
    assert found["subset_accuracy"] == 0


def test_the_order_of_a_corpus_label_set_does_not_matter(br: Classifier, toy: Toy) -> None:
    turned = Corpus.of(toy.test.texts, toy.test.label_lists(), label_set=LabelSet(toy.test.labels.names[::-1]))
    assert br.evaluate(turned) == pytest.approx(br.evaluate(toy.test))


def test_evaluation_does_not_depend_on_the_batches(br: Classifier, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = br.evaluate(toy.test)
    monkeypatch.setattr(module, "_MOST", 7)
    assert br.evaluate(toy.test) == pytest.approx(whole)


# -- files -------------------------------------------------------------------------------------------------------------


def test_everything_about_the_labels_survives(tmp_path: Path) -> None:
    labels = LabelSet(["día", "b"], ids={"día": "7"}, descriptions={"b": "the second"}, parents={"b": "día"})
    corpus = Corpus.of(["one two", "three four"] * 4, [["día"], ["b"]] * 4, label_set=labels)
    classifier = Classifier("br", {"c": [1.0], "closed": True, "min_labels": 1, "calibrate": False}).fit(corpus)
    classifier.save(tmp_path)
    loaded = Classifier.load(tmp_path)
    assert loaded.labels == labels and loaded.model.options() == classifier.model.options()
    assert (loaded.recipe.closed, loaded.recipe.min_labels, loaded.recipe.calibrate) == (True, 1, False)
    assert loaded.calibration is None and loaded.decision.closed and loaded.decision.min_labels == 1
    assert repr(loaded) == "Classifier('br', 2 labels)" and repr(Classifier("br")) == "Classifier('br', not trained)"


def test_a_folder_that_holds_something_else_is_an_artefact_error(tmp_path: Path) -> None:
    from polytag.storage.artefact import write_artefact

    write_artefact(tmp_path / "model", {"something": "else"})
    with pytest.raises(ArtefactError, match="not a classifier"):
        Classifier.load(tmp_path)


def shorter(array: Any) -> Any:
    return array[:-1]


@pytest.mark.parametrize(
    ("model", "place", "change"),
    [
        ("br", "labels/names", shorter),
        ("br", "decision/thresholds", lambda array: np.zeros(3, dtype=np.float32)),
        ("br", "calibration/slopes", shorter),
        ("br", "training/label_counts", shorter),
        ("br", "state/tfidf/keys", shorter),
        ("br", "state/tfidf/idf", shorter),
        ("br", "state/weights/weights", shorter),
        ("br", "state/weights/bias", shorter),
        ("br", "state/weights/weights", lambda matrix: matrix[:, :-1]),
        ("cc", "state/weights/order", lambda order: order + 1),
        ("cc", "state/weights/order", lambda order: order * 0),
        ("cc", "state/weights/links", shorter),
        ("cc", "state/weights/separators/weights", shorter),
        ("lp", "state/weights/sets", shorter),
        ("lp", "state/weights/sets", lambda matrix: matrix[:, :-1]),
        ("lp", "state/weights/separators/bias", shorter),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_together_are_noticed(toy: Toy, tmp_path: Path, model: str, place: str, change: Any) -> None:
    """Compiled code trusts the sizes of arrays, so an artefact from a stranger must not lie about them."""
    from polytag.storage.artefact import read_artefact, write_artefact

    Classifier(model, {"c": [1.0], "ngrams": [1]}).fit(toy.valid).save(tmp_path)
    state = read_artefact(tmp_path / "model")
    *folders, name = place.split("/")
    part = state
    for folder in folders:
        part = part[folder]
    part[name] = change(part[name])
    write_artefact(tmp_path / "model", state)
    with pytest.raises(ArtefactError, match="train it again"):
        Classifier.load(tmp_path)


def test_a_classifier_reads_the_columns_it_was_trained_on(tmp_path: Path) -> None:
    """Trained on title and body, it reads both at prediction, though a column named text is there too."""
    rows = [("red apple", "sweet fruit", "fruit;food"), ("blue sky", "wide air", "weather")] * 8
    lines = ["title,body,text,labels", *(f"{title},{body},nothing,{labels}" for title, body, labels in rows)]
    (tmp_path / "all.csv").write_text("\n".join(lines) + "\n")
    options = ReadOptions(text=("title", "body"))
    plan = DataPlan(tmp_path / "all.csv", None, None, options)
    train_run(Recipe("br", {"c": [1.0], "ngrams": [1]}), plan, tmp_path / "run")
    reader = predict_file(tmp_path / "run", tmp_path / "all.csv", tmp_path / "out.jsonl")
    found = [json.loads(line)["labels"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert reader.options.text == ("title", "body") or list(reader.options.text) == ["title", "body"]
    assert sorted(found[0]) == ["food", "fruit"] and found[1] == ["weather"]
