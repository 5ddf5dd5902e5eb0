"""What models share that read a document together with its labels."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from polytag.models.model import param
from polytag.models.neural_model import NeuralModel
from polytag.nn.batch import LONG, Layout
from polytag.nn.encoders import Encoder
from polytag.nn.joint import LabelPart, even, label_blocks

log = logging.getLogger(__name__)
LABEL_TEXTS = ("name", "description", "new")
PLACES = ("behind", "apart")
_PLACES = 65_536  # tokens, those of the labels included, that are read at once
_LEAST = 16  # tokens of the text that labels must leave room for


@dataclass
class JointModel(NeuralModel):
    """A network that reads ``[CLS] text [SEP] labels [SEP]``; labels that do not fit beside the text are read in blocks.

    Labels may take what ``max_length`` leaves of the encoder's positions, or up to half of all positions if then all of them fit
    beside the text at once; the text gives way.
    """

    max_length: int = param(320, "most tokens of a text; the labels come on top", minimum=4)
    long: str = param("head", "what is read of longer texts", choices=LONG[:2])
    label_text: str = param("name", "labels are read by name, by description, or as new tokens, one each", choices=LABEL_TEXTS)
    pooled: bool = param(False, "whether a label is one token, the mean of its words' embeddings: cheap where there are many")
    places: str = param(
        "behind",
        "positions of labels: behind the text and one another, or each as if it alone came first (apart)",
        choices=PLACES,
    )
    block: int = param(0, "most tokens of labels beside one text; 0: as many as fit", minimum=0)

    def _label_part(self, encoder: Encoder, first: int, last: int) -> LabelPart:
        """The part of the input that some labels are, by number; blocks of later ones are no wider than those of the first."""
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
            log.warning("the texts of %d labels are read up to %d tokens only", cut, longest)
        new = encoder.token_table().embedding_dim if self.label_text == "new" else 0
        blocks = label_blocks([piece[:longest] for piece in pieces], room, end, self.tokens.pad)
        return LabelPart(blocks, new, words, apart=self.places == "apart")

    def _room(self, encoder: Encoder, total: int) -> int:
        """Tokens that a block may have, of labels that have so many in total."""
        if not encoder.positions:
            return self.block or total
        most = encoder.positions - _LEAST
        if self.block:
            return min(self.block, most)
        left = max(encoder.positions - self.max_length, encoder.positions // 4)
        return min(most, max(left, total if total <= encoder.positions // 2 else 0))

    def _label_texts(self, names: Sequence[str]) -> list[str]:
        """What is read of labels: their names, or their descriptions where they have one."""
        known = self.labels.descriptions if self.label_text == "description" else {}
        return [known.get(name, name) for name in names]

    def _label_tokens(self, names: Sequence[str]) -> list[NDArray[np.int64]]:
        """The tokens of labels, at least one each; one exactly where they are new tokens."""
        assert self.tokens is not None
        if self.label_text == "new":
            return [np.full(1, self.tokens.pad, dtype=np.int64) for _ in names]
        ids, offsets = self.tokens.encode(self._label_texts(names))
        nothing = np.full(1, self.tokens.pad, dtype=np.int64)
        return [ids[a:b].astype(np.int64) if b > a else nothing for a, b in itertools.pairwise(offsets.tolist())]

    def _first_weights(self, network: nn.Module) -> None:
        part = getattr(network, "labels", None)
        if isinstance(part, LabelPart) and part.new is not None:
            apart = part.new.detach().clone()  # labels without a known word must still differ
            self._start_labels(part.new)
            with torch.no_grad():
                part.new.add_(apart)

    def _layout(self) -> Layout:
        """The text has what the blocks leave of the encoder's positions."""
        layout = super()._layout()
        part, encoder = getattr(self.network, "labels", None), getattr(self.network, "encoder", None)
        if not isinstance(part, LabelPart) or not isinstance(encoder, Encoder) or not encoder.positions:
            return layout
        return dataclasses.replace(layout, max_length=min(layout.max_length, encoder.positions - part.ids.shape[1]))

    def _rows_at_once(self) -> int:
        parts = [part for part in self.network.modules() if isinstance(part, LabelPart)] if self.network is not None else []
        places = sum(part.ids.shape[0] * (self.max_length + part.ids.shape[1]) for part in parts)
        return max(1, min(super()._rows_at_once(), _PLACES // max(1, places)))
