"""LACO: label correlation by reading a document and all labels together, with two tasks beside it (Zhang et al. 2021)."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.models.joint_model import JointModel
from polytag.models.model import HeldOut, State, param
from polytag.models.neural_model import NeuralModel
from polytag.nn.batch import Batch
from polytag.nn.continuing import take_over
from polytag.nn.cooccurrence import TASKS, ConditionTask, PairTask
from polytag.nn.cross_attention import AGGREGATES, SIMILARITIES, CrossAttention, SharedHead
from polytag.nn.encoders import Encoder, Transformer
from polytag.nn.export import export_network
from polytag.nn.frozen import FrozenEncoder
from polytag.nn.joint import Joint, LabelPart
from polytag.nn.nearness import Nearness
from polytag.nn.pretrained import WORD_ENCODERS
from polytag.thresholds import common

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run


_SOME = 256  # documents that tell how near texts and labels are in the mean
_TRUST = 0.5  # how much the shared head counts beside nearness where a label is scored that it never saw


class Frame(NamedTuple):
    """How many tokens stand before and after the words of every text."""

    before: int
    after: int


class OwnState(nn.Module):
    """What a label's own state says about it: ``(u + v_l) h_l / sqrt(size)``, u for all labels alike and v_l for one.

    Without the division a step could move the logits of all labels at once by more than they differ.
    """

    def __init__(self, hidden: int, n_labels: int) -> None:
        """Say nothing at first."""
        super().__init__()
        self.scale = 1 / math.sqrt(hidden)
        self.all = nn.Parameter(torch.zeros(hidden))
        self.each = nn.Parameter(torch.zeros(n_labels, hidden))

    def forward(self, labels: Tensor) -> Tensor:
        """Addends to the logits (batch, labels), from the labels' states (batch, labels, hidden)."""
        return (labels * (self.scale * (self.all + self.each)).to(labels.dtype)).sum(dim=2)


