"""AdamW with layer-wise learning rates, the learning rate schedule, and clipping of gradients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from polytag.config.groups.training_settings import ComputeSettings, TrainingSettings
from polytag.nn.sharding.sharded_optimiser import ShardedAdamW
from polytag.nn.sharding.sharded_weights import clip
from polytag.nn.training.checkpoint import is_sharded
from polytag.nn.training.processes import Processes


class Setup(NamedTuple):
    """The settings of a training loop."""

    training: TrainingSettings
    compute: ComputeSettings
    seed: int = 0

    def shaping(self) -> dict[str, Any]:
        """The settings that affect the weights: all except those of logs and checkpoints."""
        aside = ("checkpoint_seconds", "log_every", "tensorboard", "shard")
        told = {**dataclasses.asdict(self.training), **dataclasses.asdict(self.compute), "seed": self.seed}
        return {key: value for key, value in told.items() if key not in aside}


def parameter_groups(network: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """Parameters grouped by learning rate and weight decay.

    ``layer_decay`` is the factor on the learning rate from each encoder layer to the one below. Biases and normalisation layers
    have no weight decay. The head is everything outside ``network.encoder``. ``network.rate_shares`` has factors on the learning
    rates of single parameters.
    """
    encoder = getattr(network, "encoder", None)
    depths: dict[str, int] = {} if encoder is None else {f"encoder.{name}": depth for name, depth in encoder.depths().items()}
    top = max(depths.values(), default=0)
    shares: dict[str, float] = getattr(network, "rate_shares", {})
    groups: dict[tuple[float, float, bool], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        rate = settings.encoder_rate * settings.layer_decay ** (top - depths[name]) if name in depths else settings.head_rate
        rate *= shares.get(name, 1.0)
        decay = 0.0 if parameter.ndim < 2 else settings.weight_decay
        kind = rate, decay, is_sharded(parameter)  # a fused step has parameters of one kind
        group = groups.setdefault(kind, {"params": [], "names": [], "base": rate, "lr": rate, "weight_decay": decay})
        group["params"].append(parameter)
        group["names"].append(name)
    return list(groups.values())


def make_optimiser(
    network: nn.Module, settings: TrainingSettings, device: torch.device, shared_by: Processes | None = None
) -> torch.optim.AdamW:
    """Fused AdamW; on a GPU the learning rates are tensors there, so that a captured step has their current values.

    With ``shared_by`` its moments are divided among processes.
    """
    groups = parameter_groups(network, settings)
    on_gpu = device.type == "cuda"
    if on_gpu:
        groups = _with_tensors(groups, device)
    betas = (settings.beta1, settings.beta2)
    if shared_by is not None:
        return ShardedAdamW(groups, shared_by, betas=betas, eps=settings.epsilon, fused=True, capturable=on_gpu)
    return torch.optim.AdamW(groups, betas=betas, eps=settings.epsilon, fused=True, capturable=on_gpu)


def _with_tensors(groups: list[dict[str, Any]], device: torch.device) -> list[dict[str, Any]]:
    """The same groups with learning rates on the device: the elements of one vector, so that one kernel changes them all."""
    full = torch.tensor([group["base"] for group in groups], device=device)
    rates = full.clone()
    return [{**group, "lr": rates[number], "full": full, "rates": rates} for number, group in enumerate(groups)]


def rate_factor(step: int, total: int, settings: TrainingSettings, epoch: int = 0) -> float:
    """The factor on the learning rate at step ``step`` (from 0) of ``total``, in this epoch (from 0).

    ``warmup`` below 1 is a share of all steps, else a number of steps. ``linear`` and ``cosine`` fall to 0 at the end.
    ``halving`` keeps the full rate for ``full_epochs`` epochs; every later epoch has half the rate of the epoch before.
    """
    warm = settings.warmup * total if settings.warmup < 1 else settings.warmup
    if step < warm:
        return (step + 1) / (warm + 1)
    if settings.schedule == "constant":
        return 1.0
    if settings.schedule == "halving":
        return 0.5 ** max(0, epoch - settings.full_epochs + 1)
    left = max(0.0, (total - step) / max(1.0, total - warm))
    return left if settings.schedule == "linear" else 0.5 * (1 - math.cos(math.pi * left))


def set_rates(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Multiply the full learning rate of every group by this factor, for the next step."""
    first = optimiser.param_groups[0]
    if isinstance(first["lr"], Tensor):
        torch.mul(first["full"], factor, out=first["rates"])
        return
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * factor


@contextmanager
def clipped(
    parameters: list[nn.Parameter], limit: float, optimiser: Any, processes: Processes, *, scaled: bool
) -> Iterator[None]:
    """Inside, a step of the optimiser uses gradients whose norm is at most a limit; 0 is no limit.

    ``scaled`` says whether a scaler of fp16 makes the step; it sets a scale of its own.
    """
    if not limit:
        yield
    elif any(is_sharded(parameter) for parameter in parameters):
        clip(parameters, limit, processes)
        yield
    elif processes.device.type == "cuda" and not scaled and type(optimiser) is torch.optim.AdamW:
        with divided_in_update(parameters, limit, optimiser):
            yield
    else:
        nn.utils.clip_grad_norm_(parameters, limit)
        yield


@contextmanager
def divided_in_update(parameters: list[nn.Parameter], limit: float, optimiser: Any) -> Iterator[None]:
    """The same by fused AdamW itself, which divides gradients by its ``grad_scale`` as it reads them: one pass less."""
    norm = _norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if norm is None:
        yield
        return
    optimiser.grad_scale = ((norm + 1e-6) / limit).clamp(min=1.0)
    try:
        yield
    finally:
        del optimiser.grad_scale


@torch.no_grad()
def _norm(gradients: list[Tensor]) -> Tensor | None:
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) if gradients else None
