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

from conftest import FAST, Toy, toy_documents
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
from polytag.transfer.alike_texts import alike
from polytag.transfer.distillation import Lesson, _labelled_only, distil
from polytag.transfer.teacher import as_targets, out_of_fold, taught_by

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
    original = teachers._fold

    def watched(recipe: Recipe, learned: Corpus, texts: list[str], others: list[str]) -> Any:
        seen.append((set(learned.texts), set(texts)))
        return original(recipe, learned, texts, others)

    monkeypatch.setattr(teachers, "_fold", watched)
    teacher = Classifier("br", {**QUICK, "min_df": 1}).fit(train)
    soft, others = out_of_fold(teacher, train, 4, toy.test.texts[:9], Run())
    assert others.shape == (9, len(train.labels))
    assert (others.toarray().argmax(axis=1) == teacher.scores(toy.test.texts[:9]).matrix.toarray().argmax(axis=1)).mean() > 0.8
    assert soft.shape == train.truth.shape and len(seen) == 4
    assert not any(learned & held for learned, held in seen)
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


@pytest.mark.parametrize(
    ("values", "asked", "best"),
    [
        ({0.3: 5, 0.5: 6, 0.8: 7, 1.0: 6}, [0.3, 0.5, 0.8, 1.0], 0.8),
        ({0.3: 5, 0.5: 4, 0.1: 6, 0.0: 7}, [0.3, 0.5, 0.1, 0.0], 0.0),
        ({0.3: 5, 0.5: 5, 0.1: 5}, [0.3, 0.5, 0.1], 0.3),
        ({0.3: 1, 0.5: 2, 0.8: 3, 1.0: 4}, [0.3, 0.5, 0.8, 1.0], 1.0),
    ],
)
def test_a_linear_student_trusts_more_or_less_as_long_as_it_gets_better(
    values: dict[float, float], asked: list[float], best: float
) -> None:
    seen: list[float] = []

    def taught(trust: float) -> Any:
        seen.append(trust)
        return distillation._Student(trust, values[trust], Classifier())

    assert distillation._climbed(taught).trust == best
    assert seen == asked


def test_texts_that_the_teacher_does_not_know_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    soft = csr_array(np.array([[0.2, 0.4], [0.5, 0], [0, 0], [0.1, 0.9]], dtype=np.float32))
    found = distillation._known(["a", "b", "c", "d"], soft, LabelSet(["x", "y"]), Run())
    assert found is not None and found.soft is not None
    assert found.texts == ["b", "d"] and np.allclose(found.soft.toarray(), [[0.5, 0], [0.1, 0.9]])
    assert found.truth.toarray().tolist() == [[1, 0], [0, 1]]
    assert not caplog.text, "half of the texts are enough"
    assert distillation._known(["c"], soft[[2]], LabelSet(["x", "y"]), Run()) is None
    assert "sure of a label for 0 of 1 unlabelled texts" in caplog.text


