"""Batches: texts tokenised once into flat arrays, cut into batches of similar length, gathered on the device that trains."""

from __future__ import annotations

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

LONG = ("head", "head+tail", "windows")
_CHUNK = 50  # batches within which documents are sorted by length


class TokenArrays(NamedTuple):
    """The tokens of many texts behind one another, and where each text begins and ends."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every text."""
        return np.diff(self.offsets)


def tokenise(tokens: Tokens, texts: Sequence[str], run: Run | None = None) -> TokenArrays:
    """The tokens of the texts; a resumed run takes those that it kept for the same texts and the same tokeniser."""
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
    """How the tokens of a document become what an encoder reads, at most ``max_length`` tokens at a time.

    ``head`` reads the beginning; ``head+tail`` a quarter from the beginning and the rest from the end; ``windows`` all of it,
    up to ``max_windows`` that share ``overlap`` tokens.
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
        """Tokens of the text itself in one piece."""
        return max(1, self.max_length - len(self.prefix) - len(self.suffix))

    @property
    def step(self) -> int:
        """Tokens from the beginning of one window to the next."""
        return max(1, self.room - self.overlap)

    def lengths(self, lengths: NDArray[Any]) -> NDArray[np.int64]:
        """Tokens of the longest piece of documents with these many tokens."""
        return np.asarray(np.minimum(lengths, self.room) + len(self.prefix) + len(self.suffix), dtype=np.int64)

    def windows(self, lengths: NDArray[Any]) -> NDArray[np.int64]:
        """Pieces that documents with these many tokens are read in."""
        if self.long != "windows":
            return np.ones(len(lengths), dtype=np.int64)
        more = -(-np.maximum(0, lengths - self.room) // self.step)
        return np.asarray(np.minimum(1 + more, self.max_windows), dtype=np.int64)


class Batch(NamedTuple):
    """Some documents: their numbers, their tokens, which of these are no padding, and their labels if these are known.

    ``ids`` and ``mask`` are (batch, length), or (batch, windows, length) where documents are read in windows. No document has
    more than ``most_labels`` labels; 0 means that nobody counted.
    """

    rows: Tensor
    ids: Tensor
    mask: Tensor
    targets: Tensor | None
    most_labels: int = 0


class Documents:
    """Tokens, and labels if they are known, on a device; batches are gathered there without copies from the host."""

    def __init__(
        self,
        arrays: TokenArrays,
        layout: Layout,
        device: torch.device,
        truth: csr_array | None = None,
        multiple: int = 1,
        label_multiple: int = 0,
    ) -> None:
        """Move the arrays to the device; padded lengths are multiples of ``multiple``, counts of labels of ``label_multiple``."""
        self.layout = layout
        self.multiple, self.label_multiple = multiple, label_multiple
        self.device = device
        self.lengths = layout.lengths(arrays.lengths)
        self.windows = layout.windows(arrays.lengths)
        ids = np.asarray(arrays.ids) if len(arrays.ids) else np.zeros(1, np.int32)
        self.ids = _to(ids, device)
        self.starts = _to(arrays.offsets[:-1], device)
        self.counts = _to(arrays.lengths, device)
        self.truth: tuple[Tensor, Tensor] | None = None
        if truth is not None:
            self.n_labels = int(truth.shape[1])
            self.label_counts = np.diff(truth.indptr)
            self.most = int(self.label_counts.max(initial=0))
            indices = truth.indices if truth.nnz else np.zeros(1, np.int32)
            self.truth = _to(indices.astype(np.int64), device), _to(truth.indptr.astype(np.int64), device)

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self.lengths)

    def shape(self, rows: NDArray[Any]) -> tuple[int, int]:
        """The padded length and the number of windows of a batch of these documents."""
        length = bucket(int(self.lengths[rows].max()), self.multiple, self.layout.max_length)
        return length, int(self.windows[rows].max())

    def most_labels(self, rows: NDArray[Any]) -> int:
        """The most labels of any of these documents, rounded up so that few numbers occur; 0 where labels are not counted."""
        if self.truth is None or not self.label_multiple:
            return 0
        return max(1, bucket(int(self.label_counts[rows].max()), self.label_multiple, self.most))

    def batch(self, rows: Tensor, length: int, windows: int = 1, most_labels: int = 0) -> Batch:
        """Gather a batch; ``rows`` are on the device already, and nothing here waits for it."""
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
        used = (window == 0) | (inside > self.layout.room - self.layout.step)  # a window with nothing new is none
        mask = (place < (inside + len(self.layout.suffix))[..., None]) & used[..., None]
        if self.layout.long != "windows":
            ids, mask = ids[:, 0], mask[:, 0]
        return Batch(rows, ids, mask, self._targets(rows), most_labels)

    def _source(self, place: Tensor, begin: Tensor, count: Tensor) -> Tensor:
        """Which token of the document stands at every place of every window."""
        at = place + begin[:, None]  # (windows, length)
        if self.layout.long != "head+tail":
            return at[None].expand(len(count), -1, -1)
        skipped = (count - self.layout.room).clamp(min=0)[:, None, None]
        return at + torch.where(at < self.layout.room // 4, 0, skipped)

    def _targets(self, rows: Tensor) -> Tensor | None:
        """Ones and zeros (batch, labels); one more column takes what documents with fewer labels have too many."""
        if self.truth is None:
            return None
        indices, indptr = self.truth
        at = indptr[rows][:, None] + torch.arange(max(1, self.most), device=self.device)  # (batch, most)
        valid = at < indptr[rows + 1][:, None]
        columns = torch.where(valid, indices[at.clamp(max=len(indices) - 1)], self.n_labels)
        targets = torch.zeros(len(rows), self.n_labels + 1, device=self.device)
        return targets.scatter_(1, columns, 1.0)[:, : self.n_labels]


def windows_apart(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Windows (batch, windows, length) as texts of their own, (batch * windows, length).

    One that is not used reads its first place all the same, for a text of nothing has no states; leave it out afterwards.
    """
    read = mask.clone()
    read[:, :, 0] = True
    return ids.flatten(0, 1), read.flatten(0, 1)


