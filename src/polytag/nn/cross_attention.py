"""Words weighed by how they fit the labels, and a head that all labels share."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

AGGREGATES = ("mean", "sum")
SIMILARITIES = ("dot", "cosine")
LEAST = 1e-3  # the weight of a word that fits no label at all; one that fits has up to 1


class CrossAttention(nn.Module):
    """Document-label cross attention (LACO, eq. 1 and 2).

    With the states of words H_D and labels H_Y: ``M = H_D H_Y^T``; a filter over ``window`` neighbouring words, the same for
    every label, and ReLU; the largest value over the labels; tanh. That is the weight Omega_i of word i, and the document is
    ``c = Omega H_D``. Dot products of a hundred words add up to large vectors, so unless ``aggregate`` is ``sum``, as in the
    paper, c is divided by the sum of the weights.

    M is divided by the square root of the states' size as in any attention, since tanh of a plain dot product would be one for
    every word. That is not left to the filter: its weights would be so small that ten steps of an optimiser could turn it round,
    and where it is below zero for every word and label ReLU lets nothing through in either direction, for good. The filter starts
    as a mean over the window, its bias at one: then all words have nearly the same weight at first. In a mean every word has a
    little weight (``LEAST``) whatever it fits, so that a text that fits nothing is the mean of its words and not zero.

    States of a trained encoder are so long that even then tanh is one for nearly every word, and c the plain mean. With
    ``similarity`` ``cosine`` all states have length one in M, and the bias starts at zero: the weights differ from the start.
    """

    def __init__(self, hidden: int, window: int, aggregate: str, similarity: str = "dot") -> None:
        """Take the size of the states and the number of words that are looked at together."""
        super().__init__()
        self.aggregate, self.similarity = aggregate, similarity
        self.scale = 1 / math.sqrt(hidden)
        self.weight = nn.Parameter(torch.full((1, 1, window), 1 / window))
        self.bias = nn.Parameter(torch.ones(1) if similarity == "dot" else torch.zeros(1))

    def forward(self, words: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """The document, c (batch, hidden)."""
        strength = functional.relu(self._filtered(words, mask, labels).amax(dim=1, keepdim=True))  # (batch, 1, length)
        return self._sum(strength, words, mask).squeeze(1)

    def views(self, words: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """The document as every label by itself sees it (batch, labels, hidden): its own fit instead of the largest."""
        return self._sum(self.fit(words, mask, labels), words, mask)

    def fit(self, words: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """How each word, with its neighbours, fits each label: (batch, labels, length), never below zero."""
        return functional.relu(self._filtered(words, mask, labels))

    def _filtered(self, words: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """The filter's output (batch, labels, length).

        A filter along a hundred places, with one channel, is a matrix product with the band matrix of its weights: far cheaper
        than a convolution, whose gradients for a single channel no library is made for.
        """
        if self.similarity == "cosine":
            words, labels = functional.normalize(words, dim=2), functional.normalize(labels, dim=2)
        scale = self.scale if self.similarity == "dot" else 1.0
        words = words * (scale * mask[..., None]).to(words.dtype)  # what is beyond the text fits nothing
        products = labels @ words.transpose(1, 2)  # M by the scale, (batch, labels, length)
        return products @ self._band(words.shape[1]).to(products.dtype) + self.bias.to(products.dtype)

    def _band(self, length: int) -> Tensor:
        """The filter as a matrix (length, length): how much the word of a row counts at the place of a column."""
        window = self.weight.shape[2]
        place, tap = (torch.arange(n, device=self.weight.device) for n in (length, window))
        apart = place[:, None] - place + (window - 1) // 2  # (length, length)
        which = (apart[..., None] == tap).to(self.weight.dtype)  # (length, length, window)
        return which @ self.weight[0, 0]

    def _sum(self, strength: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """The words' states by their weights: strength (batch, any, length) to (batch, any, hidden)."""
        weights = torch.tanh(strength.float())
        if self.aggregate == "sum":
            return (weights * mask[:, None]).to(words.dtype) @ words
        weights = (weights + LEAST) * mask[:, None]
        weights = weights / weights.sum(dim=2, keepdim=True).clamp(min=LEAST)
        return weights.to(words.dtype) @ words


class SharedHead(nn.Module):
    """A score for a label's own vector against a document: ``v relu(W_1 d + W_2 y + W_3 (d * y) + b_1) + b_2``.

    It has no row of its own for any label, so it can score one that training never saw.
    """

    def __init__(self, hidden: int, size: int, dropout: float) -> None:
        """Take the size of the vectors and that of the layer between."""
        super().__init__()
        self.document = nn.Linear(hidden, size)
        self.label = nn.Linear(hidden, size, bias=False)
        self.both = nn.Linear(hidden, size, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(size, 1)

    def forward(self, documents: Tensor, labels: Tensor) -> Tensor:
        """Logits (batch, labels) of documents, as each label sees them, and labels, both (batch, labels, hidden)."""
        seen = self.document(documents) + self.label(labels) + self.both(documents * labels)
        logits: Tensor = self.score(self.dropout(functional.relu(seen))).squeeze(2)
        return logits