def test_students_are_compared_on_documents_that_no_teacher_saw(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear teacher knows its documents by heart, and so would its student; in the end, the student learns from all."""
    learned: list[Corpus] = []
    original = teachers._fold
    monkeypatch.setattr(
        teachers, "_fold", lambda recipe, corpus, *texts: learned.append(corpus) or original(recipe, corpus, *texts)
    )
    teacher = Classifier("br", QUICK).fit(toy.train, toy.valid)
    recipe = Recipe("br", QUICK).checked()
    fitted: list[Corpus] = []
    fit = type(teacher.model).fit
    monkeypatch.setattr(
        type(teacher.model), "fit", lambda model, train, valid, run: fitted.append(train) or fit(model, train, valid, run)
    )
    student = distil(teacher, recipe, toy.train, toy.valid, lesson=Lesson(folds=2))
    held = set(toy.valid.texts)
    assert len(learned) == 2 and not any(held & set(corpus.texts) for corpus in learned)
    assert student.decision.report["metrics"]["documents"] in (len(toy.train), len(toy.valid))
    *compared, last = fitted[2:]
    assert compared and not any(held & set(corpus.texts) for corpus in compared)
    assert held <= set(last.texts) and len(last) == len(toy.train) + len(toy.valid)


def test_a_teacher_that_knows_nothing_is_not_believed(toy: Toy, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Random targets: the student is the plain model, and says so."""
    rng = np.random.default_rng(0)
    teacher = Classifier("br", QUICK).fit(toy.train, toy.valid)

    def noise(_teacher: Any, corpus: Corpus, *_: Any) -> teachers.OutOfFold:
        soft = csr_array((rng.random(corpus.truth.shape) < 0.3).astype(np.float32))
        return teachers.OutOfFold(soft, csr_array((0, len(corpus.labels)), dtype=np.float32))

    monkeypatch.setattr(distillation, "out_of_fold", noise)
    student = distil(teacher, Recipe("br", QUICK).checked(), toy.train, toy.valid, lesson=Lesson(folds=2, trust=0.8))
    assert "the teacher has nothing to teach" in caplog.text
    whole = toy.train.concat(toy.valid)
    plain = Classifier("br", QUICK).fit(whole)
    assert np.allclose(student.model.score(toy.test.texts).matrix.toarray(), plain.model.score(toy.test.texts).matrix.toarray())


@pytest.mark.parametrize(("gain", "taught"), [(0.02, False), (0.04, True)])
def test_a_student_that_is_not_clearly_better_is_the_plain_model(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, gain: float, taught: bool
) -> None:
    """On 48 held-out documents, .2 over the root of 48 is .029."""
    teacher = Classifier("br", QUICK).fit(toy.train, toy.valid)
    monkeypatch.setattr(distillation, "out_of_fold", lambda _teacher, corpus, *_: (corpus.truth, corpus.truth))
    made = {trust: Classifier() for trust in (0.0, 0.3)}
    student = distillation._Student
    monkeypatch.setattr(distillation._School, "student", lambda _, trust: student(trust, 0.5 + gain * (trust > 0), made[trust]))
    monkeypatch.setattr(distillation._School, "again", lambda _, chosen: chosen.classifier)
    found = distil(teacher, Recipe("br", QUICK).checked(), toy.train, toy.valid, lesson=Lesson(folds=2, trust=0.3))
    assert found is made[0.3 if taught else 0.0]


def test_texts_of_another_kind_are_left_out(toy: Toy, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """The teacher is not even asked about them."""
    rng = np.random.default_rng(0)
    foreign = [" ".join(rng.choice(["enzyme", "protein", "cell", "membrane", "of", "the"], 9)) for _ in range(150)]
    more, own = toy_documents(120, seed=9)[0], [*toy.train.texts]
    rows = alike(own, [*foreign, *more], Run())
    assert (rows >= 150).all() and 0.75 * 120 < len(rows) <= 120
    assert "unlabelled texts are like the labelled ones" in caplog.text
    assert alike(own, foreign[:49], Run()).tolist() == list(range(49)), "too few texts to tell"
    asked: list[Any] = []

    def ask(_teacher: Any, texts: Any, _run: Run) -> Any:
        asked.extend(texts)
        raise KeyboardInterrupt

    monkeypatch.setattr(distillation, "taught_by", ask)
    teacher = Classifier("br", QUICK).fit(toy.train, toy.valid)
    with pytest.raises(KeyboardInterrupt):
        distil(teacher, Recipe("br", QUICK), toy.train, toy.valid, unlabelled=[*foreign, *more], lesson=Lesson(folds=0))
    assert asked == [[*foreign, *more][row] for row in alike(toy.train.texts, [*foreign, *more], Run())]


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
    for wrong in ({"folds": 1}, {"trust": 0.0}, {"trust": 1.5}):
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
