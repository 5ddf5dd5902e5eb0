"""Learning on: the prior of separators against the problem that it stands for, grown vocabularies, kept rows, models."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array

from conftest import Command
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.decision.calibration import blended
from polytag.errors import ConfigError, DataError
from polytag.linear.prior import Growth, Prior, learn_on, widened
from polytag.linear.svm import Problem, Separators, Solver, train_separators
from polytag.models.model import Model, model_class
from polytag.run import Run
from polytag.text.term_rows import TermRows
from polytag.text.tfidf import Tfidf
from toys import toy_corpus

MODELS = ("br", "cc", "lp")
FINE = Solver(tolerance=1e-4, max_passes=2000)


def documents(n: int, seed: int, features: int = 12, labels: int = 3) -> Problem:
    """Random sparse rows, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, features)) * (rng.random((n, features)) < 0.4)
    y = (x @ np.random.default_rng(99).normal(size=(features, labels))) > 0.2
    return Problem(csr_array(x.astype(np.float32)), csr_array(y.astype(np.float32)))


def part_of(problem: Problem, rows: slice) -> Problem:
    return Problem(csr_array(problem.features[rows]), csr_array(problem.truth[rows]))


# -- the solver -------------------------------------------------------------------------------------------------------------


def test_learning_on_minimises_the_loss_of_new_documents_near_the_old_weights() -> None:
    """Against a general optimiser, on the objective of the module, label by label."""
    old, new = documents(60, 1), documents(25, 2)
    first = train_separators(old, [0.7], FINE)[0]
    prior = Prior.empty(0.7, *first.shape).after(old, first)
    found = learn_on(first, prior, new, FINE)
    x, dense = np.hstack([new.features.toarray(), np.ones((25, 1))]), new.truth.toarray()
    activity = float(prior.activity.mean())  # labels of a block share it
    cost = 1 + activity * np.append(prior.spread, prior.documents)
    for label in range(3):
        start = np.append(first.weights[:, [label]].toarray(), first.bias[label])
        sign = 2 * dense[:, label] - 1

        def value(w: Any, start: Any = start, sign: Any = sign) -> float:
            slack = np.maximum(0, 1 - sign * (x @ w))
            return float(0.5 * (cost * (w - start) ** 2).sum() + 0.7 * (slack**2).sum())

        def slope(w: Any, start: Any = start, sign: Any = sign) -> Any:
            return cost * (w - start) - 1.4 * x.T @ (sign * np.maximum(0, 1 - sign * (x @ w)))

        best = minimize(value, start, jac=slope, method="BFGS", options={"gtol": 1e-8}).x
        learned = np.append(found.weights[:, [label]].toarray(), found.bias[label])
        assert value(learned) == pytest.approx(value(best), rel=1e-4)
        assert learned == pytest.approx(best, abs=5e-3)


def test_what_the_prior_counts() -> None:
    problem = documents(50, 3)
    trained = train_separators(problem, [0.5], FINE)[0]
    prior = Prior.empty(0.5, *trained.shape).after(problem, trained)
    x, y = problem.features.toarray(), problem.truth.toarray()
    assert prior.documents == 50 and prior.counts.tolist() == y.sum(axis=0).tolist()
    assert prior.spread == pytest.approx((x**2).sum(axis=0), rel=1e-5)
    inside = (2 * y - 1) * trained.all(problem.features) < 1
    assert prior.activity == pytest.approx(2 * 0.5 * inside.sum(axis=0) / 50, abs=0.05)  # documents at the margin may differ


def test_features_that_do_not_occur_keep_their_weights_to_the_bit() -> None:
    old = documents(60, 4)
    first = train_separators(old, [1.0], FINE)[0]
    prior = Prior.empty(1.0, *first.shape).after(old, first)
    x = np.zeros((4, 12), dtype=np.float32)
    x[:, 2] = x[:, 5] = 0.7
    truth = csr_array(np.ones((4, 3), dtype=np.float32))
    found = learn_on(first, prior, Problem(csr_array(x), truth), FINE)
    changed = np.flatnonzero((found.weights.toarray() != first.weights.toarray()).any(axis=1))
    assert changed.tolist() == [2, 5]


