"""The mixed model: its parts on the same labels and documents, its weights, its files, and where its parts come from."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from conftest import Command, Toy, toy_corpus
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.decision.decision import METRICS, NOISE
from polytag.decision.thresholds import apply, common
from polytag.errors import ArtefactError, ConfigError
from polytag.labels import LabelSet, indicator
from polytag.models import mixed as ensemble
from polytag.models.binary_relevance import BinaryRelevance
from polytag.models.mixed import Mixed
from polytag.models.mixture.finished_run import learned_from_valid
from polytag.models.mixture.weights import UNITS, aligned, candidates_of, columns_of, fit_weights, mix, on_valid, with_entries
from polytag.models.model import MODELS, HeldOut, Model, State, model_class
from polytag.models.xlinear import XLinear
from polytag.run import Run, read_log
from polytag.scores import Scores
from polytag.verbs.training import train_corpora

FAST: dict[str, Any] = {"c": [1.0], "ngrams": [1]}
LIGHT: dict[str, Any] = {"parts": ["br", "cc"], "settings": {"all": FAST}}


class Oracle(Model):
    """A network's manners without one: knows every text of a table, and holds out the validation documents."""

    table: dict[str, Any] = {}  # noqa: RUF012, what a test puts there
    fitted = 0

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        Oracle.fitted += 1
        self.labels = train.labels
        return None if valid is None else HeldOut(valid.truth, self.score(valid.texts))

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        rows = [self.table.get(text, np.zeros(len(self.labels))) for text in texts]
        scores = Scores.full(np.array(rows).reshape(len(texts), len(self.labels)), self.labels.names, "probability")
        return scores if k is None else scores.best(k)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> type[Oracle]:
    monkeypatch.setitem(MODELS, "oracle", f"{__name__}:Oracle")
    monkeypatch.setattr(Oracle, "table", {})
    monkeypatch.setattr(Oracle, "fitted", 0)
    return Oracle


@pytest.fixture(scope="module")
def mixed(toy: Toy) -> Classifier:
    return Classifier("mixed", LIGHT).fit(toy.train, toy.valid)


