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

    encoder: str = param("bilstm", "bilstm, words, minilm (packaged), or a Hugging Face id or folder")
    max_length: int = param(300, "most tokens read at once", minimum=4)
    vocabulary: int = param(80_000, "most frequent words kept, for an encoder over words; 0 for all", minimum=0)
    embedding: int = param(300, "size of a word's embedding", minimum=1)
    hidden: int = param(512, "size of one direction of the BiLSTM", minimum=1)
    layers: int = param(1, "layers of the BiLSTM", minimum=1, maximum=8)
    encoder_rate: float = param(1e-3, "learning rate of the encoder's top layer", minimum=0)
    epochs: int = param(12, "times that every document is seen", minimum=1)
    dropout: float = param(0.3, "dropout before the hidden layer and before the output", minimum=0, maximum=0.95)
    heads: int = param(30, "rows of attention over the words (r)", minimum=1)
    attention: int = param(350, "hidden units of the attention (d_a)", minimum=1)
    dense: int = param(2000, "size of the hidden layer before the clusters", minimum=1)

    def _network(self, n_labels: int) -> nn.Module:
        return AttentionMatch(self._encoder(), n_labels, self.heads, self.attention, self.dense, self.dropout)
