"""LACO: a document and all labels are encoded together, with two auxiliary tasks on label correlation (Zhang et al. 2021)."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from polytag.config.groups.encoder_settings import WORD_ENCODERS
from polytag.config.groups.window_settings import WindowSettings
from polytag.decision.thresholds import common
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.models.base.attribution import Attention
from polytag.models.base.joint_model import JointModel
from polytag.models.base.neural_model import NeuralModel
from polytag.models.model import Examples, Extension, HeldOut, State, group, param
from polytag.nn.encoding.encoders import Encoder, Transformer
from polytag.nn.encoding.frozen_encoder import FROZEN, FrozenEncoder
from polytag.nn.export.onnx_export import export_network
from polytag.nn.labels.cooccurrence import PAIR_LOSSES, TASKS, ConditionTask, PairTask
from polytag.nn.labels.cross_attention import AGGREGATES, FILTERS, SIMILARITIES, CrossAttention, GridAttention, SharedHead
from polytag.nn.labels.label_input import Joint, LabelPart
from polytag.nn.labels.label_similarity import Nearness
from polytag.nn.training.batch import Batch
from polytag.nn.training.warm_start import take_over
from polytag.relabelling.origins import Origins
from polytag.scores import Scores
from polytag.storage.schema import Number, Optional, Schema, Table

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run


_SOME = 256  # documents from which the mean similarity of texts and labels is estimated
_TRUST = 0.5  # weight of the shared head, relative to the similarity, for labels that it was not trained on


class Frame(NamedTuple):
    """The number of special tokens before and after the words of every text."""

    before: int
    after: int


class OwnState(nn.Module):
    """The contribution of a label's own state to its logit: ``(u + v_l) h_l / sqrt(size)``; u is shared by all labels.

    Without the division, one step could change the logits of all labels by more than their differences.
    """

    def __init__(self, hidden: int, n_labels: int) -> None:
        """Initialise with zeros: no contribution."""
        super().__init__()
        self.scale = 1 / math.sqrt(hidden)
        self.all = nn.Parameter(torch.zeros(hidden))
        self.each = nn.Parameter(torch.zeros(n_labels, hidden))

    def forward(self, labels: Tensor) -> Tensor:
        """Addends to the logits (batch, labels), from the labels' states (batch, labels, hidden)."""
        return (labels * (self.scale * (self.all + self.each)).to(labels.dtype)).sum(dim=2)


