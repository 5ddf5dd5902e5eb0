"""The model xbert: equation 1, matcher negatives, stages, what is joined, and ensembles that score each other's candidates."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.metrics.of_rankings import calibration_error, ranking_metrics
from polytag.models.base.cluster_matcher import ClusterMatcher
from polytag.models.base.match_model import MatchModel
from polytag.models.mixed import Mixed
from polytag.models.model import Encoded
from polytag.models.xbert import XBert
from polytag.nn.training import step as steps
from polytag.run import Run
from polytag.scores import Scores
from polytag.text.preprocess import prepare
from polytag.xmc import tree_training as training
from polytag.xmc.estimate import Estimate, Level, estimate
from test_rank import dense_weights, worth_of
from test_xlinear import corpus

FAST: dict[str, Any] = {
    "encoder": "words", "embedding": 32, "epochs": 6, "batch_size": 32, "encoder_rate": 0.02, "head_rate": 0.02, "clusters": 7,
    "beam": 3, "join": "none", "device": "cpu", "precision": "fp32",
}  # fmt: skip


def planted(n: int, seed: int) -> Corpus:
    """Labels by a power law, in topics of six; see there."""
    return corpus(n, seed, n_labels=48)


def precision(model: MatchModel, test: Corpus, k: int = 1) -> float:
    return ranking_metrics(test.truth, model.score(test.texts))[f"p@{k}"]


@pytest.fixture(scope="module")
def parts() -> tuple[Corpus, Corpus]:
    return planted(600, 0), planted(150, 1)


@pytest.fixture(scope="module")
def fitted(parts: tuple[Corpus, Corpus]) -> Classifier:
    return Classifier("xbert", FAST).fit(parts[0])


def model_of(classifier: Classifier, **options: Any) -> XBert:
    """The same model with other settings for prediction."""
    return XBert.from_state({**classifier.model.options(), **options}, classifier.labels, classifier.model.state())


def cluster_chances(model: XBert, texts: list[str]) -> NDArray[np.float64]:
    """P(cluster | x) by the network alone, one document at a time."""
    network, tokens = model.matcher.network, model.matcher.tokens
    assert network is not None and tokens is not None
    found = []
    for text in prepare(texts, model.texts.preprocess, model.texts.max_words):
        ids = torch.from_numpy(tokens.encode([text])[0]).long()[None, : model.encoding.max_length]
        with torch.no_grad():
            logits = network.cpu().eval()(ids, torch.ones_like(ids, dtype=torch.bool))
        found.append(1 / (1 + np.exp(-logits[0].double().numpy())))
    return np.array(found)


def brute_force(model: XBert, texts: list[str], beam: int) -> NDArray[np.float64]:
    """Equation 1 over dense arrays: P(label | x) = sum over the best clusters of P(label | x, cluster) P(cluster | x)."""
    assert model.ranker is not None
    chances = cluster_chances(model, texts) ** model.exponent
    weights, bias = dense_weights(model.ranker, 1)
    rows = model.tfidf.transform(prepare(texts, model.texts.preprocess, model.texts.max_words)).toarray()
    within = worth_of(rows @ weights + bias, model.ranking.worth)  # (documents, places)
    found = np.zeros((len(texts), len(model.labels)))
    for row in range(len(texts)):
        for cluster in np.argsort(-chances[row])[:beam]:
            for label in np.flatnonzero(model.ranker.tree.leaf_of == cluster):
                place = int(np.flatnonzero(model.ranker.tree.order == label)[0])
                found[row, label] += chances[row, cluster] * within[row, place]
    return found


# -- equation 1 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("beam", "worth"), [(1, "l3-hinge"), (3, "sigmoid"), (100, "l3-hinge")])
def test_scores_are_equation_1(fitted: Classifier, parts: tuple[Corpus, Corpus], beam: int, worth: str) -> None:
    model = model_of(fitted, beam=beam, worth=worth)
    model.curve = [1.0, 0.0]
    texts = [*parts[1].texts[:12], "", "nothing known"]
    expected = brute_force(model, texts, beam)
    found = model.score(texts).matrix.toarray()
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=2e-5)
    assert (found > 0).sum(axis=1).max() <= beam * 7


def test_given_labels_get_what_a_search_of_all_clusters_gives_them(fitted: Classifier, parts: tuple[Corpus, Corpus]) -> None:
    texts = parts[1].texts[:40]
    narrow, wide = model_of(fitted, beam=1), model_of(fitted, beam=1000)
    everything = wide.score(texts)
    assert everything.is_full and not narrow.score(texts).is_full
    wanted = csr_array((np.random.default_rng(0).random((40, 48)) < 0.3).astype(np.float32))
    found = narrow.encode(texts).given(wanted)
    assert np.array_equal(found.matrix.indices, wanted.indices)
    np.testing.assert_allclose(found.matrix.data, everything.matrix.toarray()[wanted.toarray() > 0], atol=1e-5)


def test_learns_planted_topics_and_is_calibrated(fitted: Classifier, parts: tuple[Corpus, Corpus]) -> None:
    assert isinstance(fitted.model, XBert) and fitted.model.ranker is not None
    assert len(fitted.model.matcher.labels) == 7 and fitted.model.curve != [1.0, 0.0]
    assert precision(fitted.model, parts[1]) > 0.85 and precision(fitted.model, parts[1], 3) > 0.4
    assert calibration_error(parts[1].truth, fitted.model.score(parts[1].texts)) < 0.06
    sizes = np.bincount(fitted.model.ranker.tree.leaf_of)
    assert sizes.max() - sizes.min() <= 1


def test_the_matcher_has_the_models_own_settings(fitted: Classifier) -> None:
    """Not copies of them: what is changed later, such as the device, is changed for both, after loading too."""
    assert isinstance(fitted.model, XBert)
    for model in (fitted.model, model_of(fitted)):
        for name in ("texts", "encoding", "words", "training", "objective", "compute"):
            assert getattr(model.matcher, name) is getattr(model, name), name
        assert (model.matcher.seed, model.matcher.optimise) == (model.seed, model.optimise)
        assert {k: v for k, v in model.options().items() if k in model.matcher.options()} == model.matcher.options()
        assert model.training.epochs == FAST["epochs"] and model.matcher.make == model._match_network


def test_the_matcher_matters(fitted: Classifier, parts: tuple[Corpus, Corpus]) -> None:
    """With one cluster the network's choice decides; a network without its weights chooses wrongly."""
    one = model_of(fitted, beam=1)
    good = precision(one, parts[1])
    assert one.matcher.network is not None
    torch.nn.init.normal_(one.matcher.network.output.weight)  # type: ignore[arg-type, union-attr]
    assert precision(one, parts[1]) < good - 0.2


