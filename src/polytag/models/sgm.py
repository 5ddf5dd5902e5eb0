"""SGM: a BiLSTM reads the document, and an LSTM with attention generates its labels (Yang et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polytag.errors import ConfigError
from polytag.models.model import param
from polytag.models.sequence_model import SequenceModel
from polytag.nn import decoders
from polytag.nn.decoders import Decoder, LstmDecoder, LstmSettings
from polytag.nn.encoders import Encoder
from polytag.text.tokens import SubwordTokens, WordTokens


@dataclass
class Sgm(SequenceModel):
    """A BiLSTM encoder and an LSTM decoder with additive attention; labels come out one by one, frequent ones first.

    ``polytag.nn.decoders.LstmDecoder`` says which equation is where, and what is done where the paper is unclear. The paper's
    ablations: ``mask_repeats=false``, ``order=random``, ``global_embedding=none`` against ``adaptive``; its lambda (14) is
    ``global_embedding=fixed`` with ``proportion``.
    """

    encoder: str = "bilstm"
    max_length: int = 500
    encoder_rate: float = 3e-3
    head_rate: float = 3e-3
    batch_size: int = 64
    epochs: int = 20
    dropout: float = param(0.3, "dropout in the decoder", minimum=0, maximum=0.95)
    decoder_size: int = param(512, "size of the decoder's LSTM; 0: that of the encoder's states", minimum=0)
    decoder_layers: int = param(1, "layers of the decoder's LSTM", minimum=1, maximum=8)
    label_embedding: int = param(256, "size of a label's embedding", minimum=1)
    attention: str = param("additive", "additive (eq. 4) or dot product", choices=decoders.ATTENTIONS)
    attention_size: int = param(256, "size of the additive attention's hidden layer", minimum=1)
    query: str = param("new", "which state of the decoder attends: the new one, or the one before", choices=decoders.QUERIES)
    first_state: str = param(
        "ends",
        "where the decoder starts: both directions' last outputs, every layer's last states and cells, the first token, the mean",
        choices=decoders.FIRST_STATES,
    )
    first_context: str = param("attention", "what the first step is given as context", choices=decoders.FIRST_CONTEXTS)
    global_embedding: str = param(
        "adaptive", "the last step's whole distribution as input, by a gate or a share", choices=decoders.GLOBAL_EMBEDDINGS
    )
    proportion: float = param(0.5, "share of the mean embedding if the global embedding is fixed", minimum=0, maximum=1)
    gate: str = param("sigmoid", "whether the adaptive gate is squashed", choices=decoders.GATES)

    def _decoder(self, encoder: Encoder, n_labels: int) -> Decoder:
        settings = LstmSettings(
            size=self.decoder_size or encoder.hidden,
            layers=self.decoder_layers,
            embedding=self.label_embedding,
            attention=self.attention,
            attention_size=self.attention_size,
            query=self.query,
            first_state=self.first_state,
            first_context=self.first_context,
            global_embedding=self.global_embedding,
            proportion=self.proportion,
            gate=self.gate,
            dropout=self.dropout,
            mask=self.mask_repeats,
        )
        return LstmDecoder(encoder.hidden, n_labels, settings, encoder.last_size)

    def _described(self, texts: Sequence[str]) -> tuple[WordTokens | SubwordTokens, dict[str, Any]]:
        tokens, description = super()._described(texts)
        if self.first_state in decoders.FROM_BOTH_ENDS and description["kind"] != "bilstm":
            raise ConfigError(
                f"first_state={self.first_state!r} needs an encoder that reads in both directions, which {self.encoder!r} does "
                "not; set first_state to mean, cls or zero, or encoder to bilstm"
            )
        return tokens, description
