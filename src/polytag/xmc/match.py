"""Matching: networks that predict the label clusters of a document (X-BERT, section 3.3).

A cluster is relevant to a document that has one of its labels. Both networks pool a document to one vector and compute the
logits of the clusters from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from polytag.config.groups.encoder_settings import WORD_ENCODERS, WordSettings
from polytag.config.groups.loss_settings import SQUARED_HINGE
from polytag.nn.encoding.document_vectors import document_vectors
from polytag.nn.encoding.encoders import Encoder, build_encoder, pool
from polytag.nn.encoding.pretrained import describe_encoder, load_pretrained
from polytag.nn.training.batch import Layout, tokenise
from polytag.nn.training.devices import pick_device
from polytag.nn.training.loop import seeded
from polytag.nn.training.losses import mean

_LABEL_TOKENS = 64  # maximum number of tokens of a label's name and description
_INPUTS = 256  # a layer with more inputs has a lower learning rate


class Matched(NamedTuple):
    """The output of a matcher: clusters and log P(cluster | x), both (documents, beam), and document vectors if needed."""

    clusters: NDArray[np.int32]
    logs: NDArray[np.float32]
    vectors: NDArray[np.float32] | None

    def rows(self, start: int, stop: int) -> Matched:
        """The documents start..stop."""
        return Matched(*(None if part is None else part[start:stop] for part in self))  # type: ignore[arg-type]


class MatchNetwork(nn.Module, ABC):
    """An encoder, pooling to one vector per document, and a linear layer to the clusters."""

    def __init__(self, encoder: Encoder, size: int, n_clusters: int) -> None:
        """Add the output layer to an encoder; ``size`` is the size of a document vector."""
        super().__init__()
        self.encoder = encoder
        self.size = size
        self.output = nn.Linear(size, n_clusters)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    @abstractmethod
    def document(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The document vectors (batch, size)."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, clusters)."""
        logits: Tensor = self.output(self.document(ids, mask))
        return logits


class WithVector(nn.Module):
    """A match network that also returns the document vector, after the logits: (batch, clusters + size)."""

    def __init__(self, network: MatchNetwork) -> None:
        """Wrap the network; the weights are shared."""
        super().__init__()
        self.network = network

    @property
    def encoder(self) -> Encoder:
        """The network's encoder."""
        return self.network.encoder

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits and document vectors (batch, clusters + size)."""
        vectors = self.network.document(ids, mask)
        return torch.cat([self.network.output(vectors), vectors], dim=1)


class BertMatch(MatchNetwork):
    """X-BERT (3.3.2): the pooled states of a fine-tuned encoder."""

    def __init__(self, encoder: Encoder, n_clusters: int, pooling: str, dropout: float) -> None:
        """Store the encoder and the pooling of its states."""
        super().__init__(encoder, encoder.hidden, n_clusters)
        self.pooling = pooling
        self.first_token = pooling == "cls"  # the states of the other tokens are not used
        self.dropout = nn.Dropout(dropout)

    def document(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The pooled states (batch, hidden)."""
        vectors: Tensor = self.dropout(pool(self.encoder(ids, mask), mask, self.pooling))
        return vectors