@pytest.mark.parametrize(
    "options", [{"index": "text"}, {"index": "both"}, {"loss": "squared-hinge"}, {"join": "network"}], ids=str
)
def test_other_ways_to_index_match_and_rank(parts: tuple[Corpus, Corpus], options: dict[str, Any]) -> None:
    train, test = parts[0].subset(range(400)), parts[1]
    names = {f"label {j}": f"g{j // 6} topic" for j in range(48)}
    model = XBert.build({**FAST, **options})
    model.fit(train.with_labels(LabelSet(names, descriptions=names)), None, Run())
    assert model.ranker is not None and precision(model, test) > 0.8
    assert model.ranker.n_features == len(model.tfidf.keys) + (32 if options.get("join") else 0)
    if options.get("index") == "text":  # the words of the labels' descriptions say which belong together
        assert len(set(zip(names.values(), model.ranker.tree.leaf_of.tolist(), strict=True))) <= 16
    if options.get("join"):  # what is joined has the length that was asked for, and no direction that all documents share
        joined = model.encode(train.texts).rows[:, len(model.tfidf.keys) :].toarray()
        np.testing.assert_allclose(np.linalg.norm(joined, axis=1), model.ranking.join_weight, rtol=1e-4)
        assert np.linalg.norm(joined.mean(axis=0)) < 0.5 * model.ranking.join_weight
    again = XBert.from_state(model.options(), model.labels, model.state())
    assert np.array_equal(again.score(test.texts).matrix.data, model.score(test.texts).matrix.data)


@pytest.mark.parametrize(
    ("labels", "clusters", "expected", "searched"),
    [
        (2, 0, 2, 2), (629, 0, 629, 100), (1001, 0, 1000, 100), (10_000, 0, 2500, 100), (35_425, 0, 8856, 99),
        (200_000, 0, 10_000, 20), (500_000, 0, 10_000, 10), (900_000, 0, 15_000, 10), (10, 4, 4, 4), (10, 50, 10, 10),
        (5000, 100, 100, 10),
    ],
)  # fmt: skip
def test_how_many_clusters_there_are_and_are_searched(labels: int, clusters: int, expected: int, searched: int) -> None:
    model = XBert.build({"clusters": clusters})
    model.labels = LabelSet(map(str, range(labels)))
    assert model._count() == expected and model.searched() == searched
    model.search.beam = 7
    assert model.searched() == min(7, expected)
    model.matcher.labels = LabelSet(map(str, range(5)))  # of an artefact that was made with other defaults
    assert model._count() == model.searched() == 5


