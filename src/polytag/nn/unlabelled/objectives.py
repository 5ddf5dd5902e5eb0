"""Objectives without labels: hidden tokens (Devlin et al. 2019), two views of one text, and its words by the vector of a part.

All shapes depend on the padded length only, and nothing waits for the device, so that a step can be captured as a CUDA graph.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from polytag.nn.encoding.encoders import Encoder
from polytag.nn.training.batch import TokenArrays

SHARE = 0.15  # of the tokens of a text that are predicted
_SHARES = 0.2, 0.6  # of a text: the size of a part
_HIDDEN, _REPLACED = 0.8, 0.1  # of these, the share that is hidden and that is replaced by a random token; the rest stays


class MaskedNetwork(nn.Module):
    """An encoder, one layer, and the encoder's own token embeddings as the output layer."""

    rarity: Tensor

    def __init__(self, encoder: Encoder, counts: NDArray[np.int64]) -> None:
        """``counts`` are the frequencies of the tokens, at which the output layer starts."""
        super().__init__()
        self.encoder = encoder
        size = encoder.token_table().weight.shape[1]
        self.between = nn.Linear(encoder.hidden, size)
        self.normalise = nn.LayerNorm(size)
        if size == encoder.hidden:
            nn.init.eye_(self.between.weight)
            nn.init.zeros_(self.between.bias)
        share = (counts + 0.5) / (counts.sum() + 0.5 * len(counts))
        self.bias = nn.Parameter(torch.from_numpy(np.log(share).astype(np.float32)))
        rarity = np.where(counts > 0, -np.log(share), 0).astype(np.float32)  # special tokens are in no text, and count 0
        self.register_buffer("rarity", torch.from_numpy(rarity), persistent=False)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The states of the encoder."""
        states: Tensor = self.encoder(ids, mask)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Logits (..., tokens) of states (..., hidden)."""
        inner = self.normalise(functional.gelu(self.between(states)))
        table = self.encoder.token_table().weight
        scale = 1 / math.sqrt(table.shape[1])  # normalised states are longer than those that embeddings were made for
        return functional.linear(inner, table[: len(self.bias)]) * scale + self.bias


class Hidden(NamedTuple):
    """Inputs with hidden tokens (batch, length); the chosen places (batch, chosen), their tokens, and which of them count."""

    ids: Tensor
    places: Tensor
    tokens: Tensor
    counted: Tensor


class Hiding(NamedTuple):
    """Which tokens are hidden, and how: the token that stands for hidden ones, those never hidden, and all there are."""

    mask_token: int
    special: tuple[int, ...]
    vocabulary: int
    share: float = SHARE

    def hide(self, ids: Tensor, mask: Tensor) -> Hidden:
        """Choose tokens of every text at random, and hide them; a text with few tokens has one at least."""
        content = mask.clone()
        for token in self.special:
            content &= ids != token
        most = max(1, math.ceil(self.share * ids.shape[1]))
        order = torch.rand(ids.shape, device=ids.device).masked_fill(~content, -1.0)
        places = order.topk(most, dim=1).indices  # (batch, chosen)
        wanted = (content.sum(dim=1, keepdim=True) * self.share).ceil()
        counted = (torch.arange(most, device=ids.device) < wanted) & content.gather(1, places)
        tokens = ids.gather(1, places)
        kind = torch.rand(places.shape, device=ids.device)
        other = torch.randint(self.vocabulary, places.shape, device=ids.device)
        shown = torch.where(kind < _HIDDEN, self.mask_token, torch.where(kind < _HIDDEN + _REPLACED, other, tokens))
        return Hidden(ids.scatter(1, places, torch.where(counted, shown, tokens)), places, tokens, counted)


def masked_loss(network: MaskedNetwork, ids: Tensor, mask: Tensor, hiding: Hiding) -> Tensor:
    """The mean cross-entropy of hidden tokens."""
    hidden = hiding.hide(ids, mask)
    states = network(hidden.ids, mask)  # (batch, length, hidden)
    at = hidden.places[..., None].expand(-1, -1, states.shape[-1])
    logits = network.logits(states.gather(1, at)).float()  # (batch, chosen, tokens)
    each = functional.cross_entropy(logits.flatten(0, 1), hidden.tokens.flatten(), reduction="none")
    counted = hidden.counted.flatten().to(each.dtype)
    return (each * counted).sum() / counted.sum().clamp(min=1)


View: TypeAlias = tuple[Tensor, Tensor]  # ids and mask (batch, length)


def pair_loss(network: MaskedNetwork, views: tuple[View, View], temperature: float = 0.05) -> Tensor:
    """Two views of a text are nearer to each other than to those of the other texts of its batch.

    With the same view twice they differ by dropout (SimCSE, Gao et al. 2021).
    """
    vectors = [functional.normalize(_mean(network(*view), view[1]), dim=1) for view in views]
    similar = vectors[0] @ vectors[1].T / temperature  # (batch, batch)
    return functional.cross_entropy(similar, torch.arange(len(similar), device=similar.device))


def words_loss(network: MaskedNetwork, ids: Tensor, mask: Tensor) -> Tensor:
    """The tokens of a text, predicted from the vector of a random part of it: each counts once, by its rarity.

    The vector is the mean of the states, and the state of the first token: models pool by either. As in a classifier, one vector
    has to tell what a whole text is about.
    """
    part = random_part(ids, mask)
    states = network(*part)  # (batch, length, hidden)
    size = len(network.bias)
    wanted = torch.zeros((len(ids), size), device=ids.device).scatter(1, ids, mask.float()) * network.rarity  # (batch, tokens)
    wanted = wanted / wanted.sum(dim=1, keepdim=True).clamp(min=1e-6)
    each = [functional.log_softmax(network.logits(vector).float(), dim=1) for vector in (_mean(states, part[1]), states[:, 0])]
    return -sum(((wanted * one).sum(dim=1).mean() for one in each), start=torch.zeros((), device=ids.device)) / len(each)


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean of the states of a text (batch, hidden), in float32."""
    weight = mask[..., None].float()
    return (states.float() * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


def random_part(ids: Tensor, mask: Tensor) -> View:
    """The first token of every text, and a random part of the others, moved to the front.

    Length and place of the part say nothing about another part of the same text: two halves that meet, each at its own
    positions, could be matched by where the text was cut.
    """
    low, high = _SHARES
    inner = mask.sum(dim=1, keepdim=True) - 1  # tokens behind the first one
    size = (inner * (low + (high - low) * torch.rand(inner.shape, device=ids.device))).ceil()
    start = ((inner - size + 1) * torch.rand(inner.shape, device=ids.device)).floor()
    place = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)  # (batch, length)
    source = torch.where(place == 0, place, (place + start.long()).clamp(max=ids.shape[1] - 1))
    return ids.gather(1, source), mask & (place <= size)


def in_pieces(arrays: TokenArrays, room: int, least: int = 8) -> TokenArrays:
    """Long texts cut into pieces of ``room`` tokens; a last piece of fewer than ``least`` tokens is dropped."""
    starts, stops = [], []
    for first, last in zip(arrays.offsets[:-1].tolist(), arrays.offsets[1:].tolist(), strict=True):
        for start in range(first, max(last, first + 1), room):
            if start == first or last - start >= least:
                starts.append(start)
                stops.append(min(start + room, last))
    sizes = np.array(stops, dtype=np.int64) - np.array(starts, dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - np.array(starts, dtype=np.int64), sizes)
    return TokenArrays(np.asarray(arrays.ids)[at], offsets)
