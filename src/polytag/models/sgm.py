"""SGM: a BiLSTM encodes the document, and an LSTM with attention generates its labels (Yang et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polytag.config.groups.decoder_settings import AttentionSettings, DecoderSettings, SgmSettings
from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.models.base.sequence_model import SequenceModel
from polytag.models.model import group
from polytag.nn.decoding.lstm_decoder import Decoder, LstmDecoder, LstmSettings, check_first_state
from polytag.nn.encoding.encoders import Encoder
from polytag.text.tokens import SubwordTokens, WordTokens


@dataclass
class Sgm(SequenceModel):
    """A BiLSTM encoder and an LSTM decoder with additive attention; it generates frequent labels first.

    ``polytag.nn.decoding.lstm_decoder.LstmDecoder`` has the equations, and our choices where the paper is ambiguous.
    The paper's ablations are ``mask_repeats=false``, ``order=random`` and ``global_embedding=none`` against ``adaptive``. Its
    lambda (14) is ``proportion`` with ``global_embedding=fixed``.
    """

    encoding: EncoderSettings = group(EncoderSettings, without=("pooling", "window_pooling"), encoder="bilstm", max_length=500)
    training: TrainingSettings = group(TrainingSettings, encoder_rate=3e-3, head_rate=3e-3, batch_size=64, epochs=20, dropout=0.3)
    decoder: DecoderSettings = group(DecoderSettings, limits={"decoder_layers": (1, 8)})
    attending: AttentionSettings = group(AttentionSettings, without=("heads", "dense"))
    sgm: SgmSettings = group(SgmSettings)

    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        sizes, dropout = (self.decoder, self.attending), self.training.dropout
        settings = LstmSettings.of(encoder.hidden, sizes, self.sgm, dropout=dropout, mask=self.sequence.mask_repeats)
        return LstmDecoder(encoder.hidden, n_labels, settings, encoder.last_size)

    def _described(self, texts: Sequence[str]) -> tuple[WordTokens | SubwordTokens, dict[str, Any]]:
        tokens, description = super()._described(texts)
        check_first_state(self.sgm.first_state, self.encoding.encoder, description["kind"])
        return tokens, description