def test_the_power_is_the_one_that_ranks_held_out_documents_best(parts: tuple[Corpus, Corpus], tmp_path: Path) -> None:
    train, valid = parts[0].subset(range(300)), parts[1]
    with Run(tmp_path / "run", progress=False) as run:
        model = XBert.build({**FAST, "epochs": 3, "refit": False})
        model.fit(train, valid, run)
    events = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    (told,) = [event for event in events if event["event"] == "power"]
    assert model.exponent == told["chosen"] and told["chosen"] in told["powers"]
    reached = []
    for power in told["powers"]:
        model.exponent = power
        reached.append(np.mean([precision(model, valid, k) for k in (1, 3, 5)]))
    assert told["precision"] == pytest.approx(reached, abs=1e-3) and told["chosen"] == told["powers"][int(np.argmax(reached))]
    fixed = XBert.build({**FAST, "epochs": 1, "power": 1.0})
    fixed.fit(train, valid, Run())
    assert fixed.exponent == 1.0


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("negatives", ["teacher", "matcher"])
def test_separators_learn_from_what_the_matcher_wrongly_retrieves(
    parts: tuple[Corpus, Corpus], monkeypatch: pytest.MonkeyPatch, negatives: str
) -> None:
    train, valid = parts
    seen: list[Any] = []
    real = training.TreeTraining.leaves
    shown: list[Any] = []

    def leaves(self: Any, reached: Any) -> Any:
        seen.append(reached)
        indptr, documents = self._documents(1, reached)
        shown.append([set(documents[indptr[p] : indptr[p + 1]].tolist()) for p in range(len(indptr) - 1)])
        return real(self, reached)

    monkeypatch.setattr(training.TreeTraining, "leaves", leaves)
    model = XBert.build({**FAST, "epochs": 2, "beam": 2, "negatives": negatives})
    model.fit(train, valid, Run())
    assert model.ranker is not None and len(seen) == 2, "once to score validation documents, once on all"
    belongs = model.ranker.tree.levels(train.truth)[0].toarray() > 0
    chosen = np.argsort(-cluster_chances(model, train.texts), axis=1)[:, :2]
    sent = np.zeros_like(belongs)
    np.put_along_axis(sent, chosen, True, axis=1)
    expected = belongs | sent if negatives == "matcher" else belongs
    assert (seen[0] is None) == (negatives == "teacher") and (sent & ~belongs).sum() > 100
    differ = [set(np.flatnonzero(expected[:, p])) ^ shown[0][p] for p in range(belongs.shape[1])]
    assert sum(map(len, differ)) <= 3, "documents between two equally good clusters aside"


@pytest.mark.parametrize("power", [0.25, 1.5])
def test_given_labels_outside_of_the_beam_get_no_help_from_a_small_power(
    fitted: Classifier, parts: tuple[Corpus, Corpus], power: float
) -> None:
    model, texts = model_of(fitted, beam=2), parts[1].texts[:40]
    model.curve, every = [1.0, 0.0], len(model.matcher.labels)
    model.exponent = max(1.0, power)
    expected = brute_force(model, texts, every)
    model.exponent = power
    inside = brute_force(model, texts, 2)
    expected[inside > 0] = inside[inside > 0]
    everything = csr_array(np.ones((len(texts), len(model.labels)), dtype=np.float32))
    found = model.encode(texts).given(everything).matrix.toarray()
    np.testing.assert_allclose(found, expected, atol=2e-3)
    searched = model.score(texts).matrix.toarray()
    assert (searched == 0).any() and np.allclose(found[searched > 0], searched[searched > 0], atol=1e-6)


def test_of_a_text_that_was_read_every_clusters_chance_is_kept(fitted: Classifier) -> None:
    model = model_of(fitted, candidates=9)
    assert len(model.matcher.labels) > 1 and model.kept_per_text() == len(model.matcher.labels) + 9


