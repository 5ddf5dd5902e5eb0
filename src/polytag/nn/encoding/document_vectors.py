"""One vector per document from a frozen encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from polytag.nn.encoding.encoders import Encoder, pool
from polytag.nn.training.batch import Batch, Documents, Layout, TokenArrays, inference_batches
from polytag.nn.training.devices import autocast, multiplies_in_tiles, pick_precision

if TYPE_CHECKING:
    from polytag.run import Run

_PLACES = {"cpu": 512, "cuda": 131_072}  # tokens, with padding, that are encoded at once; more do not fit into a CPU's caches
_TILED = 4_096  # the same where a CPU multiplies in tiles; fewer would leave them waiting


def tokens_at_once(device: torch.device) -> int:
    """The number of tokens, with padding, that a device encodes at once, in the present precision."""
    tiled = device.type == "cpu" and torch.is_autocast_enabled("cpu") and multiplies_in_tiles()
    return _TILED if tiled else _PLACES[device.type]


def encoding_batches(data: Documents, most_rows: int, places: int = 0) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """All documents in batches of similar length and of at most ``places`` tokens, longest first: their indices and the batch."""
    for rows in _batches(data, most_rows, places):
        yield rows, _batch(data, rows)


def _batches(data: Documents, most_rows: int, places: int = 0) -> list[NDArray[np.int64]]:
    return inference_batches(data.lengths * data.windows, most_rows, places or tokens_at_once(data.device))


def _batch(data: Documents, rows: NDArray[np.int64]) -> Batch:
    return data.batch(torch.from_numpy(rows).to(data.device), *data.shape(rows))


def document_vectors(
    encoder: Encoder, arrays: TokenArrays, layout: Layout, pooling: str, precision: str, run: Run | None = None
) -> NDArray[np.float32]:
    """Unit vectors (documents, hidden), computed on the encoder's device; a run shows the progress.

    Progress is counted in batches: they have the same number of tokens, documents have not, and the longest come first.
    """
    device = next(encoder.parameters()).device
    found = np.zeros((len(arrays.lengths), encoder.hidden), dtype=np.float32)
    data = Documents(arrays, layout, device)
    encoder.eval()
    with torch.inference_mode(), autocast(device, pick_precision(precision, device, encoder)):
        batches = _batches(data, len(found))  # their size depends on the precision
        for rows in batches if run is None else run.track(batches, "document vectors, in batches"):
            batch = _batch(data, rows)
            vectors = pool(encoder(batch.ids, batch.mask), batch.mask, pooling).float()
            found[rows] = torch.nn.functional.normalize(vectors, dim=1).cpu().numpy()
    return found


def vector_shares(encoder: Encoder, batch: Batch, pooling: str, precision: str) -> NDArray[np.float64] | None:
    """What each position of one document contributes to its unit vector: (positions, hidden), whose sum is the vector.

    A mean is a sum over the positions, and of a maximum every number comes from one position. The state of the first token is
    no sum: None.
    """
    device = next(encoder.parameters()).device
    if pooling == "cls":
        return None
    encoder.eval()
    with torch.inference_mode(), autocast(device, pick_precision(precision, device, encoder)):
        states = encoder(batch.ids, batch.mask)  # (1, length, hidden)
        vector = pool(states, batch.mask, pooling).float()
    inside = states[0].double().cpu() * batch.mask[0, :, None].cpu()
    if pooling == "max":
        best = states.masked_fill(~batch.mask[..., None], float("-inf"))[0].argmax(dim=0).cpu()  # (hidden,)
        inside = inside * torch.nn.functional.one_hot(best, len(inside)).T
    else:
        inside = inside / batch.mask.sum().clamp(min=1).item()
    return np.asarray((inside / vector.norm().clamp(min=1e-12).item()).numpy())