class AttentionMatch(MatchNetwork):
    """X-ttention (3.3.1): ``A = softmax(W_s2 tanh(W_s1 H))``, ``v = vec(H A^T)``, then one hidden layer with ReLU.

    H are the states of a BiLSTM; every row of A has one head's weights over the words. The document vector is the hidden layer,
    because v (heads times states) is too large to join with tf-idf. With ``norm`` (not in the paper) the hidden layer is
    normalised before ReLU, so that some of its units are active for every document.
    """

    def __init__(
        self, encoder: Encoder, n_clusters: int, heads: int, attention: int, dense: int, dropout: float, *, norm: bool,
        scaled: bool = True,
    ) -> None:  # fmt: skip
        """Build on an encoder; ``heads`` is r, ``attention`` is d_a, ``dense`` is the size of the hidden layer.

        With ``scaled`` (not in the paper), the hidden layer has a lower learning rate if it has many inputs.
        """
        super().__init__(encoder, dense, n_clusters)
        self.first = nn.Linear(encoder.hidden, attention, bias=False)  # W_s1
        self.second = nn.Linear(attention, heads, bias=False)  # W_s2
        self.dense = nn.Linear(heads * encoder.hidden, dense)
        self.norm = nn.LayerNorm(dense) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        # AdamW changes every weight by about the learning rate, whatever its gradient. With tens of thousands of inputs, such a
        # step can deactivate ReLU units for all documents, and a dead unit has no gradient.
        self.rate_shares = {"dense.weight": min(1.0, _INPUTS / self.dense.in_features)} if scaled else {}

    def attend(self, states: Tensor, mask: Tensor) -> Tensor:
        """The attention weights A (batch, heads, length); they sum to one over the words, and padding has none."""
        fit = self.second(torch.tanh(self.first(states))).float()  # (batch, length, heads)
        return torch.softmax(fit.masked_fill(~mask[..., None], float("-inf")), dim=1).transpose(1, 2)

    def document(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The hidden layer (batch, dense)."""
        states = self.encoder(ids, mask)  # (batch, length, hidden)
        views = self.attend(states, mask).to(states.dtype) @ states  # (batch, heads, hidden)
        vectors: Tensor = functional.relu(self.norm(self.dense(self.dropout(views.flatten(1)))))
        dropped: Tensor = self.dropout(vectors)
        return dropped


# -- training ----------------------------------------------------------------------------------------------------------


def squared_hinge(logits: Tensor, targets: Tensor, weights: Tensor | None = None, judged: Tensor | None = None) -> Tensor:
    """``max(0, 1 - y s)^2`` with y = 1 or -1, averaged over documents and clusters; ``weights`` apply to positives."""
    missed = functional.relu(1 - (2 * targets - 1) * logits) ** 2
    return mean(missed if weights is None else missed * (1 + targets * (weights - 1)), judged)


def log_probabilities(logits: Tensor, loss: str) -> Tensor:
    """Log P(cluster | x): log-sigmoid, or ``-max(0, 1 - s)^3`` after training by squared hinge, as for separators."""
    logits = logits.float()
    return -(functional.relu(1 - logits) ** 3) if loss == SQUARED_HINGE else functional.logsigmoid(logits)


def best_clusters(logs: NDArray[np.float32], beam: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The best clusters and their logs, both (documents, beam), best first, from the logs of all (documents, clusters)."""
    if beam < logs.shape[1]:
        some = np.sort(np.argpartition(-logs, beam - 1, axis=1)[:, :beam], axis=1)
    else:
        some = np.broadcast_to(np.arange(logs.shape[1]), logs.shape)
    order = np.argsort(-np.take_along_axis(logs, some, 1), axis=1, kind="stable")  # ties by number
    best = np.take_along_axis(some, order, 1)
    return np.ascontiguousarray(best, dtype=np.int32), np.ascontiguousarray(np.take_along_axis(logs, best, 1), dtype=np.float32)


def apply_power(logs: NDArray[np.float32], power: float, beam: int) -> NDArray[np.float32]:
    """The log of P(cluster | x)^power (documents, clusters); a power below 1 applies to the ``beam`` best clusters only.

    Separators are trained on the documents within the beam, so their scores of other documents are unreliable. An ensemble
    requests such scores for the candidates of its other members; there, a low P(cluster | x) must keep its full weight.
    """
    found = logs * np.float32(power)
    if power < 1 and beam < logs.shape[1]:
        last = -np.partition(-logs, beam - 1, axis=1)[:, beam - 1 : beam]
        found = np.where(logs < last, logs, found)
    return found


# -- label embeddings from text ----------------------------------------------------------------------------------------


def text_vectors(
    encoder: str, texts: Sequence[str], *, vectors: str = "", seed: int = 0, compute: tuple[str, str] = ("auto", "auto")
) -> NDArray[np.float32]:
    """Label embeddings from the labels' texts (3.2): the mean of a pretrained encoder's states, with unit length.

    An encoder over words contributes its word embeddings only: pretrained ones, or random ones if there is no file of vectors.
    With random ones, labels that share words are similar.
    """
    name = "words" if encoder in WORD_ENCODERS else encoder
    tokens, description = describe_encoder(name, texts, WordSettings(vocabulary=0), None)
    with seeded(seed):
        network = build_encoder(description)
    load_pretrained(network, name, tokens, vectors)
    length = min(_LABEL_TOKENS, network.positions or _LABEL_TOKENS)
    layout = Layout(length, prefix=tokens.prefix, suffix=tokens.suffix, pad=tokens.pad)
    return document_vectors(network.to(pick_device(compute[0])), tokenise(tokens, texts), layout, "mean", compute[1])