def bucket(length: int, multiple: int, most: int) -> int:
    """The length that a batch is padded to: the next multiple, but not beyond the most."""
    return max(length, min(-(-length // multiple) * multiple, most))


def batches(lengths: NDArray[Any], batch_size: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """All documents once, in batches of similar length: sorted within shuffled chunks, then the batches are shuffled."""
    order = rng.permutation(len(lengths))
    found = []
    for start in range(0, len(order), batch_size * _CHUNK):
        chunk = order[start : start + batch_size * _CHUNK]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        found += [chunk[at : at + batch_size] for at in range(0, len(chunk), batch_size)]
    return [found[at] for at in rng.permutation(len(found))]


def reading_batches(cost: NDArray[Any], most_rows: int, most_cost: int) -> list[NDArray[np.int64]]:
    """All documents once, longest first, in batches of bounded padded size: to score them when order does not matter."""
    order = np.argsort(-cost, kind="stable")
    found, start = [], 0
    while start < len(order):
        rows = max(1, min(most_rows, most_cost // max(1, int(cost[order[start]]))))
        found.append(order[start : start + rows])
        start += rows
    return found


def padding_waste(lengths: NDArray[Any], plan: Sequence[NDArray[Any]], multiple: int = 1, most: int = 1 << 30) -> float:
    """The share of all places in the batches that is padding."""
    places = sum(len(rows) * bucket(int(lengths[rows].max()), multiple, most) for rows in plan)
    return 1 - float(sum(int(lengths[rows].sum()) for rows in plan)) / max(1, places)


def _to(array: NDArray[Any], device: torch.device) -> Tensor:
    writable = np.require(array, requirements=["C", "W"])  # arrays of a checkpoint are read-only, which torch does not know
    return torch.from_numpy(writable).to(device)
