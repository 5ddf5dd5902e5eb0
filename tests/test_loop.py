"""The loop: killed and resumed it ends with the same weights, two processes make one's steps, and the best weights are kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polytag.config.groups.training_settings import TrainingSettings
from polytag.models.bert import Bert, BertNetwork
from polytag.nn.encoding.encoders import BiLSTM, WordEncoder
from polytag.nn.sharding import sharded_weights
from polytag.nn.sharding.sharded_optimiser import owners
from polytag.nn.training.batch import Batch, Examples, Layout, tokenise
from polytag.nn.training.interrupts import held_back
from polytag.nn.training.loop import Goal, Step, seeded, steps_in, train
from polytag.nn.training.losses import binary_cross_entropy
from polytag.nn.training.optimiser import Setup, rate_factor
from polytag.run import Run, read_log
from polytag.text.tokens import WordTokens
from toys import setup, toy_corpus

SETTINGS: dict[str, Any] = {
    "epochs": 2, "batch_size": 8, "encoder_rate": 1e-2, "head_rate": 1e-2, "device": "cpu", "precision": "fp32", "log_every": 3,
}  # fmt: skip
HERE = Path(__file__).parent


def toy_training(n: int = 60, dropout: float = 0.0) -> tuple[torch.nn.Module, Examples]:
    """A small network with dropout and recurrence, and what it learns from."""
    corpus = toy_corpus(n)
    tokens = WordTokens.fit(corpus.texts)
    with seeded(0):
        network = BertNetwork(BiLSTM(tokens.size, 8, 6, 1, dropout), len(corpus.labels), "mean", dropout)
    return network, Examples(tokenise(tokens, corpus.texts), corpus.truth, Layout(20))


def loss(network: torch.nn.Module, batch: Batch) -> torch.Tensor:
    assert batch.targets is not None
    return binary_cross_entropy(network(batch.ids, batch.mask), batch.targets)


def trained(settings: Setup, goal: Callable[[torch.nn.Module], Goal] | None = None, run: Run | None = None, **toy: Any) -> Any:
    network, examples = toy_training(**toy)
    steps = list(train(network, examples, loss, settings, run or Run(), goal(network) if goal else None))
    return network, steps


def weights_of(network: torch.nn.Module) -> np.ndarray[Any, Any]:
    return torch.cat([p.detach().reshape(-1) for p in network.parameters()]).numpy()


def replaced(**changes: Any) -> Setup:
    return setup(**{**SETTINGS, **changes})


# -- steps ------------------------------------------------------------------------------------------------------------------


def test_the_losses_fall_and_every_step_is_yielded() -> None:
    _, steps = trained(replaced(epochs=6, encoder_rate=0.1, head_rate=0.1), n=60)
    losses = [float(step.loss) for step in steps]
    assert [step.number for step in steps] == list(range(1, steps_in(replaced(epochs=6).training, 60) + 1))
    assert np.mean(losses[-8:]) < 0.7 * np.mean(losses[:8])


def test_a_step_is_adamw_on_the_mean_loss() -> None:
    network, examples = toy_training(8)
    reference, _ = toy_training(8)
    settings = replaced(epochs=1, clip=0.0, warmup=0.0, schedule="constant", weight_decay=0.1)
    from polytag.nn.training.batch import Documents

    data = Documents(examples.tokens, examples.layout, torch.device("cpu"), examples.truth)
    batch = data.batch(torch.arange(8), *data.shape(np.arange(8)))
    decayed = [p for p in reference.parameters() if p.ndim > 1]
    plain = [p for p in reference.parameters() if p.ndim < 2]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=1e-2)
    value = loss(reference, batch)
    value.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    (step,) = train(network, examples, loss, settings, Run())
    assert float(step.loss) == pytest.approx(float(value.detach()), abs=1e-6)
    assert weights_of(network) == pytest.approx(weights_of(reference), abs=1e-5)


def test_accumulated_batches_are_one_large_batch() -> None:
    whole, one = trained(replaced(batch_size=60, epochs=3))
    parts, many = trained(replaced(batch_size=16, accumulate=4, epochs=3))
    assert len(one) == len(many) == 3
    assert weights_of(parts) == pytest.approx(weights_of(whole), abs=1e-4)


def test_gradients_are_clipped() -> None:
    before = weights_of(toy_training()[0])
    frozen, _ = trained(
        replaced(clip=1e-9, epsilon=1.0, weight_decay=0.0)
    )  # with so large an epsilon a step is the gradient's size
    assert np.abs(weights_of(frozen) - before).max() < 1e-9


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_rates_rise_and_then_follow_the_schedule(schedule: str) -> None:
    settings = TrainingSettings(warmup=0.2, schedule=schedule)
    factors = [rate_factor(step, 100, settings) for step in range(100)]
    assert factors[0] == pytest.approx(1 / 21) and all(np.diff(factors[:20]) > 0) and factors[20] == 1
    middle, end = {"linear": (0.5, 0.0125), "cosine": (0.5, 0.0004), "constant": (1, 1)}[schedule]
    assert factors[60] == pytest.approx(middle) and factors[99] == pytest.approx(end, abs=1e-4)


@pytest.mark.parametrize("most", [0, 13])
def test_halving_keeps_the_rate_for_some_epochs_and_halves_it_after_each_that_follows(most: int, tmp_path: Path) -> None:
    """In the loop itself, and wherever ``max_steps`` ends it."""
    told = replaced(epochs=5, batch_size=15, warmup=0.0, schedule="halving", full_epochs=3, max_steps=most, log_every=1)
    with Run(tmp_path) as run:
        trained(told, run=run, n=60)
    rates = [line["rate"] for line in read_log(tmp_path) if line["event"] == "step"]
    expected = [told.training.head_rate * factor for factor in (1, 1, 1, 0.5, 0.25) for _ in range(4)]
    assert rates == pytest.approx(expected[: most or None])


def test_the_best_weights_are_kept_and_patience_stops() -> None:
    values = iter([0.1, 0.9, 0.5, 0.4, 0.3, 0.2])
    seen: list[Any] = []

    def goal(network: torch.nn.Module) -> Goal:
        def measure() -> float:
            seen.append(weights_of(network))
            return next(values)

        return Goal("micro_f1", measure)

    network, steps = trained(replaced(epochs=6, patience=2), goal)
    assert [step.value for step in steps if step.value is not None] == [0.1, 0.9, 0.5, 0.4]
    assert (weights_of(network) == seen[1]).all() and (seen[1] != seen[3]).any()


def test_of_equal_values_the_first_weights_stay_and_patience_goes_on_counting() -> None:
    values = iter([0.1, 0.9, 0.9, 0.9, 0.9, 0.9])
    seen: list[Any] = []

    def goal(network: torch.nn.Module) -> Goal:
        def measure() -> float:
            seen.append(weights_of(network))
            return next(values)

        return Goal("micro_f1", measure)

    network, steps = trained(replaced(epochs=6, patience=2), goal)
    assert [step.value for step in steps if step.value is not None] == [0.1, 0.9, 0.9, 0.9]
    assert (weights_of(network) == seen[1]).all() and (seen[1] != seen[2]).any()


def test_the_metric_is_measured_every_so_many_steps_and_at_the_end() -> None:
    _, steps = trained(replaced(evaluate_every=7), lambda _: Goal("micro_f1", lambda: 0.5))
    assert [step.number for step in steps if step.value is not None] == [7, 14, 16]


def test_the_run_gets_curves_and_a_picture(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        _, steps = trained(replaced(), lambda _: Goal("micro_f1", lambda: 0.5), run)
    events = read_log(tmp_path)
    logged = {event["step"]: event["loss"] for event in events if event["event"] == "step"}
    losses = [float(step.loss) for step in steps]
    assert logged[3] == pytest.approx(np.mean(losses[:3])) and set(logged) == {3, 6, 9, 12, 15, 16}
    assert [event["micro_f1"] for event in events if event["event"] == "validation"] == [0.5, 0.5]
    assert (tmp_path / "plots" / "learning.png").read_bytes().startswith(b"\x89PNG")


# -- checkpoints ------------------------------------------------------------------------------------------------------------


def interrupted(folder: Path, after: int, settings: Setup, resume: bool) -> tuple[torch.nn.Module, list[Step]]:
    network, examples = toy_training(dropout=0.3)
    steps = []
    with Run(folder, resume=resume) as run:
        goal = Goal("micro_f1", lambda: float(weights_of(network)[:5].sum()))  # any number that the weights decide
        for step in train(network, examples, loss, settings, run, goal):
            steps.append(step)
            if len(steps) == after:
                break
    return network, steps


@pytest.mark.parametrize("after", [1, 5, 8, 11])
def test_a_training_resumed_at_any_step_ends_with_the_same_weights(after: int, tmp_path: Path) -> None:
    settings = replaced(checkpoint_seconds=0.0, epochs=3, accumulate=2)
    whole, all_steps = interrupted(tmp_path / "whole", 0, settings, False)
    _, first = interrupted(tmp_path / "cut", after, settings, False)
    again, rest = interrupted(tmp_path / "cut", 0, settings, True)
    assert [s.number for s in (*first, *rest)] == [s.number for s in all_steps]
    assert (weights_of(again) == weights_of(whole)).all()
    assert [float(s.loss) for s in (*first, *rest)] == [float(s.loss) for s in all_steps]


def test_a_checkpoint_of_other_settings_is_not_used(tmp_path: Path) -> None:
    interrupted(tmp_path, 5, replaced(checkpoint_seconds=0.0), False)
    _, steps = interrupted(tmp_path, 0, replaced(checkpoint_seconds=0.0, clip=0.5), True)
    assert steps[0].number == 1


def test_checkpoints_are_json_and_safetensors(tmp_path: Path) -> None:
    interrupted(tmp_path, 5, replaced(checkpoint_seconds=0.0), False)
    files = [path for path in (tmp_path / "stages").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".safetensors"}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts raise KeyboardInterrupt, as they do unless the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_training_loses_no_step(tmp_path: Path) -> None:
    settings = replaced(checkpoint_seconds=1000.0, evaluate_every=3)

    def steps(network: torch.nn.Module, examples: Examples, run: Run, interrupt_at: int) -> int:
        """The loss interrupts its own process, in the middle of a step; how many steps were made."""
        made = 0

        def own(network: torch.nn.Module, batch: Batch) -> torch.Tensor:
            if made + 1 == interrupt_at:
                os.kill(os.getpid(), signal.SIGINT)
            return loss(network, batch)

        for step in train(network, examples, own, settings, run, Goal("value", lambda: 0.5)):
            made = step.number
        return made

    network, examples = toy_training(dropout=0.3)
    with pytest.raises(KeyboardInterrupt), Run(tmp_path) as run:
        steps(network, examples, run, 7)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    network, examples = toy_training(dropout=0.3)
    with Run(tmp_path, resume=True) as run:
        assert steps(network, examples, run, 0) == 16
    assert any(event["event"] == "resumed" and event["step"] == 7 for event in read_log(tmp_path))
    straight, examples = toy_training(dropout=0.3)
    steps(straight, examples, Run(), 0)
    assert (weights_of(network) == weights_of(straight)).all()


@pytest.mark.usefixtures("interruptible")
def test_what_a_program_does_with_interrupts_itself_is_left_alone() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        with held_back() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
        assert seen == [1] and not interrupt.came
    finally:
        signal.signal(signal.SIGINT, before)
    with held_back() as interrupt, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.came
        os.kill(os.getpid(), signal.SIGINT)  # who asks twice does not want to wait
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(_entered).result()


def _entered() -> bool:
    with held_back() as interrupt:
        return interrupt.came


def killable(folder: str | None, resume: bool = False, kill_at: int = 0) -> dict[str, bytes]:
    """Train a model in this process, which kills itself after a checkpoint if it is told to; the weights."""
    sizes = {"embedding": 8, "hidden": 6, "layers": 1, "epochs": 2, "batch_size": 8, "encoder_dropout": 0.2}
    model = Bert.build(
        {"encoder": "bilstm", "head_rate": 1e-2, "checkpoint_seconds": 0.0, "device": "cpu", "precision": "fp32", **sizes}
    )  # type: ignore[arg-type]
    with Run(folder, resume=resume) as run:
        if kill_at:
            save, saved = run.save_stage, iter(range(1, 10_000))

            def save_and_die(name: str, state: Any, *, key: Any = None) -> None:
                save(name, state, key=key)
                if "training" in name and next(saved) == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

            run.save_stage = save_and_die  # type: ignore[method-assign]
        model.fit(toy_corpus(60), toy_corpus(20, 1), run)
    return {name: array.tobytes() for name, array in model.state()["weights"].items()}


def test_a_real_sigkill_is_survived_to_the_bit(tmp_path: Path) -> None:
    script = f"import sys; sys.path.insert(0, {str(HERE)!r}); import test_loop; test_loop.killable({str(tmp_path)!r}, kill_at=10)"
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = killable(str(tmp_path), resume=True)
    assert any(event["event"] == "resumed" and event["step"] == 10 for event in read_log(tmp_path))
    assert resumed == killable(None)


# -- processes --------------------------------------------------------------------------------------------------------------


def keep_losses(place: Path, steps: int, shard: str = "none", average: float = 0.9) -> None:
    """Train in this process, alone or with others, and let each write its losses and weights."""
    sharded_weights.LEAST = 20
    network, examples = toy_training(45)  # the last batch of an epoch has an odd number of documents
    settings = replaced(epochs=50, max_steps=steps, batch_size=7, accumulate=2, average=average, shard=shard)
    goal = Goal("micro_f1", lambda: float(sum(parameter.double().sum() for parameter in network.parameters())))
    losses = [float(step.loss) for step in train(network, examples, loss, settings, Run(), goal)]
    assert {type(layer) for layer in network.modules()} == {type(layer) for layer in toy_training(45)[0].modules()}
    with open(f"{place}-{os.environ.get('RANK', '0')}", "w") as out:
        json.dump({"losses": losses, "weights": weights_of(network).tolist()}, out)


def kept_losses(place: Path, *ranks: int) -> list[dict[str, list[float]]]:
    return [json.loads(Path(f"{place}-{rank}").read_text()) for rank in ranks]


WAYS: dict[str, tuple[Any, ...]] = {"whole": (50,), "optimiser": (50, "optimiser"), "weights": (40, "weights", 0.0)}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes left the losses of every way to share the work; they are started once, which takes most of the time."""
    folder = tmp_path_factory.mktemp("together")
    script, places = folder / "script.py", {name: folder / name for name in WAYS}
    calls = "\n".join(f"keep_losses({str(place)!r}, *{WAYS[name]!r})" for name, place in places.items())
    script.write_text(f"import sys\nsys.path.insert(0, {str(HERE)!r})\nfrom test_loop import keep_losses\n{calls}\n")
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    done = subprocess.run(launch, capture_output=True, text=True, env=environment)
    ended = all(Path(f"{place}-{rank}").exists() for place in places.values() for rank in (0, 1))
    aborted = "terminate called without an active exception" in done.stderr  # torch, while an interpreter exits
    assert done.returncode == 0 or (ended and aborted), done.stderr[:4000]
    return folder


