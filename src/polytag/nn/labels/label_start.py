"""What a network knows about labels before training: the words of their texts, and how frequent they are."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.labels import LabelSet
from polytag.nn.encoding.encoders import Encoder
from polytag.nn.training.losses import log_odds
from polytag.text.tokens import SubwordTokens, WordTokens


def start_with_words(table: nn.Parameter, labels: LabelSet, tokens: WordTokens | SubwordTokens, encoder: Encoder) -> None:
    """Initialise label embeddings as the mean of the embeddings of their words, if the sizes agree."""
    words = encoder.token_table().weight.detach()
    if words.shape[1] != table.shape[1]:
        return
    described = labels.descriptions
    ids, offsets = tokens.encode([f"{name} {described.get(name, '')}" for name in labels.names])
    for label, (start, stop) in enumerate(itertools.pairwise(offsets.tolist())):
        if stop > start:
            with torch.no_grad():
                table[label] = words[torch.from_numpy(ids[start:stop]).long()].mean(dim=0)


def start_with_log_odds(network: nn.Module, counts: NDArray[Any], documents: int) -> None:
    """Initialise the bias of the label outputs, that of the layer ``output`` or the parameter ``bias``, by frequencies."""
    output = getattr(network, "output", None)
    bias = output.bias if isinstance(output, nn.Linear) else getattr(network, "bias", None)
    if isinstance(bias, Tensor):
        with torch.no_grad():
            bias.copy_(torch.from_numpy(log_odds(counts, documents)))
