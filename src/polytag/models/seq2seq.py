"""Seq2Seq_T: a transformer decoder over the encoder generates the labels (laco, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.models.model import param
from polytag.models.sequence_model import SequenceModel
from polytag.nn.decoders import Decoder
from polytag.nn.encoders import Encoder
from polytag.nn.transformer_decoder import TransformerDecoder, TransformerSettings


@dataclass
class Seq2Seq(SequenceModel):
    """A fine-tuned encoder and a transformer decoder that starts from nothing; labels come out one by one, frequent ones first.

    LACO says "12-layer transformer" and no more. Here the encoder has the layers that it comes with; the decoder, which has to be
    learned from the documents alone, has few.
    """

    epochs: int = 12
    head_rate: float = 3e-4
    dropout: float = param(0.1, "dropout in the decoder", minimum=0, maximum=0.95)
    decoder_size: int = param(0, "size of the decoder's states; 0: that of the encoder's", minimum=0)
    decoder_layers: int = param(2, "layers of the decoder", minimum=1, maximum=24)
    heads: int = param(8, "heads of every attention in the decoder; they divide its size", minimum=1)
    positions: int = param(64, "places in a sequence with an embedding of their own; later ones share the last", minimum=1)

    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        settings = TransformerSettings(
            size=self.decoder_size or encoder.hidden,
            layers=self.decoder_layers,
            heads=self.heads,
            positions=self.positions,
            dropout=self.dropout,
            mask=self.mask_repeats,
        )
        return TransformerDecoder(encoder.hidden, n_labels, settings)
