"""Matching: networks that say which clusters of labels a document belongs to (X-BERT, section 3.3).

A cluster is relevant to a document that has one of its labels. Both networks make one vector of a document, and logits of the
clusters from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional

from polytag.calibration import entries_in
from polytag.metrics_ranking import ranking_metrics
from polytag.nn.batch import Layout, tokenise
from polytag.nn.devices import pick_device
from polytag.nn.embedding import document_vectors
from polytag.nn.encoders import Encoder, build_encoder, pool
from polytag.nn.loop import seeded
from polytag.nn.pretrained import WORD_ENCODERS, WordSizes, describe_encoder, load_pretrained
from polytag.scores import Scores

SQUARED_HINGE = "squared-hinge"
_LABEL_TOKENS = 64  # of a label's name and description
_RECALLS = 10
_INPUTS = 256  # of a layer, up to which its weights have the full rate
_TIE = 0.01  # how much the squared error of the probabilities counts beside the recall, which it must not outweigh


class Matched(NamedTuple):
    """What a network found: clusters and log P(cluster | x), both (documents, beam), and the documents' vectors if needed."""

    clusters: NDArray[np.int32]
    logs: NDArray[np.float32]
    vectors: NDArray[np.float32] | None

    def rows(self, start: int, stop: int) -> Matched:
        """Some documents."""
        return Matched(*(None if part is None else part[start:stop] for part in self))  # type: ignore[arg-type]


