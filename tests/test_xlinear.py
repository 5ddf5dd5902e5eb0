"""The model xlinear: it ranks as well as flat separators, resumes, estimates, refuses, and keeps its weights on the disk."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ArtefactError, ConfigError
from polytag.labels import LabelSet
from polytag.linear.svm import Problem
from polytag.metrics.of_rankings import calibration_error, ranking_metrics
from polytag.models.xlinear import XLinear
from polytag.run import Run
from polytag.xmc import estimate as estimates
from polytag.xmc import tree_training as training
from polytag.xmc.index import build_tree, instance_vectors, label_vectors
from polytag.xmc.tree_training import Ranking
from toys import train_ranker

SMALL: dict[str, Any] = {"branching": 3, "max_leaf": 6, "beam": 6}


def corpus(n: int, seed: int, n_labels: int = 60) -> Corpus:
    """Labels by a power law, each with three words of its own and two that it shares with five others."""
    generator = np.random.default_rng(seed)
    chance = 1 / np.arange(1, n_labels + 1) ** 0.7
    chance /= chance.sum()
    texts, labels = [], []
    for _ in range(n):
        own = np.unique(generator.choice(n_labels, generator.integers(1, 4), p=chance))
        words = [f"w{j}x{i}" for j in own for i in generator.choice(3, 2, replace=False)]
        words += [f"g{j // 6}x{generator.integers(2)}" for j in own] + [f"n{i}" for i in generator.integers(0, 30, 6)]
        texts.append(" ".join(generator.permutation(words)))
        labels.append([f"label {j}" for j in own])
    return Corpus.of(texts, labels, label_set=LabelSet(f"label {j}" for j in range(n_labels)))


@pytest.fixture(scope="module")
def parts() -> tuple[Corpus, Corpus]:
    return corpus(900, 0), corpus(250, 1)


@pytest.fixture(scope="module")
def fitted(parts: tuple[Corpus, Corpus]) -> Classifier:
    return Classifier("xlinear", SMALL).fit(parts[0])


def precision(model: XLinear, test: Corpus) -> float:
    return ranking_metrics(test.truth, model.score(test.texts))["p@1"]


def test_trees_of_label_texts(parts: tuple[Corpus, Corpus]) -> None:
    """The words of the labels' descriptions say which belong together; the tree's leaves are found by its own separators."""
    names = {f"label {j}": f"g{j // 6} topic" for j in range(60)}
    train = parts[0].with_labels(LabelSet(names, descriptions=names))
    model = XLinear.build({**SMALL, "index": "text", "label_encoder": "words"})
    model.fit(train, None, Run())
    assert model.forest is not None and precision(model, parts[1]) > 0.8
    assert len(set(zip(names.values(), model.forest.rankers[0].tree.leaf_of.tolist(), strict=True))) <= 20
    found = ranking_metrics(*reversed(model.matched(parts[1].texts, parts[1].truth)))
    assert found["p@1"] >= precision(model, parts[1]), "a leaf that is true is found more easily than a label"


def test_ranks_as_well_as_flat_separators(parts: tuple[Corpus, Corpus], fitted: Classifier) -> None:
    """With one leaf for all labels there is no tree; the tree loses little against it, and both have learned."""
    flat = Classifier("xlinear", {"max_leaf": 100}).fit(parts[0])
    assert isinstance(flat.model, XLinear) and isinstance(fitted.model, XLinear)
    assert flat.model.forest is not None and len(flat.model.forest.rankers[0].tree.starts) == 1
    assert fitted.model.forest is not None and len(fitted.model.forest.rankers[0].tree.starts) == 3
    best = precision(flat.model, parts[1])
    assert best > 0.9 and precision(fitted.model, parts[1]) > best - 0.03


def test_a_label_set_larger_than_the_beam_reaches_gives_candidates_only(fitted: Classifier, parts: tuple[Corpus, Corpus]) -> None:
    model = XLinear.from_state({**fitted.model.options(), "beam": 2, "candidates": 9}, fitted.labels, fitted.model.state())
    found = model.score(parts[1].texts)
    assert not found.is_full and int(np.diff(found.matrix.indptr).max()) == 9
    assert int(np.diff(model.score(parts[1].texts, 50).matrix.indptr).max()) == 9


def test_several_trees_are_the_mean_of_their_probabilities(parts: tuple[Corpus, Corpus]) -> None:
    three = Classifier("xlinear", {**SMALL, "trees": 3, "beam": 100}).fit(parts[0])
    assert isinstance(three.model, XLinear) and three.model.forest is not None
    orders = {tuple(one.tree.order.tolist()) for one in three.model.forest.rankers}
    assert len(orders) == 3
    rows = three.model.tfidf.transform(parts[1].texts)
    total = np.zeros((250, 60))
    for one in three.model.forest.rankers:
        labels, logs = one.best(rows, 60, 100)
        np.put_along_axis(total, labels, np.take_along_axis(total, labels, 1) + np.exp(logs) / 3, 1)
    three.model.curve = [1.0, 0.0]
    np.testing.assert_allclose(three.model.score(parts[1].texts).matrix.toarray(), total, atol=1e-4)


def test_held_out_documents_are_the_validation_documents(parts: tuple[Corpus, Corpus]) -> None:
    train, valid = parts
    held = XLinear.build(SMALL).fit(train, valid, Run())
    assert held is not None and np.array_equal(held.truth.toarray(), valid.truth.toarray())
    hidden = XLinear.build(SMALL).fit(train, None, Run())
    assert hidden is not None and 50 < hidden.truth.shape[0] < 140
    assert XLinear.build(SMALL).fit(train.subset(range(15)), None, Run()) is None


def test_held_out_scores_come_from_a_model_that_did_not_see_the_documents(parts: tuple[Corpus, Corpus]) -> None:
    """A word that only a validation document has, with a label of its own, is unknown when the document is scored."""
    train, _ = parts
    odd = Corpus.of(["zyx zyx qqq", "zyx qqq"], [["label 59"]] * 2, label_set=train.labels)
    for refit in (False, True):
        model = XLinear.build({**SMALL, "refit": refit})
        held = model.fit(train, odd, Run())
        assert held is not None and held.scores.top(1)[0][0][0] != "label 59"
        assert (model.score(["zyx qqq"]).top(1)[0][0][0] == "label 59") == refit, "trained again on everything, or not"


def test_probabilities_are_calibrated_and_the_order_is_kept(parts: tuple[Corpus, Corpus], fitted: Classifier) -> None:
    model = XLinear.from_state(fitted.model.options(), fitted.labels, fitted.model.state())
    assert model.curve != [1.0, 0.0]
    calibrated = model.score(parts[1].texts)
    assert calibration_error(parts[1].truth, calibrated) < 0.05
    model.curve = [1.0, 0.0]
    labels, values = model.score(parts[1].texts).ranked(20)[0], calibrated.matrix.toarray()
    assert (np.diff(np.take_along_axis(values, labels.astype(np.int64), 1), axis=1) <= 0).all()


def test_propensity_weights_favour_rare_labels(parts: tuple[Corpus, Corpus], fitted: Classifier) -> None:
    train, test = parts
    rare = np.bincount(train.truth.indices, minlength=60).argsort()[:20]
    plain = XLinear.build({**SMALL, "balance": 0.0, "c": 0.02})
    weighted = XLinear.build({**SMALL, "balance": 0.0, "c": 0.02, "propensity": True})
    sums = []
    for model in (plain, weighted):
        model.fit(train, None, Run())
        model.curve = [1.0, 0.0]
        sums.append(float(model.score(test.texts).matrix.toarray()[:, rare].sum()))
    assert sums[1] > 1.2 * sums[0]


# -- stages ------------------------------------------------------------------------------------------------------------


def test_a_restart_repeats_no_finished_stage(
    parts: tuple[Corpus, Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, valid = parts
    options = {**SMALL, "trees": 2}
    whole = XLinear.build(options)
    whole.fit(train, valid, Run())
    real, calls = training.TreeTraining._depth, []

    def dies(self: Any, depth: int, reached: Any) -> Any:
        calls.append(depth)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return real(self, depth, reached)

    monkeypatch.setattr(training.TreeTraining, "_depth", dies)
    with pytest.raises(KeyboardInterrupt), Run(tmp_path / "run", progress=False) as run:
        XLinear.build(options).fit(train, valid, run)
    calls.clear()
    calls.extend([-1] * 100)  # never dies again
    with Run(tmp_path / "run", progress=False, resume=True) as run:
        resumed = XLinear.build(options)
        resumed.fit(train, valid, run)
    assert len(calls) - 100 == 12 - 7, "two passes over two trees of three levels, seven of which were done"
    events = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    kept = [e["name"] for e in events if e["event"] == "stage" and e["resumed"]]
    assert kept[:3] == ["tfidf", "held/tree1/index", "held/tree1/depth0"] and "tree1/index" in kept
    a, b = whole.score(valid.texts), resumed.score(valid.texts)
    assert np.array_equal(a.matrix.indices, b.matrix.indices) and np.array_equal(a.matrix.data, b.matrix.data)


# -- memory ------------------------------------------------------------------------------------------------------------


def test_training_that_does_not_fit_is_refused_with_advice(parts: tuple[Corpus, Corpus], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"GiB of memory, and 0\.0 GiB may be used: set a larger 'prune'"):
        Classifier("xlinear", {**SMALL, "memory": 0.0001}).fit(parts[0])


def test_what_is_free_limits_the_memory(parts: tuple[Corpus, Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "available_memory", lambda: 1000.0)
    with pytest.raises(ConfigError, match="may be used"):
        XLinear.build(SMALL).fit(parts[0], None, Run())
    XLinear.build({**SMALL, "memory": 1.0}).fit(parts[0], None, Run())


def test_the_estimate_is_logged_before_training_and_grows_with_the_work(parts: tuple[Corpus, Corpus], tmp_path: Path) -> None:
    with Run(tmp_path / "run", progress=False) as run:
        XLinear.build(SMALL).fit(parts[0], None, run)
    events = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    names = [event.get("name", event["event"]) for event in events]
    assert names.index("estimate") < names.index("held/tree1/index")
    told = events[names.index("estimate")]
    assert told["memory_gib"] >= 0 and told["seconds"] >= 0
    x, y = XLinear()._problem(parts[0], np.arange(900), Run()).features, parts[0].truth
    sizes = {"levels": estimates.tree_levels(y.shape[1], 4, 6), "max_terms": 500, "matcher": 0, "half": True}
    small, more = (estimates.estimate(x, y, trees=trees, prune=0.1, **sizes) for trees in (1, 3))
    assert more.seconds > 2 * small.seconds and more.model > 2 * small.model and more.memory > small.memory
    assert estimates.estimate(x, y, trees=1, prune=0.9, **sizes).memory < small.memory
    again = estimates.estimate(x, y, trees=1, prune=0.1, times=2, **sizes)
    assert again.seconds == 2 * small.seconds and again.memory == small.memory
    sent = estimates.estimate(x, y, trees=1, prune=0.1, **{**sizes, "matcher": 5})
    assert sent.seconds > small.seconds and sent.memory > small.memory
    assert estimates.available_memory() is None or estimates.available_memory() > 0


def test_what_training_will_take_is_said_in_words(caplog: pytest.LogCaptureFixture) -> None:
    needed = estimates.Estimate(memory=2.0 * 2**30, model=0.5 * 2**30, seconds=77.0)
    with caplog.at_level(logging.INFO, "polytag"):
        estimates.announce(needed, None, Run())
    assert caplog.messages == ["training will take about 2.00 GiB and 77 s; the model about 0.50 GiB"]
    with pytest.raises(ConfigError, match=r"about 2\.0 GiB of memory, and 1\.5 GiB may be used"):
        estimates.announce(needed, 1.5 * 2**30, Run())


def test_the_estimate_knows_the_tree_and_what_pruning_leaves(parts: tuple[Corpus, Corpus]) -> None:
    assert estimates.tree_levels(35_425, 64, 100) == [(1, 6), (6, 60), (355, 100)]
    assert estimates.tree_levels(90, 64, 100) == [(1, 90)]
    x, y = XLinear()._problem(parts[0], np.arange(900), Run()).features, parts[0].truth
    tree = build_tree(label_vectors(instance_vectors(x, y, 500), None), 4, 6, 0)
    sizes: dict[str, Any] = {"max_terms": 500, "trees": 1, "matcher": 0, "half": True}
    for prune in (0.1, 0.03, 0.0):
        told = estimates.estimate(x, y, estimates.tree_levels(y.shape[1], 4, 6), prune=prune, **sizes).model
        ranker = train_ranker(Problem(x, y), tree, Ranking(prune=prune))
        real = sum(np.asarray(part).nbytes for chunk in ranker.chunks for part in chunk.state().values())
        assert 0.7 * real < told < 20 * real


# -- files -------------------------------------------------------------------------------------------------------------


def test_weights_stay_mapped_in_half_precision(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    model = Classifier.load(tmp_path).model
    assert isinstance(model, XLinear) and model.forest is not None
    chunk = model.forest.rankers[0].chunks[-1]
    assert chunk.weights.dtype == np.float16 and not chunk.weights.flags.writeable
    used = chunk.arrays[5]
    assert used.__array_interface__["data"][0] == chunk.weights.__array_interface__["data"][0], "the kernels read the file itself"


def test_single_precision_is_an_option(parts: tuple[Corpus, Corpus], tmp_path: Path) -> None:
    model = XLinear.build({**SMALL, "half": False})
    model.fit(parts[0], None, Run())
    assert model.forest is not None and model.forest.rankers[0].chunks[0].weights.dtype == np.float32


def test_an_artefact_whose_parts_do_not_fit_is_refused(fitted: Classifier) -> None:
    state = fitted.model.state()
    with pytest.raises(ValueError, match="is not of the size labels"):
        XLinear.from_state(fitted.model.options(), LabelSet(["a", "b"]), state)
    state["forest"]["trees"][0]["chunks"] = state["forest"]["trees"][0]["chunks"][:-1]
    with pytest.raises(ValueError, match="another number of levels"):
        XLinear.from_state(fitted.model.options(), fitted.labels, state)


def test_load_names_the_folder_of_a_damaged_model(fitted: Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    shard = next((tmp_path / "model").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(ArtefactError, match="cut short"):
        Classifier.load(tmp_path)
