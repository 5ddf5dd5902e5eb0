"""BERT+SGM: SGM's decoder over a fine-tuned encoder (bert-sgm-mixed, 3.2 and algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.models.model import param
from polytag.models.sgm import Sgm
from polytag.nn import decoders


@dataclass
class BertSgm(Sgm):
    """Algorithm 1: the first token's state starts the decoder, which attends by dot product; the encoder is trained with it.

    Additive attention and the global embedding are the same settings as in ``sgm``. ``query=new`` lets a step's context depend
    on the label before it, as SGM does and algorithm 1 does not.
    """

    encoder: str = "minilm"
    max_length: int = 320
    encoder_rate: float = 1e-4
    head_rate: float = 1e-3
    batch_size: int = 32
    epochs: int = 15
    dropout: float = 0.1
    decoder_size: int = 0
    attention: str = param("dot", "dot product, or additive (SGM's eq. 4)", choices=decoders.ATTENTIONS)
    query: str = "old"
    first_state: str = "cls"
    global_embedding: str = "none"
