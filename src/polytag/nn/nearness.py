"""How near the texts of labels are to a document, in the eyes of an encoder as it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from polytag.nn.batch import Layout, tokenise
from polytag.nn.embedding import document_vectors
from polytag.nn.frozen import FrozenEncoder
from polytag.text.tokens import SubwordTokens, WordTokens

SCALE = 20.0  # what encoders of sentences multiply a cosine with when they learn which two texts belong together
_LONGEST = 128  # tokens of a text that are read where it is given as such


class Nearness:
    """``20 (cos(d, y) - m)`` of a document's vector d and that of a label's text y, with m the mean cosine in training.

    It knows nothing about any label but its text, so it holds for labels that training never saw as for others; what a head
    learns beside it is how labels of this kind are given. The mean makes it start around zero.
    """

    def __init__(self, frozen: FrozenEncoder, tokens: WordTokens | SubwordTokens, mean: float = 0.0) -> None:
        """Take the encoder, its tokens, and the mean."""
        self.frozen, self.tokens, self.mean = frozen, tokens, mean
        longest = min(_LONGEST, frozen.encoder.positions or _LONGEST)
        self.layout = Layout(longest, prefix=tokens.prefix, suffix=tokens.suffix, pad=tokens.pad)
        self.known = self.added = torch.zeros(0, frozen.size)

    @torch.no_grad()
    def documents(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One vector of length one for every document (batch, size), from tokens as the network reads them."""
        if self.known.device != ids.device or self.added.device != ids.device:
            self.known, self.added = self.known.to(ids.device), self.added.to(ids.device)
            self.frozen.to(ids.device)
        return self.frozen.vectors(ids, mask)

    def texts(self, texts: Sequence[str]) -> Tensor:
        """The same for texts."""
        found = document_vectors(self.frozen.encoder, tokenise(self.tokens, texts), self.layout, "mean", "fp32")
        return torch.from_numpy(found).to(self.known.device)

    def of(self, documents: Tensor, labels: Tensor) -> Tensor:
        """How near they are (batch, labels), from vectors (batch, size) and (labels, size)."""
        with torch.autocast(documents.device.type, enabled=False):
            return SCALE * (documents @ labels.T - self.mean)

    def state(self) -> dict[str, Any]:
        """The encoder and the mean; vectors of labels follow from their texts."""
        return {"frozen": self.frozen.state(), "mean": self.mean}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], tokens: WordTokens | SubwordTokens) -> Nearness:
        """Build it again."""
        return cls(FrozenEncoder.from_state(state["frozen"]), tokens, float(state["mean"]))