def test_matched_gives_the_networks_best_clusters_and_the_true_ones(fitted: Classifier, parts: tuple[Corpus, Corpus]) -> None:
    model, test = model_of(fitted), parts[1]
    assert model.ranker is not None
    scores, truth = model.matched(test.texts, test.truth)
    chances = cluster_chances(model, test.texts[:20])
    assert np.array_equal(scores.ranked(3)[0][:20], np.argsort(-chances, axis=1, kind="stable")[:, :3])
    for row in range(20):
        own = test.truth.indices[test.truth.indptr[row] : test.truth.indptr[row + 1]]
        assert set(truth.indices[truth.indptr[row] : truth.indptr[row + 1]]) == set(model.ranker.tree.leaf_of[own])


def test_a_restart_repeats_no_finished_stage(
    parts: tuple[Corpus, Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, valid = parts
    options = {**FAST, "epochs": 2, "join": "network", "index": "both"}
    whole = XBert.build(options)
    whole.fit(train, valid, Run())
    real, calls = training.TreeTraining.leaves, []

    def dies(self: Any, reached: Any) -> Any:
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, reached)

    monkeypatch.setattr(training.TreeTraining, "leaves", dies)
    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "run", progress=False) as run:
        XBert.build(options).fit(train, valid, run)

    def never(*_: Any) -> Any:
        raise AssertionError("a finished stage was done again")

    match = ClusterMatcher.match

    def labels_alone(self: Any, texts: list[str], *rest: Any) -> Any:
        return match(self, texts, *rest) if len(texts) <= len(train.labels) else never()  # the texts of labels, not documents

    monkeypatch.setattr(steps.EagerStep, "__call__", never)
    monkeypatch.setattr(ClusterMatcher, "match", labels_alone)
    monkeypatch.setattr(XBert, "_index", never)
    calls.extend([0] * 10)
    with Run(tmp_path / "run", progress=False, resume=True) as run:
        resumed = XBert.build(options)
        resumed.fit(train, valid, run)
    assert len(calls) == 13
    events = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    kept = [e["name"] for e in events if e["event"] == "stage" and e["resumed"]]
    assert kept == ["tfidf", "index", "candidates", "held-ranker"]
    monkeypatch.undo()
    a, b = whole.score(valid.texts), resumed.score(valid.texts)
    assert np.array_equal(a.matrix.indices, b.matrix.indices) and np.array_equal(a.matrix.data, b.matrix.data)


def test_held_out_scores_come_from_separators_that_did_not_see_the_documents(parts: tuple[Corpus, Corpus]) -> None:
    train, _ = parts
    odd = Corpus.of(["zyx zyx qqq", "zyx qqq"], [["label 47"]] * 2, label_set=train.labels)
    for refit in (False, True):
        model = XBert.build({**FAST, "epochs": 2, "beam": 100, "refit": refit})
        held = model.fit(train, odd, Run())
        assert held is not None and held.scores.top(1)[0][0][0] != "label 47"
        assert ("zyx" in model.tfidf.terms) == refit