def test_many_parts_come_near_to_all_at_once() -> None:
    whole, test = documents(600, 5), documents(300, 6)
    solver = Solver(tolerance=0.01, max_passes=300)
    at_once = train_separators(whole, [1.0], solver)[0]
    known = train_separators(part_of(whole, slice(0, 60)), [1.0], solver)[0]
    only_first = known
    prior = Prior.empty(1.0, *known.shape).after(part_of(whole, slice(0, 60)), known)
    for start in range(60, 600, 60):
        part = part_of(whole, slice(start, start + 60))
        known = learn_on(known, prior, part, solver)
        prior = prior.after(part, known)

    def right(separators: Separators) -> float:
        return float(((separators.all(test.features) > 0) == (test.truth.toarray() > 0)).mean())

    assert prior.documents == 600
    assert right(known) > right(at_once) - 0.03
    assert right(only_first) < right(at_once)
    gap = [np.abs(one.weights.toarray() - at_once.weights.toarray()).mean() for one in (known, only_first)]
    assert gap[0] < 0.9 * gap[1]


def test_more_features_and_labels_leave_the_margins_of_known_ones() -> None:
    old = documents(40, 7)
    first = train_separators(old, [1.0], FINE)[0]
    places, scale = np.array([0, 1, 3, 4, 5, 7, 8, 9, 10, 11, 13, 14]), np.linspace(0.5, 2, 12).astype(np.float32)
    growth = Growth(places, scale, 15)
    wide = widened(first, growth, 5)
    x = np.zeros((40, 15), dtype=np.float32)
    x[:, places] = old.features.toarray() * scale
    assert wide.all(csr_array(x))[:, :3] == pytest.approx(first.all(old.features), abs=1e-5)
    assert (wide.all(csr_array(x))[:, 3:] == -1).all()
    prior = Prior.empty(1.0, *first.shape).after(old, first).widened(growth, 5)
    assert prior.spread[places] == pytest.approx((x[:, places] ** 2).sum(axis=0), rel=1e-4)
    assert prior.spread[2] == 0 and prior.counts.tolist()[3:] == [0, 0] and (prior.activity[3:] == 2).all()


# -- vocabularies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ngrams", [1, 2])
def test_a_grown_vocabulary_has_the_words_and_weights_of_all_texts(ngrams: int) -> None:
    one, two = toy_corpus(60, 1).texts, [*toy_corpus(60, 2).texts, "gnu gnu heron", "heron gnu", "owl fox"]
    first, whole = Tfidf(ngrams).fit([*one, "fox"]), Tfidf(ngrams).fit([*one, "fox", *two])
    grown = first.grown(two)
    assert grown.keys.tolist() == whole.keys.tolist() and grown.terms == whole.terms
    assert "fox" in grown.terms and "owl" not in grown.terms  # one occurrence before, one now
    assert grown.idf == pytest.approx(whole.idf, abs=1e-6) and grown.documents == whole.documents
    assert [first.terms[i] for i in range(len(first.terms))] == [grown.terms[i] for i in grown.places(first)]
    again = grown.empty()
    again.restore(grown.state())
    assert (again.rare == grown.rare).all() and again.grown(one).keys.tolist() == grown.grown(one).keys.tolist()


def test_a_grown_vocabulary_keeps_to_its_size() -> None:
    first = Tfidf(1, 1, 5).fit(["a b c", "a b"])
    grown = first.grown(["d d e f", "e f", "f"])
    assert sorted(grown.terms) == ["a", "b", "c", "e", "f"]  # known words stay, then the most frequent


def test_feature_vectors_grow_too() -> None:
    first = Tfidf(1, 1).fit(["1:0.5 7:1", "7:2"])
    grown = first.grown(["3:1 7:1"])
    assert grown.given and grown.terms == ["1", "3", "7"] and (grown.idf == 1).all()


