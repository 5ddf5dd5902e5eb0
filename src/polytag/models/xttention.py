"""X-ttention: X-BERT with a BiLSTM and multi-head self-attention as the encoder (Chang et al. 2019, 3.3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.groups.decoder_settings import AttentionSettings
from polytag.config.groups.encoder_settings import EncoderSettings, WordSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.config.groups.tree_settings import RankSettings
from polytag.models.base.cluster_matcher import match_encoding
from polytag.models.base.match_model import MatchModel
from polytag.models.model import group, param
from polytag.nn.encoding.encoders import Encoder
from polytag.xmc.match import AttentionMatch, MatchNetwork


@dataclass
class Xttention(MatchModel):
    """A BiLSTM with self-attention matches clusters of labels; linear separators over tf-idf rank the labels in them."""

    encoding: EncoderSettings = match_encoding(also=("pooling",), encoder="bilstm", max_length=300)
    words: WordSettings = group(WordSettings, vocabulary=80_000, embedding=300, hidden=512, layers=1)
    training: TrainingSettings = group(TrainingSettings, encoder_rate=1e-3, epochs=8)
    ranking: RankSettings = group(RankSettings, negatives="matcher", join="none")
    attending: AttentionSettings = group(AttentionSettings, heads=30, attention_size=350, dense=2000)
    norm: bool = param(True, "whether the hidden layer is normalised before ReLU; not in the paper")
    scaled_rate: bool = param(
        True, "whether the learning rate of the hidden layer is multiplied by 256 / its inputs; not in the paper"
    )

    def _match_network(self, encoder: Encoder, n_clusters: int) -> MatchNetwork:
        sizes = self.attending
        return AttentionMatch(
            encoder, n_clusters, sizes.heads, sizes.attention_size, sizes.dense, self.training.dropout,
            norm=self.norm, scaled=self.scaled_rate,
        )  # fmt: skip

    def _width(self) -> int:
        return self.attending.dense
