"""X-ttention: X-BERT with a BiLSTM and multi-head self-attention in the encoder's place (Chang et al. 2019, 3.3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from polytag.models.match_model import MatchModel
from polytag.models.model import param
from polytag.xmc.match import AttentionMatch


@dataclass
class Xttention(MatchModel):
    """A BiLSTM with self-attention finds clusters of labels; linear separators over tf-idf rank the labels in them."""

    encoder: str = "bilstm"
    max_length: int = 300
    vocabulary: int = 80_000
    embedding: int = 300
    hidden: int = 512
    layers: int = 1
    encoder_rate: float = 1e-3
    epochs: int = 8
    join: str = "none"
    dropout: float = param(0.1, "dropout before the hidden layer and before the output", minimum=0, maximum=0.95)
    heads: int = param(30, "rows of attention over the words (r)", minimum=1)
    attention: int = param(350, "hidden units of the attention (d_a)", minimum=1)
    dense: int = param(2000, "size of the hidden layer before the clusters", minimum=1)
    norm: bool = param(True, "whether the hidden layer is normalised before ReLU; not in the paper")

    def _network(self, n_labels: int) -> nn.Module:
        return AttentionMatch(self._encoder(), n_labels, self.heads, self.attention, self.dense, self.dropout, norm=self.norm)

    def _width(self) -> int:
        return self.dense
