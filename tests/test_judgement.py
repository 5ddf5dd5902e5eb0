"""Weights of documents and labels that nobody judged: kept by files and splits, respected by training and by metrics."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import Command, Toy
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import DataError
from polytag.labels import indicator
from polytag.linear.svm import Problem, Separators, Solver, train_separators
from polytag.metrics.of_sets import evaluate
from polytag.metrics.of_trees import tree_metrics
from polytag.scores import Scores

Dense = np.ndarray[Any, Any]
EXACT = Solver(tolerance=1e-5, max_passes=3000)


def judged_corpus() -> Corpus:
    texts = ["cod quota", "tariff duty", "cod tariff", "storm wind", "rain"]
    labels = [["fish"], ["trade"], ["fish", "trade"], ["weather"], []]
    unknown: list[list[str]] = [["trade"], [], ["weather"], [], ["fish", "trade"]]
    return Corpus.of(texts, labels, weights=[1, 2.5, 1, 0.25, 3], unknown=unknown, groups=["a", "a", "b", "b", "c"])


def pairs(corpus: Corpus) -> list[tuple[str, float | None, tuple[str, ...] | None]]:
    return [(document.text, document.weight, document.unknown) for document in corpus.documents()]


# -- files and splits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.parquet", "a.jsonl.gz"])
def test_files_keep_weights_and_unknown_labels(tmp_path: Path, name: str) -> None:
    corpus = judged_corpus()
    corpus.write(tmp_path / name)
    again = Corpus.read(tmp_path / name, labels=corpus.labels)
    assert pairs(again) == pairs(corpus) and again.fingerprint() == corpus.fingerprint()
    assert again.groups == corpus.groups and again.label_lists() == corpus.label_lists()


def test_a_corpus_without_them_is_written_and_identified_as_before(tmp_path: Path) -> None:
    corpus = replace(judged_corpus(), weights=None, unknown=None, groups=None)
    corpus.write(tmp_path / "a.jsonl")
    assert {tuple(json.loads(line)) for line in (tmp_path / "a.jsonl").read_text().splitlines()} == {("id", "text", "labels")}
    assert corpus.fingerprint() != judged_corpus().fingerprint()


def test_parts_folds_and_unions_keep_them() -> None:
    corpus = judged_corpus()
    known = dict(zip(corpus.texts, pairs(corpus), strict=True))
    for by in ("random", "group", "stratified"):
        parts = corpus.split(0.6, 0.4, seed=1, by=by)  # type: ignore[arg-type]
        assert sorted(row for part in parts for row in pairs(part)) == sorted(known.values())
        assert pairs(parts[0].concat(parts[1])) == [*pairs(parts[0]), *pairs(parts[1])]
    plain = Corpus.of(["new"], [["sport"]])
    joined = corpus.concat(plain)
    assert pairs(joined)[-1] == ("new", 1.0, ()) and pairs(joined)[:-1] == pairs(corpus)
    held = corpus.concat(corpus).hold_out(None)
    assert held.valid is not None and set(pairs(held.valid)) <= set(known.values())


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"weight": 0}, "the weight is 0; it must be a number above 0"),
        ({"weight": "much"}, "the weight is 'much'"),
        ({"weight": -1}, "the weight is -1"),
        ({"weight": True}, "the weight is True"),
        ({"unknown": ["x"]}, "the label 'x' is among the labels and among the unknown ones"),
        ({"unknown": 3.5}, "the labels are a number"),
    ],
)
def test_bad_values_are_one_line_with_file_and_line(
    polytag: Command, tmp_path: Path, record: dict[str, Any], reason: str
) -> None:
    good = {"text": "one", "labels": ["y"], **{key: 1 if key == "weight" else [] for key in record}}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps({'text': 'two', 'labels': ['x'], **record})}\n")
    told = polytag("data", "describe", tmp_path / "a.jsonl")
    assert told.code == 2 and f"a.jsonl, line 2: {reason}" in told.complaint


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(DataError, match="the weight of text 1 is 0; it must be a number above 0"):
        Corpus.of(["a", "b"], [["x"], ["y"]], weights=[1, 0])
    with pytest.raises(DataError, match="2 texts but 1 weights"):
        Corpus.of(["a", "b"], [["x"], ["y"]], weights=[1])
    with pytest.raises(DataError, match="'x' is both a label and unknown"):
        Corpus.of(["a", "b"], [["x"], ["y"]], unknown=[["x"], []])


# -- training ----------------------------------------------------------------------------------------------------------


def random_problem(seed: int) -> tuple[Dense, Dense, Dense, Dense]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(40, 8)).astype(np.float32)
    truth = (features @ rng.normal(size=(8, 3)) + rng.normal(size=(40, 3)) > 0.4).astype(np.float32)
    weights = rng.choice([0.5, 1.0, 2.0, 3.0], 40).astype(np.float32)
    unknown = ((rng.random((40, 3)) < 0.25) & (truth == 0)).astype(np.float32)
    return features, truth, weights, unknown


def close(one: Separators, other: Separators, labels: slice = slice(None)) -> bool:
    same = np.allclose(one.weights.toarray()[:, labels], other.weights.toarray()[:, labels], atol=2e-3)
    return bool(same and np.allclose(one.bias[labels], other.bias[labels], atol=2e-3))


@pytest.mark.parametrize("chain", [False, True])
def test_a_whole_weight_is_that_many_copies_and_an_unknown_pair_is_no_example(chain: bool) -> None:
    """Brute force: repeat documents by their weight, and train each label alone on the documents where it is judged."""
    features, truth, weights, unknown = random_problem(0)
    weights = np.round(weights + 0.5)
    order = np.arange(3) if chain else None
    problem = Problem(csr_array(features), csr_array(truth), weights.astype(np.float32))
    copies = np.repeat(np.arange(40), weights.astype(int))
    repeated = Problem(csr_array(features[copies]), csr_array(truth[copies]))
    (one,), (other,) = (train_separators(p, [0.5], EXACT, chain=order) for p in (problem, repeated))
    assert close(one, other)
    (masked,) = train_separators(replace(problem, unknown=csr_array(unknown)), [0.5], EXACT, chain=order)
    assert not close(masked, one)
    for label in range(3):
        rows = np.flatnonzero(unknown[:, label] == 0)
        (alone,) = train_separators(problem, [0.5], EXACT, rows=rows, chain=order)
        assert close(masked, alone, slice(label, label + 1))


def test_ones_change_nothing_to_the_bit(toy: Toy) -> None:
    """Weights of one, and a matrix of unknown pairs that is empty."""
    marked = replace(
        toy.train, weights=np.ones(len(toy.train), np.float32), unknown=csr_array(toy.train.truth.shape, dtype=np.float32)
    )
    for model in ("br", "cc", "lp", "xlinear"):
        plain, same = (Classifier(model).fit(corpus, toy.valid) for corpus in (toy.train, marked))
        assert (plain.scores(toy.test.texts).matrix != same.scores(toy.test.texts).matrix).nnz == 0
        assert plain.evaluate(toy.test) == same.evaluate(toy.test)


def unlabelled(toy: Toy, label: str, seed: int = 0) -> tuple[Corpus, Corpus]:
    """The training documents with most of a label's assignments removed: wrongly, and marked as unknown."""
    number = toy.train.labels.number(label)
    truth = toy.train.truth.tolil()
    rows = np.flatnonzero(toy.train.truth.toarray()[:, number])
    lost = np.random.default_rng(seed).permutation(rows)[: int(len(rows) * 0.8)]
    truth[lost, number] = 0
    wrong = replace(toy.train, truth=csr_array(truth.tocsr(), dtype=np.float32))
    wrong.truth.eliminate_zeros()
    mask = np.zeros(toy.train.truth.shape, dtype=np.float32)
    mask[lost, number] = 1
    return wrong, replace(wrong, unknown=csr_array(mask))


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("br", {}),
        ("cc", {}),
        ("xlinear", {}),
        ("cnn", {"epochs": 12, "filters": 32}),
        ("bert", {"encoder": "words", "embedding": 16, "epochs": 12, "batch_size": 8, "head_rate": 0.02, "encoder_rate": 0.02}),
    ],
)
def test_models_learn_more_of_a_label_if_what_nobody_judged_is_no_negative(toy: Toy, model: str, options: dict[str, Any]) -> None:
    if model in ("cnn", "bert"):
        pytest.importorskip("torch")
        options = {**options, "device": "cpu", "precision": "fp32"}
    wrong, marked = unlabelled(toy, "weather")
    number = toy.train.labels.number("weather")
    has = toy.test.truth.toarray()[:, number] > 0
    means = []
    for corpus in (wrong, marked):
        scores = Classifier(model, options).fit(corpus, toy.valid).scores(toy.test.texts)
        table = scores.matrix.toarray()[:, number]
        means.append(table[has].mean())
    assert means[1] > means[0]


