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

    encoder: str = param("minilm", "minilm (packaged), bilstm, words, or a Hugging Face id or folder")
    max_length: int = param(320, "most tokens read at once", minimum=4)
    encoder_rate: float = param(1e-4, "learning rate of the encoder's top layer", minimum=0)
    head_rate: float = param(1e-3, "learning rate of everything else", minimum=0)
    batch_size: int = param(32, "documents of one batch", minimum=1)
    epochs: int = param(15, "times that every document is seen", minimum=1)
    dropout: float = param(0.1, "dropout in the decoder", minimum=0, maximum=0.95)
    decoder_size: int = param(0, "size of the decoder's LSTM; 0: that of the encoder's states", minimum=0)
    attention: str = param("dot", "dot product, or additive (SGM's eq. 4)", choices=decoders.ATTENTIONS)
    query: str = param("old", "which state of the decoder attends: the new one, or the one before", choices=decoders.QUERIES)
    first_state: str = param(
        "cls", "the decoder starts from the first token, both directions' last outputs, the mean", choices=decoders.FIRST_STATES
    )
    global_embedding: str = param(
        "none", "the last step's whole distribution as input, by a gate or a share", choices=decoders.GLOBAL_EMBEDDINGS
    )