def test_two_processes_make_the_steps_of_one(together: Path, tmp_path: Path) -> None:
    keep_losses(tmp_path / "one", *WAYS["whole"])
    (one,), (first, second) = kept_losses(tmp_path / "one", 0), kept_losses(together / "whole", 0, 1)
    assert len(one["losses"]) == 50
    assert first["losses"] == pytest.approx(one["losses"], abs=1e-4)
    assert first["weights"] == second["weights"]
    assert first["weights"] == pytest.approx(one["weights"], abs=1e-4)
    third, fourth = kept_losses(together / "optimiser", 0, 1)
    assert third == first and fourth["weights"] == first["weights"], "moments that are divided make the same steps, to the bit"


def test_sharded_layers_make_the_steps_of_whole_ones(together: Path, tmp_path: Path) -> None:
    """FSDP with two processes: their losses, and the weights that are evaluated best, are those of one process."""
    keep_losses(tmp_path / "one", 40, average=0.0)
    (one,), (first, second) = kept_losses(tmp_path / "one", 0), kept_losses(together / "weights", 0, 1)
    assert first["losses"] == pytest.approx(one["losses"], abs=1e-4) and first["weights"] == second["weights"]
    assert first["weights"] == pytest.approx(one["weights"], abs=1e-4)


@pytest.mark.parametrize(("sizes", "count"), [([5, 1, 1, 1, 4], 2), ([3], 4), ([2] * 9, 4)])
def test_moments_are_divided_evenly(sizes: list[int], count: int) -> None:
    load = [0] * count
    for size, owner in zip(sizes, owners(sizes, count), strict=True):
        load[owner] += size
    assert sum(load) == sum(sizes) and max(load) - min(load) <= max(sizes)


def test_a_network_without_an_encoder_and_an_unused_parameter_train() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.output, self.unused = WordEncoder(40, 4), torch.nn.Linear(4, 4), torch.nn.Linear(2, 2)

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.output(self.words(ids, mask).sum(dim=1)))

    _, examples = toy_training()
    network = Odd()
    before = network.unused.weight.detach().clone()
    assert len(list(train(network, examples, loss, replaced(), Run()))) == 16
    assert (network.unused.weight == before).all()