def test_kept_rows_give_the_features_of_all_texts() -> None:
    one, two = toy_corpus(50, 3).texts, [*toy_corpus(50, 4).texts, "heron gnu", "gnu heron gnu"]
    first, whole = Tfidf(2).fit(one), Tfidf(2).fit([*one, *two])
    kept = TermRows.of(one, first).joined(TermRows.of(two, first))
    again = kept.vocabulary(first, two)
    assert again.keys.tolist() == whole.keys.tolist() and again.terms == whole.terms
    assert kept.weighted(again).toarray() == pytest.approx(whole.transform([*one, *two]).toarray(), abs=1e-6)


# -- models -----------------------------------------------------------------------------------------------------------------


def without(name: str, n: int, seed: int) -> Corpus:
    """Toy documents from before there was a label."""
    corpus = toy_corpus(3 * n, seed)
    kept = [[other for other in labels if other != name] for labels in corpus.label_lists()]
    pairs = [(text, labels) for text, labels in zip(corpus.texts, kept, strict=True) if labels][:n]
    return Corpus.of([text for text, _ in pairs], [labels for _, labels in pairs])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("keep", [False, True])
def test_a_model_learns_new_documents_words_and_labels_and_forgets_none(model: str, keep: bool, tmp_path: Path) -> None:
    earlier = Classifier(model, {"keep_features": keep}).fit(without("animals", 120, 1))
    earlier.save(tmp_path / "first")
    new, test = toy_corpus(120, 2), toy_corpus(150, 3)
    later = Classifier(model, {"keep_features": keep}).continue_from(Classifier.load(tmp_path / "first")).fit(new)
    assert later.labels.names == (*earlier.labels.names, "animals")
    assert later.training["documents"] == 240
    reached = later.evaluate(test)["micro_f1"]
    assert reached > earlier.evaluate(test)["micro_f1"] and reached > 0.75
    later.save(tmp_path / "second")
    again = Classifier.load(tmp_path / "second")
    assert (again.scores(test.texts).matrix.data == later.scores(test.texts).matrix.data).all()
    twice = Classifier(model, {"keep_features": keep}).continue_from(earlier).fit(new)
    assert (twice.scores(test.texts).matrix.data == later.scores(test.texts).matrix.data).all()


@pytest.mark.parametrize("model", [*MODELS, "xlinear"])
def test_with_kept_rows_learning_on_is_training_on_all(model: str) -> None:
    one, two, test = toy_corpus(90, 1), toy_corpus(70, 2), toy_corpus(60, 3)
    settings: dict[str, Any] = {"keep_features": True}
    settings |= {"c": 1.0, "ngrams": 1} if model == "xlinear" else {"c": [1.0], "ngrams": [1]}
    earlier: Model = model_class(model).build(settings)
    earlier.fit(one, None, Run())
    later, whole = model_class(model).build(settings), model_class(model).build(settings)
    later.start_from(earlier)
    held = [later.fit(two, None, Run()), whole.fit(one.concat(two), None, Run())]
    assert later.score(test.texts).matrix.toarray() == pytest.approx(whole.score(test.texts).matrix.toarray(), abs=1e-4)
    assert held[0] is not None and held[1] is not None and len(held[0].scores) == len(held[1].scores)


def test_labels_differ_in_their_thresholds_as_old_and_new_documents_say() -> None:
    new, old = np.array([0.3, 0.4, 0.5, 0.9], np.float32), np.array([0.1, 0.2, 0.6], np.float32)
    assert blended(new, old, np.ones(4)) == pytest.approx(new)
    kept = blended(new, old, np.zeros(4))  # the median of the new, the differences of the old; a new label has its own
    assert kept == pytest.approx([0.45 - 0.1, 0.45, 0.45 + 0.4, 0.9])
    assert blended(new, old, np.full(4, 0.5)) == pytest.approx((kept + new) / 2)


def test_no_text_and_no_row_stays_without_keep_features(tmp_path: Path) -> None:
    secret = "xylophonist"
    corpus = Corpus.of([*toy_corpus(60, 1).texts, secret], [*toy_corpus(60, 1).label_lists(), ["boats"]])
    for keep in (False, True):
        classifier = Classifier("br", {"keep_features": keep}).fit(corpus)
        classifier.save(tmp_path / str(keep))
        assert ("kept" in classifier.model.state()) == keep
        files = [path.read_bytes() for path in (tmp_path / str(keep) / "model").iterdir()]
        assert files and not any(secret.encode() in file for file in files)


