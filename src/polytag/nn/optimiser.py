"""AdamW with a rate per layer, and the schedule that the rates follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

SCHEDULES = ("linear", "cosine", "constant", "halving")


@dataclass(frozen=True)
class Settings:
    """What the training loop is told."""

    epochs: int = 5
    batch_size: int = 32
    encoder_rate: float = 5e-5
    head_rate: float = 1e-3
    warmup: float = 0.1
    schedule: str = "linear"
    full_epochs: int = 2
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    clip: float = 1.0
    average: float = 0.0
    accumulate: int = 1
    precision: str = "auto"
    patience: int = 0
    layer_decay: float = 1.0
    frozen_layers: int = 0
    evaluate_every: int = 0
    max_steps: int = 0
    log_every: int = 50
    checkpoint_seconds: float = 60.0
    pad_multiple: int = 1
    graphs: bool = True
    device: str = "auto"
    tensorboard: bool = False
    seed: int = 0


def parameter_groups(network: nn.Module, settings: Settings) -> list[dict[str, Any]]:
    """Parameters that share a rate and a decay; the encoder's rate falls by ``layer_decay`` with every layer from its top down.

    Biases and normalisations are not decayed. The head is everything outside ``network.encoder``. Parameters that a network
    names in ``rate_shares`` have that share of their rate.
    """
    encoder = getattr(network, "encoder", None)
    depths: dict[str, int] = {} if encoder is None else {f"encoder.{name}": depth for name, depth in encoder.depths().items()}
    top = max(depths.values(), default=0)
    shares: dict[str, float] = getattr(network, "rate_shares", {})
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        rate = settings.encoder_rate * settings.layer_decay ** (top - depths[name]) if name in depths else settings.head_rate
        rate *= shares.get(name, 1.0)
        decay = 0.0 if parameter.ndim < 2 else settings.weight_decay
        group = groups.setdefault((rate, decay), {"params": [], "names": [], "base": rate, "lr": rate, "weight_decay": decay})
        group["params"].append(parameter)
        group["names"].append(name)
    return list(groups.values())


def make_optimiser(network: nn.Module, settings: Settings, device: torch.device) -> torch.optim.AdamW:
    """AdamW in one fused kernel; on a GPU the rates are tensors there, so that a captured step reads their current values."""
    groups = parameter_groups(network, settings)
    on_gpu = device.type == "cuda"
    if on_gpu:
        groups = [{**group, "lr": torch.tensor(group["base"], device=device)} for group in groups]
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(groups, betas=betas, eps=settings.epsilon, fused=True, capturable=on_gpu)


def rate_factor(step: int, total: int, settings: Settings, epoch: int = 0) -> float:
    """The share of its full rate that step number ``step`` (from 0) of ``total``, in this epoch (from 0), is made with.

    ``warmup`` below 1 is a share of all steps, else a number of steps. ``linear`` and ``cosine`` fall to 0 at the end. With
    ``halving`` rates are full for ``full_epochs`` epochs, and then in every epoch half of what they were in the one before.
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
    """Let every group make its next step with this share of its full rate."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(group["base"] * factor)
        else:
            group["lr"] = group["base"] * factor
