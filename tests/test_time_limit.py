"""A limit on the time of a training: as many steps as fit, and the learning rate falls to zero by then."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from polytag.config.groups.training_settings import TrainingSettings
from polytag.nn.training import time_limit
from polytag.nn.training.batch import Batch, Examples, Layout, tokenise
from polytag.nn.training.loop import Goal, train
from polytag.nn.training.losses import binary_cross_entropy
from polytag.nn.training.optimiser import Setup
from polytag.nn.training.time_limit import TimeLimit
from polytag.run import Run
from polytag.text.tokens import WordTokens
from toys import Stopwatch, setup, toy_corpus


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    found = Stopwatch()
    monkeypatch.setattr(time_limit, "time", found)
    return found


@pytest.mark.parametrize(
    ("pace", "evaluation", "planned"), [(0.5, 0.0, 10_000), (0.5, 3.0, 10_000), (0.5, 3.0, 60), (4.0, 9.0, 500)]
)
def test_steps_and_evaluations_fit_as_a_simulation_says(clock: Stopwatch, pace: float, evaluation: float, planned: int) -> None:
    epoch, seconds, slow = 20, 120.0, 7.0
    limit, total, step = TimeLimit(seconds / 60, epoch, evaluation / (pace * 0.4)), planned, 0
    start = clock.now
    while step < total:
        step += 1
        clock.now += pace + (slow if step <= 2 else 0.0)  # the first steps are slow
        if limit.due(step):
            total = limit.steps(step, planned)
        if step % epoch == 0 or step >= total:
            clock.now += evaluation
            limit.add_evaluation(evaluation)
    used = clock.now - start
    assert used <= seconds + 32 * pace
    if total < planned:
        assert used >= seconds - 2 * pace - evaluation - 1e-6
    else:
        assert step == planned


def test_a_resumed_training_has_the_time_that_is_left(clock: Stopwatch) -> None:
    limit = TimeLimit(1.0, 1000, 0.0)
    limit.spent, limit.first = 50.0, 64
    for step in range(65, 97):
        clock.now += 0.1
        if limit.due(step):
            total = limit.steps(step, 10_000)
    assert total == pytest.approx(96 + (10 - 3.2) / 0.1, abs=1)


def network_and_examples() -> tuple[torch.nn.Module, Examples]:
    corpus = toy_corpus(64)
    tokens = WordTokens.fit(corpus.texts)
    torch.manual_seed(0)

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(tokens.size, 4)
            self.output = torch.nn.Linear(4, len(corpus.labels))

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.output(self.words(ids).mean(dim=1))

    return Small(), Examples(tokenise(tokens, corpus.texts), corpus.truth, Layout(20))


def test_a_training_ends_in_time_with_its_learning_rate_at_zero() -> None:
    network, examples = network_and_examples()
    rates, times = [], []

    def loss(network: torch.nn.Module, batch: Batch) -> torch.Tensor:
        time.sleep(0.01)
        times.append(time.monotonic())
        assert batch.targets is not None
        return binary_cross_entropy(network(batch.ids, batch.mask), batch.targets)

    class Listening(Run):
        def log(self, event: str, values: Any) -> None:
            rates.extend([values["rate"]] if "rate" in values else [])

    told: Setup = setup(epochs=1000, batch_size=8, device="cpu", precision="fp32", log_every=1, minutes=0.02, head_rate=1e-2)
    steps = list(train(network, examples, loss, told, Listening(), Goal("micro_f1", lambda: 0.0, 8)))
    assert times[-1] - times[2] < 2.4  # of 1.2 s; another program may be running
    assert 2 < len(steps) < 120
    assert rates[-1] < 0.5 * max(rates)


def test_without_a_limit_nothing_is_timed() -> None:
    assert TrainingSettings().minutes == 0


@pytest.mark.parametrize(("pace", "said"), [(4.0, ["30 %"]), (40.0, ["4 %"]), (0.5, [])])
def test_a_training_of_less_than_an_epoch_says_so_once(
    clock: Stopwatch, caplog: pytest.LogCaptureFixture, pace: float, said: list[str]
) -> None:
    """As soon as the pace is known or the training ends, and not where an epoch fits."""
    limit, total, step = TimeLimit(2, 100, 0), 10_000, 0
    while step < min(total, 40):
        step += 1
        clock.now += pace
        if limit.due(step):
            total = limit.steps(step, 10_000)
            limit.warn(step, total)
    expected = [f"in 2 minutes this network sees only {share} of the training documents on this machine" for share in said]
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == expected
