"""A frozen encoder and linear separators on its vectors: the cheap, strong baseline without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from polytag.errors import ConfigError
from polytag.linear.svm import Problem
from polytag.models.linear_model import Folds, LinearModel
from polytag.models.model import State, param
from polytag.nn.batch import Layout, tokenise
from polytag.nn.checkpoint import load_arrays, to_arrays
from polytag.nn.devices import DEVICES, PRECISIONS, pick_device
from polytag.nn.embedding import document_vectors
from polytag.nn.encoders import POOLINGS, Encoder, build_encoder
from polytag.nn.pretrained import WORD_ENCODERS, WordSizes, describe_encoder, load_pretrained
from polytag.text.prepare import PREPARATIONS, prepare
from polytag.text.tfidf import Tfidf
from polytag.text.tokens import SubwordTokens, WordTokens, tokens_from_state

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

INPUTS = ("both", "vectors")


@dataclass
class Embed(LinearModel):
    """One linear separator per label on the vectors of a frozen encoder, by default joined with tf-idf of the words."""

    encoder: str = param("minilm", "minilm (packaged), or a Hugging Face id or folder")
    pooling: str = param("mean", "one vector per text: the first token's (cls), or over all tokens", choices=POOLINGS)
    inputs: str = param("both", "the encoder's vectors alone, or joined with tf-idf", choices=INPUTS)
    max_length: int = param(256, "most tokens read", minimum=4)
    preprocess: str = param(
        "none", "none, clean (lower case, no punctuation) or numbers (clean, and all numbers alike)", choices=PREPARATIONS
    )
    max_words: int = param(0, "words of a text that are read; 0 for all", minimum=0)
    device: str = param("auto", "where to compute", choices=DEVICES)
    precision: str = param("auto", "of matrix products; auto: bf16 on a GPU that has it", choices=PRECISIONS)
    tokens: WordTokens | SubwordTokens | None = field(init=False, repr=False, default=None)
    description: dict[str, Any] = field(init=False, repr=False, default_factory=dict)
    network: Encoder | None = field(init=False, repr=False, default=None)
    tfidf: Tfidf = field(init=False, repr=False, default_factory=Tfidf)

    def _begin(self, corpus: Corpus, parts: Folds, run: Run) -> Problem:
        texts = prepare(corpus.texts, self.preprocess, self.max_words)
        if self.encoder in WORD_ENCODERS:  # at random, and nothing here trains them
            raise ConfigError(
                f"encoder {self.encoder!r} knows nothing before it is trained; name minilm, a Hugging Face id or folder"
            )
        self.tokens, self.description = describe_encoder(self.encoder, texts, WordSizes(), None)
        self.network = build_encoder(self.description)
        load_pretrained(self.network, self.encoder, self.tokens)
        if self.inputs == "both":
            self.tfidf = Tfidf().fit(texts)
        vectors = run.stage("vectors", lambda: {"vectors": self._vectors(texts, run)})["vectors"]
        return Problem(self._joined(np.asarray(vectors), texts), corpus.truth)

    def _rows(self, texts: Sequence[str]) -> csr_array:
        texts = prepare(texts, self.preprocess, self.max_words)
        return self._joined(self._vectors(texts, None), texts)

    def _vectors(self, texts: Sequence[str], run: Run | None) -> NDArray[np.float32]:
        """The encoder's vectors (documents, hidden)."""
        assert self.tokens is not None and self.network is not None
        self.network.to(pick_device(self.device))
        length = min(self.max_length, self.network.positions or self.max_length)
        layout = Layout(length, prefix=self.tokens.prefix, suffix=self.tokens.suffix, pad=self.tokens.pad)
        return document_vectors(self.network, tokenise(self.tokens, texts, run), layout, self.pooling, self.precision)

    def _joined(self, vectors: NDArray[np.float32], texts: Sequence[str]) -> csr_array:
        """Rows of features: all of a vector is stored, then the words."""
        rows = csr_array(vectors)
        return csr_array(hstack([rows, self.tfidf.transform(texts)], format="csr")) if self.inputs == "both" else rows

    def state(self) -> State:
        """Tokens, encoder and weights."""
        self.require_fitted()
        assert self.tokens is not None and self.network is not None
        return {
            "tokens": self.tokens.state(),
            "encoder": self.description,
            "network": to_arrays(self.network.state_dict()),
            "tfidf": self.tfidf.state() if self.inputs == "both" else None,
            "weights": self.trained.state(),
        }

    def restore(self, state: State) -> None:
        """Build the encoder again and take back the weights."""
        self.tokens = tokens_from_state(state["tokens"])
        self.description = dict(state["encoder"])
        self.network = build_encoder(self.description)
        load_arrays(self.network, state["network"])
        words = 0
        if state["tfidf"] is not None:
            self.tfidf = Tfidf()
            self.tfidf.restore(state["tfidf"])
            words = len(self.tfidf.keys)
        self.trained = self._trained_from(state["weights"])
        if self.trained.shape[0] != self.network.hidden + words:  # compiled code trusts this
            raise ValueError("its weights are about another number of features")