class MatchNetwork(nn.Module, ABC):
    """An encoder, one vector per document, and a linear layer from it to the clusters."""

    def __init__(self, encoder: Encoder, size: int, n_clusters: int) -> None:
        """Put the output layer on an encoder; ``size`` is that of a document's vector."""
        super().__init__()
        self.encoder = encoder
        self.size = size
        self.output = nn.Linear(size, n_clusters)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    @abstractmethod
    def document(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The vector of each document (batch, size)."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, clusters)."""
        logits: Tensor = self.output(self.document(ids, mask))
        return logits


class WithVector(nn.Module):
    """A match network that also gives a document's vector, behind the logits: (batch, clusters + size)."""

    def __init__(self, network: MatchNetwork) -> None:
        """Take the network; its weights are shared."""
        super().__init__()
        self.network = network

    @property
    def encoder(self) -> Encoder:
        """The network's."""
        return self.network.encoder

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits and vectors."""
        vectors = self.network.document(ids, mask)
        return torch.cat([self.network.output(vectors), vectors], dim=1)


class BertMatch(MatchNetwork):
    """X-BERT (3.3.2): the state of the first token, or the mean of all, of a fine-tuned encoder."""

    def __init__(self, encoder: Encoder, n_clusters: int, pooling: str, dropout: float) -> None:
        """Take an encoder and how its states become a vector."""
        super().__init__(encoder, encoder.hidden, n_clusters)
        self.pooling = pooling
        self.first_token = pooling == "cls"  # the others' states are read by nothing above them
        self.dropout = nn.Dropout(dropout)

    def document(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The pooled states (batch, hidden)."""
        vectors: Tensor = self.dropout(pool(self.encoder(ids, mask), mask, self.pooling))
        return vectors


class AttentionMatch(MatchNetwork):
    """X-ttention (3.3.1): ``A = softmax(W_s2 tanh(W_s1 H))``, ``v = vec(H A^T)``, then one hidden layer with ReLU.

    H are the states of a BiLSTM; every row of A is one head's weights over the words. The vector of a document is the hidden
    layer: v itself, of heads times states, would be larger than anything that is ranked with. With ``norm`` (not in the paper)
    the hidden layer is normalised before ReLU, so that every document keeps some of its units.
    """

    def __init__(
        self, encoder: Encoder, n_clusters: int, heads: int, attention: int, dense: int, dropout: float, *, norm: bool
    ) -> None:
        """Take an encoder, the number of heads r, the attention's size d_a, and the size of the hidden layer."""
        super().__init__(encoder, dense, n_clusters)
        self.first = nn.Linear(encoder.hidden, attention, bias=False)  # W_s1
        self.second = nn.Linear(attention, heads, bias=False)  # W_s2
        self.dense = nn.Linear(heads * encoder.hidden, dense)
        self.norm = nn.LayerNorm(dense) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        # AdamW moves every weight by about the rate, whatever its gradient. Over tens of thousands of inputs that adds up to
        # steps which switch units off for all documents, and a unit that is off learns nothing any more.
        self.rate_shares: dict[str, float] = {"dense.weight": min(1.0, _INPUTS / self.dense.in_features)}

    def attend(self, states: Tensor, mask: Tensor) -> Tensor:
        """The weights of the words (batch, heads, length): A; they sum to one over the words that are there."""
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


def squared_hinge(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """``max(0, 1 - y s)^2`` with y = 1 or -1, a mean over documents and clusters; a weight per cluster for its positives."""
    missed = functional.relu(1 - (2 * targets - 1) * logits) ** 2
    return (missed if weights is None else missed * (1 + targets * (weights - 1))).mean()


def log_chances(logits: Tensor, loss: str) -> Tensor:
    """The logs of P(cluster | x): sigmoid, or after training by squared hinge, exp(-max(0, 1 - s)^3) as for separators."""
    logits = logits.float()
    return -(functional.relu(1 - logits) ** 3) if loss == SQUARED_HINGE else functional.logsigmoid(logits)


def match_quality(scores: Scores, truth: csr_array, beam: int) -> float:
    """Mean recall of the true clusters among the 1, ..., ``beam`` best, less a little for probabilities that are wrong.

    The last of these recalls alone says nothing once a beam holds most clusters.
    """
    ks = np.unique(np.linspace(1, beam, min(beam, _RECALLS)).astype(int)).tolist()
    found = ranking_metrics(truth, scores, ks)
    recall = float(np.mean([found[f"r@{k}"] for k in ks]))
    wrong = scores.matrix.data - entries_in(scores, truth)
    return recall - _TIE * float(np.mean(wrong**2)) if len(wrong) else recall


def best_clusters(logs: NDArray[np.float32], beam: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The best clusters of every document, from logs (documents, clusters): numbers and logs (documents, beam), best first."""
    if beam < logs.shape[1]:
        some = np.sort(np.argpartition(-logs, beam - 1, axis=1)[:, :beam], axis=1)
    else:
        some = np.broadcast_to(np.arange(logs.shape[1]), logs.shape)
    order = np.argsort(-np.take_along_axis(logs, some, 1), axis=1, kind="stable")  # equal ones by number
    best = np.take_along_axis(some, order, 1)
    return np.ascontiguousarray(best, dtype=np.int32), np.ascontiguousarray(np.take_along_axis(logs, best, 1), dtype=np.float32)


def softened(logs: NDArray[np.float32], power: float, beam: int) -> NDArray[np.float32]:
    """Logs (documents, clusters) of P(cluster | x) to a power; outside of the ``beam`` best clusters a power below 1 counts as 1.

    Separators are told apart from the documents that a beam brings them. What they make of others is a guess, which a network
    that says no must be able to outweigh: a mixture asks about labels that only another part has found.
    """
    found = logs * np.float32(power)
    if power < 1 and beam < logs.shape[1]:
        last = -np.partition(-logs, beam - 1, axis=1)[:, beam - 1 : beam]
        found = np.where(logs < last, logs, found)
    return found


# -- what labels say about themselves ----------------------------------------------------------------------------------


def text_vectors(encoder: str, texts: Sequence[str], vectors: str, seed: int, device: str, precision: str) -> NDArray[np.float32]:
    """A vector for every label from its text (3.2): the mean of a pretrained encoder's states, of length one.

    Of an encoder over words only the words' embeddings are taken: pretrained ones, or without a file of them random ones, by
    which labels are alike that share words.
    """
    name = "words" if encoder in WORD_ENCODERS else encoder
    tokens, description = describe_encoder(name, texts, WordSizes(vocabulary=0), None)
    with seeded(seed):
        network = build_encoder(description)
    load_pretrained(network, name, tokens, vectors)
    length = min(_LABEL_TOKENS, network.positions or _LABEL_TOKENS)
    layout = Layout(length, prefix=tokens.prefix, suffix=tokens.suffix, pad=tokens.pad)
    return document_vectors(network.to(pick_device(device)), tokenise(tokens, texts), layout, "mean", precision)
