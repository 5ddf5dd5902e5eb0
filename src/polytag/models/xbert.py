"""X-BERT: labels in clusters, a fine-tuned encoder that finds the clusters, linear ranking within them (Chang et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from polytag.models.match_model import MatchModel
from polytag.models.model import param
from polytag.nn.encoders import POOLINGS, build_encoder
from polytag.nn.pretrained import WordSizes, describe_encoder
from polytag.xmc.match import BertMatch


@dataclass
class XBert(MatchModel):
    """A fine-tuned encoder finds clusters of labels; linear separators over tf-idf rank the labels in them."""

    pooling: str = param("mean", "one vector per text: the first token's (cls), or over all tokens", choices=POOLINGS)

    def _network(self, n_labels: int) -> nn.Module:
        return BertMatch(self._encoder(), n_labels, self.pooling, self.dropout)

    def _width(self) -> int:
        sizes = WordSizes(self.vocabulary, self.embedding, self.hidden, self.layers)
        with torch.device("meta"):  # without any weights
            return build_encoder(describe_encoder(self.encoder, (), sizes, None)[1]).hidden

    def _joins(self) -> str:
        """An encoder that is not trained is the frozen one: its vectors need no second reading."""
        found = super()._joins()
        return "network" if found == "frozen" and self.frozen_layers < 0 and self.pooling == "mean" else found
