"""Distillation: soft targets against brute force, targets out of fold, students that learn what their teacher says, the verb."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array

from conftest import FAST, Toy
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.errors import ConfigError, DataError
from polytag.labels import LabelSet
from polytag.linear.svm import Problem, Solver, train_separators
from polytag.models.model import HeldOut
from polytag.run import Run
from polytag.scores import Scores
from polytag.transfer import distillation
from polytag.transfer import teacher as teachers
from polytag.transfer.distillation import Lesson, _labelled_only, distil
from polytag.transfer.teacher import as_targets, out_of_fold, taught_by
from polytag.transfer.text_views import views_of

EXACT = Solver(balance=0.0, tolerance=1e-4, prune=0.0, max_passes=20_000)
QUICK = {"c": [1.0], "ngrams": [1]}


def random_rows(seed: int, labels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(40, 5)).astype(np.float32), rng.random((40, labels)).astype(np.float32)


@pytest.mark.parametrize("balance", [0.0, 0.4])
def test_soft_targets_minimise_the_expected_squared_hinge(balance: float) -> None:
    """Against a general optimiser: p of the loss of a positive, and 1 - p of that of a negative."""
    features, soft = random_rows(0)
    soft[:5], soft[5:10] = 0.0, 1.0
    solver = replace(EXACT, balance=balance)
    [found] = train_separators(Problem(csr_array(features), csr_array(np.round(soft)), soft=csr_array(soft)), [0.5], solver)
    for label in range(3):
        p = soft[:, label].astype(np.float64)
        heavier = ((len(p) - p.sum()) / p.sum()) ** balance

        def loss(w: np.ndarray, p: np.ndarray = p, heavier: float = heavier) -> float:
            margin = features @ w[:-1] + w[-1]
            each = p * heavier * np.maximum(0, 1 - margin) ** 2 + (1 - p) * np.maximum(0, 1 + margin) ** 2
            return float(0.5 * w @ w + 0.5 * each.sum())

        best = minimize(loss, np.zeros(6), tol=1e-10).x
        assert np.allclose(np.append(found.weights.toarray()[:, label], found.bias[label]), best, atol=2e-3)


def test_certain_targets_are_labels_and_weights_and_unknown_pairs_still_count() -> None:
    features, soft = random_rows(1)
    truth = np.round(soft)
    rng = np.random.default_rng(2)
    weights = rng.uniform(0.5, 3, 40).astype(np.float32)
    unknown = csr_array(((rng.random((40, 3)) < 0.25) & (truth == 0)).astype(np.float32))
    hard = Problem(csr_array(features), csr_array(truth), weights, unknown)
    rows = np.arange(30)
    for problem in (hard, replace(hard, weights=None), replace(hard, unknown=None)):
        one, other = (
            train_separators(asked, [0.5], EXACT, rows=rows)[0] for asked in (problem, replace(problem, soft=problem.truth))
        )
        assert np.allclose(one.weights.toarray(), other.weights.toarray(), atol=2e-3)
        assert np.allclose(one.bias, other.bias, atol=2e-3)


def test_networks_get_the_targets_that_the_corpus_has() -> None:
    torch = pytest.importorskip("torch")
    from polytag.nn.training.batch import Documents, Layout, TokenArrays

    _, soft = random_rows(3)
    soft[soft < 0.5] = 0
    soft[7] = 0
    arrays = TokenArrays(np.arange(40, dtype=np.int32), np.arange(41, dtype=np.int64))
    data = Documents(arrays, Layout(4), torch.device("cpu"), csr_array(np.round(soft)), soft=csr_array(soft))
    rows = torch.tensor([7, 3, 39])
    assert np.allclose(data.batch(rows, 2).targets.numpy(), soft[[7, 3, 39]])


def test_soft_targets_go_with_their_documents_and_labels() -> None:
    corpus = Corpus.of(["one", "two", "three"], [["a"], ["b"], ["a", "b"]])
    soft = csr_array(np.array([[0.9, 0.2], [0.0, 0.7], [0.6, 0.5]], dtype=np.float32))
    corpus = replace(corpus, soft=soft)
    turned = corpus.subset([2, 0]).with_labels(LabelSet(["b", "c", "a"]))
    assert turned.soft is not None
    assert np.allclose(turned.soft.toarray(), [[0.5, 0, 0.6], [0.2, 0, 0.9]])
    plain = Corpus.of(["four"], [["b"]], label_set=LabelSet(["a", "b"]))
    both = corpus.concat(plain).soft  # documents without soft targets have their labels
    assert both is not None and np.allclose(both.toarray()[2:], [[0.6, 0.5], [0, 1]])


def test_targets_out_of_fold_are_from_teachers_that_never_saw_the_document(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that nobody could label but by heart: the teacher itself is sure of it, the targets are not."""
    odd = Corpus.of(["xyzzy plugh frotz", "gnusto rezrov yomin"], [["space"], ["opera"]], label_set=toy.train.labels)
    train = toy.train.concat(odd)
    seen: list[tuple[set[str], set[str]]] = []
    original = teachers.without_fold

    def watched(recipe: Recipe, corpus: Corpus, part: Any, *rest: Any) -> Any:
        seen.append(tuple({corpus.texts[row] for row in rows} for rows in part))  # type: ignore[arg-type]
        return original(recipe, corpus, part, *rest)

    monkeypatch.setattr(teachers, "without_fold", watched)
    teacher = Classifier("br", {**QUICK, "min_df": 1}).fit(train)
    soft, views, others = out_of_fold(teacher, train, 4, toy.test.texts[:9], Run(), 2)
    assert others.shape == (9, len(train.labels))
    assert (others.toarray().argmax(axis=1) == teacher.scores(toy.test.texts[:9]).matrix.toarray().argmax(axis=1)).mean() > 0.8
    assert soft.shape == train.truth.shape and len(seen) == 4
    assert not any(learned & held for learned, held in seen)
    shown = views_of(train.texts, 2, 0)
    of_views = teacher.scores(shown[:40]).matrix.toarray().argmax(axis=1)
    assert views.shape == (len(shown), len(train.labels)) and (views.toarray()[:40].argmax(axis=1) == of_views).mean() > 0.7
    assert (views.toarray()[-4:][np.repeat(odd.truth.toarray() > 0, 2, axis=0)] < 0.1).all(), "nor did it see their views"
    alone, truth = teacher.scores(odd.texts).matrix.toarray(), odd.truth.toarray() > 0
    assert (alone[truth] > 0.3).all() and (soft.toarray()[-2:][truth] < 0.1).all()
    order = [teacher.scores([text]).matrix.toarray().argmax() for text in train.texts[:20]]
    assert (soft.toarray()[:20].argmax(axis=1) == order).mean() > 0.8  # the rows are those of the documents


