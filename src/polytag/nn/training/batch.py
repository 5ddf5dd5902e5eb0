"""Batches: texts are tokenised once into flat arrays, grouped by length, and gathered on the training device."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from polytag.text.tokens import Tokens, content_key

if TYPE_CHECKING:
    from polytag.run import Run

_CHUNK = 50  # batches within which documents are sorted by length


class TokenArrays(NamedTuple):
    """The concatenated token ids of many texts, and the offsets of the texts."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of every text."""
        return np.diff(self.offsets)


def tokenise(tokens: Tokens, texts: Sequence[str], run: Run | None = None) -> TokenArrays:
    """The tokens of the texts; a resumed run uses its cache for the same texts and tokeniser."""
    if run is None or run.folder is None:
        return TokenArrays(*tokens.encode(texts))
    name = f"tokens/{content_key(tokens, texts)[:24]}"
    found = run.load_stage(name)
    if found is None:
        ids, offsets = tokens.encode(texts)
        found = {"ids": ids, "offsets": offsets}
        run.save_stage(name, found)
    return TokenArrays(np.asarray(found["ids"]), np.asarray(found["offsets"]))


@dataclass(frozen=True)
class Layout:
    """The input layout of documents: inputs of at most ``max_length`` tokens.

    ``head`` takes the first tokens, ``head+tail`` a quarter from the beginning and the rest from the end. ``windows`` takes all
    tokens, in up to ``max_windows`` windows that share ``overlap`` tokens.
    """

    max_length: int
    long: str = "head"
    overlap: int = 32
    max_windows: int = 8
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    pad: int = 0

    @property
    def room(self) -> int:
        """The maximum number of text tokens in one input."""
        return max(1, self.max_length - len(self.prefix) - len(self.suffix))

    @property
    def step(self) -> int:
        """The number of tokens from the beginning of one window to the next."""
        return max(1, self.room - self.overlap)

    def lengths(self, lengths: NDArray[Any]) -> NDArray[np.int64]:
        """The length of the longest input of documents with these numbers of tokens."""
        return np.asarray(np.minimum(lengths, self.room) + len(self.prefix) + len(self.suffix), dtype=np.int64)

    def windows(self, lengths: NDArray[Any]) -> NDArray[np.int64]:
        """The number of windows of documents with these numbers of tokens."""
        if self.long != "windows":
            return np.ones(len(lengths), dtype=np.int64)
        more = -(-np.maximum(0, lengths - self.room) // self.step)
        return np.asarray(np.minimum(1 + more, self.max_windows), dtype=np.int64)


class Batch(NamedTuple):
    """Some documents: their indices, token ids, mask (False for padding), and their labels if known.

    ``ids`` and ``mask`` are (batch, length), or (batch, windows, length) for documents in windows. ``most_labels`` is an upper
    bound on the number of labels of a document; 0 = unknown. ``judged`` (batch, labels) has the weight of every pair, 0 if nobody
    judged it; None if all pairs count the same.
    """

    rows: Tensor
    ids: Tensor
    mask: Tensor
    targets: Tensor | None
    most_labels: int = 0
    judged: Tensor | None = None


class Documents:
    """Tokens, and labels if known, on a device; batches are gathered there without copies from the host."""

    def __init__(
        self,
        arrays: TokenArrays,
        layout: Layout,
        device: torch.device,
        truth: csr_array | None = None,
        multiple: int = 1,
        label_multiple: int = 0,
        weights: NDArray[np.float32] | None = None,
        unknown: csr_array | None = None,
        soft: csr_array | None = None,
    ) -> None:
        """Move the arrays to the device.

        Padded lengths are multiples of ``multiple``, maximum numbers of labels multiples of ``label_multiple``. ``weights`` are
        those of the documents, and nobody judged the pairs ``unknown``. Where ``soft`` is given, it has the targets.
        """
        self.layout = layout
        self.multiple, self.label_multiple = multiple, label_multiple
        self.device = device
        self.lengths = layout.lengths(arrays.lengths)
        self.windows = layout.windows(arrays.lengths)
        ids = np.asarray(arrays.ids) if len(arrays.ids) else np.zeros(1, np.int32)
        self.ids = _to(ids, device)
        self.starts = _to(arrays.offsets[:-1], device)
        self.counts = _to(arrays.lengths, device)
        self.weights = None if weights is None else _to(weights, device)
        self.truth: _Pairs | None = None
        self.soft = None if soft is None or not soft.nnz else _Pairs.of(soft, device, values=True)
        self.unknown = None if unknown is None or not unknown.nnz else _Pairs.of(unknown, device)
        if truth is not None:
            self.n_labels = int(truth.shape[1])
            self.label_counts = np.diff(truth.indptr)
            self.most = int(self.label_counts.max(initial=0))
            self.truth = _Pairs.of(truth, device)

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.lengths)

    def shape(self, rows: NDArray[Any]) -> tuple[int, int]:
        """The padded length and the number of windows of a batch of these documents."""
        length = bucket(int(self.lengths[rows].max()), self.multiple, self.layout.max_length)
        return length, int(self.windows[rows].max())

    def most_labels(self, rows: NDArray[Any]) -> int:
        """The maximum number of labels of these documents, rounded up so that few values occur; 0 without ``label_multiple``."""
        if self.truth is None or not self.label_multiple:
            return 0
        return max(1, bucket(int(self.label_counts[rows].max()), self.label_multiple, self.most))

    def batch(self, rows: Tensor, length: int, windows: int = 1, most_labels: int = 0) -> Batch:
        """Gather a batch; ``rows`` are on the device, and nothing here waits for it."""
        count, start = self.counts[rows], self.starts[rows]  # (batch,)
        window = torch.arange(windows, device=self.device)
        begin = window * self.layout.step  # (windows,)
        inside = (count[:, None] - begin).clamp(0, self.layout.room)  # (batch, windows)
        place = torch.arange(length, device=self.device) - len(self.layout.prefix)  # (length,)
        source = self._source(place, begin, count) + start[:, None, None]  # (batch, windows, length)
        content = (place >= 0) & (place < inside[..., None])
        ids = torch.where(content, self.ids[source.clamp(0, len(self.ids) - 1)].long(), self.layout.pad)
        for number, token in enumerate(self.layout.prefix):
            ids = torch.where(place == number - len(self.layout.prefix), token, ids)
        for number, token in enumerate(self.layout.suffix):
            ids = torch.where(place == (inside + number)[..., None], token, ids)
        used = (window == 0) | (inside > self.layout.room - self.layout.step)  # a window without new tokens is not used
        mask = (place < (inside + len(self.layout.suffix))[..., None]) & used[..., None]
        if self.layout.long != "windows":
            ids, mask = ids[:, 0], mask[:, 0]
        return Batch(rows, ids, mask, self._targets(rows), most_labels, self._judged(rows))

    def _source(self, place: Tensor, begin: Tensor, count: Tensor) -> Tensor:
        """The index of the document's token at every position of every window."""
        at = place + begin[:, None]  # (windows, length)
        if self.layout.long != "head+tail":
            return at[None].expand(len(count), -1, -1)
        skipped = (count - self.layout.room).clamp(min=0)[:, None, None]
        return at + torch.where(at < self.layout.room // 4, 0, skipped)

    def _targets(self, rows: Tensor) -> Tensor | None:
        """The true labels as ones and zeros, or the soft targets (batch, labels)."""
        targets = self.truth if self.soft is None else self.soft
        return None if targets is None else targets.rows(rows, self.n_labels)

    def _judged(self, rows: Tensor) -> Tensor | None:
        """The weight of every pair (batch, labels), 0 if nobody judged it; None if all pairs count the same."""
        if self.weights is None and self.unknown is None:
            return None
        weights = torch.ones(len(rows), device=self.device) if self.weights is None else self.weights[rows]
        if self.unknown is None:
            return weights[:, None].expand(-1, self.n_labels)
        return weights[:, None] * (1 - self.unknown.rows(rows, self.n_labels))


class Examples(NamedTuple):
    """The training data of a network: the tokens and labels of documents, and the input layout.

    With ``label_multiple`` every batch has the maximum number of labels of its documents, rounded up to such a multiple.
    """

    tokens: TokenArrays
    truth: csr_array
    layout: Layout
    label_multiple: int = 0
    weights: NDArray[np.float32] | None = None
    unknown: csr_array | None = None
    soft: csr_array | None = None

    def key(self) -> str:
        """A checksum of the training data."""
        digest = hashlib.sha256(repr((self.layout, self.truth.shape, self.label_multiple)).encode())
        judged: list[NDArray[Any]] = [] if self.weights is None else [self.weights]
        judged += [] if self.unknown is None else [self.unknown.indices, self.unknown.indptr]
        judged += [] if self.soft is None else [self.soft.indices, self.soft.indptr, self.soft.data]
        for array in (*self.tokens, self.truth.indices, self.truth.indptr, *judged):
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def on(self, device: torch.device, multiple: int) -> Documents:
        """The documents on a device; padded lengths are multiples of ``multiple``."""
        return Documents(
            self.tokens, self.layout, device, self.truth, multiple, self.label_multiple, self.weights, self.unknown, self.soft
        )


class _Pairs(NamedTuple):
    """Pairs of documents and labels on a device: indices, offsets, the most labels of a document, and values; None = 1."""

    indices: Tensor
    indptr: Tensor
    most: int
    values: Tensor | None = None

    @classmethod
    def of(cls, pairs: csr_array, device: torch.device, *, values: bool = False) -> _Pairs:
        found = pairs.indices if pairs.nnz else np.zeros(1, np.int32)
        indices, indptr = _to(found.astype(np.int64), device), _to(pairs.indptr.astype(np.int64), device)
        data = _to(pairs.data.astype(np.float32), device) if values else None
        return cls(indices, indptr, int(np.diff(pairs.indptr).max(initial=0)), data)

    def rows(self, rows: Tensor, n_labels: int) -> Tensor:
        """The values of the pairs of these documents (batch, labels); an additional column takes the padding of shorter rows."""
        at = self.indptr[rows][:, None] + torch.arange(max(1, self.most), device=rows.device)  # (batch, most)
        valid = at < self.indptr[rows + 1][:, None]
        at = at.clamp(max=len(self.indices) - 1)
        columns = torch.where(valid, self.indices[at], n_labels)
        found = torch.zeros(len(rows), n_labels + 1, device=rows.device)
        if self.values is None:
            return found.scatter_(1, columns, 1.0)[:, :n_labels]
        return found.scatter_(1, columns, self.values[at])[:, :n_labels]


def windows_apart(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Windows (batch, windows, length) as separate texts (batch * windows, length).

    In a window that is not used, the first position is unmasked, because an empty text has no states. Ignore its states.
    """
    unmasked = mask.clone()
    unmasked[:, :, 0] = True
    return ids.flatten(0, 1), unmasked.flatten(0, 1)


def bucket(length: int, multiple: int, most: int) -> int:
    """The padded length of a batch: the next multiple, at most ``most``."""
    return max(length, min(-(-length // multiple) * multiple, most))


def batches(lengths: NDArray[Any], batch_size: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """All documents in batches of similar length: shuffled chunks are sorted by length, then the batches are shuffled."""
    order = rng.permutation(len(lengths))
    found = []
    for start in range(0, len(order), batch_size * _CHUNK):
        chunk = order[start : start + batch_size * _CHUNK]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        found += [chunk[at : at + batch_size] for at in range(0, len(chunk), batch_size)]
    return [found[at] for at in rng.permutation(len(found))]


def inference_batches(cost: NDArray[Any], most_rows: int, most_cost: int) -> list[NDArray[np.int64]]:
    """All documents, longest first, in batches of bounded padded size, for inference in any order."""
    order = np.argsort(-cost, kind="stable")
    found, start = [], 0
    while start < len(order):
        rows = max(1, min(most_rows, most_cost // max(1, int(cost[order[start]]))))
        found.append(order[start : start + rows])
        start += rows
    return found


def _to(array: NDArray[Any], device: torch.device) -> Tensor:
    writable = np.require(array, requirements=["C", "W"])  # torch does not support the read-only arrays of a checkpoint
    return torch.from_numpy(writable).to(device)
