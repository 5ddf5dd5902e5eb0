"""The base class of models that encode a document together with the labels."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from polytag.config.groups.encoder_settings import LONG, EncoderSettings
from polytag.labels import LabelSet
from polytag.models.base.neural_model import NeuralModel
from polytag.models.model import State, group, param
from polytag.nn.encoding.encoders import Encoder
from polytag.nn.labels.label_input import LabelPart, even, label_blocks
from polytag.nn.training.batch import Layout
from polytag.storage.schema import Named, Table, Text

if TYPE_CHECKING:
    from polytag.corpus import Corpus

log = logging.getLogger(__name__)
LABEL_TEXTS = ("name", "description", "new")
PLACES = ("behind", "apart")
_PLACES = 65_536  # tokens, including those of the labels, that are encoded at once
_LEAST = 16  # positions that are reserved for the text


@dataclass
class JointModel(NeuralModel):
    """A network over ``[CLS] text [SEP] labels [SEP]``; labels that do not fit into the input are encoded in blocks.

    Labels get the positions that ``max_length`` does not use. They get up to half of all positions if then all labels fit into
    one input; the text is truncated.
    """

    judged: ClassVar[tuple[str, ...]] = ("weights", "unknown")

    encoding: EncoderSettings = group(
        EncoderSettings, without=("overlap", "max_windows", "window_pooling", "pooling"), choices={"long": LONG[:2]}
    )
    label_text: str = param("name", "label input: its name, its description, or one new token", choices=LABEL_TEXTS, first=True)
    pooled: bool = param(
        False, "whether a label is one token, the mean of its word embeddings; saves time where there are many labels",
        unless={"label_text": ("new",)},
    )  # fmt: skip
    places: str = param(
        "behind",
        "positions of labels: after the text and one another (behind), or each directly after the text (apart)",
        choices=PLACES,
    )
    block: int = param(0, "maximum number of label tokens in one input; 0 = as many as fit", minimum=0)

    label_texts: dict[str, str] = field(init=False, repr=False, default_factory=dict)
    """The texts of labels that were renamed after training, as the network was trained with them."""

    def _begin(self, texts: Sequence[str], train: Corpus) -> None:
        self.label_texts = {}
        super()._begin(texts, train)

    def renamed(self, labels: LabelSet) -> Self:
        """With other names; the network still gets the texts that it was trained with."""
        found = super().renamed(labels)
        found.label_texts = {}
        texts = zip(labels, self._label_texts(self.labels.names), found._label_texts(labels.names), strict=True)
        found.label_texts = {name: trained for name, trained, text in texts if trained != text}
        return found

    def _label_part(self, encoder: Encoder, first: int, last: int) -> LabelPart:
        """The input of the labels first..last; blocks of added labels are no wider than those of the training labels."""
        assert self.tokens is not None
        pieces = self._label_tokens(self.labels.names[first:last])
        words = pieces if self.pooled and self.label_text != "new" else None
        if words is not None:
            pieces = [np.full(1, self.tokens.pad, dtype=np.int64) for _ in pieces]
        end = self.tokens.suffix
        room = self._room(encoder, even(sum(map(len, pieces)) + len(end)))
        if first:
            room = min(room, encoder.positions - self._layout().max_length) if encoder.positions else room
        longest = room - len(end) if encoder.positions else max(map(len, pieces))
        cut = sum(len(piece) > longest for piece in pieces)
        if cut:
            log.warning("the texts of %d labels are truncated to %d tokens", cut, longest)
        new = encoder.token_table().embedding_dim if self.label_text == "new" else 0
        blocks = label_blocks([piece[:longest] for piece in pieces], room, end, self.tokens.pad)
        return LabelPart(blocks, new, words, apart=self.places == "apart")

    def _room(self, encoder: Encoder, total: int) -> int:
        """The maximum number of tokens in a block, for labels with ``total`` tokens."""
        if not encoder.positions:
            return self.block or total
        most = encoder.positions - _LEAST
        if self.block:
            return min(self.block, most)
        left = max(encoder.positions - self.encoding.max_length, encoder.positions // 4)
        return min(most, max(left, total if total <= encoder.positions // 2 else 0))

    def _label_texts(self, names: Sequence[str]) -> list[str]:
        """The texts of labels: their names, or their descriptions if they have one."""
        known = {**(self.labels.descriptions if self.label_text == "description" else {}), **self.label_texts}
        return [known.get(name, name) for name in names]

    def _label_tokens(self, names: Sequence[str]) -> list[NDArray[np.int64]]:
        """The tokens of labels, at least one each; exactly one if they are new tokens."""
        assert self.tokens is not None
        if self.label_text == "new":
            return [np.full(1, self.tokens.pad, dtype=np.int64) for _ in names]
        ids, offsets = self.tokens.encode(self._label_texts(names))
        nothing = np.full(1, self.tokens.pad, dtype=np.int64)
        return [ids[a:b].astype(np.int64) if b > a else nothing for a, b in itertools.pairwise(offsets.tolist())]

    def _first_weights(self, network: nn.Module) -> None:
        part = getattr(network, "labels", None)
        if isinstance(part, LabelPart) and part.new is not None:
            apart = part.new.detach().clone()  # labels without a known word must still have different embeddings
            self._start_labels(part.new)
            with torch.no_grad():
                part.new.add_(apart)

    def _layout(self) -> Layout:
        """The text gets the positions that the blocks do not use."""
        layout = super()._layout()
        part, encoder = getattr(self.network, "labels", None), getattr(self.network, "encoder", None)
        if not isinstance(part, LabelPart) or not isinstance(encoder, Encoder) or not encoder.positions:
            return layout
        return dataclasses.replace(layout, max_length=min(layout.max_length, encoder.positions - part.ids.shape[1]))

    def _rows_at_once(self) -> int:
        parts = [part for part in self.network.modules() if isinstance(part, LabelPart)] if self.network is not None else []
        places = sum(part.ids.shape[0] * (self.encoding.max_length + part.ids.shape[1]) for part in parts)
        return max(1, min(super()._rows_at_once(), _PLACES // max(1, places)))

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The state of every network, and the texts of renamed labels."""
        return {**super().state(), **({"label_texts": self.label_texts} if self.label_texts else {})}

    def schema(self) -> Table:
        """What every network has, and the texts of renamed labels, if there are any."""
        return Table({**super().schema().fields, "label_texts": Named(Text())}, optional=frozenset({"label_texts"}))

    def restore(self, state: State) -> None:
        """Rebuild the network with the texts that it was trained with."""
        self.label_texts = dict(state.get("label_texts", {}))
        super().restore(state)
