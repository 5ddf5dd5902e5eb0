"""Costs of mistakes per label: no other sets are expected to cost less."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from conftest import FAST, Command, Toy
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.decision.decision import Decision, mean_cost
from polytag.errors import ConfigError, DataError
from polytag.labels import LabelSet, indicator
from polytag.scores import Scores

NAMES = ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(5))
def test_no_set_is_expected_to_cost_less(seed: int) -> None:
    """Brute force over all sets of three labels: the expected cost under the probabilities is least for the decided one."""
    rng = np.random.default_rng(seed)
    p, costs = rng.random((20, 3)).astype(np.float32), rng.uniform(0.1, 10, (3, 2))
    truth = indicator([np.flatnonzero(row) for row in rng.random((20, 3)) < p], 3)
    decision = Decision()
    scores = Scores.full(p, NAMES, "probability")
    decision.fit_costs(scores, truth, LabelSet(NAMES), costs)
    decided = decision.decide(scores, LabelSet(NAMES)).toarray()
    for row, chosen in zip(p.astype(float), decided, strict=True):

        def expected(members: tuple[int, ...], row: np.ndarray = row) -> float:  # type: ignore[type-arg]
            return sum((1 - row[j]) * costs[j, 0] if j in members else row[j] * costs[j, 1] for j in range(3))

        sets = [members for size in range(4) for members in itertools.combinations(range(3), size)]
        assert expected(tuple(np.flatnonzero(chosen))) == pytest.approx(min(map(expected, sets)), abs=1e-5)


def test_the_mean_cost_counts_every_mistake() -> None:
    rng = np.random.default_rng(0)
    truth, decided, costs = rng.random((9, 3)) < 0.5, rng.random((9, 3)) < 0.5, rng.uniform(0.1, 10, (3, 2))
    pairs = (
        (t, d, j) for t_row, d_row in zip(truth, decided, strict=True) for j, (t, d) in enumerate(zip(t_row, d_row, strict=True))
    )
    by_hand = sum(costs[j, 0] * (d and not t) + costs[j, 1] * (t and not d) for t, d, j in pairs)
    matrices = [indicator([np.flatnonzero(row) for row in table], 3) for table in (truth, decided)]
    assert mean_cost(*matrices, costs) == pytest.approx(by_hand / 9)


def test_a_dear_miss_lowers_the_threshold_of_its_label_alone(toy: Toy, tmp_path: Path) -> None:
    options = {"c": 1.0, "ngrams": 1}
    classifier = Classifier("br", {**options, "costs": {"fishing": [1, 99], "trade": [9, 1]}}).fit(toy.train, toy.valid)
    limits = dict(zip(classifier.labels, classifier.decision.thresholds.tolist(), strict=True))
    assert limits.pop("fishing") == pytest.approx(0.01) and limits.pop("trade") == pytest.approx(0.9)
    assert set(limits.values()) == {0.5} and classifier.decision.report["rule"] == "cost"
    classifier.save(tmp_path)
    again = Classifier.load(tmp_path)
    assert again.predict(toy.test.texts) == classifier.predict(toy.test.texts)
    assert "cost_per_document" in again.decision.report and again.evaluate(toy.test)["micro_f1"] > 0.5
    assert "costs of mistakes" in (tmp_path / "model" / "README.md").read_text()
    recipe = classifier.recipe
    recipe.write(tmp_path / "recipe.toml")
    assert Recipe.read(tmp_path / "recipe.toml").costs == recipe.costs == {"fishing": [1.0, 99.0], "trade": [9.0, 1.0]}


@pytest.mark.parametrize("name", ["costs.jsonl", "costs.csv"])
def test_the_command_line_takes_a_file(polytag: Command, toy: Toy, tmp_path: Path, name: str) -> None:
    toy.valid.write(tmp_path / "train.jsonl")
    rows = {
        "costs.jsonl": json.dumps({"name": "sport", "false_negative": 4}),
        "costs.csv": "name,false_positive,false_negative\nsport,,4",
    }
    (tmp_path / name).write_text(rows[name] + "\n")
    told = polytag("train", tmp_path / "train.jsonl", "--costs", tmp_path / name, "--out", tmp_path / "run", *FAST)
    assert told.code == 0 and "mistakes cost" in told.err
    found = Classifier.load(tmp_path / "run")
    assert found.decision.thresholds[found.labels.number("sport")] == pytest.approx(0.2)


def test_training_says_what_a_promise_needs(polytag: Command, toy: Toy, tmp_path: Path) -> None:
    toy.train.write(tmp_path / "train.jsonl")
    told = polytag("train", tmp_path / "train.jsonl", "--promise", "recall=0.5", "--out", tmp_path / "run", *FAST)
    report = Classifier.load(tmp_path / "run").decision.report
    assert told.code == 0 and f"recall=0.5 needs {report['labels_per_document']:.1f} labels a document" in told.err, told.err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"name": "sport", "false_positive": 0}', "the costs of 'sport' are [0, 1]; give two numbers above 0"),
        ('{"name": "sport", "false_positive": "dear"}', "give two numbers above 0"),
        ('{"false_positive": 2}', "line 1: no new 'name' of a label"),
        ('{"name": "tennis", "false_positive": 2}', "there is no label 'tennis' in the training documents"),
        ("", "there are no costs"),
        ("{", "line 1: not JSON"),
    ],
)
def test_bad_costs_are_one_line(polytag: Command, toy: Toy, tmp_path: Path, content: str, reason: str) -> None:
    toy.valid.write(tmp_path / "train.jsonl")
    (tmp_path / "costs.jsonl").write_text(content)
    told = polytag("train", tmp_path / "train.jsonl", "--costs", tmp_path / "costs.jsonl", "--out", tmp_path / "run", *FAST)
    assert told.code == 2 and reason in told.complaint and not (tmp_path / "run" / "model").exists()


def test_costs_need_probabilities_and_no_promise(toy: Toy) -> None:
    with pytest.raises(ConfigError, match="costs do not go with the promise"):
        Classifier("br", {"costs": {"sport": [1, 2]}, "promise": "recall=.8"})
    with pytest.raises(ConfigError, match="costs do not go with calibrate=false"):
        Classifier("br", {"costs": {"sport": [1, 2]}, "calibrate": False})
    with pytest.raises(DataError, match="too few documents for a hold-out"):
        Classifier("br", {"costs": {"sport": [1, 2]}}).fit(["goal match", "rain"], [["sport"], ["weather"]])
