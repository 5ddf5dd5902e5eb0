"""Abstention: how sure a decision is, against brute force; shares that are asked, goals that are reached."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import Toy
from polytag import Classifier, LabelSet, Scores
from polytag.decision.abstention import MEASURES, Abstention, automated
from polytag.decision.decision import Decision
from polytag.errors import ConfigError, DataError
from polytag.verbs.prediction import predict_file


def drawn(seed: int, n: int) -> tuple[Scores, csr_array, csr_array]:
    """Probabilities, labels drawn with them, and the sets above one half."""
    rng = np.random.default_rng(seed)
    chance = (1 / (1 + np.exp(-rng.exponential(3, (n, 1)) * rng.normal(-0.3, 1, (n, 6))))).astype(np.float32)
    truth = (rng.random(chance.shape) < chance).astype(np.float32)
    return Scores.full(chance, list("abcdef"), "probability"), csr_array(truth), csr_array((chance >= 0.5).astype(np.float32))


def test_the_measures_are_their_definitions() -> None:
    scores, _, decided = drawn(0, 30)
    chance, inside = scores.matrix.toarray().astype(np.float64), decided.toarray() > 0
    right = np.clip(np.where(inside, chance, 1 - chance), 1e-6, 1)
    assert MEASURES["likelihood"](scores, decided) == pytest.approx(np.log(right).sum(axis=1))
    assert MEASURES["weakest"](scores, decided) == pytest.approx(right.min(axis=1))
    expected = [np.mean(c[i]) if i.any() else r.min() for c, i, r in zip(chance, inside, right, strict=True)]
    assert MEASURES["expected"](scores, decided) == pytest.approx(expected, rel=1e-5)


def test_margins_count_by_their_logistic() -> None:
    scores, _, decided = drawn(1, 10)
    margins = scores.with_values(np.log(scores.matrix.data / (1 - scores.matrix.data)), "margin")
    for measure in MEASURES.values():
        assert measure(margins, decided) == pytest.approx(measure(scores, decided), rel=1e-3)


def test_the_share_that_is_asked_about_is_kept_on_new_documents_and_the_rest_is_better() -> None:
    scores, truth, decided = drawn(2, 3000)
    found = Abstention.fit(scores, truth, decided)
    new, new_truth, new_decided = drawn(3, 3000)
    for share in (0.0, 0.1, 0.3, 0.6):
        asked = found.asked(new, new_decided, share)
        assert asked.mean() == pytest.approx(share, abs=0.03)
    values = automated(new_truth, new_decided, found.sureness(new, new_decided), found.level(0.5))
    everything = automated(new_truth, new_decided, found.sureness(new, new_decided), -np.inf)
    assert values["automated_precision"] > everything["automated_precision"] + 0.03
    hits = np.diff(csr_array(new_truth.multiply(new_decided)).indptr)
    assert everything["automated_precision"] == pytest.approx(hits.sum() / new_decided.nnz) and everything["coverage"] == 1
    assert everything["automated_recall"] == pytest.approx(hits.sum() / new_truth.nnz)
    order = np.argsort(-found.sureness(new, new_decided), kind="stable")[:900]
    assert values["precision@coverage=0.3"] == pytest.approx(hits[order].sum() / np.diff(new_decided.indptr)[order].sum())


def test_a_goal_is_reached_on_new_documents_in_most_draws() -> None:
    missed = 0
    for seed in range(40):
        scores, truth, decided = drawn(100 + seed, 800)
        found = Abstention.fit(scores, truth, decided)
        share = found.share_for("precision=.9")
        new = drawn(1000, 4000)
        missed += automated(new[1], new[2], found.sureness(new[0], new[2]), found.level(share))["automated_precision"] < 0.9
    assert missed <= 0.1 * 40 + 2 * np.sqrt(0.1 * 0.9 * 40)
    with pytest.raises(DataError, match=r"precision 0\.999 is out of reach"):
        found.share_for("precision=.999")


@pytest.mark.parametrize("goal", ["f1=.9", "precision", "precision=2", "precision=x"])
def test_a_wrong_goal_is_refused(goal: str) -> None:
    with pytest.raises(ConfigError, match=r"write precision=|must be a number from 0 to 1"):
        Abstention.fit(*drawn(4, 50)).share_for(goal)


def test_predictions_and_metrics_say_whom_to_ask(br: Classifier, toy: Toy, tmp_path: Path) -> None:
    br.save(tmp_path)
    toy.test.write(tmp_path / "test.jsonl")
    predict_file(tmp_path, tmp_path / "test.jsonl", tmp_path / "out.jsonl", ask=0.4)
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    asked = np.array([record["ask"] for record in records])
    assert asked.dtype == bool and 0 < asked.mean() < 0.9
    assert [record["labels"] for record in records] == br.predict(toy.test.texts), "what is asked about has labels too"
    found = br.evaluate(toy.test, ask=0.4)
    assert found["coverage"] == pytest.approx(1 - asked.mean())
    predict_file(tmp_path, tmp_path / "test.jsonl", tmp_path / "top.jsonl", ask=0.4, top=2)
    assert [json.loads(line)["ask"] for line in (tmp_path / "top.jsonl").read_text().splitlines()] == asked.tolist()
    assert "coverage" not in br.evaluate(toy.test) and next(iter(br.stream([(1, "x")])))[1].ask is None


def test_a_model_without_a_hold_out_cannot_say_how_sure_it_is() -> None:
    trained = Classifier("br", {"c": [1.0]}).fit(["cod trawler", "goal match"], [["fish"], ["sport"]])
    if trained.abstention is None:
        with pytest.raises(ConfigError, match="does not know how sure it is"):
            trained.asking(0.3)
    for value in (-0.1, 1.1, "x", float("nan")):
        with pytest.raises(ConfigError):
            Abstention.fit(*drawn(4, 50)).level(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", ["auto", "per_label", "threshold"])
def test_held_out_sets_come_from_thresholds_of_other_documents(rule: str) -> None:
    """Those of the comparison of rules are those that thresholds of the other four fifths give."""
    scores, truth, _ = drawn(5, 203)
    labels = LabelSet(scores.names)
    decision = Decision(rule).fit(scores, truth, labels)
    found = decision.held_out_sets(scores, truth, labels)
    decision._crossed = None
    again = decision.held_out_sets(scores, truth, labels)
    assert found.shape == truth.shape and not (found != again).nnz
