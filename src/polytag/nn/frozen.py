"""An encoder as it came, beside a network that is trained: its vectors are the same for old and for new documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from polytag.nn.checkpoint import Arrays, load_arrays, to_arrays
from polytag.nn.encoders import Encoder, build_encoder, pool
from polytag.nn.pretrained import WordSizes, describe_encoder, load_pretrained


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
