"""Cross attention between words and labels, and an output head that all labels share."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

AGGREGATES = ("mean", "sum", "units")
SIMILARITIES = ("dot", "cosine")
FILTERS = ("words", "grid")
_FEWEST_OUT = 3  # with fewer labels to keep out, none are
LEAST = 1e-3  # minimum weight of a word; the maximum is 1


class CrossAttention(nn.Module):
    """Document-label cross attention (LACO, eq. 1 and 2).

    With the states of words H_D and labels H_Y, the compatibility matrix is ``M = H_D H_Y^T``. The weight Omega_i of word i is
    the result of a filter over ``window`` adjacent words, ReLU, the maximum over the labels, and tanh. All labels share the
    filter. The document vector is ``c = Omega H_D``. A sum over a hundred words is large, so c is divided by the sum of the
    weights; with ``aggregate`` = ``sum`` it is not, as in the paper. With ``units`` the states are normalised before the sum.

    M is scaled by ``1 / sqrt(hidden)`` as in other attention, since tanh of a plain dot product would saturate for every word.
    The filter should not learn this scale: its weights would be so small that ten optimiser steps could flip their sign. If its
    output is negative for all words and labels, ReLU has no gradient and never recovers. The filter is initialised as a mean over
    the window with bias one, so that all words have nearly the same weight at first. In a mean, every word has the minimum weight
    ``LEAST``. So a text that matches no label is the mean of its words instead of zero.

    The states of a trained encoder are so large that tanh still saturates for nearly every word, and c is the plain mean. With
    ``similarity`` = ``cosine`` all states are normalised in M, and the bias starts at zero: the weights differ from the start.
    """

    def __init__(self, hidden: int, window: int, aggregate: str, similarity: str = "dot") -> None:
        """Build the filter; ``hidden`` is the size of the states, ``window`` the number of words of the filter."""
        super().__init__()
        self.aggregate, self.similarity = aggregate, similarity
        self.scale = 1 / math.sqrt(hidden)
        self.weight = nn.Parameter(torch.full((1, 1, window), 1 / window))
        self.bias = nn.Parameter(torch.ones(1) if similarity == "dot" else torch.zeros(1))

    def forward(self, words: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """The document vector c (batch, hidden)."""
        strength = functional.relu(self._filtered(words, mask, labels).amax(dim=1, keepdim=True))  # (batch, 1, length)
        return self._sum(strength, words, mask).squeeze(1)

    def views(self, words: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """One document vector per label (batch, labels, hidden), from its own compatibility instead of the maximum."""
        return self._sum(self.fit(words, mask, labels), words, mask)

    def fit(self, words: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """The filtered compatibility of words and labels after ReLU (batch, labels, length)."""
        return functional.relu(self._filtered(words, mask, labels))

    def _filtered(self, words: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """The filter's output (batch, labels, length).

        A filter with one channel is a matrix product with the band matrix of its weights. That is much cheaper than a
        convolution, because no library is optimised for the gradients of a single channel.
        """
        products = self._products(words, mask, labels)
        return products @ self._band(words.shape[1]).to(products.dtype) + self.bias.to(products.dtype)

    def _products(self, words: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """The compatibility matrix M, scaled (batch, labels, length); padding is compatible with no label."""
        if self.similarity == "cosine":
            words, labels = functional.normalize(words, dim=2), functional.normalize(labels, dim=2)
        scale = self.scale if self.similarity == "dot" else 1.0
        return labels @ (words * (scale * mask[..., None]).to(words.dtype)).transpose(1, 2)

    def _band(self, length: int) -> Tensor:
        """The filter as a band matrix (length, length): the weight of the word of a row at the position of a column."""
        window = self.weight.shape[2]
        place, tap = (torch.arange(n, device=self.weight.device) for n in (length, window))
        apart = place[:, None] - place + (window - 1) // 2  # (length, length)
        which = (apart[..., None] == tap).to(self.weight.dtype)  # (length, length, window)
        return which @ self.weight[0, 0]

    def _sum(self, strength: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """The weighted sum or mean of the word states: strength (batch, any, length) to (batch, any, hidden)."""
        weights = torch.tanh(strength.float())
        if self.aggregate != "mean":
            states = functional.normalize(words, dim=2) if self.aggregate == "units" else words
            return (weights * mask[:, None]).to(words.dtype) @ states
        weights = (weights + LEAST) * mask[:, None]
        weights = weights / weights.sum(dim=2, keepdim=True).clamp(min=LEAST)
        return weights.to(words.dtype) @ words


class GridAttention(CrossAttention):
    """Cross attention as in the program of LACO's authors: filters over ``window`` adjacent words and as many adjacent labels.

    M is an image of words and labels with one channel. Every filter makes a channel of it; the weight of a word is tanh of the
    maximum over channels and labels, after ReLU. A filter sees labels together, so their order matters. The authors have one
    filter per label, normalise all states (``similarity`` = ``cosine``) and add them up (``aggregate`` = ``units``).

    The filters are random at first. The maximum over many random filters grows with the norm of what they see. So words that
    match a label have more weight than others from the start, and the words of a text have different weights.
    """

    def __init__(self, hidden: int, window: int, aggregate: str, similarity: str, channels: int) -> None:
        """Build ``channels`` filters of ``window`` words and labels; ``hidden`` is the size of the states."""
        super().__init__(hidden, window, aggregate, similarity)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(channels, 1, window, window)))
        self.bias = nn.Parameter(torch.zeros(channels))

    def _filtered(self, words: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """The maximum over the channels (batch, labels, length): ReLU and tanh are monotonic and come afterwards."""
        products = self._products(words, mask, labels)[:, None]  # (batch, 1, labels, length)
        before, window = (self.weight.shape[2] - 1) // 2, self.weight.shape[2]
        padded = functional.pad(products, (before, window - 1 - before) * 2)
        weight, bias = self.weight.to(products.dtype), self.bias.to(products.dtype)
        return functional.conv2d(padded, weight, bias).amax(dim=1)


class SharedHead(nn.Module):
    """A logit from a document vector d and a label state y: ``v relu(W_1 d + W_2 y + W_3 (d * y) + b_1) + b_2``.

    It has no label-specific weights, so it can score labels that were not in training.
    """

    def __init__(self, hidden: int, size: int, dropout: float) -> None:
        """Build the layers; ``hidden`` is the size of the vectors, ``size`` that of the hidden layer."""
        super().__init__()
        self.document = nn.Linear(hidden, size)
        self.label = nn.Linear(hidden, size, bias=False)
        self.both = nn.Linear(hidden, size, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(size, 1)
        self.taught: Tensor
        self.register_buffer("taught", torch.zeros(0, dtype=torch.bool), persistent=False)
        self.partly = False

    def keep_out(self, share: float, n_labels: int, seed: int) -> None:
        """Choose labels at random that the loss does not teach, if there are at least three; they are like new ones."""
        count = int(share * n_labels)
        taught = np.ones(n_labels, dtype=np.bool_)
        self.partly = count >= _FEWEST_OUT
        taught[np.random.default_rng(seed).permutation(n_labels)[:count]] = not self.partly
        self.taught = torch.from_numpy(taught)

    def for_loss(self, logits: Tensor) -> Tensor:
        """Logits whose gradient is zero for labels that are kept out."""
        return torch.where(self.taught, logits, logits.detach()) if self.partly else logits

    @property
    def like_new(self) -> NDArray[np.int64]:
        """The numbers of the labels that are kept out; all if none is."""
        return np.flatnonzero(self.taught.cpu().numpy() != self.partly)

    def forward(self, documents: Tensor, labels: Tensor) -> Tensor:
        """Logits (batch, labels) from label-specific document vectors and label states, both (batch, labels, hidden)."""
        seen = self.document(documents) + self.label(labels) + self.both(documents * labels)
        logits: Tensor = self.score(self.dropout(functional.relu(seen))).squeeze(2)
        return logits