class LacoNetwork(nn.Module):
    """``sigmoid(W_1 c + b_1)`` (eq. 3) of a document vector c.

    With joint embedding, document and labels are encoded together; else each label has a learned embedding. With cross attention,
    c is the sum of the word states, weighted by their compatibility with the labels; else c is the state of the first token. If
    labels are encoded in blocks, the states of words and first token are averaged over all blocks (``LabelPart``). The labels'
    states affect the logits through these weights only; with ``own`` also directly.
    Labels that were added after training are encoded in blocks of their own, so that the others' scores do not change. The shared
    head scores an added label with its own view of the document, or the first token without cross attention. With ``near``, the
    cosine of text and label in the frozen encoder is added. The shared head is partly specific to its training labels, so it has
    half weight for added ones: on labels held out of debtags, full weight ranked equally well and gave worse label sets.
    """

    def __init__(self, encoder: Encoder, n_labels: int, labels: LabelPart | None, frame: Frame, dropout: float) -> None:
        """Add the output layer and, with joint embedding, the label input to an encoder; other parts are set afterwards."""
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
        """Logits (batch, labels); those of added labels are last."""
        joint = self.encode(ids, mask)
        logits = self.share(joint) if self.shared_only else self.classify(joint)
        if self.added is None:
            return logits
        _, labels = self.added(self.encoder, ids, mask)
        return torch.cat([logits, self.share(joint, labels)], dim=1)

    def encode(self, ids: Tensor, mask: Tensor) -> Joint:
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
        """Logits of the training labels (batch, labels)."""
        document = joint.first if self.cross is None else self.cross(joint.words, joint.mask, joint.labels)
        logits: Tensor = self.output(self.dropout(document))
        return logits if self.own is None else logits + self.own(self.dropout(joint.labels))

    def share(self, joint: Joint, added: Tensor | None = None) -> Tensor:
        """Logits of the training labels by the shared head, or of added labels with these states (batch, labels, hidden)."""
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
    """Joint encoding of document and labels, cross attention, and auxiliary tasks on label co-occurrence.

    The loss is ``L_mlc + alpha L_plcp + (1 - alpha) L_clcp`` (eq. 7); ``auxiliary`` selects the auxiliary terms. With ``shared``,
    a second head is trained that represents labels by their text only, so that ``add_labels`` needs no training.
    """

    extendable: ClassVar[bool] = True

    joint: bool = param(True, "whether labels are encoded with the document; else each has a learned vector (w/o JE)", first=True)
    cross: bool = param(
        True, "whether labels weight the words by cross attention; else the first token's state decides (w/o CA)", first=True
    )
    windows: WindowSettings = group(
        WindowSettings, limits={"window": (1, None)}, unless={"window": {"cross": (False,)}}, window=10
    )
    aggregate: str = param(
        "mean",
        "document vector: weighted mean of the words, sum (the paper's), or sum of normalised states (its authors')",
        choices=AGGREGATES,
        unless={"cross": (False,)},
    )
    filter: str = param(
        "words",
        "filter of the word-label similarities: over adjacent words, or grid: over adjacent words and labels (the authors')",
        choices=FILTERS,
        unless={"cross": (False,)},
    )
    channels: int = param(
        64,
        "number of filters over words and labels; the authors: one per label",
        minimum=1,
        when={"filter": ("grid",)},
        unless={"cross": (False,)},
    )
    own_state: bool = param(
        False, "whether a label's own state contributes to its logit; not in the paper", unless={"joint": (False,)}
    )
    similarity: str = param(
        "dot",
        "similarity of word and label: dot product (the paper's), or cosine (its authors')",
        choices=SIMILARITIES,
        unless={"cross": (False,)},
    )
    auxiliary: str = param(
        "none", "auxiliary tasks: pairwise (plcp), conditional (clcp) label co-occurrence, or both", choices=TASKS, first=True
    )
    alpha: float = param(
        0.5, "weight of plcp; that of clcp is 1 - alpha (eq. 7)", minimum=0, maximum=1, unless={"auxiliary": ("none",)}
    )
    gamma: float = param(
        0.5, "positive pairs per negative pair in plcp", minimum=0.05, maximum=20, when={"auxiliary": ("plcp", "both")}
    )
    pairs: int = param(4, "positive pairs sampled per document in plcp", minimum=1, when={"auxiliary": ("plcp", "both")})
    pair_loss: str = param(
        "sum", "loss of a document in plcp: sum over its pairs, or mean (the paper's weight)", choices=PAIR_LOSSES,
        when={"auxiliary": ("plcp", "both")},
    )  # fmt: skip
    known: int = param(1, "true labels of a document that clcp conditions on", minimum=1, when={"auxiliary": ("clcp", "both")})
    auxiliary_size: int = param(
        0, "hidden units of the auxiliary classifiers; 0 = linear, as in the paper", minimum=0, unless={"auxiliary": ("none",)}
    )
    shared: bool = param(False, "whether a head shared by all labels is trained too, for labels added later", first=True)
    shared_weight: float = param(1.0, "weight of the shared head's loss", minimum=0, when={"shared": (True,)})
    shared_size: int = param(256, "hidden units of the shared head", minimum=1, when={"shared": (True,)})
    shared_holdout: float = param(
        0.1, "share of labels that the shared head is not taught, to fit its threshold on", minimum=0, maximum=0.5,
        when={"shared": (True,)},
    )  # fmt: skip
    near: bool = param(
        True, "whether the shared head adds the cosine of text and label in the frozen encoder", when={"shared": (True,)}
    )
    seen: int = field(init=False, repr=False, default=0)
    threshold: float | None = field(init=False, repr=False, default=None)

    # -- the network -----------------------------------------------------------------------------------------------

    def _network(self, n_labels: int) -> nn.Module:
        assert self.tokens is not None
        known, encoder = self.seen or n_labels, self._encoder()
        part = self._label_part(encoder, 0, known) if self.joint else None
        frame = Frame(len(self.tokens.prefix), len(self.tokens.suffix))
        network = LacoNetwork(encoder, known, part, frame, self.training.dropout)
        if self.cross:
            network.cross = self._attention(encoder.hidden)
        if self.own_state and self.joint:
            network.own = OwnState(encoder.hidden, known)
        if self.auxiliary in ("plcp", "both"):
            network.pairs = PairTask(encoder.hidden, self.auxiliary_size, self.pairs, self.gamma, self.pair_loss)
        if self.auxiliary in ("clcp", "both"):
            network.condition = ConditionTask(encoder.hidden, self.auxiliary_size, self.known)
        if self.shared:
            network.shared = SharedHead(encoder.hidden, self.shared_size, self.training.dropout)
        if not (self.joint or self.cross or self.shared or self.auxiliary != "none"):
            network.vectors = None  # without all of these the network is BERT
        return network

    def _attention(self, hidden: int) -> CrossAttention:
        how = hidden, self.windows.window, self.aggregate, self.similarity
        return GridAttention(*how, self.channels) if self.filter == "grid" else CrossAttention(*how)

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
        if isinstance(self.network, LacoNetwork) and self.network.shared is not None:
            self.network.shared.keep_out(self.shared_holdout, len(self.labels), self.seed)
        if not (self.shared and self.near and self.joint) or self.label_text == "new" or self.encoding.encoder in WORD_ENCODERS:
            return
        assert self.tokens is not None and isinstance(self.network, LacoNetwork)
        earlier = self.start.network.near if self.start and isinstance(self.start.network, LacoNetwork) else None
        near = Nearness(earlier.frozen if earlier else FrozenEncoder.pretrained(self.encoding.encoder), self.tokens)
        near.known = near.texts(self._label_texts(self.labels.names))
        some = np.linspace(0, len(texts) - 1, min(len(texts), _SOME)).astype(int)
        near.mean = float((near.texts([texts[row] for row in some]) @ near.known.T).mean())
        self.network.near = near

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train; with a shared head, also fit its threshold on validation documents and labels that it was not taught."""
        self.seen, self.threshold = 0, None
        parts = train.hold_out(valid, self.seed)
        valid = parts.valid
        held = super().fit(parts.train, valid, run)
        self.seen = len(self.labels)
        if self.shared and valid is not None and valid.truth.nnz:
            assert isinstance(self.network, LacoNetwork) and self.network.shared is not None
            self.network.shared_only = True
            some, scores = self.network.shared.like_new, self.score(valid.texts)
            few = Scores.full(scores.matrix.toarray()[:, some], [str(number) for number in some], scores.kind)
            self.threshold = float(common(few, csr_array(valid.truth[:, some]), self.optimise, 0)[0])
            self.network.shared_only = False
        return None if held is None else held._replace(rows=parts.rows)

    def _loss(self, network: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(network, LacoNetwork) and batch.targets is not None
        joint = network.encode(batch.ids, batch.mask)
        loss = self._label_loss(network.classify(joint), batch.targets, batch.judged)
        if network.pairs is not None:
            loss = loss + self.alpha * network.pairs(joint.labels, batch.targets)
        if network.condition is not None:
            loss = loss + (1 - self.alpha) * network.condition(joint.labels, batch.targets)
        if network.shared is not None:
            shared = network.shared.for_loss(network.share(joint))
            loss = loss + self.shared_weight * self._label_loss(shared, batch.targets, batch.judged)
        return loss

    def _inherit(self, earlier: NeuralModel) -> None:
        assert self.network is not None and earlier.network is not None and isinstance(earlier, Laco)
        trained = LabelSet(earlier.labels.names[: earlier.seen])  # labels that were added after training have no rows
        take_over(self.network, earlier.network.state_dict(), self.labels, trained)

    def transferred(self, labels: LabelSet, origins: Origins) -> Self:
        """A copy to start from; labels that were added after training have no rows to start with."""
        if self.seen < len(self.labels):
            raise ConfigError(
                "labels were added to this 'laco' after training, and others edited; train it again with all of them"
            )
        seen, self.seen = self.seen, 0
        found = super().transferred(labels, origins)
        self.seen, found.seen = seen, len(labels)
        assert isinstance(self.network, LacoNetwork) and isinstance(found.network, LacoNetwork)
        found.network.near = self.network.near
        return found

    def attention(self, text: str) -> Attention | None:
        """The map of words and labels: tanh of their filtered compatibility (eq. 1 and 2), before the maximum over labels."""
        network, found = self._located(text)
        assert isinstance(network, LacoNetwork)
        if network.cross is None:
            return None
        with torch.inference_mode():
            joint = network.encode(found.batch.ids, found.batch.mask)
            fit = torch.tanh(network.cross.fit(joint.words, joint.mask, joint.labels).float())[0]  # (labels, length)
        weights = found.by_word((fit * joint.mask[0]).T.cpu().numpy())
        return Attention(found.spans, np.arange(weights.shape[1]), weights)

    # -- labels added after training -------------------------------------------------------------------------------

    def extend(self, labels: LabelSet, examples: Examples | None = None) -> Extension:
        """Score these labels too, by the shared head; return its threshold, fitted on the validation documents."""
        self.require_fitted()
        if not (self.shared and self.joint and self.label_text != "new"):
            raise ConfigError(
                "this 'laco' cannot score labels that it was not trained on; train it with shared=true, joint=true and "
                "label_text=name or description"
            )
        if examples is not None:
            raise ConfigError("'laco' adds labels by their texts and takes no examples; leave them out, or continue its training")
        self.labels = self.labels.union(labels)
        self.exported = None
        self._set_added()
        return Extension(self.threshold)

    def _set_added(self) -> None:
        """Set the label input of the labels that were added after training."""
        assert isinstance(self.network, LacoNetwork)
        self.network.added = None
        if len(self.labels) > self.seen:
            part = self._label_part(self.network.encoder, self.seen, len(self.labels))
            self.network.added = part.to(next(self.network.parameters()).device)
            if self.network.near is not None:
                self.network.near.added = self.network.near.texts(self._label_texts(self.labels.names[self.seen :]))

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The state of the network, the number of training labels, and the threshold and encoder of the shared head."""
        near = self.network.near if isinstance(self.network, LacoNetwork) else None
        own = {"seen": self.seen, "threshold": self.threshold, "near": None if near is None else near.state()}
        return {**super().state(), **own}

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Write the network as ONNX; its attention has no mask, so no block of labels may be padded."""
        self.require_fitted()
        network = copy.deepcopy(self.network)
        assert isinstance(network, LacoNetwork)
        full = [part.trim() for part in (network.labels, network.added) if part is not None]
        if isinstance(network.encoder, Transformer) and not all(full):
            raise ConfigError(
                "labels in blocks of different lengths cannot be exported; train with a larger block, or predict with torch"
            )
        return export_network(network, artefact, int8=int8)

    def schema(self) -> Table:
        """What every network has, the number of labels of training, and what the shared head needs."""
        near = Optional(Table({"frozen": FROZEN, "mean": Number(-1e6, 1e6, whole=False)}))
        threshold = Optional(Number(-1e9, 1e9, whole=False))
        own: dict[str, Schema] = {"seen": Number(1, "labels"), "threshold": threshold, "near": near}
        base = super().schema()
        return Table({**base.fields, **own}, optional=base.optional | {"near"})

    def restore(self, state: State) -> None:
        """Rebuild the network, including labels that were added after training."""
        self.seen, self.threshold = int(state["seen"]), state["threshold"]
        super().restore(state)
        assert isinstance(self.network, LacoNetwork) and self.tokens is not None
        if state.get("near") is not None:
            self.network.near = Nearness.from_state(state["near"], self.tokens)
        self._set_added()