def test_what_is_almost_certain_is_certain() -> None:
    scores = Scores.full(np.array([[0.001, 0.4, 0.995]], dtype=np.float32), ("a", "b", "c"), "probability")
    assert np.allclose(as_targets(scores).toarray(), [[0, 0.4, 1]])


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("br", QUICK),
        ("cnn", {"epochs": 12, "filters": 32, "embedding": 32, "device": "cpu", "precision": "fp32", "encoder_rate": 0.02}),
        ("bert", {"encoder": "words", "embedding": 16, "epochs": 12, "batch_size": 8, "head_rate": 0.02, "encoder_rate": 0.02,
                  "device": "cpu", "precision": "fp32"}),
    ],
)  # fmt: skip
def test_a_student_learns_a_label_that_only_the_teacher_knows(toy: Toy, model: str, options: dict[str, Any]) -> None:
    """Few documents are labelled, and many texts are not: the student is better than a model of the few alone."""
    if model != "br":
        pytest.importorskip("torch")
    few = toy.train.subset(np.arange(12))
    teacher = Classifier("br", QUICK).fit(toy.train, toy.valid)
    recipe = Recipe(model, options).checked()
    plain = Classifier(recipe).fit(few, toy.valid.subset(np.arange(12)))
    student = distil(
        teacher, recipe, few, toy.valid.subset(np.arange(12)), unlabelled=toy.train.texts[12:], lesson=Lesson(folds=0)
    )
    metric = "macro_f1"
    assert student.evaluate(toy.test)[metric] > plain.evaluate(toy.test)[metric]
    assert student.training["documents"] == 24  # texts without labels are no documents of the card
    assert student.decision.report["metrics"]["documents"] <= 24  # thresholds are fitted on labelled documents alone


