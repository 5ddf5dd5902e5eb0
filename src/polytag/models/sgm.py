"""SGM: a BiLSTM encodes the document, and an LSTM with attention generates its labels (Yang et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.groups.decoder_settings import AttentionSettings, DecoderSettings, SgmSettings
from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.models.base.sequence_model import SequenceModel, lstm_decoder
from polytag.models.model import group
from polytag.nn.decoding.lstm_decoder import Decoder, check_first_state
from polytag.nn.encoding.encoders import Encoder


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
        return lstm_decoder(encoder, n_labels, (self.decoder, self.attending), self.sgm, self)

    def _check_encoder(self, kind: str) -> None:
        check_first_state(self.sgm.first_state, self.encoding.encoder, kind)