def test_what_the_separators_will_take_is_told_without_a_root_that_the_network_replaces(
    parts: tuple[Corpus, Corpus], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def watched(words: csr_array, truth: csr_array, levels: list[Level], **sizes: Any) -> Estimate:
        asked.append((levels, sizes["times"]))
        return estimate(words, truth, levels, **sizes)

    monkeypatch.setattr("polytag.models.base.match_model.estimate", watched)
    with caplog.at_level(logging.INFO, "polytag"):
        XBert.build(FAST).fit(*parts, Run())
        XBert.build({**FAST, "refit": False}).fit(*parts, Run())
    assert asked == [([Level(7, 7)], 2), ([Level(7, 7)], 1)]  # 48 labels in 7 clusters
    told = [message for message in caplog.messages if message.startswith("in addition to the network, training will take about")]
    assert len(told) == 2


@pytest.mark.parametrize(("clusters", "said"), [(0, True), (7, False)])
def test_where_every_cluster_is_one_label_the_log_says_that_the_index_has_no_effect(
    parts: tuple[Corpus, Corpus], clusters: int, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = XBert.build({**FAST, "clusters": clusters})
    model.labels = parts[0].labels
    with caplog.at_level(logging.INFO, "polytag"):
        model._index(csr_array(np.ones((len(parts[0]), 2), np.float32)), parts[0].truth)
    assert any("'index' has no effect" in message for message in caplog.messages) == said


def test_a_model_that_does_not_fit_into_memory_is_refused(parts: tuple[Corpus, Corpus]) -> None:
    with pytest.raises(ConfigError, match="may be used"):
        XBert.build({**FAST, "memory": 0.0001}).fit(parts[0], None, Run())


def test_it_cannot_go_on(fitted: Classifier) -> None:
    with pytest.raises(ConfigError, match="has different clusters"):
        XBert().start_from(fitted.model)  # type: ignore[arg-type]


def test_a_state_that_does_not_fit_together_is_refused(fitted: Classifier) -> None:
    state = fitted.model.state()
    with pytest.raises(ValueError, match="is not of the size labels"):
        XBert.from_state(fitted.model.options(), LabelSet(["a", "b"]), state)
    with pytest.raises(ValueError, match="do not fit"):
        wrong = {**state["chunks"], "rows": state["chunks"]["rows"] + 100_000}
        XBert.from_state(fitted.model.options(), fitted.labels, {**state, "chunks": wrong})


# -- ensembles ---------------------------------------------------------------------------------------------------------


def test_an_ensemble_scores_the_candidates_of_all_parts_by_all_parts(parts: tuple[Corpus, Corpus]) -> None:
    train, test = parts
    told = {"all": {**FAST, "epochs": 2, "beam": 1}, "xbert:b": {"seed": 1}, "xlinear": {"max_leaf": 8, "beam": 2}}
    options = {"parts": ["xbert:a", "xbert:b", "xlinear"], "settings": told, "weights": [1, 1, 2]}
    classifier = Classifier("mixed", options).fit(train)
    assert isinstance(classifier.model, Mixed)
    models = [part.model for part in classifier.model.trained]
    trees = [model.ranker.tree.order.tolist() for model in models[:2]]  # type: ignore[attr-defined]
    assert trees[0] != trees[1], "another seed, other clusters"
    own = [model.score(test.texts) for model in models]
    union = np.any([one.matrix.toarray() > 0 for one in own], axis=0)
    full = [model.encode(test.texts).given(csr_array(np.ones(union.shape, np.float32))).matrix.toarray() for model in models]
    expected = np.where(union, 0.25 * full[0] + 0.25 * full[1] + 0.5 * full[2], 0)
    found = classifier.scores(test.texts).matrix.toarray()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    missed = union & (own[0].matrix.toarray() == 0)
    assert missed.sum() > 100 and (full[0][missed] > 0).all(), "the first part missed labels, and has scored them"
    assert classifier.evaluate(test)["p@1"] > 0.85


@pytest.mark.parametrize("weights", [[], [1, 2, 1], [1, 0, 1]])
def test_what_a_mixture_is_weighed_and_decided_by_is_what_it_predicts(
    parts: tuple[Corpus, Corpus], weights: list[float], tmp_path: Path
) -> None:
    train, valid = parts
    told = {**FAST, "epochs": 2, "beam": 1, "refit": False}
    models = {
        "a": Classifier("xbert", told).fit(train, valid),
        "b": Classifier("xbert", {**told, "seed": 1}).fit(train, valid),
        "c": Classifier("xlinear", {"max_leaf": 8, "beam": 2, "refit": False}).fit(train, valid),
    }
    for name, classifier in models.items():
        classifier.save(tmp_path / name)
    model = Mixed.build({"parts": [str(tmp_path / name) for name in models], "weights": weights})
    held = model.fit(train, valid, Run())
    assert held is not None
    found, own = model.score(valid.texts), [one.scores(valid.texts).matrix for one in models.values()]
    assert np.array_equal(held.scores.matrix.indptr, found.matrix.indptr)
    assert np.array_equal(held.scores.matrix.indices, found.matrix.indices)
    np.testing.assert_allclose(held.scores.matrix.data, found.matrix.data, atol=1e-5)
    blind = sum(share * one.toarray() for share, one in zip(model.shares, own, strict=True))
    assert np.abs(blind - found.matrix.toarray()).max() > 0.01, "what parts say of each other's candidates matters here"


def test_a_part_that_cannot_be_asked_says_what_it_said() -> None:
    class Said:
        def score(self, texts: Any, k: int | None = None) -> Scores:
            return Scores.full(np.array([[0.1, 0.7, 0.3]]), ["a", "b", "c"], "probability").best(k or 3)

    encoded = Encoded(Said(), ["x"])  # type: ignore[arg-type]
    encoded.best(2)
    found = encoded.given(csr_array(np.array([[1.0, 1.0, 0.0]], dtype=np.float32)))
    assert found.matrix.indices.tolist() == [1] and float(found.matrix.data[0]) == pytest.approx(0.7)
