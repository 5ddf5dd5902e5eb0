"""Learning curves of a training: in the run's log, in checkpoints, as a plot and for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from polytag.errors import ConfigError

if TYPE_CHECKING:
    from polytag.run import Run

PICTURE = "learning.png"


class Curves:
    """Training losses (means over some steps) with learning rates, and the metric on validation documents."""

    def __init__(self, run: Run, metric: str, every: int, *, tensorboard: bool = False) -> None:
        """Write to this run; the mean loss every ``every`` steps."""
        self.run, self.metric, self.every = run, metric, max(1, every)
        self.losses: list[tuple[int, float, float]] = []
        self.values: list[tuple[int, int, float]] = []
        self._waiting: list[Tensor] = []
        self._board = _board(run) if tensorboard else None

    def add_loss(self, step: int, epoch: int, loss: Tensor, rate: float) -> None:
        """Buffer a loss on its device; buffered losses are fetched together, because each transfer waits for the device."""
        self._waiting.append(loss)
        if step % self.every == 0:
            self.flush(step, epoch, rate)

    def flush(self, step: int, epoch: int, rate: float) -> None:
        """Fetch the buffered losses and log their mean."""
        if not self._waiting:
            return
        mean = float(torch.stack(self._waiting).double().mean())
        self._waiting.clear()
        self.losses.append((step, mean, rate))
        self.run.log("step", {"step": step, "epoch": epoch, "loss": mean, "rate": rate})
        if self._board is not None:
            self._board.add_scalar("loss", mean, step)
            self._board.add_scalar("rate", rate, step)

    def add_value(self, step: int, epoch: int, value: float) -> None:
        """Log the metric on validation documents."""
        self.values.append((step, epoch, value))
        self.run.log("validation", {"step": step, "epoch": epoch, self.metric: value})
        if self._board is not None:
            self._board.add_scalar(self.metric, value, step)

    def state(self) -> dict[str, Any]:
        """Both curves, and the buffered losses."""
        waiting = torch.stack(self._waiting).cpu().numpy() if self._waiting else np.zeros(0, np.float32)
        return {"losses": [list(row) for row in self.losses], "values": [list(row) for row in self.values], "waiting": waiting}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore what ``state`` returned."""
        self.losses = [(int(step), float(loss), float(rate)) for step, loss, rate in state["losses"]]
        self.values = [(int(step), int(epoch), float(value)) for step, epoch, value in state["values"]]
        self._waiting = [torch.tensor(value, device=device) for value in np.asarray(state["waiting"]).tolist()]

    def finish(self) -> None:
        """Draw the plot and close the TensorBoard writer."""
        if self._board is not None:
            self._board.close()
        if self.run.plots_folder is not None and self.losses:
            draw(self.losses, self.values, self.metric, self.run.plots_folder / PICTURE)


def draw(losses: list[tuple[int, float, float]], values: list[tuple[int, int, float]], metric: str, path: Path) -> None:
    """Plot the loss and the metric over the steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)  # no window, and no global state of pyplot
    left = figure.add_subplot()
    left.plot([row[0] for row in losses], [row[1] for row in losses], color="tab:blue", label="loss")
    left.set_xlabel("step")
    left.set_ylabel("loss", color="tab:blue")
    left.set_yscale("log" if all(row[1] > 0 for row in losses) else "linear")
    if values:
        right = left.twinx()
        right.plot([row[0] for row in values], [row[2] for row in values], color="tab:orange", marker="o", label=metric)
        right.set_ylabel(f"{metric} on validation", color="tab:orange")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _board(run: Run) -> Any:
    """The TensorBoard writer, imported on demand."""
    if run.folder is None:
        raise ConfigError("tensorboard needs a folder to write to; name one for the run, or leave tensorboard off")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "tensorboard is on, but the package 'tensorboard' is not installed; install it, or leave it off"
        ) from None
    return SummaryWriter(str(run.folder / "tensorboard"))
