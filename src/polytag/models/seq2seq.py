"""Seq2Seq_T: a transformer decoder generates the labels from the encoder's states (LACO, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.groups.decoder_settings import AttentionSettings, DecoderSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.models.base.sequence_model import SequenceModel
from polytag.models.model import group, param
from polytag.nn.decoding.lstm_decoder import Decoder
from polytag.nn.decoding.transformer_decoder import TransformerDecoder, TransformerSettings
from polytag.nn.encoding.encoders import Encoder


@dataclass
class Seq2Seq(SequenceModel):
    """A fine-tuned encoder and a randomly initialised transformer decoder, which generates the labels, frequent ones first.

    LACO specifies a "12-layer transformer" only. Here the encoder keeps its layers. The decoder has few, because it is trained
    from scratch.
    """

    training: TrainingSettings = group(TrainingSettings, epochs=12, head_rate=3e-4)
    decoder: DecoderSettings = group(DecoderSettings, without=("label_embedding",), decoder_size=0, decoder_layers=2)
    attending: AttentionSettings = group(AttentionSettings, without=("attention_size", "dense"))
    positions: int = param(64, "places in a sequence with an embedding of their own; later ones share the last", minimum=1)

    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        settings = TransformerSettings(
            size=self.decoder.decoder_size or encoder.hidden,
            layers=self.decoder.decoder_layers,
            heads=self.attending.heads,
            positions=self.positions,
            dropout=self.training.dropout,
            mask=self.sequence.mask_repeats,
        )
        return TransformerDecoder(encoder.hidden, n_labels, settings)