def test_views_are_parts_of_their_text_in_order_and_more_of_them_begin_with_the_same() -> None:
    texts = ["a b c d e f g h i j k l", "one two", ""]
    few, many = views_of(texts, 2, 7), views_of(texts, 5, 7)
    assert [len(few), len(many)] == [6, 15]
    assert [many[row * 5 + number] for row in range(3) for number in range(2)] == few
    assert all(view in text for row, text in enumerate(texts) for view in many[5 * row : 5 * row + 5])
    assert all(5 <= len(view.split()) <= 11 for view in many[:5]) and len(set(many[:5])) > 1
    assert many[5:] == ["one two"] * 5 + [""] * 5, "a text of few words is its own view"
    assert views_of(texts, 5, 8) != many


@pytest.mark.parametrize("keep", [False, True])
def test_training_again_with_a_known_strength_is_training_without_the_search(toy: Toy, keep: bool) -> None:
    models: list[Any] = [Classifier("br", {"c": [0.5, 2.0], "ngrams": [1], "keep_features": keep}).model for _ in range(2)]
    models[0].fit(toy.train, None, Run())
    models[1].refit(toy.train, models[0].prior.strength, Run())
    one, other = (model.score(toy.test.texts).matrix.toarray() for model in models)
    assert np.array_equal(one, other) and (models[0].kept is None) == (models[1].kept is None) == (not keep)


