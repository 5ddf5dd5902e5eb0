"""Linear separators on the vectors of a frozen encoder: a strong baseline that needs no GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from polytag.config.groups.encoder_settings import WORD_ENCODERS, EncoderSettings, WordSettings
from polytag.config.groups.text_settings import TextSettings
from polytag.config.groups.training_settings import ComputeSettings
from polytag.errors import ConfigError
from polytag.linear.prior import Growth
from polytag.linear.svm import Problem
from polytag.models.base.attribution import Attribution, linear_parts
from polytag.models.base.kept_rows import KeptRows, require_same
from polytag.models.base.linear_model import Folds, LinearModel
from polytag.models.model import State, group, param
from polytag.nn.encoding.document_vectors import document_vectors, vector_shares
from polytag.nn.encoding.encoders import Encoder, build_encoder
from polytag.nn.encoding.pretrained import describe_encoder, load_pretrained
from polytag.nn.encoding.restored_network import ENCODER, WEIGHTS, restored_network
from polytag.nn.encoding.token_places import located
from polytag.nn.training.batch import Layout, tokenise
from polytag.nn.training.checkpoint import to_arrays
from polytag.nn.training.devices import pick_device
from polytag.storage.schema import Anything, Optional, Schema, Table
from polytag.text.preprocess import prepare
from polytag.text.term_rows import TermRows
from polytag.text.tfidf import TFIDF, Tfidf
from polytag.text.tokens import TOKENS, SubwordTokens, WordTokens, tokens_from_state
from polytag.text.word_shares import word_shares

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

INPUTS = ("both", "vectors")


@dataclass
class Embed(LinearModel):
    """One linear separator per label on the vectors of a frozen encoder, by default joined with tf-idf of the words."""

    extendable: ClassVar[bool] = True

    texts: TextSettings = group(TextSettings)
    encoding: EncoderSettings = group(
        EncoderSettings, without=("long", "overlap", "max_windows", "window_pooling"), max_length=256
    )
    inputs: str = param("both", "features: the encoder's vectors alone, or joined with tf-idf", choices=INPUTS, first=True)
    compute: ComputeSettings = group(ComputeSettings, without=("graphs", "pad_multiple"))
    tokens: WordTokens | SubwordTokens | None = field(init=False, repr=False, default=None)
    description: dict[str, Any] = field(init=False, repr=False, default_factory=dict)
    network: Encoder | None = field(init=False, repr=False, default=None)
    tfidf: Tfidf = field(init=False, repr=False, default_factory=Tfidf)

    def _begin(self, corpus: Corpus, parts: Folds, run: Run) -> Problem:
        texts = prepare(corpus.texts, self.texts.preprocess, self.texts.max_words)
        if self.encoding.encoder in WORD_ENCODERS:  # their weights are random, and nothing here trains them
            raise ConfigError(f"encoder {self.encoding.encoder!r} is not pretrained; name minilm, a Hugging Face id or a folder")
        self.tokens, self.description = describe_encoder(self.encoding.encoder, texts, WordSettings(), None)
        self.network = build_encoder(self.description)
        load_pretrained(self.network, self.encoding.encoder, self.tokens)
        if self.inputs == "both":
            self.tfidf = Tfidf().fit(texts) if self.words is None else self.words
        vectors = run.stage("vectors", lambda: {"vectors": self._vectors(texts, run)})["vectors"]
        return Problem.of(self._joined(np.asarray(vectors), texts), corpus)

    def _rows(self, texts: Sequence[str]) -> csr_array:
        texts = prepare(texts, self.texts.preprocess, self.texts.max_words)
        return self._joined(self._vectors(texts, None), texts)

    def _grow_features(self, earlier: Embed, texts: Sequence[str]) -> Growth:
        require_same(self, earlier, ("inputs",))
        require_same(self.texts, earlier.texts, ("preprocess", "max_words"))
        require_same(self.encoding, earlier.encoding, ("encoder", "pooling", "max_length"))
        self.tokens, self.description, self.network = earlier.tokens, earlier.description, earlier.network
        assert self.network is not None
        places, scale, old = np.arange(self.network.hidden), np.ones(self.network.hidden, np.float32), earlier.tfidf
        if self.inputs == "both":
            self.tfidf = old.grown(prepare(texts, self.texts.preprocess, self.texts.max_words))
            places = np.concatenate([places, self.network.hidden + self.tfidf.places(old)])
            scale = np.concatenate([scale, self.tfidf.growth(old)])
        return Growth(places, scale, self.network.hidden + (len(self.tfidf.keys) if self.inputs == "both" else 0))

    def _keep(self, corpus: Corpus) -> KeptRows:
        texts = prepare(corpus.texts, self.texts.preprocess, self.texts.max_words)
        terms = TermRows.of(texts, self.tfidf) if self.inputs == "both" else None
        return KeptRows(corpus.truth, terms, self._vectors(texts, None))

    def _kept_features(self, kept: KeptRows, texts: Sequence[str]) -> csr_array:
        if kept.terms is not None:
            self.tfidf = kept.terms.vocabulary(self.tfidf, prepare(texts, self.texts.preprocess, self.texts.max_words))
        return self._stored_features(kept)

    def dense_features(self) -> int:
        """The size of the encoder's vectors."""
        return 0 if self.network is None else self.network.hidden

    def _stored_features(self, kept: KeptRows) -> csr_array:
        assert kept.vectors is not None
        if kept.terms is None:
            return csr_array(kept.vectors)
        return csr_array(hstack([csr_array(kept.vectors), kept.terms.weighted(self.tfidf)], format="csr"))

    def _vectors(self, texts: Sequence[str], run: Run | None) -> NDArray[np.float32]:
        """The encoder's vectors (documents, hidden)."""
        assert self.tokens is not None and self.network is not None
        self.network.to(pick_device(self.compute.device))
        return document_vectors(
            self.network, tokenise(self.tokens, texts, run), self._layout(), self.encoding.pooling, self.compute.precision, run
        )

    def _layout(self) -> Layout:
        """The input of a document: its first tokens."""
        assert self.tokens is not None and self.network is not None
        length = min(self.encoding.max_length, self.network.positions or self.encoding.max_length)
        return Layout(length, prefix=self.tokens.prefix, suffix=self.tokens.suffix, pad=self.tokens.pad)

    def _joined(self, vectors: NDArray[np.float32], texts: Sequence[str]) -> csr_array:
        """Feature rows: the document vector, then tf-idf."""
        rows = csr_array(vectors)
        return csr_array(hstack([rows, self.tfidf.transform(texts)], format="csr")) if self.inputs == "both" else rows

    def attribute(self, text: str, labels: NDArray[np.int64], *, exact: bool = False) -> Attribution:
        """Exact contributions of the words to the margin: by tf-idf, and by their states in the mean that the vector is.

        What punctuation and special tokens add to the vector is part of the bias. The state of the first token (pooling cls) is
        no sum; words are left out then.
        """
        self.require_fitted()
        assert self.tokens is not None and self.network is not None
        device = pick_device(self.compute.device)
        found = located(self.tokens, self._layout(), device, text, self.texts, given=self.tfidf.given)
        shares = vector_shares(self.network.to(device), found.batch, self.encoding.pooling, self.compute.precision)
        if shares is None:
            return super().attribute(text, labels, exact=exact)
        hidden, weights = self.network.hidden, self.trained.weights
        parts = shares @ np.asarray(csr_array(weights[:hidden])[:, labels].toarray(), dtype=np.float64)  # (positions, labels)
        values, bias = found.by_word(parts), np.asarray(self.trained.bias[labels], dtype=np.float64)
        bias = bias + parts[found.words < 0].sum(axis=0)
        if self.inputs == "both":
            values = (
                values
                + linear_parts(
                    word_shares(self.tfidf, text, self.texts), csr_array(weights[hidden:]), labels, self.trained.bias
                ).values
            )
        return Attribution(found.spans, values, bias)

    def state(self) -> State:
        """The tokeniser, the encoder and the weights."""
        self.require_fitted()
        assert self.tokens is not None and self.network is not None
        return {
            "tokens": self.tokens.state(),
            "encoder": self.description,
            "network": to_arrays(self.network.state_dict()),
            "tfidf": self.tfidf.state() if self.inputs == "both" else None,
            "weights": self.trained.state(),
            **self._prior_state(),
        }

    def schema(self) -> Table:
        """Tokeniser, encoder and weights; the kernels use one row of weights per number of the joined features."""
        tfidf: Schema = TFIDF if self.inputs == "both" else Optional(Anything(type(None)))
        fields: dict[str, Schema] = {"tokens": TOKENS, "encoder": ENCODER, "network": WEIGHTS, "tfidf": tfidf}
        learning = self._learning_schema("features")
        return Table({**fields, "weights": self._trained_schema("features"), **learning}, optional=frozenset(learning))

    def restore(self, state: State) -> None:
        """Build the encoder again and restore the weights."""
        self.tokens = tokens_from_state(state["tokens"])
        self.description = dict(state["encoder"])
        self.network = restored_network(lambda: build_encoder(self.description), state["network"], self.description)
        words = 0
        if state["tfidf"] is not None:
            self.tfidf = Tfidf()
            self.tfidf.restore(state["tfidf"])
            words = len(self.tfidf.keys)
        self.trained = self._trained_from(state["weights"])
        self._restore_prior(state)
        if self.trained.shape[0] != self.network.hidden + words:  # compiled code does not check this
            raise ValueError("its weights and its features have different sizes")