def test_the_losses_of_networks_are_weighted_means_over_judged_pairs() -> None:
    torch = pytest.importorskip("torch")
    from polytag.nn.training import losses
    from polytag.xmc.match import squared_hinge

    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 5, generator=generator)
    targets = (torch.rand(4, 5, generator=generator) > 0.6).float()
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0])
    known = (torch.rand(4, 5, generator=generator) > 0.3).float()
    for loss in (losses.binary_cross_entropy, losses.focal, losses.asymmetric, squared_hinge):
        each = torch.tensor(
            [[loss(logits[i : i + 1, j : j + 1], targets[i : i + 1, j : j + 1]) for j in range(5)] for i in range(4)]
        )
        found = loss(logits, targets, judged=weights[:, None] * known)
        assert found.item() == pytest.approx((each * weights[:, None] * known).mean().item(), rel=1e-5)
        assert loss(logits, targets).item() == pytest.approx(each.mean().item(), rel=1e-5)


def test_batches_carry_the_weight_of_every_pair() -> None:
    torch = pytest.importorskip("torch")
    from polytag.nn.training.batch import Documents, Layout, TokenArrays

    corpus = judged_corpus()
    arrays = TokenArrays(np.arange(10, dtype=np.int32), np.arange(0, 11, 2))
    data = Documents(arrays, Layout(4), torch.device("cpu"), corpus.truth, weights=corpus.weights, unknown=corpus.unknown)
    rows = torch.tensor([4, 0, 2])
    batch = data.batch(rows, 2)
    assert corpus.weights is not None and corpus.unknown is not None and batch.judged is not None
    expected = corpus.weights[:, None] * (1 - corpus.unknown.toarray())
    assert np.array_equal(batch.judged.numpy(), expected[rows.numpy()])
    assert Documents(arrays, Layout(4), torch.device("cpu"), corpus.truth).batch(rows, 2).judged is None


