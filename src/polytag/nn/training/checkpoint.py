"""Networks, optimisers and random states as plain arrays, so that a checkpoint consists of JSON and safetensors only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.errors import ArtefactError

Arrays = dict[str, NDArray[Any]]
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def weights(network: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and buffers, on their device."""
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process has a slice of the tensor only; asked without an import of torch's distributed tensors."""
    return hasattr(tensor, "full_tensor")


def own_slice(tensor: Tensor) -> Tensor:
    """The slice of this process, or all of a tensor that is not sharded."""
    found: Tensor = getattr(tensor, "to_local", lambda: tensor)()
    return found


def whole(tensor: Tensor) -> Tensor:
    """All slices of a tensor together; all processes take part."""
    found: Tensor = getattr(tensor, "full_tensor", lambda: tensor)()
    return found


def to_arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    """Copies of tensors as arrays; with sharded tensors, all processes take part."""
    return {name: np.array(whole(tensor).detach().cpu().numpy()) for name, tensor in tensors.items()}


def load_arrays(network: nn.Module, arrays: Mapping[str, Any]) -> None:
    """Load arrays into a network of the same shape."""
    own = network.state_dict()
    wrong = sorted(set(own) ^ set(arrays)) or sorted(name for name in own if tuple(own[name].shape) != np.shape(arrays[name]))
    if wrong:
        raise ArtefactError(f"the weights do not belong to this network ({wrong[0]!r} does not fit); train it again")
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Arrays]:
    """The moments of every parameter by name."""
    found: dict[str, Arrays] = {}
    for group in optimiser.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            if parameter in optimiser.state:
                found[name] = to_arrays({key: optimiser.state[parameter][key] for key in _MOMENTS})
    return found


def load_optimiser(optimiser: torch.optim.Optimizer, state: Mapping[str, Mapping[str, Any]]) -> None:
    """Restore the moments."""
    for group in optimiser.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            if name in state:
                optimiser.state[parameter] = {
                    key: torch.from_numpy(np.array(state[name][key])).to(parameter.device) for key in _MOMENTS
                }


def random_state(device: torch.device) -> Arrays:
    """The states of torch's random generators, as bytes."""
    found = {"cpu": torch.get_rng_state().numpy()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device).numpy()
    return found


def load_random(state: Mapping[str, Any], device: torch.device) -> None:
    """Restore the states of torch's random generators."""
    torch.set_rng_state(torch.from_numpy(np.array(state["cpu"])))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(torch.from_numpy(np.array(state["cuda"])), device)
