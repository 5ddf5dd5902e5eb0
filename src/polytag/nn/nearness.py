"""How near the texts of labels are to a document, in the eyes of an encoder as it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polytag.nn.batch import Layout
from polytag.nn.frozen import FrozenEncoder

SCALE = 20.0  # what encoders of sentences multiply a cosine with when they learn which two texts belong together
_AT_ONCE = 64
_LONGEST = 128  # tokens of a label's text that are read


class Nearness:
    """``20 (cos(d, y) - m)`` of a document's vector d and that of a label's text y, with m the mean cosine in training.

    It knows nothing about any label but its text, so it holds for labels that training never saw as for others; what a head
    learns beside it is how labels of this kind are given. The mean makes it start around zero.
    """

    def __init__(self, frozen: FrozenEncoder, layout: Layout, mean: float = 0.0) -> None:
        """Take the encoder, what stands around texts, and the mean."""
        self.frozen, self.layout, self.mean = frozen, layout, mean
        self.known = self.added = torch.zeros(0, frozen.size)

    @torch.no_grad()
    def documents(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One vector of length one for every document (batch, size), from tokens as the network reads them."""
        if self.known.device != ids.device or self.added.device != ids.device:
            self.known, self.added = self.known.to(ids.device), self.added.to(ids.device)
            self.frozen.to(ids.device)
        return self.frozen.vectors(ids, mask)

    @torch.no_grad()
    def texts(self, pieces: Sequence[NDArray[Any]]) -> Tensor:
        """The same for texts that are given by their tokens, without what stands around them."""
        device = next(self.frozen.encoder.parameters()).device
        around = len(self.layout.prefix) + len(self.layout.suffix)
        most = min(_LONGEST, self.frozen.encoder.positions or _LONGEST) - around
        found = [torch.zeros(0, self.frozen.size, device=device)]
        for start in range(0, len(pieces), _AT_ONCE):
            rows = [
                [*self.layout.prefix, *piece[:most].tolist(), *self.layout.suffix] for piece in pieces[start : start + _AT_ONCE]
            ]
            lengths = np.array([len(row) for row in rows])
            mask = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
            ids = torch.full(mask.shape, self.layout.pad, dtype=torch.long)
            ids[mask] = torch.tensor([token for row in rows for token in row], dtype=torch.long)
            found.append(self.frozen.vectors(ids.to(device), mask.to(device)))
        return torch.cat(found)

    def of(self, documents: Tensor, labels: Tensor) -> Tensor:
        """How near they are (batch, labels), from vectors (batch, size) and (labels, size)."""
        with torch.autocast(documents.device.type, enabled=False):
            return SCALE * (documents @ labels.T - self.mean)

    def state(self) -> dict[str, Any]:
        """The encoder and the mean; vectors of labels follow from their texts."""
        return {"frozen": self.frozen.state(), "mean": self.mean}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], layout: Layout) -> Nearness:
        """Build it again."""
        return cls(FrozenEncoder.from_state(state["frozen"]), layout, float(state["mean"]))
