"""Networks out of an artefact: sizes are compared with the saved weights before any memory is allocated for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from polytag.errors import ArtefactError
from polytag.nn.training.checkpoint import load_arrays
from polytag.storage.schema import Anything, Named, Number, Optional, Schema, Table, Text, Variant

Network = TypeVar("Network", bound=nn.Module)
_SIZE = Number(1, 2**31 - 1)
_DROPOUT = Number(0, 1, whole=False)
_WORDS: dict[str, Schema] = {"kind": Text(("words", "bilstm")), "vocabulary": _SIZE, "embedding": _SIZE}
ENCODER = Variant(
    "kind",
    {
        "words": Table(_WORDS),
        "bilstm": Table({**_WORDS, "hidden": _SIZE, "layers": Number(1, 8), "dropout": _DROPOUT}),
        "transformer": Table({"kind": Text(("transformer",)), "config": Text(), "dropout": Optional(_DROPOUT)}),
    },
)
"""What the description of an encoder looks like when it is saved."""
WEIGHTS = Named(Anything(np.ndarray))
"""The weights of a network by name; ``restored_network`` compares types and shapes with the network."""
_UNBUILDABLE = (
    RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError, ArithmeticError, ImportError,
)  # fmt: skip
_MOST_TIMES = 4  # integers of a configuration are at most this many times the number of saved weights, or 2^20


def restored_network(make: Callable[[], Network], weights: Mapping[str, Any], description: Mapping[str, Any]) -> Network:
    """The network that ``make`` builds, with these weights; ArtefactError if they do not fit.

    It is built without memory first. So nothing is allocated by sizes that an artefact declares but has no weights for.
    """
    _check_sizes(description, weights)
    try:
        with torch.device("meta"):
            sketch = make()
    except _UNBUILDABLE as error:
        reason = " ".join(str(error).split())[:200]
        raise ArtefactError(f"the network cannot be built ({reason}); train it again") from None
    declared = sketch.state_dict()
    wrong = sorted(set(declared) ^ set(weights)) or sorted(
        name for name, tensor in declared.items() if not _fits(tensor, weights[name])
    )
    if wrong:
        raise ArtefactError(f"the weights do not belong to this network ({wrong[0]!r} does not fit); train it again")
    network = make()
    load_arrays(network, weights)
    return network


def _fits(tensor: torch.Tensor, array: Any) -> bool:
    kind = "f" if tensor.is_floating_point() else "b" if tensor.dtype == torch.bool else "iu"
    return tuple(tensor.shape) == array.shape and array.dtype.kind in kind


def _check_sizes(description: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    """Refuse a configuration with sizes far beyond the weights: layers without weights would take for ever to build."""
    if description["kind"] != "transformer":
        return
    try:
        config = json.loads(description["config"])
    except (ValueError, RecursionError):
        raise ArtefactError("the encoder's configuration is not JSON; train it again") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ArtefactError("the encoder's configuration names no model; train it again")
    numbers = sum(array.size for array in weights.values())
    for key, value in config.items():
        limit = (
            len(weights) if "layer" in key and "norm" not in key and "type" not in key else max(1 << 20, _MOST_TIMES * numbers)
        )
        if type(value) is int and abs(value) > limit:
            raise ArtefactError(f"the encoder's configuration has {key}={value}, which its weights do not fit; train it again")
