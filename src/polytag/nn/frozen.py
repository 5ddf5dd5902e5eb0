"""An encoder as it came, beside a network that is trained: its vectors are the same for old and for new documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from polytag.errors import ConfigError
from polytag.nn.batch import Layout, tokenise
from polytag.nn.checkpoint import Arrays, load_arrays, to_arrays
from polytag.nn.devices import pick_device
from polytag.nn.embedding import document_vectors
from polytag.nn.encoders import Encoder, build_encoder, pool
from polytag.nn.pretrained import WORD_ENCODERS, WordSizes, describe_encoder, load_pretrained
from polytag.text.tokens import SubwordTokens, WordTokens, tokens_from_state

if TYPE_CHECKING:
    from polytag.run import Run


class FrozenEncoder:
    """A pretrained encoder that nothing trains; the vector of a document is the mean of its tokens' states.

    Its weights are rounded to half precision, which is how an artefact keeps them.
    """

    def __init__(self, encoder: Encoder, description: dict[str, Any]) -> None:
        """Take the encoder and what it was built from."""
        self.encoder, self.description = encoder.eval().requires_grad_(False), description
        with torch.no_grad():
            for parameter in self.encoder.parameters():
                parameter.copy_(parameter.half())

    @classmethod
    def pretrained(cls, name: str) -> FrozenEncoder:
        """The packaged encoder, or one from a folder or the hub."""
        tokens, description = describe_encoder(name, (), WordSizes(), None)
        encoder = build_encoder(description)
        load_pretrained(encoder, name, tokens)
        return cls(encoder, description)

    @property
    def size(self) -> int:
        """The size of a document's vector."""
        return self.encoder.hidden

    def to(self, device: torch.device) -> FrozenEncoder:
        """The same, on a device."""
        self.encoder.to(device)
        return self

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One vector of length one for every document (batch, size), from tokens (batch, length)."""
        return functional.normalize(pool(self.encoder(ids, mask), mask, "mean").float(), dim=1)

    def state(self) -> dict[str, Any]:
        """What it was built from, and its weights."""
        own = self.encoder.state_dict()
        weights = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in own.items()}
        return {"encoder": self.description, "weights": to_arrays(weights)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FrozenEncoder:
        """Build it again."""
        description = dict(state["encoder"])
        encoder = build_encoder(description)
        weights: Arrays = state["weights"]
        load_arrays(encoder, weights)
        return cls(encoder, description)


class DocumentVectors:
    """A frozen encoder with its tokens: texts to vectors."""

    def __init__(self, tokens: WordTokens | SubwordTokens, frozen: FrozenEncoder, max_length: int) -> None:
        """Take the parts; ``max_length`` tokens of a text are read at most."""
        self.tokens, self.frozen, self.max_length = tokens, frozen, max_length

    @classmethod
    def pretrained(cls, name: str, max_length: int) -> DocumentVectors:
        """The packaged encoder, or one from a folder or the hub."""
        if name in WORD_ENCODERS:
            raise ConfigError(f"encoder {name!r} knows nothing before it is trained; name minilm, a Hugging Face id or folder")
        return cls(describe_encoder(name, (), WordSizes(), None)[0], FrozenEncoder.pretrained(name), max_length)

    @property
    def size(self) -> int:
        """The size of a vector."""
        return self.frozen.size

    def of(self, texts: Sequence[str], device: str, precision: str, run: Run | None = None) -> NDArray[np.float32]:
        """One vector of length one for every text (documents, size)."""
        encoder = self.frozen.to(pick_device(device)).encoder
        length = min(self.max_length, encoder.positions or self.max_length)
        layout = Layout(length, prefix=self.tokens.prefix, suffix=self.tokens.suffix, pad=self.tokens.pad)
        return document_vectors(encoder, tokenise(self.tokens, texts, run), layout, "mean", precision)

    def state(self) -> dict[str, Any]:
        """Everything that is needed to build it again."""
        return {"tokens": self.tokens.state(), **self.frozen.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], max_length: int) -> DocumentVectors:
        """Build it again."""
        return cls(tokens_from_state(state["tokens"]), FrozenEncoder.from_state(state), max_length)
