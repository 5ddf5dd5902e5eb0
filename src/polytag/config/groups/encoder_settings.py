"""How documents enter a network: which encoder, how many tokens, and the sizes of an encoder over words."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.settings import param

LONG = ("head", "head+tail", "windows")
POOLINGS = ("cls", "mean", "max")
WORD_ENCODERS = ("words", "bilstm")
_WORDS_ONLY = {"encoder": WORD_ENCODERS}


@dataclass
class EncoderSettings:
    """Encoder."""

    encoder: str = param("minilm", "minilm (packaged), bilstm, words, or a Hugging Face id or folder", first=True)
    max_length: int = param(320, "maximum number of tokens of a text", minimum=4, first=True)
    long: str = param("head", "which tokens of a longer text are encoded", choices=LONG)
    overlap: int = param(32, "tokens that neighbouring windows share", minimum=0, when={"long": ("windows",)})
    max_windows: int = param(8, "maximum number of windows of a text", minimum=1, when={"long": ("windows",)})
    window_pooling: str = param("max", "pooling of the windows' logits", choices=("max", "mean"), when={"long": ("windows",)})
    pooling: str = param(
        "mean", "pooling of the token states: the first token's (cls), mean or max", choices=POOLINGS, first=True
    )


@dataclass
class WordSettings:
    """Encoder over words."""

    vocabulary: int = param(
        30_000, "maximum number of words, most frequent first; 0 = all", minimum=0, when=_WORDS_ONLY, first=True
    )
    embedding: int = param(256, "size of a word embedding", minimum=1, when=_WORDS_ONLY)
    hidden: int = param(256, "hidden units of the BiLSTM, per direction", minimum=1, when={"encoder": ("bilstm",)}, first=True)
    layers: int = param(2, "layers of the BiLSTM", minimum=1, maximum=8, when={"encoder": ("bilstm",)})
    vectors: str = param("", "file with pretrained word vectors (word2vec or GloVe text); empty = none", when=_WORDS_ONLY)
