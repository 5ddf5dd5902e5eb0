"""HMCN (Wehrmann et al. 2018): global and local outputs per level of a label tree, over any encoder (BERT paper, table 2)."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.labels import LabelSet
from polytag.models.base.neural_model import NeuralModel
from polytag.models.model import State, group, param
from polytag.nn.encoding.encoders import Encoder, pool
from polytag.nn.training.batch import Batch
from polytag.relabelling.origins import Origins
from polytag.storage.schema import Array, Number, Table

if TYPE_CHECKING:
    from polytag.corpus import Corpus

_NO_EDGES = np.zeros((2, 0), dtype=np.int64)  # they matter in training alone


def label_levels(labels: LabelSet) -> NDArray[np.int64]:
    """The level of every label, from 0: one below the deepest of its parents."""
    levels = np.zeros(len(labels), dtype=np.int64)
    for number in labels.topological_order():
        above = [int(levels[labels.number(parent)]) for parent in labels.parents_of(labels[int(number)])]
        levels[number] = max(above, default=-1) + 1
    return levels


def label_edges(labels: LabelSet) -> NDArray[np.int64]:
    """Pairs of a label and a parent (2, edges)."""
    pairs = [(number, labels.number(parent)) for number, name in enumerate(labels) for parent in labels.parents_of(name)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


class Tree(NamedTuple):
    """The number of levels, the level of every label, and pairs of a label and a parent (2, edges)."""

    depth: int
    levels: NDArray[np.int64]
    edges: NDArray[np.int64]

    @classmethod
    def of(cls, labels: LabelSet, most: int = 0) -> Tree:
        """The tree of some labels, with at most ``most`` levels, if that is not 0; deeper labels are on the last one."""
        levels = label_levels(labels)
        depth = most or int(levels.max(initial=0)) + 1
        return cls(depth, np.minimum(levels, depth - 1), label_edges(labels))

    def state(self) -> dict[str, Any]:
        """What an artefact keeps; edges are for training."""
        return {"depth": self.depth, "levels": self.levels}


class HmcnNetwork(nn.Module):
    """HMCN-F, with x the pooled states of the encoder.

    ``A_1 = relu(W_1 x)``, ``A_h = relu(W_h [A_{h-1}; x])``; local outputs of the labels of level h ``P_L = sigmoid(W_L relu(T_h
    A_h))``, global outputs of all labels ``P_G = sigmoid(W_G A_H)``; the prediction is ``beta P_L + (1 - beta) P_G``.

    The local output layer has one row per label, each used at the level of its label, so that labels can be added.
    """

    order: Tensor
    edges: Tensor

    def __init__(self, encoder: Encoder, tree: Tree, size: int, pooling: str, dropout: float, beta: float) -> None:
        """Add the layers to an encoder, for the levels of the labels."""
        super().__init__()
        depth, levels = tree.depth, tree.levels
        self.encoder, self.pooling, self.beta = encoder, pooling, beta
        self.level = nn.ModuleList(nn.Linear(encoder.hidden + (size if number else 0), size) for number in range(depth))
        self.transfer = nn.ModuleList(nn.Linear(size, size) for _ in range(depth))
        self.local = nn.Linear(size, len(levels))
        self.output = nn.Linear(size, len(levels))
        self.dropout = nn.Dropout(dropout)
        self.counts = [int((levels == number).sum()) for number in range(depth)]
        self.register_buffer("order", torch.from_numpy(np.argsort(levels, kind="stable")), persistent=False)
        self.register_buffer("edges", torch.from_numpy(np.array(tree.edges)), persistent=False)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The logits (batch, labels) of the weighted mean of both probabilities."""
        return self.mixed(self.both(ids, mask))

    def both(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The local, then the global logits (batch, 2 * labels)."""
        x = self.dropout(pool(self.encoder(ids, mask), mask, self.pooling))  # (batch, hidden)
        rows = torch.split(self.order, self.counts)
        state, local = x, []
        for number, (level, transfer) in enumerate(zip(self.level, self.transfer, strict=True)):
            state = self.dropout(functional.relu(level(torch.cat([state, x], dim=1) if number else x)))  # (batch, size)
            inner = functional.relu(transfer(state))
            local.append(functional.linear(inner, self.local.weight[rows[number]], self.local.bias[rows[number]]))
        own = torch.cat(local, dim=1)[:, torch.argsort(self.order)]  # (batch, labels), in the order of the labels
        return torch.cat([own, self.output(state)], dim=1)

    def mixed(self, both: Tensor) -> Tensor:
        """The logits of ``beta P_L + (1 - beta) P_G`` from both logits, exact for large ones."""
        local, whole = both.float().chunk(2, dim=1)
        if self.beta in (0.0, 1.0):
            return local if self.beta else whole
        shares = math.log(self.beta), math.log1p(-self.beta)
        yes, no = (
            torch.logaddexp(functional.logsigmoid(sign * local) + shares[0], functional.logsigmoid(sign * whole) + shares[1])
            for sign in (1, -1)
        )
        return yes - no


@dataclass
class Hmcn(NeuralModel):
    """An encoder with one layer per level of the label tree, local outputs of each level and global outputs of all labels.

    The loss is that of both outputs, and ``violation`` times the mean of ``max(0, p_label - p_parent)^2``.
    """

    encoding: EncoderSettings = group(EncoderSettings)
    level_size: int = param(384, "hidden units of a level of the label tree", minimum=1, first=True)
    local_share: float = param(0.5, "weight of the local outputs in the prediction (beta)", minimum=0, maximum=1, first=True)
    violation: float = param(0.1, "weight of the loss of labels that are more probable than their parents (lambda)", minimum=0)

    tree: Tree | None = field(init=False, repr=False, default=None)

    def _begin(self, texts: Sequence[str], train: Corpus) -> None:
        self.tree = Tree.of(self.labels, self.start.tree.depth if isinstance(self.start, Hmcn) and self.start.tree else 0)
        super()._begin(texts, train)

    def transferred(self, labels: LabelSet, origins: Origins) -> Self:
        """A copy whose labels also have the levels of the labels that they come from."""
        assert self.tree is not None
        prepared = copy.copy(self)
        prepared.tree = self.tree._replace(levels=self.tree.levels[origins.first], edges=_NO_EDGES)
        return super(Hmcn, prepared).transferred(labels, origins)

    def _network(self, n_labels: int) -> nn.Module:
        assert self.tree is not None
        sizes = self.level_size, self.encoding.pooling, self.training.dropout, self.local_share
        return HmcnNetwork(self._encoder(), self.tree, *sizes)

    def _loss(self, network: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(network, HmcnNetwork) and batch.targets is not None
        both = self._logits(network.both, batch)
        loss = sum((self._label_loss(part, batch.targets, batch.judged) for part in both.chunk(2, dim=1)), both.new_zeros(()))
        if not self.violation or not network.edges.shape[1]:
            return loss
        child, parent = network.edges
        p = torch.sigmoid(network.mixed(both))
        return loss + self.violation * functional.relu(p[:, child] - p[:, parent]).square().mean()

    def _start_bias(self, network: nn.Module, counts: NDArray[np.int64], documents: int) -> None:
        super()._start_bias(network, counts, documents)
        assert isinstance(network, HmcnNetwork)
        with torch.no_grad():
            network.local.bias.copy_(network.output.bias)

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The state of every neural model, and the levels of the labels: their parents may be edited later."""
        found = super().state()
        assert self.tree is not None
        return {**found, "tree": self.tree.state()}

    def schema(self) -> Table:
        """What every network has, and the levels."""
        tree = Table({"depth": Number(1, 1_000), "levels": Array(("int64",), ("labels",), low=0)})
        return Table({**super().schema().fields, "tree": tree})

    def restore(self, state: State) -> None:
        """Rebuild the network and restore its weights."""
        depth, levels = int(state["tree"]["depth"]), np.asarray(state["tree"]["levels"])
        if levels.max(initial=0) >= depth:
            raise ValueError("its labels have more levels than its network")
        self.tree = Tree(depth, levels, _NO_EDGES)
        super().restore(state)
