"""A frozen pretrained encoder, used in addition to a fine-tuned network; its vectors do not overfit the training documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from polytag.config.groups.encoder_settings import WORD_ENCODERS, WordSettings
from polytag.errors import ConfigError
from polytag.nn.encoding.document_vectors import document_vectors
from polytag.nn.encoding.encoders import Encoder, build_encoder, pool
from polytag.nn.encoding.pretrained import describe_encoder, load_pretrained
from polytag.nn.encoding.restored_network import ENCODER, WEIGHTS, restored_network
from polytag.nn.training.batch import Layout, tokenise
from polytag.nn.training.checkpoint import to_arrays
from polytag.nn.training.devices import pick_device
from polytag.storage.schema import Table
from polytag.text.tokens import TOKENS, SubwordTokens, WordTokens, tokens_from_state

if TYPE_CHECKING:
    from polytag.run import Run

FROZEN = Table({"encoder": ENCODER, "weights": WEIGHTS})
"""What a frozen encoder looks like when it is saved."""
DOCUMENT_VECTORS = Table({"tokens": TOKENS, **FROZEN.fields})
"""The same with its tokeniser."""


class FrozenEncoder:
    """A pretrained encoder that is not trained; a document vector is the mean of the token states.

    Its weights are rounded to half precision, in which an artefact stores them.
    """

    def __init__(self, encoder: Encoder, description: dict[str, Any]) -> None:
        """Store the encoder and its description, and round its weights."""
        self.encoder, self.description = encoder.eval().requires_grad_(False), description
        with torch.no_grad():
            for parameter in self.encoder.parameters():
                parameter.copy_(parameter.half())

    @classmethod
    def pretrained(cls, name: str) -> FrozenEncoder:
        """The packaged encoder, or one from a folder or the Hugging Face hub."""
        tokens, description = describe_encoder(name, (), WordSettings(), None)
        encoder = build_encoder(description)
        load_pretrained(encoder, name, tokens)
        return cls(encoder, description)

    @property
    def size(self) -> int:
        """The size of a document vector."""
        return self.encoder.hidden

    def to(self, device: torch.device) -> FrozenEncoder:
        """Move the encoder to a device."""
        self.encoder.to(device)
        return self

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One unit vector per document (batch, size), from tokens (batch, length)."""
        return functional.normalize(pool(self.encoder(ids, mask), mask, "mean").float(), dim=1)

    def state(self) -> dict[str, Any]:
        """The description and the weights."""
        own = self.encoder.state_dict()
        weights = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in own.items()}
        return {"encoder": self.description, "weights": to_arrays(weights)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FrozenEncoder:
        """Rebuild from the state."""
        description = dict(state["encoder"])
        encoder = restored_network(lambda: build_encoder(description), state["weights"], description)
        return cls(encoder, description)


class DocumentVectors:
    """A frozen encoder with its tokeniser: texts to document vectors."""

    def __init__(self, tokens: WordTokens | SubwordTokens, frozen: FrozenEncoder, max_length: int) -> None:
        """Store tokeniser and encoder; at most ``max_length`` tokens of a text are encoded."""
        self.tokens, self.frozen, self.max_length = tokens, frozen, max_length

    @classmethod
    def pretrained(cls, name: str, max_length: int) -> DocumentVectors:
        """The packaged encoder, or one from a folder or the Hugging Face hub."""
        if name in WORD_ENCODERS:
            raise ConfigError(f"encoder {name!r} is not pretrained; name minilm, a Hugging Face id or a folder")
        return cls(describe_encoder(name, (), WordSettings(), None)[0], FrozenEncoder.pretrained(name), max_length)

    @property
    def size(self) -> int:
        """The size of a vector."""
        return self.frozen.size

    def of(self, texts: Sequence[str], device: str, precision: str, run: Run | None = None) -> NDArray[np.float32]:
        """One unit vector per text (documents, size)."""
        encoder = self.frozen.to(pick_device(device)).encoder
        length = min(self.max_length, encoder.positions or self.max_length)
        layout = Layout(length, prefix=self.tokens.prefix, suffix=self.tokens.suffix, pad=self.tokens.pad)
        return document_vectors(encoder, tokenise(self.tokens, texts, run), layout, "mean", precision, run)

    def state(self) -> dict[str, Any]:
        """Everything that is needed to rebuild it."""
        return {"tokens": self.tokens.state(), **self.frozen.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], max_length: int) -> DocumentVectors:
        """Rebuild from the state."""
        return cls(tokens_from_state(state["tokens"]), FrozenEncoder.from_state(state), max_length)
