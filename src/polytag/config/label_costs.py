"""Costs of mistakes per label: checked, and in the order of the labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polytag.errors import ConfigError, DataError, brief


def checked_costs(costs: Any) -> dict[str, list[float]]:
    """The cost of a false positive and of a false negative of each label: numbers above 0."""
    if not isinstance(costs, Mapping):
        raise ConfigError(f"the costs are {brief(costs)}; pass a table such as {{'spam': [1, 10]}}")
    found = {}
    for name, pair in costs.items():
        numbers = [_number(value) for value in pair] if isinstance(pair, Sequence) and not isinstance(pair, str) else []
        if not isinstance(name, str) or len(numbers) != 2 or not all(0 < number < math.inf for number in numbers):
            shown = f"the costs of {brief(name)} are {brief(pair)}"
            raise ConfigError(f"{shown}; give two numbers above 0, of a false positive and a false negative")
        found[name] = numbers
    return found


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except ValueError:
        return math.nan


def cost_table(costs: Mapping[str, Sequence[float]], names: Sequence[str]) -> NDArray[np.float64]:
    """Costs (labels, 2) in the order of the labels; labels that are not named cost 1 and 1."""
    number = {name: at for at, name in enumerate(names)}
    table = np.ones((len(names), 2))
    for name, pair in costs.items():
        if name not in number:
            raise DataError(f"there is no label {brief(name)} in the training documents; correct the name in the costs")
        table[number[name]] = pair
    return table
