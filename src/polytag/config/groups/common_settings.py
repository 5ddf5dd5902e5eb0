"""Settings that every model has, and that stand at the top of a recipe."""

from __future__ import annotations

from typing import Any

from polytag.config.settings import param

LARGEST_SEED = 10**18  # compiled code has 64 bits, and adds to it
METRIC_NAMES = ("micro_f1", "macro_f1", "subset_accuracy")


def seed_param() -> Any:
    """The seed."""
    return param(0, "random seed; same seed, same machine: same scores", minimum=0, maximum=LARGEST_SEED)


def optimise_param() -> Any:
    """The metric that choices are made for."""
    return param("micro_f1", "metric that choices on held-out documents are made for", choices=METRIC_NAMES, first=True)