class LacoNetwork(nn.Module):
    """``sigmoid(W_1 c + b_1)`` (eq. 3) of a document vector c.

    With joint embedding the encoder reads document and labels together, else each label has a learned vector. With cross
    attention c is made of the words' states, each weighted by its fit with the labels; without, c is the state of the first
    token. Where labels are read in blocks, words and first token have the mean of their states over all blocks (``LabelPart``).
    Only through these weights do the labels' states tell what the encoder thinks of each label; with ``own`` they do so directly.
    Labels that were added after training are read in blocks of their own, which change nothing for the others, and the shared
    head scores them: against the document as the label itself sees it, or its first token where there is no cross attention. With
    ``near`` it adds to how near text and label are for the encoder as it came. Part of what it learned is about the very labels
    that it was taught, so for others it counts half: for labels held out of debtags, more ranked as well and decided worse.
    """

    def __init__(self, encoder: Encoder, n_labels: int, labels: LabelPart | None, frame: Frame, dropout: float) -> None:
        """Put the output layer on an encoder and, with joint embedding, the labels that it reads; the rest is set afterwards."""
        super().__init__()
        self.encoder = encoder
        self.frame = frame
        self.labels = labels
        self.vectors = nn.Parameter(torch.randn(n_labels, encoder.hidden) * 0.02) if labels is None else None
        self.cross: CrossAttention | None = None
        self.own: OwnState | None = None
        self.pairs: PairTask | None = None
        self.condition: ConditionTask | None = None
        self.shared: SharedHead | None = None
        self.near: Nearness | None = None
        self.added: LabelPart | None = None
        self.shared_only = False
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(encoder.hidden, n_labels)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, labels), those of added labels last."""
        joint = self.read(ids, mask)
        logits = self.share(joint) if self.shared_only else self.classify(joint)
        if self.added is None:
            return logits
        _, labels = self.added(self.encoder, ids, mask)
        return torch.cat([logits, self.share(joint, labels)], dim=1)

    def read(self, ids: Tensor, mask: Tensor) -> Joint:
        """The states of words and labels."""
        if self.labels is None:
            states = self.encoder(ids, mask)  # (batch, length, hidden)
            vectors = states.new_zeros(0, states.shape[2]) if self.vectors is None else self.vectors.to(states.dtype)
            labels = vectors.expand(len(ids), -1, -1)
        else:
            states, labels = self.labels(self.encoder, ids, mask)
        place = torch.arange(ids.shape[1], device=ids.device)
        inside = (place >= self.frame.before) & (place < mask.sum(dim=1, keepdim=True) - self.frame.after)
        asked = self.training or self.shared_only or self.added is not None
        origin = self.near.documents(ids, mask) if asked and self.near is not None else None
        return Joint(states, inside, states[:, 0], labels, origin)

    def classify(self, joint: Joint) -> Tensor:
        """Logits of the labels that it was trained on (batch, labels)."""
        document = joint.first if self.cross is None else self.cross(joint.words, joint.mask, joint.labels)
        logits: Tensor = self.output(self.dropout(document))
        return logits if self.own is None else logits + self.own(self.dropout(joint.labels))

    def share(self, joint: Joint, added: Tensor | None = None) -> Tensor:
        """Logits of the labels by the shared head, or of added ones, given their states (batch, labels, hidden)."""
        assert self.shared is not None
        labels = joint.labels if added is None else added
        if self.cross is None:
            documents = joint.first[:, None].expand(-1, labels.shape[1], -1)
        else:
            documents = self.cross.views(joint.words, joint.mask, labels)
        logits: Tensor = self.shared(documents, labels)
        if self.near is None or joint.origin is None:
            return logits
        trust = 1.0 if self.training else _TRUST
        return trust * logits + self.near.of(joint.origin, self.near.known if added is None else self.near.added)


@dataclass
class Laco(JointModel):
    """Document and labels read together by one encoder, words weighed by the labels, and tasks about labels that come together.

    The loss is ``L_mlc + alpha L_plcp + (1 - alpha) L_clcp`` (eq. 7), of which ``auxiliary`` names those beside the first. With
    ``shared`` a second head learns along that knows labels by their words only, so that ``add_labels`` needs no training.
    """

    joint: bool = param(True, "whether labels are read with the document; else each has a learned vector (w/o JE)")
    cross: bool = param(True, "whether the labels weigh the words; else the first token's state decides (w/o CA)")
    window: int = param(10, "neighbouring words whose fit with a label is looked at together", minimum=1)
    aggregate: str = param("mean", "the document: mean of the words by their weights, or sum (the paper's)", choices=AGGREGATES)
    own_state: bool = param(False, "whether a label's own state helps to decide about it, beside the document; not in the paper")
    similarity: str = param("dot", "how a word fits a label: dot product (the paper's), or cosine", choices=SIMILARITIES)
    auxiliary: str = param("none", "tasks learned beside: pairs of labels (plcp), labels given others (clcp)", choices=TASKS)
    alpha: float = param(0.5, "weight of plcp; that of clcp is one minus this", minimum=0, maximum=1)
    gamma: float = param(0.5, "pairs that come together for each that does not, in plcp", minimum=0.05, maximum=20)
    pairs: int = param(4, "pairs that come together drawn per document, in plcp", minimum=1)
    known: int = param(1, "true labels of a document that clcp is told", minimum=1)
    auxiliary_size: int = param(0, "hidden units of the tasks' classifiers; 0: linear, as in the paper", minimum=0)
    shared: bool = param(False, "whether a head that all labels share learns along, for labels added later")
    shared_weight: float = param(1.0, "weight of the shared head's loss", minimum=0)
    shared_size: int = param(256, "hidden units of the shared head", minimum=1)
    near: bool = param(True, "whether the shared head adds to how near text and label are for the encoder as it came")
    seen: int = field(init=False, repr=False, default=0)
    threshold: float | None = field(init=False, repr=False, default=None)

    # -- the network -----------------------------------------------------------------------------------------------

    def _network(self, n_labels: int) -> nn.Module:
        assert self.tokens is not None
        known, encoder = self.seen or n_labels, self._encoder()
        part = self._label_part(encoder, 0, known) if self.joint else None
        frame = Frame(len(self.tokens.prefix), len(self.tokens.suffix))
        network = LacoNetwork(encoder, known, part, frame, self.dropout)
        if self.cross:
            network.cross = CrossAttention(encoder.hidden, self.window, self.aggregate, self.similarity)
        if self.own_state and self.joint:
            network.own = OwnState(encoder.hidden, known)
        if self.auxiliary in ("plcp", "both"):
            network.pairs = PairTask(encoder.hidden, self.auxiliary_size, self.pairs, self.gamma)
        if self.auxiliary in ("clcp", "both"):
            network.condition = ConditionTask(encoder.hidden, self.auxiliary_size, self.known)
        if self.shared:
            network.shared = SharedHead(encoder.hidden, self.shared_size, self.dropout)
        if not (self.joint or self.cross or self.shared or self.auxiliary != "none"):
            network.vectors = None  # without joint embedding and cross attention it is BERT
        return network

    def _start_bias(self, network: nn.Module, counts: NDArray[Any], documents: int) -> None:
        super()._start_bias(network, counts, documents)
        assert isinstance(network, LacoNetwork)
        if network.shared is not None:
            share = torch.tensor((counts.sum() + 0.5) / (documents * len(counts) + 1))
            with torch.no_grad():
                network.shared.score.bias.fill_(torch.logit(share))

    # -- training --------------------------------------------------------------------------------------------------

    def _begin(self, texts: Sequence[str], train: Corpus) -> None:
        super()._begin(texts, train)
        if not (self.shared and self.near and self.joint) or self.label_text == "new" or self.encoder in WORD_ENCODERS:
            return
        assert self.tokens is not None and isinstance(self.network, LacoNetwork)
        earlier = self.start.network.near if self.start and isinstance(self.start.network, LacoNetwork) else None
        near = Nearness(earlier.frozen if earlier else FrozenEncoder.pretrained(self.encoder), self.tokens)
        near.known = near.texts(self._label_texts(self.labels.names))
        some = np.linspace(0, len(texts) - 1, min(len(texts), _SOME)).astype(int)
        near.mean = float((near.texts([texts[row] for row in some]) @ near.known.T).mean())
        self.network.near = near

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train; a shared head also gets a threshold of its own, by which labels are decided that are added later."""
        self.seen, self.threshold = 0, None
        train, valid = train.held_apart(valid, self.seed)
        held = super().fit(train, valid, run)
        self.seen = len(self.labels)
        if self.shared and valid is not None and valid.truth.nnz:
            assert isinstance(self.network, LacoNetwork)
            self.network.shared_only = True
            self.threshold = float(common(self.score(valid.texts), valid.truth, self.optimise, 0)[0])
            self.network.shared_only = False
        return held

    def _loss(self, network: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(network, LacoNetwork) and batch.targets is not None
        joint = network.read(batch.ids, batch.mask)
        loss = self._label_loss(network.classify(joint), batch.targets)
        if network.pairs is not None:
            loss = loss + self.alpha * network.pairs(joint.labels, batch.targets)
        if network.condition is not None:
            loss = loss + (1 - self.alpha) * network.condition(joint.labels, batch.targets)
        if network.shared is not None:
            loss = loss + self.shared_weight * self._label_loss(network.share(joint), batch.targets)
        return loss

    def _inherit(self, earlier: NeuralModel) -> None:
        assert self.network is not None and earlier.network is not None and isinstance(earlier, Laco)
        trained = LabelSet(earlier.labels.names[: earlier.seen])  # a label that was added since has no row yet
        take_over(self.network, earlier.network.state_dict(), self.labels, trained)

    # -- labels that training never saw ----------------------------------------------------------------------------

    def extend(self, labels: LabelSet) -> float | None:
        """Score these labels too, by the shared head; the threshold that was best for it on validation documents."""
        self.require_fitted()
        if not (self.shared and self.joint and self.label_text != "new"):
            raise ConfigError(
                "this 'laco' cannot score labels that it was not trained on; train it with shared=true, joint=true and "
                "label_text=name or description"
            )
        self.labels = self.labels.union(labels)
        self.exported = None
        self._read_added()
        return self.threshold

    def _read_added(self) -> None:
        """Let the network read the labels behind those of training."""
        assert isinstance(self.network, LacoNetwork)
        self.network.added = None
        if len(self.labels) > self.seen:
            part = self._label_part(self.network.encoder, self.seen, len(self.labels))
            self.network.added = part.to(next(self.network.parameters()).device)
            if self.network.near is not None:
                self.network.near.added = self.network.near.texts(self._label_texts(self.labels.names[self.seen :]))

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """What every network has, the number of labels that were trained, and what the shared head needs."""
        near = self.network.near if isinstance(self.network, LacoNetwork) else None
        own = {"seen": self.seen, "threshold": self.threshold, "near": None if near is None else near.state()}
        return {**super().state(), **own}

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Write the network as ONNX; attention there knows no padding, so blocks of labels must all be full."""
        self.require_fitted()
        network = copy.deepcopy(self.network)
        assert isinstance(network, LacoNetwork)
        full = [part.trim() for part in (network.labels, network.added) if part is not None]
        if isinstance(network.encoder, Transformer) and not all(full):
            raise ConfigError(
                "labels in blocks of different lengths cannot be exported; train with a larger block, or predict with torch"
            )
        return export_network(network, artefact, int8=int8)

    def restore(self, state: State) -> None:
        """Build the network again, labels that were added included."""
        self.seen, self.threshold = int(state["seen"]), state["threshold"]
        super().restore(state)
        assert isinstance(self.network, LacoNetwork) and self.tokens is not None
        if state.get("near") is not None:
            self.network.near = Nearness.from_state(state["near"], self.tokens)
        self._read_added()
