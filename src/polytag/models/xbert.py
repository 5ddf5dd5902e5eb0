"""X-BERT: clusters of labels, a fine-tuned encoder as the matcher, linear ranking within clusters (Chang et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from polytag.models.base.match_model import MatchModel
from polytag.nn.encoding.encoders import Encoder, build_encoder
from polytag.nn.encoding.pretrained import describe_encoder
from polytag.xmc.match import BertMatch, MatchNetwork


@dataclass
class XBert(MatchModel):
    """A fine-tuned encoder matches clusters of labels; linear separators over tf-idf rank the labels in them."""

    def _match_network(self, encoder: Encoder, n_clusters: int) -> MatchNetwork:
        return BertMatch(encoder, n_clusters, self.encoding.pooling, self.training.dropout)

    def _width(self) -> int:
        with torch.device("meta"):  # allocates no weights
            return build_encoder(describe_encoder(self.encoding.encoder, (), self.words, None)[1]).hidden

    def _joins(self) -> str:
        """An encoder with frozen layers only equals the frozen encoder, so its own vectors are used without a second pass."""
        found = super()._joins()
        untrained = self.training.frozen_layers < 0 and self.encoding.pooling == "mean"
        return "network" if found == "frozen" and untrained else found
