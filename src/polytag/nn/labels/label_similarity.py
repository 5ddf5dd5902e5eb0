"""The cosine similarity of documents and label texts in a frozen encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from polytag.nn.encoding.document_vectors import document_vectors
from polytag.nn.encoding.frozen_encoder import FrozenEncoder
from polytag.nn.training.batch import Layout, tokenise
from polytag.text.tokens import SubwordTokens, WordTokens

SCALE = 20.0  # the usual scale of cosines in the contrastive training of sentence encoders
_LONGEST = 128  # maximum number of tokens of a text in ``texts``


class Nearness:
    """``20 (cos(d, y) - m)`` of a document vector d and a label's text vector y; m is the mean cosine in training.

    It depends on the text of a label only, so it is valid for labels that were not in training. The shared head learns how such
    labels are assigned. The mean centres it around zero.
    """

    def __init__(self, frozen: FrozenEncoder, tokens: WordTokens | SubwordTokens, mean: float = 0.0) -> None:
        """Store the encoder, its tokeniser and the mean."""
        self.frozen, self.tokens, self.mean = frozen, tokens, mean
        longest = min(_LONGEST, frozen.encoder.positions or _LONGEST)
        self.layout = Layout(longest, prefix=tokens.prefix, suffix=tokens.suffix, pad=tokens.pad)
        self.known = self.added = torch.zeros(0, frozen.size)

    @torch.no_grad()
    def documents(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One unit vector per document (batch, size), from the network's input tokens."""
        if self.known.device != ids.device or self.added.device != ids.device:
            self.known, self.added = self.known.to(ids.device), self.added.to(ids.device)
            self.frozen.to(ids.device)
        return self.frozen.vectors(ids, mask)

    def texts(self, texts: Sequence[str]) -> Tensor:
        """One unit vector per text (texts, size)."""
        found = document_vectors(self.frozen.encoder, tokenise(self.tokens, texts), self.layout, "mean", "fp32")
        return torch.from_numpy(found).to(self.known.device)

    def of(self, documents: Tensor, labels: Tensor) -> Tensor:
        """The scaled similarities (batch, labels) of vectors (batch, size) and (labels, size)."""
        with torch.autocast(documents.device.type, enabled=False):
            return SCALE * (documents @ labels.T - self.mean)

    def state(self) -> dict[str, Any]:
        """The encoder and the mean; label vectors follow from the texts."""
        return {"frozen": self.frozen.state(), "mean": self.mean}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], tokens: WordTokens | SubwordTokens) -> Nearness:
        """Rebuild from the state."""
        return cls(FrozenEncoder.from_state(state["frozen"]), tokens, float(state["mean"]))
