"""The training loop: a generator over optimiser steps that can be killed at any step and resumed.

The order of the documents in an epoch depends on the seed and the epoch only. A resumed training computes it again and skips the
finished steps. With P processes the batches are the same as with one, and process r takes the rows r, r + P, ... of each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.config.groups.training_settings import TrainingSettings
from polytag.errors import ConfigError
from polytag.nn.gpu.compiled_layers import compile_layers, drop_compiled
from polytag.nn.gpu.half_weights import half_weights_for
from polytag.nn.gpu.memory_plan import divided, pieces_on
from polytag.nn.sharding.sharded_optimiser import ShardedAdamW
from polytag.nn.sharding.sharded_weights import ShardedLayers, spread_checkpoint
from polytag.nn.training import checkpoint
from polytag.nn.training.batch import Examples, batches
from polytag.nn.training.cuda_graphs import GraphStep
from polytag.nn.training.devices import pick_precision
from polytag.nn.training.interrupts import held_back
from polytag.nn.training.learning_curves import Curves
from polytag.nn.training.optimiser import Setup, make_optimiser, rate_factor, set_rates
from polytag.nn.training.processes import Processes
from polytag.nn.training.step import EagerStep, Loss, Rows
from polytag.nn.training.time_limit import TimeLimit
from polytag.nn.training.weight_average import Average

if TYPE_CHECKING:
    from polytag.run import Run

_GRAPH_LENGTH = 16  # padded lengths of captured steps are multiples of this, so that there are few shapes
_CHEAP = 10  # at the end of an epoch, a checkpoint is written after ten times the duration of the last one


class Step(NamedTuple):
    """A finished step: its number (from 1), the epoch (from 0), the loss on its device, the metric if it was measured."""

    number: int
    epoch: int
    loss: Tensor
    value: float | None


class Goal(NamedTuple):
    """The metric on validation documents: its name, a function that computes it, and their number."""

    metric: str
    measure: Callable[[], float]
    documents: int = 0


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, torch's random numbers depend on the seed only, as the initial weights of a network should."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def steps_in(settings: TrainingSettings, documents: int) -> int:
    """The number of steps of a training without early stopping."""
    total = math.ceil(math.ceil(documents / settings.batch_size) / settings.accumulate) * settings.epochs
    return min(total, settings.max_steps) if settings.max_steps else total


def train(
    network: nn.Module,
    examples: Examples,
    loss: Loss,
    setup: Setup,
    run: Run,
    goal: Goal | None = None,
    *,
    name: str = "network",
) -> Iterator[Step]:
    """Train a network step by step; after the last step it has the weights with the best metric on validation documents.

    ``loss(network, batch)`` is a mean over the documents of a batch. ``name`` is the name of the checkpoints in the run.
    """
    training = _Training(network, examples, loss, setup, run, goal, name)
    try:
        training.resume()
        while not training.done:
            yield from training.epoch_steps()
        training.finish()
    finally:
        training.release()


class _Training:
    """The state of a training."""

    def __init__(
        self, network: nn.Module, examples: Examples, loss: Loss, setup: Setup, run: Run, goal: Goal | None, name: str
    ) -> None:
        settings, self.compute, self.seed = setup
        self.settings, self.run, self.goal, self.network = settings, run, goal, network
        self.processes = Processes(self.compute.device)
        device = self.processes.device
        network.to(device)
        encoder = getattr(network, "encoder", None)
        if encoder is not None:
            encoder.freeze(settings.frozen_layers)
        dtype = pick_precision(self.compute.precision, device, network)
        capture = self._captures(dtype)
        padding = self.compute.pad_multiple
        multiple = max(padding, _GRAPH_LENGTH) if capture else padding
        self.data = examples.on(device, multiple)
        if capture:
            compile_layers(network, self.compute.compile, self.data, settings.epochs)
        texts = math.ceil(settings.batch_size / self.processes.count)
        self.pieces = pieces_on(device, network, self.data, texts, run)
        together = self.processes.count > 1
        self.divides = together and self.compute.shard != "none"  # all processes have a part of a checkpoint
        self.layers = ShardedLayers(network, self.processes) if together and self.compute.shard == "weights" else None
        if self.layers is not None and settings.average:
            raise ConfigError("'average' needs all weights in every process; set average=0, or shard=optimiser")
        divided = self.processes if together and self.compute.shard == "optimiser" else None
        self.optimiser = make_optimiser(network, settings, device, divided)
        self.curves = Curves(
            run, goal.metric if goal else "", settings.log_every, tensorboard=settings.tensorboard and self.processes.first
        )
        self.modules = list(network.modules())
        self.halves = half_weights_for(network, device, dtype) if self.layers is None else None
        eager = EagerStep(
            network, loss, self.data, self.optimiser, self.processes, clip=settings.clip, dtype=dtype, halves=self.halves
        )
        self.make_step: EagerStep | GraphStep = GraphStep(eager) if capture else eager
        self.average = Average(network, settings.average) if settings.average else None
        self.total = self.planned = steps_in(settings, len(self.data))
        self.limit = self._time_limit()
        self.step = self.epoch = self.place = self.stale = 0
        self.stopped = False
        self.best: dict[str, Tensor] | None = None
        self.best_value = -np.inf
        self.stage = f"{name}/training"
        keeps = run.folder is not None
        self.key = {"settings": setup.shaping(), "examples": examples.key()} if keeps else {}
        self.saved_at, self.saving_took = time.monotonic(), 0.0

    def _time_limit(self) -> TimeLimit | None:
        """The limit on the time of the training, if there is one."""
        if not self.settings.minutes:
            return None
        epoch = math.ceil(len(self.data) / (self.settings.batch_size * self.settings.accumulate))
        evaluated = 0 if self.goal is None else self.goal.documents / (self.settings.batch_size * self.settings.accumulate)
        return TimeLimit(self.settings.minutes, epoch, evaluated)

    def _captures(self, dtype: torch.dtype | None) -> bool:
        """Whether steps are captured as CUDA graphs: on one GPU, if the network never synchronises with the host."""
        able = all(getattr(module, "capturable", True) for module in self.network.modules())
        alone = self.processes.device.type == "cuda" and self.processes.count == 1
        return self.compute.graphs and alone and able and dtype is not torch.float16

    @property
    def done(self) -> bool:
        """Whether the training has ended."""
        return self.stopped or self.step >= self.total

    # -- steps -----------------------------------------------------------------------------------------------------

    def epoch_steps(self) -> Iterator[Step]:
        """The remaining steps of the current epoch."""
        cost = self.data.lengths * self.data.windows
        plan = batches(cost, self.settings.batch_size, np.random.default_rng([self.seed, self.epoch]))
        groups = [plan[at : at + self.settings.accumulate] for at in range(0, len(plan), self.settings.accumulate)]
        order = torch.from_numpy(np.concatenate(plan)).to(self.processes.device)
        sizes = np.concatenate([[0], np.cumsum([sum(map(len, group)) for group in groups])])
        while self.place < len(groups) and not self.done:
            group = groups[self.place]
            with held_back() as interrupt:
                loss = self._one(group, order[sizes[self.place] : sizes[self.place + 1]])
            epoch, last = self.epoch, self.place + 1 == len(groups)
            self.place = 0 if last else self.place + 1
            self.epoch += last
            self._fit_to_limit(loss)
            value = self._measure(epoch, last)
            self._checkpoint(last or self.done, now=interrupt.came)
            if interrupt.came:
                raise KeyboardInterrupt
            yield Step(self.step, epoch, loss, value)
            if last:
                return

    def _fit_to_limit(self, loss: Tensor) -> None:
        """Fit the number of steps, and with it the schedule of the learning rate, to the limit on the time."""
        if self.limit is None or not self.limit.due(self.step):
            return
        loss.item()  # the step is finished then
        self.total = int(self.processes.agree([self.limit.steps(self.step, self.planned)])[0])
        if self.processes.first:
            self.limit.warn(self.step, self.total)

    def _one(self, group: Sequence[NDArray[Any]], rows: Tensor) -> Tensor:
        """One step for a group of batches; ``rows`` are the indices of their documents, on the device."""
        if not all(module.training for module in self.modules):  # setting it in every module takes longer than a small step
            self.network.train()
        if self.processes.count > 1:  # the same numbers after a restart; dropout must differ between processes
            torch.manual_seed(hash((self.seed, self.processes.rank, self.step)) % 2**63)
        factor = rate_factor(self.step, self.total, self.settings, self.epoch)
        set_rates(self.optimiser, factor)
        parts = [
            piece
            for batch, mine in zip(group, torch.split(rows, [len(batch) for batch in group]), strict=True)
            for piece in divided(self._part(batch, mine, len(rows)), self.pieces)
        ]
        loss = self.make_step(parts)
        self.step += 1
        if self.average is not None:
            self.average.update(self.step)
        self.curves.add_loss(self.step, self.epoch, loss, factor * max(group["base"] for group in self.optimiser.param_groups))
        return loss

    def _part(self, batch: NDArray[Any], rows: Tensor, total: int) -> Rows:
        """The rows of a batch for this process, weighted so that the mean over processes is the mean over documents."""
        rank, count = self.processes.rank, self.processes.count
        length, windows = self.data.shape(batch)
        mine = rows[rank::count] if rank < len(batch) else rows[:1]  # a process without rows takes part with weight 0
        share = len(mine) if rank < len(batch) else 0
        return Rows(mine, length, windows, count * share / total, self.data.most_labels(batch))

    def _measure(self, epoch: int, epoch_ends: bool) -> float | None:
        """Evaluate on validation documents if it is due, and keep the weights if they are the best so far."""
        every = self.settings.evaluate_every
        if self.goal is None or not (self.done or (self.step % every == 0 if every else epoch_ends)):
            return None
        self.network.eval()
        start = time.monotonic()
        with self._judged():
            with nullcontext() if self.layers is None else self.layers.gathered():
                measured = self.goal.measure() if self.processes.first else 0.0
            value = self.processes.agree([measured])[0]
            self.curves.add_value(self.step, epoch, value)
            if value > self.best_value:
                self.best, self.best_value, self.stale = checkpoint.weights(self.network), value, 0
            else:
                self.stale += 1
                self.stopped = 0 < self.settings.patience <= self.stale
        if self.limit is not None:
            self.limit.add_evaluation(time.monotonic() - start)
        return value

    def _judged(self) -> AbstractContextManager[None]:
        """Inside, the network has the weights that are evaluated and kept: its own, or their moving average."""
        return nullcontext() if self.average is None else self.average.lent()

    def finish(self) -> None:
        """Restore the best weights, and write the learning curves."""
        self.curves.flush(self.step, self.epoch, 0.0)
        if self.best is not None:
            self.network.load_state_dict(self.best)
        elif self.average is not None:
            self.average.give()
        if self.layers is not None:
            self.layers.undo()
        self.release()
        self.network.eval()
        self.curves.finish()

    def release(self) -> None:
        """Let the network compute as it was written; also after an error, or if the caller makes no further step."""
        drop_compiled(self.network)
        if self.halves is not None:
            self.halves.undo()

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def _checkpoint(self, epoch_ends: bool, now: bool = False) -> None:
        """Write a checkpoint if it is due, at the end of the training, or on an interrupt (``now``)."""
        start = time.monotonic()
        wait = self.settings.checkpoint_seconds
        if epoch_ends:
            wait = min(wait, _CHEAP * self.saving_took)
        due = self.run.folder is not None and (now or self.done or start - self.saved_at >= wait)
        if self.divides:
            due = bool(self.processes.agree([due])[0])
        if not due:
            return
        state = self._state()
        if self.processes.first:
            self.run.save_stage(self.stage, state, key=self.key)
        self.saved_at = time.monotonic()
        self.saving_took = self.saved_at - start

    def _moments(self) -> dict[str, checkpoint.Arrays]:
        """The moments of the optimiser by the names of parameters, for the first process."""
        return (
            self.optimiser.gathered() if isinstance(self.optimiser, ShardedAdamW) else checkpoint.optimiser_state(self.optimiser)
        )

    def _state(self) -> dict[str, Any]:
        return {
            "numbers": [self.step, self.epoch, self.place, self.stale, int(self.stopped)],
            "total": self.total,
            "seconds": 0.0 if self.limit is None else self.limit.elapsed(),
            "best_value": self.best_value,
            "best": None if self.best is None else checkpoint.to_arrays(self.best),
            "network": checkpoint.to_arrays(self.network.state_dict()),
            "average": None if self.average is None else self.average.state(),
            "optimiser": self._moments(),
            "scaler": dict(self.make_step.scaler.state_dict()),
            "random": checkpoint.random_state(self.processes.device),
            "curves": self.curves.state(),
        }

    def resume(self) -> None:
        """Seed torch, and continue from the checkpoint of the run, if there is one."""
        torch.manual_seed(self.seed)
        state = self.run.load_stage(self.stage, key=self.key) if self.processes.first else None
        if state is not None:
            self._restore(state)
            self.run.log("resumed", {"step": self.step, "epoch": self.epoch})
        self._agree(state)

    def _restore(self, state: dict[str, Any]) -> None:
        self.step, self.epoch, self.place, self.stale, stopped = state["numbers"]
        self.stopped, self.best_value = bool(stopped), state["best_value"]
        self.total = int(state["total"])
        if self.limit is not None:
            self.limit.spent, self.limit.first = float(state["seconds"]), self.step
        if self.layers is None:
            self._restore_tensors(state)
        if state["scaler"]:
            self.make_step.scaler.load_state_dict(state["scaler"])
        checkpoint.load_random(state["random"], self.processes.device)
        self.curves.restore(state["curves"], self.processes.device)

    def _restore_tensors(self, state: dict[str, Any]) -> None:
        if state["best"] is not None:
            best = {name: torch.from_numpy(np.array(array)) for name, array in state["best"].items()}
            self.best = {name: array.to(self.processes.device) for name, array in best.items()}
        checkpoint.load_arrays(self.network, state["network"])
        if self.average is not None:
            self.average.restore(state["average"])
        checkpoint.load_optimiser(self.optimiser, state["optimiser"])

    def _agree(self, state: dict[str, Any] | None) -> None:
        """Synchronise all processes with the state of the first one."""
        if self.processes.count == 1:
            return
        best = self.best is not None or (state is not None and state["best"] is not None)
        numbers = self.processes.agree(
            [self.step, self.epoch, self.place, self.stale, self.stopped, self.best_value, best, self.total]
        )
        self.step, self.epoch, self.place, self.stale = (int(number) for number in numbers[:4])
        self.stopped, self.best_value, self.total = bool(numbers[4]), numbers[5], int(numbers[7])
        if self.layers is not None:
            self.best = checkpoint.weights(self.network) if numbers[6] else None
            if self.step:
                spread_checkpoint(self.network, self.best, self.optimiser, state, self.processes)
            return
        self.processes.share(list(self.network.state_dict().values()))
        if self.average is not None:
            self.processes.share(self.average.means)
        if numbers[6]:
            self.best = self.best or checkpoint.weights(self.network)
            self.processes.share(list(self.best.values()))
        if self.step:
            self._share_moments()

    def _share_moments(self) -> None:
        for parameter in self.make_step.parameters:
            moments = self.optimiser.state[parameter]
            if not moments:
                moments["step"] = torch.zeros((), device=parameter.device)
                moments["exp_avg"], moments["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            self.processes.share([moments["step"], moments["exp_avg"], moments["exp_avg_sq"]])
        if isinstance(self.optimiser, ShardedAdamW):
            self.optimiser.drop_others()
