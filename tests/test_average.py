"""Averaged weights: numpy's moving average over every step's weights, in all that is judged and kept, and in no step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from polytag.classifier import Classifier
from polytag.models.bert import Bert
from polytag.models.cnn import TwoLayerNetwork
from polytag.nn.encoding.encoders import WordEncoder
from polytag.nn.training import loop
from polytag.nn.training.loop import Goal, Step, train
from polytag.nn.training.weight_average import Average
from polytag.run import Run
from test_loop import interrupted, loss, replaced, toy_training, weights_of
from toys import array, tiny_bert, toy_corpus

QUICK: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 8,
    "device": "cpu",
    "precision": "fp32",
    "encoder_rate": 0.01,
    "head_rate": 0.01,
}


def averaged(start: NDArray[Any], weights: list[NDArray[Any]], decay: float) -> list[NDArray[Any]]:
    """The average after every step, from the weights before the first and after each."""
    found, mean = [], start.astype(np.float64)
    for step, now in enumerate(weights, 1):
        older = min(decay, (1 + step) / (10 + step))
        mean = older * mean + (1 - older) * now
        found.append(mean)
    return found


def watched(value: Any = None, **settings: Any) -> tuple[torch.nn.Module, list[Step], list[NDArray[Any]], list[NDArray[Any]]]:
    """A training: the network at its end, its steps, its weights between steps, and those that were measured."""
    network, examples = toy_training(dropout=0.2)
    seen: list[NDArray[Any]] = []

    def measure() -> float:
        seen.append(weights_of(network))
        return float(value(len(seen)))

    goal = None if value is None else Goal("micro_f1", measure)
    steps, between = [], [weights_of(network)]
    for step in train(network, examples, loss, replaced(**settings), Run(), goal):
        steps.append(step)
        between.append(weights_of(network))
    return network, steps, between, seen


@pytest.mark.parametrize("decay", [0.3, 0.7, 0.999])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_without_a_measurement_the_network_ends_with_the_average_of_all_steps(decay: float, accumulate: int) -> None:
    network, steps, (start, *between), _ = watched(average=decay, accumulate=accumulate, epochs=3)
    expected = averaged(start, between, decay)
    assert len(expected) == len(steps) == 3 * -(-8 // accumulate)
    assert weights_of(network) == pytest.approx(expected[-1], abs=1e-6)
    assert np.abs(weights_of(network) - between[-1]).max() > 1e-4, "it is not the last step's weights"


def test_what_is_measured_and_kept_is_the_average() -> None:
    best = 5
    network, steps, (start, *between), seen = watched(lambda n: -abs(n - best), average=0.9, evaluate_every=2)
    expected = averaged(start, between, 0.9)
    measured = [step.number for step in steps if step.value is not None]
    assert measured == list(range(2, 17, 2))
    for number, weights in zip(measured, seen, strict=True):
        assert weights == pytest.approx(expected[number - 1], abs=1e-6)
    assert (weights_of(network) == seen[best - 1]).all()


def test_steps_are_to_the_bit_those_of_a_training_without_it() -> None:
    _, plain, without, raw = watched(lambda n: n, average=0.0, evaluate_every=3)
    _, steps, between, means = watched(lambda n: n, average=0.9, evaluate_every=3)
    assert [float(step.loss) for step in steps] == [float(step.loss) for step in plain]
    assert all((a == b).all() for a, b in zip(between, without, strict=True))
    assert all((a != b).any() for a, b in zip(means, raw, strict=True))


def test_patience_counts_what_the_average_reaches() -> None:
    values = [0.1, 0.9, 0.5, 0.4, 1.0]
    network, steps, _, seen = watched(lambda n: values[n - 1], average=0.9, epochs=5, patience=2)
    assert [step.value for step in steps if step.value is not None] == values[:4]
    assert (weights_of(network) == seen[1]).all()


def test_without_the_option_there_is_no_average(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Average", None)  # to make one would fail
    assert len(watched(lambda n: n)[1]) == 16


@pytest.mark.parametrize("after", [1, 5, 8, 11])
def test_a_training_resumed_at_any_step_goes_on_with_the_same_average(after: int, tmp_path: Path) -> None:
    settings = replaced(checkpoint_seconds=0.0, epochs=3, accumulate=2, average=0.9, evaluate_every=1)
    whole, all_steps = interrupted(tmp_path / "whole", 0, settings, False)
    _, first = interrupted(tmp_path / "cut", after, settings, False)
    again, rest = interrupted(tmp_path / "cut", 0, settings, True)
    assert rest[0].number == after + 1
    assert [step.value for step in (*first, *rest)] == [step.value for step in all_steps], "a value is made of averaged weights"
    assert (weights_of(again) == weights_of(whole)).all()


def test_a_checkpoint_without_an_average_is_not_used_for_a_training_with_one(tmp_path: Path) -> None:
    interrupted(tmp_path, 5, replaced(checkpoint_seconds=0.0), False)
    _, steps = interrupted(tmp_path, 0, replaced(checkpoint_seconds=0.0, average=0.9), True)
    assert steps[0].number == 1


def test_weights_stay_where_they_are_because_a_captured_step_knows_them_by_address() -> None:
    network, _ = toy_training()
    average = Average(network, 0.9)
    before, places = weights_of(network), [p.data_ptr() for p in network.parameters()]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    own = weights_of(network)
    average.update(1)
    with pytest.raises(ValueError, match="in the middle"), average.lent():
        assert weights_of(network) == pytest.approx(before + 9 / 11, abs=1e-6)
        raise ValueError("in the middle")
    assert (weights_of(network) == own).all(), "even if measuring fails"
    average.give()
    assert weights_of(network) == pytest.approx(before + 9 / 11, abs=1e-6)
    assert [p.data_ptr() for p in network.parameters()] == places
    assert all(p.requires_grad for p in network.parameters())


def test_frozen_layers_are_left_out(tmp_path: Path) -> None:
    folder = str(tiny_bert(tmp_path / "bert"))
    states = [
        Bert.build({**QUICK, "encoder": folder, "frozen_layers": 1, "max_steps": steps, "average": 0.9}) for steps in (1, 6)
    ]  # one network hardly trained, one a little
    for model in states:
        model.fit(toy_corpus(60), None, Run())
    one, many = (model.network for model in states)
    assert one is not None and many is not None
    trained = {name for name, parameter in many.named_parameters() if parameter.requires_grad}
    assert set(Average(many, 0.9).names) == trained and len(trained) < len(list(many.parameters()))
    for (name, a), b in zip(one.named_parameters(), many.parameters(), strict=True):
        assert bool((a == b).all()) == (name not in trained), name


def test_running_statistics_are_averaged_with_the_weights_they_belong_to() -> None:
    _, examples = toy_training()
    network = TwoLayerNetwork(WordEncoder(40, 8), 4, 3, 4, 0.0)
    start, rest = array(network.normalise.running_var), []
    for _ in train(network, examples, loss, replaced(average=0.9), Run()):
        rest.append(array(network.normalise.running_var))
    assert np.abs(array(network.normalise.running_var) - rest[-1]).max() > 1e-4
    assert array(network.normalise.running_var) == pytest.approx(averaged(start, rest, 0.9)[-1], abs=1e-6)


def test_going_on_from_an_averaged_run_starts_from_its_average() -> None:
    sizes = {**QUICK, "embedding": 16, "hidden": 8, "layers": 1, "encoder": "bilstm", "average": 0.9}
    earlier = Classifier("bert", sizes).fit(toy_corpus(60))
    still = {"encoder_rate": 0.0, "head_rate": 0.0, "weight_decay": 0.0}
    later = Classifier("bert", {**sizes, **still}).continue_from(earlier).fit(toy_corpus(40, 2))
    before, after = earlier.model.state()["weights"], later.model.state()["weights"]
    assert all((before[name] == after[name]).all() for name in before)


def test_a_saved_model_has_the_averaged_weights(tmp_path: Path) -> None:
    corpus = toy_corpus(60)
    found = {}
    for average in (0.0, 0.9):
        options = {**QUICK, "embedding": 16, "filters": 8, "average": average}
        trained = Classifier("cnn", options).fit(corpus, toy_corpus(30, 1))
        trained.save(tmp_path / str(average))
        found[average] = Classifier.load(tmp_path / str(average)).scores(corpus.texts).matrix.data
        assert (found[average] == trained.scores(corpus.texts).matrix.data).all()
    assert np.abs(found[0.0] - found[0.9]).max() > 1e-3
