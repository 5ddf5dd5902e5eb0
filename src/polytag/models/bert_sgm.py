"""BERT+SGM: SGM's decoder over a fine-tuned encoder (BERT paper, 3.2 and algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.groups.decoder_settings import AttentionSettings, DecoderSettings, SgmSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.models.base.sequence_model import SequenceModel, lstm_decoder
from polytag.models.model import group
from polytag.nn.decoding.lstm_decoder import Decoder, check_first_state
from polytag.nn.encoding.encoders import Encoder


@dataclass
class BertSgm(SequenceModel):
    """Algorithm 1: the first token's state initialises the decoder, attention is the dot product, the encoder is fine-tuned.

    Additive attention and the global embedding are settings, as in ``sgm``. With ``query=new`` the context vector of a step
    depends on the previous label, as in SGM and unlike algorithm 1.
    """

    training: TrainingSettings = group(TrainingSettings, epochs=15)
    decoder: DecoderSettings = group(DecoderSettings, limits={"decoder_layers": (1, 8)}, decoder_size=0)
    attending: AttentionSettings = group(AttentionSettings, without=("heads", "dense"))
    sgm: SgmSettings = group(SgmSettings, attention="dot", query="old", first_state="cls", global_embedding="none")

    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        return lstm_decoder(encoder, n_labels, (self.decoder, self.attending), self.sgm, self)

    def _check_encoder(self, kind: str) -> None:
        check_first_state(self.sgm.first_state, self.encoding.encoder, kind)
