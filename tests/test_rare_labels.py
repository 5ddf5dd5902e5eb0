"""``favour_rare``: rare labels rank higher, everywhere that scores are used, and it is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Command, Toy
from polytag import Classifier, Corpus
from polytag.decision.rare_labels import favour_rare
from polytag.errors import ConfigError, DataError
from polytag.scores import Scores
from polytag.server.hosting.lean_prediction import LeanPredictor

TRAINING = {"label_counts": np.array([900, 30, 1]), "documents": 1000}


def scores(values: list[list[float]]) -> Scores:
    return Scores.full(np.array(values, dtype=np.float32), ["often", "seldom", "once"], "probability")


def test_a_score_is_multiplied_by_the_inverse_propensity_to_a_power() -> None:
    flat = scores([[0.5, 0.5, 0.5]])
    for power in (0.5, 1.0):
        found = favour_rare(flat, power, TRAINING).matrix.toarray()[0]
        assert found[0] < found[1] < found[2] == pytest.approx(0.5)
        scale = (np.log(1000) - 1) * 2.5**0.55
        rarity = 1 + scale * (TRAINING["label_counts"] + 1.5) ** -0.55
        assert found == pytest.approx(0.5 * (rarity / rarity[2]) ** power, rel=1e-5)
    assert favour_rare(flat, 0.0, TRAINING) is flat


def test_margins_are_refused() -> None:
    margins = Scores.full(np.zeros((1, 3), dtype=np.float32), ["often", "seldom", "once"], "margin")
    with pytest.raises(ConfigError, match="favour_rare needs probabilities"):
        favour_rare(margins, 0.5, TRAINING)


@pytest.fixture(scope="module")
def skewed() -> Corpus:
    """A frequent label that is likely everywhere, and a rare one."""
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(400):
        words = [f"w{number}" for number in rng.integers(0, 60, 8)]
        given = ["often"] * bool(rng.random() < 0.6) + (["seldom"] if "w1" in words and rng.random() < 0.5 else [])
        texts.append(" ".join(words))
        labels.append(given)
    return Corpus.of(texts, labels)


@pytest.mark.parametrize("model", ["br", "xlinear", "nearest"])
def test_rare_labels_rank_higher(model: str, skewed: Corpus, tmp_path: Path) -> None:
    plain, rare = (Classifier(model, {"favour_rare": power}).fit(skewed) for power in (0.0, 1.0))
    column = rare.labels.number("seldom")

    def first(classifier: Classifier) -> int:
        return sum(names[:1] == [("seldom")] for names in ([name for name, _ in row] for row in best(classifier, 1)))

    def best(classifier: Classifier, k: int | None) -> Any:
        return classifier.scores(skewed.texts, k).top(1)

    assert first(rare) > first(plain)
    full, one = rare.scores(skewed.texts), rare.scores(skewed.texts, 1)
    assert [row[0] for row in one.top(1)] == [row[0] for row in full.top(1)], "the best one of all, not of the model's best one"
    before, after = plain.scores(skewed.texts).matrix.toarray(), full.matrix.toarray()
    assert np.allclose(before[:, column], after[:, column], atol=1e-5), "the rarest label has the factor 1"
    rare.save(tmp_path)
    again = Classifier.load(tmp_path)
    assert again.recipe.favour_rare == 1.0
    assert np.array_equal(again.scores(skewed.texts).matrix.toarray(), after)
    assert again.predict(skewed.texts) == rare.predict(skewed.texts)
    plain.save(tmp_path)
    assert "favour_rare" not in plain.state()["recipe"]


def test_thresholds_reasons_and_edits_follow(skewed: Corpus) -> None:
    rare = Classifier("br", {"favour_rare": 0.5}).fit(skewed)
    assert "calibration_error" not in rare.decision.report
    text = skewed.texts[0]
    reasons = rare.explain(text, ["often"]).labels[0]
    row = rare.scores([text]).matrix.toarray()[0]
    assert reasons.score == pytest.approx(row[rare.labels.number("often")], abs=1e-6)
    assert LeanPredictor.of(rare) is None
    assert LeanPredictor.of(Classifier("br").fit(skewed)) is not None
    before = rare.scores(skewed.texts).matrix.toarray()
    rare.rename({"often": "mostly"})
    assert np.array_equal(rare.scores(skewed.texts).matrix.toarray(), before)


def test_what_cannot_be_favoured_is_said(skewed: Corpus, toy: Toy, polytag: Command, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="favour_rare does not go with calibrate=false"):
        Classifier("br", {"favour_rare": 0.5, "calibrate": False})
    with pytest.raises(DataError, match="too few documents for a hold-out"):
        Classifier("br", {"favour_rare": 0.5}).fit(["a"], [["x", "y"]])
    file = tmp_path / "train.jsonl"
    toy.train.write(file)
    wrong = polytag("train", file, "--set", "favour_rare=9", "--out", tmp_path / "run")
    assert wrong.code == 2
    assert "favour_rare" in wrong.err
    right = polytag("train", file, "--set", "favour_rare=0.5", "--out", tmp_path / "run")
    assert right.code == 0
    assert "favour_rare = 0.5" in (tmp_path / "run" / "recipe.toml").read_text()
