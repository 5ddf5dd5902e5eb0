"""BERT+SGM: SGM's decoder over a fine-tuned encoder (bert-sgm-mixed, 3.2 and algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.groups.decoder_settings import AttentionSettings, DecoderSettings, SgmSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.models.base.sequence_model import SequenceModel
from polytag.models.model import group
from polytag.nn.decoding.lstm_decoder import Decoder, LstmDecoder, LstmSettings
from polytag.nn.encoding.encoders import Encoder


@dataclass
class BertSgm(SequenceModel):
    """Algorithm 1: the first token's state starts the decoder, which attends by dot product; the encoder is trained with it.

    Additive attention and the global embedding are the same settings as in ``sgm``. ``query=new`` lets a step's context depend
    on the label before it, as SGM does and algorithm 1 does not.
    """

    training: TrainingSettings = group(TrainingSettings, epochs=15)
    decoder: DecoderSettings = group(DecoderSettings, limits={"decoder_layers": (1, 8)}, decoder_size=0)
    attending: AttentionSettings = group(AttentionSettings, without=("heads", "dense"))
    sgm: SgmSettings = group(SgmSettings, attention="dot", query="old", first_state="cls", global_embedding="none")

    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        sizes, dropout = (self.decoder, self.attending), self.training.dropout
        settings = LstmSettings.of(encoder.hidden, sizes, self.sgm, dropout=dropout, mask=self.sequence.mask_repeats)
        return LstmDecoder(encoder.hidden, n_labels, settings)