def test_a_linear_student_keeps_the_words_of_labelled_documents(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts without labels add words where there is room, but do not crowd out those of labelled ones; they count less, too."""
    teacher = Classifier("br", QUICK).fit(toy.train, toy.valid)
    lessons: list[Corpus] = []
    kind = type(teacher.model)
    refit = kind.refit  # type: ignore[attr-defined]
    monkeypatch.setattr(kind, "refit", lambda model, corpus, *rest: lessons.append(corpus) or refit(model, corpus, *rest))
    monkeypatch.setattr(distillation, "_CLEARLY", 9.0)  # the student is taken
    more = [f"{text} foreign foreign words" for text in toy.test.texts]
    own = set(Classifier("br", QUICK).fit(toy.train).model.tfidf.terms)  # type: ignore[attr-defined]
    for room in (0, 1):
        tight = Recipe("br", {**QUICK, "c": [0.25], "max_features": len(own) + room}).checked()
        student = distil(teacher, tight, toy.train, toy.valid, unlabelled=more, lesson=Lesson(folds=2))
        assert len(set(student.model.tfidf.terms) - own) == room and own <= set(student.model.tfidf.terms)  # type: ignore[attr-defined]
    last = lessons[-1]
    assert last.weights is not None and {text: float(w) for text, w in zip(last.texts, last.weights, strict=True)}
    weight = dict(zip(last.ids, last.weights.tolist(), strict=True))
    assert all(abs(value - (0.3 if name.startswith(("view", "unlabelled")) else 1)) < 1e-6 for name, value in weight.items())
    assert sum(name.startswith("view") for name in weight) == 2 * len(toy.train)
    assert student.recipe.options["balance"] == 0.1
    assert student.model.prior.strength == 0.25, "thresholds are those of this C"  # type: ignore[attr-defined]


def test_texts_that_the_teacher_does_not_know_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    soft = csr_array(np.array([[0.2, 0.4], [0.5, 0], [0, 0], [0.1, 0.9]], dtype=np.float32))
    found = distillation._known(["a", "b", "c", "d"], soft, LabelSet(["x", "y"]), None, Run())
    assert found is not None and found.soft is not None
    assert found.texts == ["b", "d"] and np.allclose(found.soft.toarray(), [[0.5, 0], [0.1, 0.9]])
    assert found.truth.toarray().tolist() == [[1, 0], [0, 1]]
    assert not caplog.text, "half of the texts are enough"
    assert distillation._known(["c"], soft[[2]], LabelSet(["x", "y"]), None, Run()) is None
    assert "sure of a label for 0 of 1 unlabelled texts" in caplog.text


def test_students_are_compared_on_documents_that_no_teacher_saw(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear teacher knows its documents by heart, and so would its student; in the end, the student learns from all."""
    learned: list[Corpus] = []
    original = teachers.without_fold
    monkeypatch.setattr(
        teachers, "without_fold", lambda recipe, corpus, *rest: learned.append(corpus) or original(recipe, corpus, *rest)
    )
    teacher = Classifier("br", QUICK).fit(toy.train, toy.valid)
    recipe = Recipe("br", QUICK).checked()
    fitted: list[Corpus] = []
    fit = type(teacher.model).fit
    kind = type(teacher.model)
    monkeypatch.setattr(kind, "fit", lambda model, train, valid, run: fitted.append(train) or fit(model, train, valid, run))
    refit = kind.refit  # type: ignore[attr-defined]
    monkeypatch.setattr(kind, "refit", lambda model, corpus, *rest: fitted.append(corpus) or refit(model, corpus, *rest))
    student = distil(teacher, recipe, toy.train, toy.valid, lesson=Lesson(folds=2))
    held = set(toy.valid.texts)
    assert len(learned) == 2 and not any(held & set(corpus.texts) for corpus in learned)
    assert student.decision.report["metrics"]["documents"] == len(toy.train)
    *compared, last = fitted[2:]
    assert len(compared) == 2 and not any(held & set(corpus.texts) for corpus in compared)
    assert held <= set(last.texts) and {len(toy.train) + len(toy.valid)} <= {len(last), len(last) - 2 * len(toy.train)}


def test_a_teacher_that_knows_nothing_is_not_believed(toy: Toy, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Random targets: the student is the plain model, and says so."""
    rng = np.random.default_rng(0)
    teacher = Classifier("br", QUICK).fit(toy.train, toy.valid)

    def noise(_teacher: Any, corpus: Corpus, *_: Any) -> teachers.OutOfFold:
        soft = csr_array((rng.random(corpus.truth.shape) < 0.3).astype(np.float32))
        nothing = csr_array((0, len(corpus.labels)), dtype=np.float32)
        return teachers.OutOfFold(soft, nothing, nothing)

    monkeypatch.setattr(distillation, "out_of_fold", noise)
    student = distil(teacher, Recipe("br", QUICK).checked(), toy.train, toy.valid, lesson=Lesson(folds=2, trust=1.0))
    assert "the teacher has nothing to teach" in caplog.text
    plain = Classifier("br", QUICK).fit(toy.train, toy.valid)
    assert np.allclose(student.model.score(toy.test.texts).matrix.toarray(), plain.model.score(toy.test.texts).matrix.toarray())


def test_rows_of_unlabelled_texts_are_left_out_of_the_hold_out() -> None:
    truth = csr_array(np.eye(6, dtype=np.float32))
    scores = Scores.full(np.eye(6, dtype=np.float32), [*"abcdef"], "probability")
    held = _labelled_only(HeldOut(truth, scores, np.array([5, 0, 2, 4, 1, 3])), 2, 3)
    assert held is not None and held.rows is not None
    assert held.rows.tolist() == [2, 0, 1]  # documents 0 and 1, and 5, which is 2 without the three texts
    assert np.array_equal(held.truth.toarray(), truth.toarray()[[0, 1, 4]])
    assert np.array_equal(held.scores.matrix.toarray(), held.truth.toarray())


def test_a_mixture_is_repeated_with_its_weights_and_a_finished_run_is_refused(toy: Toy, tmp_path: Path) -> None:
    options = {"parts": ["br", "lp"], "settings": {"br": QUICK, "lp": QUICK}, "weights": [3.0, 1.0]}
    mixture = Classifier("mixed", options).fit(toy.train, toy.valid)
    assert teachers._repeatable(mixture).options["weights"] == [0.75, 0.25]
    Classifier("br", QUICK).fit(toy.train, toy.valid).save(tmp_path / "br")
    Classifier("lp", QUICK).fit(toy.train, toy.valid).save(tmp_path / "lp")
    runs = [str(tmp_path / "br"), str(tmp_path / "lp")]
    other = Classifier("mixed", {"parts": runs}).fit(toy.train, toy.valid)
    with pytest.raises(ConfigError, match="finished run"):
        distil(other, Recipe("br", QUICK), toy.train, toy.valid)
    found = distil(other, Recipe("br", QUICK), toy.train, toy.valid, unlabelled=toy.test.texts, lesson=Lesson(folds=0))
    assert found.recipe.model == "br"


def test_a_student_that_cannot_and_lessons_without_sense_are_refused(toy: Toy) -> None:
    teacher = Classifier("br", QUICK).fit(toy.train, toy.valid)
    with pytest.raises(ConfigError, match="'lp' does not learn probabilities"):
        distil(teacher, Recipe("lp"), toy.train)
    with pytest.raises(ConfigError, match="nothing to learn"):
        distil(teacher, Recipe("br"), toy.train, lesson=Lesson(folds=0))
    ignored = {"folds": 0, "trust": 0.5}, {"folds": 0, "views": 1}
    for wrong in ({"folds": 1}, {"trust": 0.0}, {"trust": 1.5}, {"views": -1}, *ignored):
        with pytest.raises(ConfigError, match="--"):
            Lesson(**wrong)  # type: ignore[arg-type]
    strange = Corpus.of(["new"], [["unheard"]])
    with pytest.raises(DataError, match="does not know the label 'unheard'"):
        distil(teacher, Recipe("br"), toy.train.concat(strange))


def test_taught_labels_are_those_of_the_decision(toy: Toy) -> None:
    teacher = Classifier("br", QUICK).fit(toy.train, toy.valid)
    taught = taught_by(teacher, toy.test.texts, Run())
    named = [sorted(names) for names in teacher.labels.decode(taught.predicted)]
    assert named == [sorted(names) for names in teacher.predict(toy.test.texts)]


def test_the_verb_takes_the_documents_of_the_teacher_and_resumes(polytag: Any, toy: Toy, tmp_path: Path) -> None:
    for name in ("train", "valid", "test"):
        getattr(toy, name).write(tmp_path / f"{name}.jsonl")
    polytag("train", tmp_path / "train.jsonl", "--valid", tmp_path / "valid.jsonl", *FAST, "--out", tmp_path / "teacher")
    told = polytag("distil", tmp_path / "teacher", "--into", "br", *FAST, "--folds", 3, "--out", tmp_path / "student")
    assert told.code == 0 and "distilled br into br" in told.err
    first = Classifier.load(tmp_path / "student")
    again = polytag(
        "distil", tmp_path / "teacher", "--into", "br", *FAST, "--folds", 3, "--out", tmp_path / "student", "--resume",
        "--train", tmp_path / "train.jsonl", "--valid", tmp_path / "valid.jsonl",
    )  # fmt: skip
    assert again.code == 0
    same = Classifier.load(tmp_path / "student")
    assert (first.scores(toy.test.texts).matrix != same.scores(toy.test.texts).matrix).nnz == 0
    log = [json.loads(line) for line in (tmp_path / "student" / "log.jsonl").read_text().splitlines()]
    assert any(event["event"] == "lesson" and event["folds"] == 3 for event in log)
    wrong = polytag("distil", tmp_path / "teacher", "--into", "cc", "--out", tmp_path / "no")
    assert wrong.code == 2 and "does not learn probabilities" in wrong.err and wrong.err.count("\n") == 1
