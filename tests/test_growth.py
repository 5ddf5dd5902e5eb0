"""Learning curves: a known law is found again, intervals cover what was held back, and ``polytag curve`` says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Toy, toy_corpus
from polytag.analysis.power_law import fit_power_law, weighted_quantiles
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.datasets import load_sample
from polytag.errors import ConfigError, DataError
from polytag.labels import LabelSet
from polytag.verbs.growth import CurvePlan, Measured, curve_sizes, label_noise, learning_curve, measure

SIZES = [60, 125, 250, 500, 1000, 2000]
FAST = Recipe("br", {"c": [1.0], "ngrams": [1]})


def laws(count: int, seed: int = 0) -> Any:
    """Random power laws as one function of the number of documents (any, laws)."""
    generator = np.random.default_rng(seed)
    b, c = generator.uniform(0.2, 1.2, count), generator.uniform(0.5, 0.95, count)
    a = (c - c * generator.uniform(0.1, 0.8, count)) * SIZES[0] ** b
    return lambda n: c - a * np.asarray(n, dtype=float)[..., None] ** -b


def test_a_law_without_noise_is_found_again() -> None:
    law = laws(20)
    fitted = fit_power_law(SIZES, np.repeat(law(SIZES)[:, None, :], 2, axis=1))
    for n in (60, 2000, 8000):
        middle, low, high = fitted.estimate(fitted.at(n))
        assert np.abs(middle - law(n)).max() < 0.005 and (high - low).max() < 0.02
    assert (fitted.at(np.inf)[fitted.weight > 0] <= 1).all()


@pytest.mark.parametrize("noise", [0.003, 0.01, 0.03])
def test_intervals_cover_the_true_curve_and_the_true_gain_as_often_as_they_say(noise: float) -> None:
    law = laws(300, seed=1)
    seeds = law(SIZES)[:, None, :] + noise * np.random.default_rng(2).standard_normal((len(SIZES), 3, 300))
    fitted = fit_power_law(SIZES, seeds, draws=1000)
    now, later = fitted.at(2000), fitted.at(4000)
    for drawn, true in ((later, law(4000)), (later - now, law(4000) - law(2000))):
        _, low, high = fitted.estimate(drawn)
        assert 0.92 <= ((low <= true) & (true <= high)).mean() <= 1.0
    wider = fit_power_law(SIZES, seeds, noise=np.full(300, 0.2), draws=1000)
    spans = [np.subtract(*one.estimate(one.at(4000))[:0:-1]).mean() for one in (fitted, wider)]
    assert 0 < spans[0] < spans[1], "known noise of a label widens its interval"


def test_curves_never_fall_and_stay_between_0_and_1() -> None:
    """Also where the measured values fall, are all 0, or are all 1."""
    values = np.stack([np.linspace(0.9, 0.1, 6), np.zeros(6), np.ones(6), np.array([0, 1, 0, 1, 0, 1.0])], axis=1)
    fitted = fit_power_law(SIZES, np.repeat(values[:, None, :], 2, axis=1))
    drawn = np.stack([fitted.at(n) for n in (60, 500, 2000, 10_000, np.inf)])
    kept = fitted.weight > 0
    assert ((drawn >= 0) & (drawn <= 1))[:, kept].all() and (np.diff(drawn, axis=0)[:, kept] >= -1e-12).all()


def test_weighted_quantiles_are_those_of_repeated_values() -> None:
    generator = np.random.default_rng(0)
    values, weights = generator.random((3, 50)), generator.integers(0, 4, (3, 50)).astype(float)
    for row in range(3):
        repeated = np.repeat(values[row], weights[row].astype(int))
        expected = np.quantile(repeated, (0.025, 0.5, 0.975), method="inverted_cdf")
        assert weighted_quantiles(values, weights, (0.025, 0.5, 0.975))[:, row] == pytest.approx(expected)


@pytest.fixture(scope="module")
def measured() -> Measured:
    """A real curve: 800 descriptions of packages with the forty most frequent labels."""
    sample = load_sample()[0]
    frequent = sample.labels.frequency_order(sample.truth)[:40]
    sample = sample.with_labels(LabelSet([sample.labels[j] for j in frequent]))
    corpus = sample.subset(np.random.default_rng(0).permutation(len(sample))[:800])
    return measure(FAST, corpus, CurvePlan(sizes=6, seeds=3, minutes=60))


@pytest.mark.parametrize("kept", [4, 5])
def test_real_values_that_were_held_back_lie_in_the_interval_of_smaller_sizes(measured: Measured, kept: int) -> None:
    """Fitted to four or five sizes; the largest has 1.5 or 2.4 times the documents."""
    law = fit_power_law(measured.sizes[:kept], measured.metrics[:kept])
    middle, low, high = law.estimate(law.measured(measured.sizes[-1]))
    actual = measured.metrics[-1].mean(axis=0)
    assert ((low <= actual) & (actual <= high)).all()
    assert (np.abs(middle - actual) < 0.05).all() and (high - low < 0.35).all(), "the interval says something"
    enough = measured.support >= 5
    assert enough.sum() >= 25
    noise = label_noise(measured.support[enough], 3)
    own = fit_power_law(measured.sizes[:kept], measured.labels[:kept][:, :, enough], noise=noise, draws=400)
    _, low, high = own.estimate(own.measured(measured.sizes[-1]))
    actual = measured.labels[-1].mean(axis=0)[enough]
    assert ((low <= actual) & (actual <= high)).mean() >= 0.9


def test_sizes_are_geometric_and_end_with_all_documents() -> None:
    sizes = curve_sizes(10_000, 7)
    assert sizes[-1] == 10_000 and len(sizes) == 7 and sizes[0] >= 20
    assert np.allclose(np.diff(np.log(sizes)), np.log(1 / 0.65), atol=0.01)
    small = curve_sizes(60, 5)
    assert small[0] == 20 and small[-1] == 60
    with pytest.raises(DataError, match="40 training documents"):
        curve_sizes(39, 5)


def test_the_same_seed_gives_the_same_curve_and_a_test_file_is_used(toy: Toy) -> None:
    plan = CurvePlan(sizes=4, seeds=2, minutes=60, more=50)
    one, two = (learning_curve(FAST, toy.train, plan, toy.test).to_json() for _ in range(2))
    assert one | {"seconds": 0} == two | {"seconds": 0} and one["test_documents"] == len(toy.test)
    assert one["documents"] == len(toy.train) and one["metrics"][0]["metric"] == "micro_f1"
    for row in one["metrics"]:
        assert row["points"][-1]["documents"] == len(toy.train) and len(row["points"][0]["values"]) == 2
        gains = [gain["gain"] for gain in row["gains"]]
        assert [gain["more"] for gain in row["gains"]] == [50, 144, 432] and gains == sorted(gains) and gains[0] >= 0
    assert {row["label"] for row in one["labels"]} <= set(toy.train.labels)
    assert len(one["labels"]) + one["labels_without_estimate"] == 8


def test_curve_prints_a_table_json_and_a_picture(polytag: Any, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    toy_corpus(150, 4).write(folder / "train.jsonl")
    told = [str(folder), "--set", "c=1", "--set", "ngrams=1", "--sizes", "5", "--seeds", "2"]
    picture, out = tmp_path / "curve.png", tmp_path / "curve.json"
    table = polytag("curve", *told, "--picture", str(picture), "--out", str(out))
    assert table.code == 0 and "+100" in table.out and "check: micro_f1" in table.out and "weather" in table.out
    assert picture.read_bytes()[:4] == b"\x89PNG"
    found = polytag("curve", *told, "--json")
    assert json.loads(found.out) | {"seconds": 0} == json.loads(out.read_text(encoding="utf-8")) | {"seconds": 0}
    assert json.loads(found.out)["metrics"][0]["held_back"]["documents"] == 120


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "3"], "4 sizes or more"),
        (["--seeds", "1"], "two seeds or more"),
        (["--more", "0"], "1 or more"),
        (["--picture", "curve.bmp"], ".png or .svg"),
        (["--minutes", "0"], "enough for 1 sizes only"),
    ],
)
def test_what_cannot_be_measured_is_refused(polytag: Any, tmp_path: Path, arguments: list[str], message: str) -> None:
    file = tmp_path / "train.jsonl"
    toy_corpus(150, 4).write(file)
    told = polytag("-q", "curve", str(file), "--set", "c=1", "--set", "ngrams=1", *arguments)
    assert told.code == 2 and message in told.err.splitlines()[-1]


def test_a_folder_needs_one_training_file(polytag: Any, tmp_path: Path) -> None:
    told = polytag("curve", str(tmp_path))
    assert told.code == 2 and "no files named train.*" in told.err
    with pytest.raises(ConfigError, match="between 0 and 1"):
        CurvePlan(test_share=1.0)
    with pytest.raises(DataError, match="4 different"):
        fit_power_law([1, 2, 3], np.zeros((3, 2, 1)))


def test_groups_stay_together() -> None:
    """Documents of one group are never in training and in the hold-out."""
    from polytag.verbs.growth import _divided

    corpus = toy_corpus(60, 5)
    grouped = Corpus(corpus.ids, corpus.texts, corpus.labels, corpus.truth, [str(i // 4) for i in range(60)])
    train, held = _divided(grouped, None, 0.2, 0)
    assert train.groups is not None and held.groups is not None and not set(train.groups) & set(held.groups)
