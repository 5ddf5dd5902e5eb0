"""Continued training: the weights of an earlier network in a new one that may have more labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.relabelling.origins import Origins

_REMEDY = "leave the settings that shape the network as they were"


def take_over(network: nn.Module, earlier: Mapping[str, Tensor], labels: LabelSet, known: LabelSet) -> None:
    """Copy an earlier network's weights; in tensors with one row per label, the rows of new labels are unchanged.

    ``labels`` must start with the ``known`` ones, as a union by name does, so that a label has the same row in both.
    """
    if labels.names[: len(known)] != known.names:
        raise ConfigError("the labels must start with those of the earlier run, in its order; take their union with the new ones")
    own = network.state_dict()
    sizes = len(labels), len(known)
    for name in sorted(own.keys() ^ earlier.keys()):
        raise ConfigError(f"the earlier run has another network ({name!r} is in one only); {_REMEDY}")
    with torch.no_grad():
        for name, weight in own.items():
            before = earlier[name]
            if weight.shape == before.shape:
                weight.copy_(before)
            elif (len(weight), len(before)) == sizes and weight.shape[1:] == before.shape[1:]:
                weight[: len(known)] = before.to(weight.device)
            else:
                shapes = f"{tuple(before.shape)} there and {tuple(weight.shape)} here"
                raise ConfigError(f"the earlier run has a network of other sizes ({name!r} is {shapes}); {_REMEDY}")


class Labelled(Protocol):
    """A model that builds a network for its labels."""

    labels: LabelSet

    def _network(self, n_labels: int) -> nn.Module: ...


def rearranged(model: Labelled, earlier: Mapping[str, Tensor], labels: LabelSet, origins: Origins) -> nn.Module:
    """A network for ``labels`` with the weights of an earlier network, which was for the labels of the model; these change.

    The row of a label is that of the label it comes from, or the mean of several. Tensors with one row per label are those whose
    shape is another one with one label more.
    """
    model.labels = LabelSet([*model.labels, f"{''.join(model.labels)} more"])
    with torch.device("meta"):
        wider = model._network(len(model.labels)).state_dict()
    model.labels = labels
    network = model._network(len(labels))
    sources, counts = torch.from_numpy(origins.sources.astype(np.int64)), torch.from_numpy(np.diff(origins.starts))
    owners = torch.repeat_interleave(torch.arange(len(origins)), counts)
    with torch.no_grad():
        for name, weight in network.state_dict().items():
            before = earlier[name].cpu()
            if wider[name].shape != before.shape:
                total = torch.zeros(weight.shape, dtype=before.dtype).index_add_(0, owners, before[sources])
                before = total / counts.view(-1, *[1] * (weight.ndim - 1))
            weight.copy_(before)
    return network