@pytest.fixture(scope="module")
def runs(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs of br and cc, as the command line leaves them."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("br", "cc"):
        data = {"train": "train.jsonl", "fingerprint": toy.train.fingerprint() + toy.valid.fingerprint()}
        train_corpora(Recipe(name, FAST, data=data), toy.train, toy.valid, folder / name)
    return folder


def values(scores: Scores) -> np.ndarray[Any, Any]:
    """The scores as a table."""
    return scores.matrix.toarray()


# -- the sum -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [[1.0, 0.0], [0.0, 1.0], [0.3, 0.7], [3, 7]])
def test_the_mixture_is_the_weighted_sum_of_calibrated_parts(toy: Toy, weights: list[float]) -> None:
    found = Classifier("mixed", {**LIGHT, "weights": weights}).fit(toy.train, toy.valid)
    parts = [Classifier(name, FAST).fit(toy.train, toy.valid) for name in ("br", "cc")]
    alone = [values(part.scores(toy.test.texts)) for part in parts]  # Platt on the same out-of-fold scores
    expected = (weights[0] * alone[0] + weights[1] * alone[1]) / sum(weights)
    assert found.scores(toy.test.texts).kind == "probability"
    assert np.allclose(values(found.scores(toy.test.texts)), expected, atol=1e-6)
    if 0.0 in weights:  # at the ends it is the part itself, to the last bit
        assert np.array_equal(values(found.scores(toy.test.texts)), alone[weights.index(0.0) - 1])


def tables(data: st.DataObject, parts: int) -> tuple[list[Scores], csr_array]:
    return drawn(data.draw(st.integers(1, 6)), data.draw(st.integers(2, 4)), data.draw(st.integers(0, 10_000)), parts)


def drawn(n: int, n_labels: int, seed: int, parts: int) -> tuple[list[Scores], csr_array]:
    generator, names = np.random.default_rng(seed), [f"l{j}" for j in range(n_labels)]
    truth = indicator([np.flatnonzero(row) for row in generator.random((n, n_labels)) < 0.5], n_labels)
    return [Scores.full(generator.random((n, n_labels)).round(2), names, "probability") for _ in range(parts)], truth


def reached(parts: Sequence[Scores], weights: Sequence[float], truth: csr_array, metric: str, least: int) -> float:
    scores = Scores.mix(parts, weights)
    return METRICS[metric](truth, apply(scores, common(scores, truth, metric, least), least))


def test_of_weights_that_are_as_good_but_for_the_last_digit_the_most_even_are_taken() -> None:
    """F1 is .75 at 16 of 20, and .7499999999999999 at 7."""
    assert fit_weights(*drawn(5, 4, 1133, parts=2), "macro_f1", 1).weights == [7 / UNITS, 1 - 7 / UNITS]


@settings(max_examples=40)
@given(st.data(), st.sampled_from(list(METRICS)), st.integers(0, 1))
def test_two_parts_get_the_middle_of_the_best_weights_of_the_whole_grid(data: st.DataObject, metric: str, least: int) -> None:
    parts, truth = tables(data, 2)
    found = fit_weights(parts, truth, metric, least)
    grid = {a: reached(parts, (a / UNITS, 1 - a / UNITS), truth, metric, least) for a in range(UNITS + 1)}
    assert found.value >= max(grid.values()) - NOISE - 1e-6
    assert reached(parts, found.weights, truth, metric, least) == pytest.approx(found.value)
    assert [weights[0] for weights, _ in found.tried] == [a / UNITS for a in range(UNITS + 1)]
    assert [value for _, value in found.tried] == pytest.approx(list(grid.values()), abs=1e-6)
    close = [a for a in grid if grid[a] >= max(grid.values()) - NOISE]
    if reached(parts, (middle := float(np.mean(close)) / UNITS, 1 - middle), truth, metric, least) >= max(grid.values()) - NOISE:
        assert found.weights[0] == pytest.approx(middle)
    else:  # between good weights lie bad ones: the most even of the best
        evenest = min(abs(a - UNITS // 2) for a in grid if grid[a] == pytest.approx(max(grid.values())))
        assert abs(found.weights[0] * UNITS - UNITS // 2) == pytest.approx(evenest)


@settings(max_examples=8)
@given(st.data(), st.integers(3, 4))
def test_of_more_parts_no_move_between_two_helps_beyond_noise_and_none_alone_is_better(data: st.DataObject, n: int) -> None:
    parts, truth = tables(data, n)
    found = fit_weights(parts, truth, "micro_f1", 1)
    assert sum(found.weights) == pytest.approx(1) and min(found.weights) >= 0
    for j in range(n):
        assert found.value >= reached(parts, [float(i == j) for i in range(n)], truth, "micro_f1", 1) - NOISE - 1e-9
    best = max(found.tried, key=lambda pair: (pair[1], -round(sum(w * w for w in pair[0]), 6)))  # of equals the most even
    assert found.value >= best[1] - NOISE - 1e-9
    for i, j in itertools.combinations(range(n), 2):
        both = best[0][i] + best[0][j]
        for step in range(round(both * UNITS) + 1):
            moved = list(best[0])
            moved[i], moved[j] = step / UNITS, both - step / UNITS
            assert reached(parts, moved, truth, "micro_f1", 1) <= best[1] + 1e-9
    assert found == fit_weights(parts, truth, "micro_f1", 1)


@settings(max_examples=30)
@given(st.data(), st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda weights: sum(weights) > 0.1))
def test_full_and_sparse_scores_mix_alike(data: st.DataObject, weights: list[float]) -> None:
    parts, _ = tables(data, 3)
    shares = [weight / sum(weights) for weight in weights]
    whole = mix(parts, shares)
    assert np.allclose(values(whole), sum(share * values(part) for share, part in zip(shares, parts, strict=True)), atol=1e-6)
    sparse = [part.best(part.matrix.shape[1] - 1) for part in parts]
    expected = sum(share * values(part) for share, part in zip(shares, sparse, strict=True))
    assert np.allclose(values(mix(sparse, shares)), expected, atol=1e-6)


@settings(max_examples=20)
@given(st.data())
def test_sparse_parts_are_weighed_as_if_what_they_lack_were_zero(data: st.DataObject) -> None:
    parts, truth = tables(data, 3)
    sparse = [part.best(part.matrix.shape[1] - 1) for part in parts]
    wanted = candidates_of(sparse)
    filled = [with_entries(part, wanted) for part in sparse]
    for one, other in zip(sparse, filled, strict=True):
        assert np.array_equal(values(one), values(other)) and np.array_equal(other.matrix.indices, wanted.indices)
    found = fit_weights(sparse, truth, "micro_f1", 0)
    assert found.value == pytest.approx(reached(filled, found.weights, truth, "micro_f1", 0), abs=1e-6)


def test_models_that_train_again_on_everything_have_learned_from_validation_documents() -> None:
    assert learned_from_valid(BinaryRelevance()) and learned_from_valid(XLinear())
    assert not learned_from_valid(XLinear.build({"refit": False})) and not learned_from_valid(Mixed())


# -- the same documents ------------------------------------------------------------------------------------------------


def noise(count: int, seed: int, name: str) -> Corpus:
    """Documents of words that no other has, with labels by chance: they can be learned by heart, and not otherwise."""
    generator = np.random.default_rng(seed)
    texts = [" ".join(f"{name}{row}x{word}" for word in range(4)) for row in range(count)]
    return Corpus.of(
        texts, [["even", "odd"][i : i + 1] for i in generator.integers(0, 2, count)], label_set=LabelSet(["even", "odd"])
    )


def test_a_linear_part_gets_no_weight_for_what_it_learned_by_heart(oracle: type[Oracle], tmp_path: Path) -> None:
    """It is trained on validation documents too, and perfect on them; weighed by that it would win over a part that is right
    on four of five. Both when it is trained now and when it is taken from a run."""
    train, valid = noise(60, 1, "t"), noise(40, 2, "v")
    settings = {"c": [100.0], "ngrams": [1], "min_df": 1, "tolerance": 0.01}
    for row, text in enumerate(valid.texts):
        right = values_of(valid, row)
        oracle.table[text] = right if row % 5 else 1 - right
    alone = Classifier("br", settings).fit(train, valid)
    assert alone.evaluate(valid)["p@1"] == 1.0
    now = Classifier("mixed", {"parts": ["br", "oracle"], "settings": {"br": settings}}).fit(train, valid)
    alone.save(tmp_path / "br")
    taken = Classifier("mixed", {"parts": [str(tmp_path / "br"), "oracle"]}).fit(train, valid)
    for found in (now, taken):
        assert isinstance(found.model, Mixed) and found.model.shares[1] >= 0.5
        assert found.decision.report["fitted"] < 0.95  # in-sample it would be 1
    assert np.array_equal(values(now.scores(valid.texts)), values(taken.scores(valid.texts)))


def test_weights_are_compared_on_sets_as_the_decision_makes_them(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every document of the toy corpus has a label, so every predicted set has one: when weights are compared too."""
    least: list[int] = []
    monkeypatch.setattr(ensemble, "fit_weights", lambda *given: least.append(given[3]) or fit_weights(*given))
    found = Classifier("mixed", LIGHT).fit(toy.train, toy.valid)
    assert least == [1] == [found.decision.min_labels]


def values_of(corpus: Corpus, row: int) -> np.ndarray[Any, Any]:
    return np.asarray(corpus.truth[[row]].toarray()[0])


def test_held_out_rows_of_a_linear_model_are_found_for_each_validation_document(toy: Toy) -> None:
    model = BinaryRelevance.build({**FAST, "seed": 5})
    held = model.fit(toy.train, toy.valid, Run())
    assert held is not None
    found = on_valid(model, held, len(toy.train), toy.valid.truth)
    whole = toy.train.concat(toy.valid)
    seen = 0
    for part, (learned, hidden) in enumerate(whole.folds(model.held_out.folds, seed=5)):
        features = model.tfidf.transform(whole.texts)
        (trained,) = model._train(type(model)._begin(model, whole, [], Run()), [1.0], learned)
        scored = trained.all(features[hidden])
        for row, number in enumerate(hidden):
            if number >= len(toy.train):
                assert np.allclose(values(found)[number - len(toy.train)], scored[row], atol=1e-5), part
                seen += 1
    assert seen == len(toy.valid)


def test_held_out_scores_about_nobody_knows_what_are_refused(toy: Toy) -> None:
    held = HeldOut(toy.test.truth, Scores.full(toy.test.truth.toarray(), toy.test.labels.names, "probability"))
    with pytest.raises(ConfigError, match="'br' does not return the rows"):
        on_valid(BinaryRelevance(), held, len(toy.train), toy.valid.truth)


NETWORK: dict[str, Any] = {"embedding": 16, "epochs": 2, "batch_size": 16, "head_rate": 0.02, "device": "cpu"}
HOLDING: list[tuple[str, dict[str, Any]]] = [
    ("br", FAST), ("xlinear", {"refit": False}), ("cnn", {**NETWORK, "filters": 8}),
    ("xbert", {**NETWORK, "encoder": "words", "clusters": 4, "refit": False}), ("mixed", LIGHT), ("mixed", {**LIGHT, "folds": 3}),
]  # fmt: skip


@pytest.mark.parametrize("with_valid", [True, False], ids=["given", "held out"])
@pytest.mark.parametrize(("name", "options"), HOLDING, ids=lambda value: value if isinstance(value, str) else "")
def test_held_out_scores_say_which_documents_they_are_about(
    toy: Toy, name: str, options: dict[str, Any], with_valid: bool
) -> None:
    if name in ("cnn", "xbert"):
        pytest.importorskip("torch")
    whole = toy.train.concat(toy.valid) if with_valid else toy.train
    model = model_class(name).build(options)
    held = model.fit(toy.train, toy.valid if with_valid else None, Run())
    assert held is not None and held.rows is not None and len(held.rows) == len(held.scores) > 0
    rows = held.rows.tolist()
    assert np.array_equal(whole.truth[held.rows].toarray(), held.truth.toarray())
    assert len(set(rows)) == len(rows) and min(rows) >= 0
    if with_valid:
        assert set(rows) >= set(range(len(toy.train), len(whole))), "validation documents come after those of training"
    if name == "br" or "folds" in options:
        assert set(rows) == set(range(len(whole))), "every document is held out once"
    if name in ("xlinear", "cnn", "xbert"):  # the model that scored them is the one that there is
        assert len(rows) < len(whole)
        again = model.score([whole.texts[row] for row in rows])
        np.testing.assert_allclose(values(again), values(held.scores), atol=1e-5)


def test_held_out_rows_are_found_without_the_seed(toy: Toy) -> None:
    """By what the held-out scores say alone: the documents are not divided once more."""
    model = BinaryRelevance.build({**FAST, "seed": 5})
    held = model.fit(toy.train, toy.valid, Run())
    assert held is not None
    place = len(toy.train), toy.valid.truth
    expected = values(on_valid(model, held, *place))
    model.seed, model.held_out.folds = 6, 2
    assert np.array_equal(values(on_valid(model, held, *place)), expected)
    assert np.array_equal(values(on_valid(Mixed(), held, *place)), expected)
    with pytest.raises(ConfigError, match="'br' does not return the rows"):
        on_valid(model, held._replace(rows=None), *place)
    with pytest.raises(ConfigError, match="'br' does not return the rows"):
        on_valid(model, held._replace(rows=held.rows[::-1]), *place)  # type: ignore[index]
    some = [HeldOut(held.truth[:9], held.scores.rows(0, 9), rows) for rows in (held.rows[:9], None)]  # type: ignore[index]
    for one in some:
        with pytest.raises(ConfigError, match="'br' does not return the rows"):
            on_valid(model, one, *place)


def test_a_part_may_hold_out_documents_in_an_order_of_its_own(oracle: type[Oracle], monkeypatch: pytest.MonkeyPatch) -> None:
    train, valid = toy_corpus(60, 1), toy_corpus(30, 2)
    generator = np.random.default_rng(0)
    whole = train.concat(valid)
    oracle.table.update({text: generator.random(len(whole.labels)) for text in whole.texts})

    def fit(self: Oracle, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        assert valid is not None
        self.labels, both = train.labels, train.concat(valid)
        rows = generator.permutation(len(both))
        return HeldOut(both.truth[rows], self.score([both.texts[row] for row in rows]), rows)

    monkeypatch.setattr(oracle, "fit", fit)
    held = Mixed.build({"parts": ["oracle:a", "oracle:b"]}).fit(train, valid, Run())
    assert held is not None and np.array_equal(held.truth.toarray(), valid.truth.toarray())
    np.testing.assert_allclose(values(held.scores), np.array([oracle.table[text] for text in valid.texts]), rtol=1e-5)


def test_a_mixture_of_folds_can_be_a_part(toy: Toy) -> None:
    """It holds out all documents, fold after fold, and says which is which."""
    inner = {"parts": ["br", "cc"], "settings": {"all": FAST}, "folds": 3, "weights": [1.0, 1.0]}
    options = {"parts": ["br", "mixed:folds"], "settings": {"br": FAST, "mixed:folds": {**inner, "settings": {}}}}
    model = Mixed.build({**options, "weights": [0.0, 1.0]})
    held = model.fit(toy.train, toy.valid, Run())
    alone = Mixed.build({**inner, "settings": {}})
    expected = alone.fit(toy.train, toy.valid, Run())
    assert held is not None and expected is not None and expected.rows is not None
    place = np.argsort(expected.rows)[len(toy.train) :]
    assert np.array_equal(values(held.scores), values(expected.scores)[place])


def test_without_validation_documents_all_parts_hold_out_the_same(oracle: type[Oracle], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[list[str], list[str]]] = []
    corpus = toy_corpus(100, 1)

    def fit(self: Oracle, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        assert valid is not None
        given.append((train.ids, valid.ids))
        self.labels = train.labels
        return HeldOut(valid.truth, self.score(valid.texts))

    monkeypatch.setattr(oracle, "fit", fit)
    held = Mixed.build({"parts": ["oracle:a", "oracle:b"], "settings": {"oracle:b": {"seed": 7}}}).fit(corpus, None, Run())
    assert held is not None and len(held.scores) == 10
    assert given[0] == given[1] and sorted(given[0][0] + given[0][1]) == sorted(corpus.ids)


# -- the same labels ---------------------------------------------------------------------------------------------------


def reordered(corpus: Corpus) -> Corpus:
    """The same documents with the labels in another order."""
    return corpus.with_labels(LabelSet(corpus.labels.names[::-1]))


def test_parts_are_aligned_by_the_names_of_labels(toy: Toy) -> None:
    straight = {"a": Classifier("br", FAST).fit(toy.train, toy.valid), "b": Classifier("cc", FAST).fit(toy.train, toy.valid)}
    turned = {**straight, "b": Classifier("cc", {**FAST, "order": "frequency"}).fit(reordered(toy.train), reordered(toy.valid))}
    one, other = (Classifier(Mixed.of(parts, [0.4, 0.6])).fit(toy.train, toy.valid) for parts in (straight, turned))
    assert other.model.trained[1].columns is not None  # type: ignore[attr-defined]
    by_name = dict(turned["b"].scores(toy.test.texts[:1]).top(8)[0])
    mine = dict(straight["a"].scores(toy.test.texts[:1]).top(8)[0])
    for name, value in other.scores(toy.test.texts[:1]).top(8)[0]:
        assert value == pytest.approx(0.4 * mine[name] + 0.6 * by_name[name], abs=1e-6)
    same = Classifier(Mixed.of({**straight, "b": _turned(straight["b"])}, [0.4, 0.6])).fit(toy.train, toy.valid)
    assert np.array_equal(values(same.scores(toy.test.texts)), values(one.scores(toy.test.texts)))
    assert same.predict(toy.test.texts) == one.predict(toy.test.texts)


def _turned(classifier: Classifier) -> Classifier:
    """The same classifier with its labels in the opposite order."""

    class Turned(type(classifier.model)):  # type: ignore[misc]
        def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
            found = super().score(texts, k)
            return aligned(found, columns_of(LabelSet(found.names), self.labels, ""), self.labels.names)

        def _score(self, trained: Any, features: Any, names: Any, k: int | None) -> Scores:
            order = self.labels.names[::-1] if len(names) == len(self.labels) else names
            return super()._score(trained, features, order, k)  # type: ignore[no-any-return]

    import copy

    turned = copy.copy(classifier)
    turned.model = copy.copy(classifier.model)
    turned.model.__class__ = Turned
    turned.model.labels = turned.labels = LabelSet(classifier.labels.names[::-1])
    assert classifier.calibration is not None
    turned.calibration = type(classifier.calibration)(classifier.calibration.slopes[::-1], classifier.calibration.offsets[::-1])
    return turned


@settings(max_examples=30)
@given(st.data(), st.permutations(range(4)), st.integers(1, 4))
def test_aligned_scores_say_the_same_about_every_label(data: st.DataObject, order: list[int], k: int) -> None:
    table = np.random.default_rng(data.draw(st.integers(0, 99))).random((3, 4))
    theirs = LabelSet([f"l{j}" for j in order])
    mine = LabelSet([f"l{j}" for j in range(4)])
    scores = Scores.full(table, theirs.names, "probability").best(k)
    found = aligned(scores, columns_of(theirs, mine, "part"), mine.names)
    assert [dict(row) for row in found.top(4)] == [dict(row) for row in scores.top(4)]
    assert all((np.diff(numbers) > 0).all() for numbers, _ in found)


def test_other_labels_are_refused_by_name_before_anything_is_trained(toy: Toy, oracle: type[Oracle]) -> None:
    names = [name for name in toy.train.labels.names if name != "space"]
    few = Classifier("br", FAST).fit(toy.train.with_labels(LabelSet([*names, "cooking"])))
    mixture = Mixed.of({"few": few, "all": few})
    with pytest.raises(ConfigError, match="'few' has other labels: it lacks 'space', and only it has 'cooking';") as error:
        Classifier(mixture).fit(toy.train, toy.valid)
    assert "\n" not in str(error.value) and oracle.fitted == 0


# -- parts from finished runs ------------------------------------------------------------------------------------------


def test_parts_of_finished_runs_are_taken_as_they_are(toy: Toy, runs: Path, mixed: Classifier, tmp_path: Path) -> None:
    options = {"parts": [str(runs / "br"), str(runs / "cc" / "model")]}
    found = Classifier("mixed", options).fit(toy.train, toy.valid)
    assert isinstance(found.model, Mixed) and isinstance(mixed.model, Mixed)
    assert found.model.shares == mixed.model.shares
    assert np.array_equal(values(found.scores(toy.test.texts)), values(mixed.scores(toy.test.texts)))
    found.save(tmp_path)
    (runs / "br").rename(runs / "gone")  # the artefact needs nothing else
    try:
        loaded = Classifier.load(tmp_path)
        assert np.array_equal(values(loaded.scores(toy.test.texts)), values(found.scores(toy.test.texts)))
        with pytest.raises(ConfigError, match="neither a model nor the folder"):
            loaded.fit(toy.train, toy.valid)
    finally:
        (runs / "gone").rename(runs / "br")


def test_a_run_that_never_saw_the_validation_documents_is_scored_on_them(toy: Toy, tmp_path: Path) -> None:
    data = {"fingerprint": toy.train.fingerprint()}
    found = {}
    for name in ("br", "cc"):
        found[name] = train_corpora(Recipe(name, FAST, data=data), toy.train, None, tmp_path / name)
    model = Mixed.build({"parts": [str(tmp_path / "br"), str(tmp_path / "cc")], "weights": [1.0, 0.0]})
    held = model.fit(toy.train, toy.valid, Run())
    assert held is not None
    assert np.array_equal(values(held.scores), values(found["br"].scores(toy.valid.texts)))


def test_a_run_trained_on_the_validation_documents_is_refused(toy: Toy, runs: Path) -> None:
    with pytest.raises(ConfigError, match="was trained on the validation documents"):
        Mixed.build({"parts": [str(runs / "br"), str(runs / "cc")]}).fit(toy.valid, toy.train, Run())


def test_finished_runs_need_validation_documents(toy: Toy, runs: Path) -> None:
    with pytest.raises(ConfigError, match="give validation documents"):
        Mixed.build({"parts": [str(runs / "br"), "cc"]}).fit(toy.train, None, Run())


def test_a_mixture_of_linear_models_is_taken_apart_first(toy: Toy, runs: Path, mixed: Classifier) -> None:
    br = Classifier.load(runs / "br")
    with pytest.raises(ConfigError, match="name its parts"):
        Mixed.of({"one": mixed, "two": br}).fit(toy.train, toy.valid, Run())


def test_three_parts_trained_and_taken_together(toy: Toy, runs: Path) -> None:
    parts = [str(runs / "br"), "lp", "cc:given"]
    options = {"parts": parts, "settings": {"all": FAST, "cc:given": {"order": "given"}}}
    found = Classifier("mixed", options).fit(toy.train, toy.valid)
    assert isinstance(found.model, Mixed)
    assert [type(part.model) for part in found.model.trained] == [model_class(name) for name in ("br", "lp", "cc")]
    assert len(found.model.shares) == 3 and sum(found.model.shares) == pytest.approx(1)
    assert found.model.trained[2].model.options()["order"] == "given"
    assert found.evaluate(toy.test)["micro_f1"] > 0.9


# -- folds -------------------------------------------------------------------------------------------------------------


def test_with_folds_every_document_is_scored_by_the_training_that_did_not_see_it(
    oracle: type[Oracle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that knows its training texts by heart and nothing else: not one of the held-out scores may be right."""
    corpus, more = noise(31, 1, "t"), noise(9, 2, "v")
    given: list[tuple[list[str], list[str], int]] = []

    def fit(self: Oracle, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        assert valid is not None
        given.append((train.texts, valid.texts, self.seed))
        self.labels, self.table = train.labels, {text: values_of(train, row) for row, text in enumerate(train.texts)}
        return HeldOut(valid.truth, self.score(valid.texts))

    monkeypatch.setattr(oracle, "fit", fit)
    monkeypatch.setattr(oracle, "state", lambda self: {"table": self.table})
    monkeypatch.setattr(oracle, "restore", lambda self, state: setattr(self, "table", state["table"]))
    model = Mixed.build({"parts": ["oracle:a", "oracle:b"], "folds": 4, "weights": [1, 3], "seed": 5})
    held = model.fit(corpus, more, Run())
    assert held is not None and len(held.scores) == 40 and held.truth.nnz == 40 and not values(held.scores).any()
    whole = sorted([*corpus.texts, *more.texts])
    assert len(given) == 8 and [seed for _, _, seed in given] == [5, 6, 7, 8] * 2
    assert all(sorted(learned + watched) == whole and len(watched) == 10 for learned, watched, _ in given)
    assert sorted(text for _, watched, _ in given[:4] for text in watched) == whole
    assert given[0][1] == given[4][1], "all parts have the same folds"
    assert model.shares == [1 / 16] * 4 + [3 / 16] * 4
    assert np.allclose(values(model.score(corpus.texts)), 0.75 * corpus.truth.toarray()), "three of four have seen each"


def test_folds_of_a_real_part_are_averaged_and_kept(toy: Toy, tmp_path: Path) -> None:
    found = Classifier("mixed", {"parts": ["br"], "settings": {"br": FAST}, "folds": 3}).fit(toy.train, toy.valid)
    assert isinstance(found.model, Mixed) and len(found.model.trained) == 3
    alone = [values(part.probabilities(part.model.score(toy.test.texts), toy.train.labels.names)) for part in found.model.trained]
    assert np.allclose(values(found.scores(toy.test.texts)), np.mean(alone, axis=0), atol=1e-6)
    assert not np.allclose(alone[0], alone[1])
    found.save(tmp_path)
    assert np.array_equal(values(Classifier.load(tmp_path).scores(toy.test.texts)), values(found.scores(toy.test.texts)))


def test_the_weights_of_folded_parts_are_chosen_on_all_documents(toy: Toy, oracle: type[Oracle]) -> None:
    whole = toy.train.concat(toy.valid)
    for row, text in enumerate(whole.texts):
        oracle.table[text] = values_of(whole, row)
    good = Classifier("mixed", {"parts": ["oracle", "br"], "settings": {"br": {**FAST, "c": [1e-5]}}, "folds": 2})
    good.fit(toy.train, toy.valid)
    assert isinstance(good.model, Mixed) and sum(good.model.shares[:2]) > 0.5 and good.decision.report["fitted"] == 1.0
    assert good.model.shares[0] == good.model.shares[1] and sum(good.model.shares) == pytest.approx(1)


def test_a_restart_does_not_train_a_finished_fold_again(toy: Toy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe = Recipe("mixed", {"parts": ["br"], "settings": {"all": FAST}, "folds": 3})
    expected = train_corpora(recipe, toy.train, toy.valid, tmp_path / "whole").scores(toy.test.texts)
    whole, seeds = BinaryRelevance.fit, list[int]()

    def fit(self: BinaryRelevance, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        seeds.append(self.seed)
        if seeds == [0, 1]:
            raise KeyboardInterrupt
        return whole(self, train, valid, run)

    monkeypatch.setattr(BinaryRelevance, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        train_corpora(recipe, toy.train, toy.valid, tmp_path / "run")
    found = train_corpora(recipe, toy.train, toy.valid, tmp_path / "run", resume=True)
    assert seeds == [0, 1, 1, 2]
    assert np.array_equal(values(found.scores(toy.test.texts)), values(expected))


# -- runs and files ----------------------------------------------------------------------------------------------------


def test_a_restart_does_not_train_a_finished_part_again(
    toy: Toy, oracle: type[Oracle], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two parts of one class, so that their checkpoints must not be taken for each other's; the third is interrupted."""
    recipe = Recipe("mixed", {"parts": ["oracle", "br:a", "br:b"], "settings": {"all": FAST, "br:b": {"c": [0.01]}}})
    expected = train_corpora(recipe, toy.train, toy.valid, tmp_path / "whole").scores(toy.test.texts)
    whole, trained = BinaryRelevance.fit, []

    def fit(self: BinaryRelevance, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        trained.append(self.solver.c)
        if self.solver.c == [0.01] and len(trained) == 2:
            raise KeyboardInterrupt
        return whole(self, train, valid, run)

    monkeypatch.setattr(BinaryRelevance, "fit", fit)
    oracle.fitted = 0
    with pytest.raises(KeyboardInterrupt):
        train_corpora(recipe, toy.train, toy.valid, tmp_path / "run")
    found = train_corpora(recipe, toy.train, toy.valid, tmp_path / "run", resume=True)
    assert oracle.fitted == 1 and trained == [[1.0], [0.01], [0.01]]
    assert np.array_equal(values(found.scores(toy.test.texts)), values(expected))
    assert not list((tmp_path / "run").rglob("stages")), "a finished training leaves no checkpoints"
    assert {path.name for path in (tmp_path / "run" / "parts").iterdir()} == {"1-oracle", "2-br-a", "3-br-b"}


def test_networks_of_one_kind_keep_their_checkpoints_apart(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    curves = "polytag.nn.training.learning_curves.Curves.finish"
    monkeypatch.setattr(curves, lambda self: None)  # no pictures: they take longer than all of this
    network = {"embedding": 8, "filters": 4, "batch_size": 48, "device": "cpu", "checkpoint_seconds": 0.0}
    told = {"all": network, "cnn:long": {"epochs": 3}, "cnn:short": {"epochs": 1}}
    recipe = Recipe("mixed", {"parts": ["cnn:long", "cnn:short"], "settings": told, "weights": [0.5, 0.5]})
    free = Classifier(recipe).fit(toy.train, toy.valid)
    with Run(tmp_path / "run", progress=False) as run:
        kept = Classifier(recipe).fit(toy.train, toy.valid, run)
    assert np.array_equal(values(kept.scores(toy.test.texts)), values(free.scores(toy.test.texts)))
    for place, epochs in (("1-cnn-long", 3), ("2-cnn-short", 1)):
        events = read_log(tmp_path / "run" / "parts" / place)
        assert len([event for event in events if "micro_f1" in event]) == epochs
    with Run(tmp_path / "run", progress=False, resume=True) as run:
        again = Classifier(recipe).fit(toy.train, toy.valid, run)
    assert np.array_equal(values(again.scores(toy.test.texts)), values(free.scores(toy.test.texts)))


def test_the_log_has_the_curve_over_alpha(toy: Toy, tmp_path: Path) -> None:
    with Run(tmp_path / "run", progress=False) as run:
        found = Mixed.build(LIGHT).fit(toy.train, toy.valid, run)
    (event,) = [event for event in read_log(tmp_path / "run") if event["event"] == "mixing"]
    assert found is not None and event["parts"] == ["br", "cc"]
    assert [weights[0] for weights in event["tried"]] == [a / 20 for a in range(21)]
    best = max(event["micro_f1"])
    assert len(event["micro_f1"]) == 21 and event["value"] >= best - NOISE
    close = [weights[0] for weights, value in zip(event["tried"], event["micro_f1"], strict=True) if value >= best - NOISE]
    assert min(close) <= event["weights"][0] <= max(close)


def test_many_labels_are_never_scored_all_for_the_k_best(mixed: Classifier, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polytag.models.mixed._FEW", 4)
    monkeypatch.setattr("polytag.models.mixed._CANDIDATES", 1)
    asked: list[int | None] = []
    whole = BinaryRelevance.score

    def score(self: BinaryRelevance, texts: Sequence[str], k: int | None = None) -> Scores:
        asked.append(k)
        return whole(self, texts, k)

    monkeypatch.setattr(BinaryRelevance, "score", score)
    best = mixed.scores(toy.test.texts, k=1)
    assert asked == [5] and int(np.diff(best.matrix.indptr).max()) == 1
    for (row,), (other,) in zip(best.top(1), mixed.scores(toy.test.texts).top(1), strict=True):
        assert row[0] == other[0] and row[1] == pytest.approx(other[1], abs=1e-6)


def test_parts_read_as_many_texts_at_once_as_what_they_keep_allows(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = {"all": {"candidates": 3, "refit": False}}
    mixture = Classifier("mixed", {"parts": ["xlinear:a", "xlinear:b"], "settings": trees}).fit(toy.train, toy.valid)
    texts, model, sizes = toy.test.texts, mixture.model, list[int]()
    assert len(texts) > 20 and len(toy.test.labels) > 6
    assert model.scored_labels() == 6 and model.kept_per_text() == 6, "three candidates of each, not every label there is"
    expected, best = values(mixture.scores(texts)), values(mixture.scores(texts, k=2))
    whole = XLinear.encode

    def encode(self: XLinear, texts: Sequence[str]) -> Any:
        sizes.append(len(texts))
        return whole(self, texts)

    monkeypatch.setattr(XLinear, "encode", encode)
    monkeypatch.setattr("polytag.models.mixed._CELLS", 6 * 7 + 5)
    assert np.array_equal(values(mixture.scores(texts)), expected) and np.array_equal(values(mixture.scores(texts, k=2)), best)
    assert max(sizes) == 7 and sum(sizes) == 4 * len(texts)
    Classifier("mixed", {"parts": ["xlinear:a", "xlinear:b"], "settings": trees}).fit(toy.train, toy.valid)
    assert max(sizes) == 7, "also when held-out documents are scored"


def test_finished_parts_that_name_candidates_read_the_held_out_documents_once(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"candidates": 3, "refit": False}
    parts = {name: Classifier("xlinear", {**options, "seed": seed}).fit(toy.train) for seed, name in enumerate("ab")}
    whole, encoded = XLinear.encode, list[Sequence[str]]()

    def watched(self: XLinear, texts: Sequence[str]) -> Any:
        encoded.append(texts)
        return whole(self, texts)

    monkeypatch.setattr(XLinear, "encode", watched)
    mixture = Mixed.of(parts)
    held = mixture.fit(toy.train, toy.valid, Run())
    assert [list(texts) for texts in encoded] == [list(toy.valid.texts)] * 2
    assert held is not None and np.array_equal(values(held.scores), values(mixture.score(toy.valid.texts)))


def test_an_artefact_with_a_part_that_is_not_registered_is_refused(mixed: Classifier, tmp_path: Path) -> None:
    from polytag.storage.artefact import read_artefact, write_artefact

    mixed.save(tmp_path)
    state = read_artefact(tmp_path / "model")
    for change in ({"model": "os.system"}, {"options": {"nonsense": 1}}, {"calibration": {"slopes": [1], "offsets": [1]}}):
        parts = [{**state["state"]["parts"][0], **change}, *state["state"]["parts"][1:]]
        write_artefact(tmp_path / "other" / "model", {**state, "state": {**state["state"], "parts": parts}})
        with pytest.raises(ArtefactError):
            Classifier.load(tmp_path / "other")
    write_artefact(tmp_path / "other" / "model", {**state, "state": {**state["state"], "weights": [2.0, -1.0]}})
    with pytest.raises(ArtefactError, match="state/weights/0 is not a number from 0 to 1"):
        Classifier.load(tmp_path / "other")


# -- settings ----------------------------------------------------------------------------------------------------------


def test_the_command_line_trains_mixes_and_tells(polytag: Command, files: Path, tmp_path: Path) -> None:
    told = polytag(
        "-q", "train", files / "train.jsonl", "--valid", files / "valid.jsonl", "--model", "mixed", "--out", tmp_path / "run",
        "--set", "br.c=0.5,1", "--set", "parts=br,cc", "--set", "all.ngrams=1", "--set", "all.order=given", "--seed", 3,
    )  # fmt: skip
    assert told.code == 0, told.err
    recipe = Recipe.read(tmp_path / "run" / "recipe.toml")
    assert recipe.options["settings"] == {"all": {"ngrams": [1], "order": "given"}, "br": {"c": [0.5, 1.0]}}
    found = json.loads(polytag("info", tmp_path / "run", "--json").out)
    assert list(found["parts"]) == ["br", "cc"] and sum(part["weight"] for part in found["parts"].values()) == pytest.approx(1)
    assert found["parts"]["br"]["options"]["c"] == [0.5, 1.0] and found["parts"]["cc"]["options"]["order"] == "given"
    assert all(part["options"]["seed"] == 3 and part["options"]["ngrams"] == [1] for part in found["parts"].values())
    again = polytag("-q", "train", "--recipe", tmp_path / "run" / "recipe.toml", "--out", tmp_path / "again")
    assert again.code == 0, again.err
    first, second = (Classifier.load(tmp_path / name).scores(["trawler and rain"]) for name in ("run", "again"))
    assert np.array_equal(values(first), values(second))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["br.cc=1"], "'br' has no option 'cc'; did you mean 'c'?"),
        (["br.folds=1"], "'folds' is 1, but it must be a whole number, at least 2"),
        (["brr.c=1"], "'brr', which is none of the parts; did you mean 'br'?"),
        (["all.epochs=1"], "has no option 'epochs'; "),
        (["all.ngram=1"], "the model 'br' or the model 'cc' has no option 'ngram'; did you mean 'ngrams'?"),
        (["parts=br"], "at least two"),
        (["parts=br", "folds=1"], "'folds' is 1"),
        (["parts=br,runs/x", "folds=3"], "with 'folds' every part must be a model to train, but 'runs/x' is not"),
        (["parts=br,br"], "'parts' has 'br' twice; add tags, as in br:a and br:b"),
        (["parts=br,runs/x", "runs/x.c=1"], "the part 'runs/x' is a finished run and cannot have settings"),
        (["parts=runs/y,runs/x", "all.c=1"], "all parts are finished runs"),
        (["parts=br:a/b,br"], "an invalid tag"),
        (["weights=1"], "1 numbers for 2 parts"),
        (["weights=0,0"], "not all of them 0"),
        (["weights=-1,2"], "at least 0"),
        (["settings=3"], "it must be a table"),
    ],
)
def test_wrong_settings_are_refused_before_training(wrong: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        Recipe("mixed", {"parts": ["br", "cc"]}).with_overrides(wrong)
    assert told in str(error.value), str(error.value)


def test_a_setting_without_effect_for_its_part_is_refused_and_one_for_all_parts_only_needs_one() -> None:
    trees = ["xlinear:a", "xlinear:b"]
    with pytest.raises(ConfigError, match="'max_terms' has no effect with index=text; leave it out"):
        Recipe("mixed", {"parts": trees, "settings": {"xlinear:a": {"max_terms": 5}, "all": {"index": "text"}}}).checked()
    told = {"all": {"max_terms": 5}, "xlinear:a": {"index": "text"}}
    assert Recipe("mixed", {"parts": trees, "settings": told}).checked().options["settings"] == told
    told = {"all": {"order": "given", "ngrams": [1]}, "br": {"c": [0.5]}}  # br has no order
    assert Recipe("mixed", {"parts": ["br", "cc"], "settings": told}).checked().options["settings"] == told
    with pytest.raises(ConfigError, match="the settings of the part 'all' are 3"):
        Recipe("mixed", {"parts": ["br", "cc"], "settings": {"br": {"c": [1.0]}, "all": 3}}).checked()


@pytest.mark.parametrize("parts", [["br", "xlinear"], ["xlinear", "br"]])
def test_a_setting_for_all_parts_is_cast_for_each_of_them(parts: list[str], toy: Toy) -> None:
    """A list for one of them, a number for the other."""
    model = Classifier("mixed", {"parts": parts, "settings": {"all": {"c": 0.5, "ngrams": 1}}}).fit(toy.train, toy.valid).model
    found = {part["name"]: part["options"] for part in model.described_parts()}
    assert (found["br"]["c"], found["br"]["ngrams"]) == ([0.5], [1])
    assert (found["xlinear"]["c"], found["xlinear"]["ngrams"]) == (0.5, 1)


def test_settings_of_parts_in_an_earlier_artefact_are_carried_over(toy: Toy) -> None:
    pytest.importorskip("torch")
    told = {"all": {"loss": "focal", "epochs": 2}, "lsan": {"attention": 16}, "sgm": {"attention": "dot", "focus": 1.0}}
    found = Mixed.saved_options({"parts": ["lsan", "sgm"], "settings": told})["settings"]
    assert found == {"all": {"loss": "focal", "epochs": 2}, "lsan": {"attention_size": 16}, "sgm": {"attention": "dot"}}
    assert Mixed.saved_options({"parts": ["br", "sgm"], "settings": {"all": {"loss": "focal"}}})["settings"] == {"all": {}}
    with pytest.raises(ConfigError, match="has no option 'los'"):
        Mixed.saved_options({"parts": ["br", "sgm"], "settings": {"all": {"los": "focal"}}})
    idle = {"parts": ["xlinear:a", "xlinear:b"], "settings": {"xlinear:a": {"join_weight": 0.3}}}
    with pytest.raises(ConfigError, match="'join_weight' has no effect"):
        Mixed.check_options(idle)
    assert Mixed.build(Mixed.saved_options(idle)).fit(toy.train, toy.valid, Run()) is not None, "it can be trained again"


def test_wrong_settings_in_a_recipe_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('model = "mixed"\n[options]\nparts = ["br", "cc"]\n[options.settings.br]\nfold = 3\n')
    with pytest.raises(ConfigError, match=r"r\.toml: the model 'br' has no option 'fold'; did you mean 'folds'"):
        Recipe.read(path)
    path.write_text('model = "mixed"\n[options]\nparts = ["br", "cc"]\n[options.settings]\nbr = 3\n')
    with pytest.raises(ConfigError, match=r"r\.toml: the settings of the part 'br' are 3"):
        Recipe.read(path)


def test_a_part_that_is_nothing_is_told_before_anything_is_trained(toy: Toy, oracle: type[Oracle]) -> None:
    with pytest.raises(ConfigError, match="the part 'lsna' is neither a model nor the folder of a run; did you mean 'lsan'"):
        Classifier("mixed", {"parts": ["oracle", "lsna"]}).fit(toy.train, toy.valid)
    assert oracle.fitted == 0


def test_a_mixture_does_not_go_on_from_another(mixed: Classifier) -> None:
    with pytest.raises(ConfigError, match="continue its parts"):
        Classifier("mixed", LIGHT).continue_from(mixed)
