"""SGM: a BiLSTM reads the document, and an LSTM with attention generates its labels (Yang et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.groups.decoder_settings import AttentionSettings, DecoderSettings, SgmSettings
from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.models.base.sequence_model import SequenceModel
from polytag.models.model import group
from polytag.nn.decoding.lstm_decoder import Decoder, LstmDecoder, LstmSettings
from polytag.nn.encoding.encoders import Encoder


@dataclass
class Sgm(SequenceModel):
    """A BiLSTM encoder and an LSTM decoder with additive attention; labels come out one by one, frequent ones first.

    ``polytag.nn.decoding.lstm_decoder.LstmDecoder`` names the equations, and what is done where the paper is unclear.
    The paper's ablations: ``mask_repeats=false``, ``order=random``, ``global_embedding=none`` against
    ``adaptive``; its lambda (14) is ``global_embedding=fixed`` with ``proportion``.
    """

    encoding: EncoderSettings = group(EncoderSettings, without=("pooling", "window_pooling"), encoder="bilstm", max_length=500)
    training: TrainingSettings = group(TrainingSettings, encoder_rate=3e-3, head_rate=3e-3, batch_size=64, epochs=20, dropout=0.3)
    decoder: DecoderSettings = group(DecoderSettings, limits={"decoder_layers": (1, 8)})
    attending: AttentionSettings = group(AttentionSettings, without=("heads", "dense"))
    sgm: SgmSettings = group(SgmSettings)

    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        sizes, dropout = (self.decoder, self.attending), self.training.dropout
        settings = LstmSettings.of(encoder.hidden, sizes, self.sgm, dropout=dropout, mask=self.sequence.mask_repeats)
        return LstmDecoder(encoder.hidden, n_labels, settings)