@pytest.mark.parametrize("model", MODELS)
def test_corrections_are_learned_at_once(model: str) -> None:
    classifier, test = Classifier(model).fit(toy_corpus(150, 1)), toy_corpus(100, 3)
    before = classifier.evaluate(test)["micro_f1"]
    classifier.learn(["gnu heron", "heron gnu gnu", "gnu"], [["birds"], ["birds"], ["birds"]])
    assert classifier.predict(["heron gnu"]) == [["birds"]]
    assert classifier.labels.names[-1] == "birds" and classifier.training["documents"] == 153
    assert int(classifier.training["label_counts"][-1]) == 3
    assert classifier.evaluate(test)["micro_f1"] > before - 0.03
    text = test.texts[0]
    for _ in range(8):
        classifier.learn([text, text], [["birds"], ["birds"]])
    assert "birds" in classifier.predict([text])[0]


def test_corrections_of_600_labels_take_less_than_a_second() -> None:
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(3000)]
    texts = [" ".join(rng.choice(words, 30)) for _ in range(600)]
    labels = [[f"label{i % 600}", f"label{(7 * i) % 600}"] for i in range(600)]
    classifier = Classifier("br", {"c": [1.0], "ngrams": [1]}).fit(texts, labels)
    classifier.learn(texts[:2], labels[:2])  # compiles
    start = time.perf_counter()
    classifier.learn(texts[:5], labels[5:10])
    assert len(classifier.labels) == 600 and time.perf_counter() - start < 1


def test_corrections_and_kept_rows(tmp_path: Path) -> None:
    classifier = Classifier("br", {"keep_features": True}).fit(toy_corpus(80, 1))
    classifier.learn(["gnu heron", "heron"], [["birds"], ["birds"]])
    classifier.save(tmp_path / "run")
    later = Classifier("br", {"keep_features": True}).continue_from(Classifier.load(tmp_path / "run")).fit(toy_corpus(20, 2))
    assert "birds" in later.labels and len(later.model.kept) == 102  # type: ignore[attr-defined]


# -- refusals ---------------------------------------------------------------------------------------------------------------


def test_mistakes_are_said_in_one_line(tmp_path: Path) -> None:
    earlier = Classifier("br").fit(toy_corpus(60, 1))
    with pytest.raises(ConfigError, match="kept no features; leave keep_features out"):
        Classifier("br", {"keep_features": True}).continue_from(earlier)
    with pytest.raises(ConfigError, match="'lowercase' is False, but True in the earlier run"):
        Classifier("br", {"lowercase": False}).continue_from(earlier).fit(toy_corpus(30, 2))
    with pytest.raises(ConfigError, match="'xlinear' kept no features of its documents; train it with --keep-features"):
        Classifier("xlinear").continue_from(Classifier("xlinear").fit(toy_corpus(60, 1)))
    with pytest.raises(DataError, match="2 texts but 1 labels"):
        earlier.learn(["a", "b"], [["boats"]])
    old = earlier.model
    old.prior = None  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="trained by an earlier version and cannot learn on; train it again"):
        Classifier("br").continue_from(earlier)
    with pytest.raises(ConfigError, match="trained by an earlier version"):
        earlier.learn(["a"], [["boats"]])


def test_the_command_learns_on(tmp_path: Path, polytag: Command) -> None:
    toy_corpus(80, 1).write(tmp_path / "old.jsonl")
    toy_corpus(60, 2).write(tmp_path / "new.jsonl")
    for flags in ((), ("--keep-features",)):
        first, second = tmp_path / f"first{len(flags)}", tmp_path / f"second{len(flags)}"
        assert polytag("train", tmp_path / "old.jsonl", "--out", first, *flags).code == 0
        told = polytag("train", tmp_path / "new.jsonl", "--from", first, "--out", second)
        assert told.code == 0, told.err
        assert "140 documents" in told.err
        assert ("kept" in Classifier.load(second).model.state()) == bool(flags)