def test_a_model_that_cannot_use_them_says_so(toy: Toy, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Classifier("lp").fit(unlabelled(toy, "weather")[1], toy.valid)
    assert "the model 'lp' does not use which labels nobody judged; evaluation does" in caplog.text


# -- metrics -----------------------------------------------------------------------------------------------------------


def tables(seed: int) -> tuple[Dense, Dense, Dense, Dense, Dense]:
    rng = np.random.default_rng(seed)
    truth, guess = (rng.random((12, 6)) < 0.4).astype(int), (rng.random((12, 6)) < 0.4).astype(int)
    unknown = ((rng.random((12, 6)) < 0.2) & (truth == 0)).astype(int)
    return truth, guess, unknown, rng.random((12, 6)).astype(np.float32), rng.integers(1, 4, 12)


def sparse(table: Dense) -> csr_array:
    return indicator([np.flatnonzero(row) for row in table], table.shape[1])


def scored(values: Dense) -> Scores:
    return Scores.full(values, [f"l{j}" for j in range(values.shape[1])], "probability")


@pytest.mark.parametrize("seed", range(5))
def test_a_whole_weight_is_that_many_copies_in_every_metric(seed: int) -> None:
    truth, guess, _, values, weights = tables(seed)
    copies = np.repeat(np.arange(12), weights)
    counts = {"train_counts": np.arange(1, 7), "train_documents": 50}
    found = evaluate(sparse(truth), sparse(guess), scored(values), weights=weights.astype(np.float32), **counts)  # type: ignore[arg-type]
    whole = evaluate(sparse(truth[copies]), sparse(guess[copies]), scored(values[copies]), **counts)  # type: ignore[arg-type]
    for name, value in found.items():
        if name not in ("documents", "true_labels_per_document", "predicted_labels_per_document"):
            assert value == pytest.approx(whole[name]), name


@pytest.mark.parametrize("seed", range(5))
def test_unknown_pairs_are_neither_right_nor_wrong(seed: int) -> None:
    """Whatever is predicted or scored there, the metrics are those of pairs that are counted one by one."""
    truth, guess, unknown, values, _ = tables(seed)
    found = evaluate(sparse(truth), sparse(guess), scored(values), unknown=sparse(unknown))
    other = evaluate(sparse(truth), sparse(guess * (1 - unknown)), scored(values + unknown), unknown=sparse(unknown))
    assert found == other
    judged = [(t, g) for t, g, u in zip(truth.flat, guess.flat, unknown.flat, strict=True) if not u]
    hits, told, true = (sum(part) for part in zip(*((t * g, g, t) for t, g in judged), strict=True))
    assert found["micro_f1"] == pytest.approx(2 * hits / (told + true))
    assert found["micro_precision"] == pytest.approx(hits / told) and found["micro_recall"] == pytest.approx(hits / true)
    assert found["hamming_loss"] == pytest.approx(sum(t != g for t, g in judged) / len(judged))
    for k in (1, 3):
        best = [[j for j in np.argsort(-row, kind="stable") if not u[j]][:k] for row, u in zip(values, unknown, strict=True)]
        expected = np.mean([sum(truth[i, j] for j in row) / k for i, row in enumerate(best)])
        assert found[f"p@{k}"] == pytest.approx(expected)


def test_evaluation_of_a_classifier_respects_both(br: Classifier, toy: Toy) -> None:
    rng = np.random.default_rng(0)
    wrong = sparse(br.outcome(toy.test).predicted.toarray() * (1 - toy.test.truth.toarray()))
    weights = rng.integers(1, 4, len(toy.test)).astype(np.float32)
    marked = replace(toy.test, unknown=wrong, weights=weights)
    found = br.evaluate(marked)
    assert found["micro_precision"] == 1 and found["hamming_loss"] <= br.evaluate(toy.test)["hamming_loss"]
    copies = toy.test.subset(np.repeat(np.arange(len(toy.test)), weights.astype(int)))
    whole = br.evaluate(replace(copies, unknown=csr_array(wrong[np.repeat(np.arange(len(toy.test)), weights.astype(int))])))
    for name in ("micro_f1", "macro_f1", "samples_f1", "subset_accuracy", "p@3", "ndcg@5", "lrap", "hierarchical_f1"):
        assert found[name] == pytest.approx(whole[name]), name
    outcome = br.outcome(marked)
    assert tree_metrics(outcome.truth, outcome.predicted, outcome.labels, weights)["hierarchical_precision"] <= 1
