"""A document and all labels in one encoder input (LACO, 3.2); labels that do not fit are encoded in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.nn.encoding.encoders import Encoder

_EVEN = 8  # widths are multiples of this, for which attention kernels are fastest


class Blocks(NamedTuple):
    """The tokens of labels in blocks, (blocks, width) each; a block ends with the suffix of a text.

    ``mask`` is False for padding; ``owners`` has the label index of each token, or -1.
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    owners: NDArray[np.int64]


class Joint(NamedTuple):
    """The states of a document and the labels.

    ``words`` is H_D (batch, length, hidden) with its ``mask`` (batch, length), True for the words of the text only. ``first`` is
    the state of the first token (batch, hidden), ``labels`` is H_Y (batch, labels, hidden). ``origin`` is the document vector of
    the frozen encoder (batch, hidden), if it is needed.
    """

    words: Tensor
    mask: Tensor
    first: Tensor
    labels: Tensor
    origin: Tensor | None = None


def label_blocks(pieces: Sequence[NDArray[Any]], room: int, suffix: Sequence[int], pad: int) -> Blocks:
    """Distribute labels, in order, over as few blocks of at most ``room`` tokens as possible, of similar size.

    Every label is in exactly one block. A block ends with the suffix. It is wide enough for its longest label even if that
    exceeds ``room``.
    """
    lengths = [len(piece) for piece in pieces]
    width = max(lengths)
    room = max(room, width + len(suffix))
    fewest = len(_ends(lengths, room - len(suffix)))
    while len(_ends(lengths, width)) > fewest:
        width += 1
    ends, wide = _ends(lengths, width), width + len(suffix)
    wide = min(even(wide), room)
    ids = np.full((len(ends), wide), pad, dtype=np.int64)
    owners = np.full(ids.shape, -1, dtype=np.int64)
    mask = np.zeros(ids.shape, dtype=np.bool_)
    for block, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        tokens = np.concatenate([*pieces[start:stop], np.asarray(suffix, dtype=np.int64)])
        ids[block, : len(tokens)], mask[block, : len(tokens)] = tokens, True
        owners[block, : len(tokens) - len(suffix)] = np.repeat(np.arange(start, stop), lengths[start:stop])
    return Blocks(ids, mask, owners)


def even(width: int) -> int:
    """The width rounded up to a multiple of 8, for which attention kernels are fastest."""
    return -(-width // _EVEN) * _EVEN


def _ends(lengths: Sequence[int], room: int) -> list[int]:
    """The ends of blocks that are filled greedily."""
    ends, used = [], 0
    for label, length in enumerate(lengths):
        if label and used + length > room:
            ends.append(label)
            used = 0
        used += length
    return [*ends, len(lengths)]


def _within(owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """The position of every token within its label, from 1; tokens of no label have the position after the longest label."""
    place = np.arange(owners.shape[1])
    begins = np.concatenate([np.ones((len(owners), 1), dtype=np.bool_), owners[:, 1:] != owners[:, :-1]], axis=1)
    within = 1 + place - np.maximum.accumulate(np.where(begins, place, 0), axis=1)
    longest = within[owners >= 0].max()
    return np.where(owners >= 0, within, longest + 1)


def _mean_of(words: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The tokens of labels, padded (labels, most), and the weight of each in their mean."""
    lengths = np.array([len(piece) for piece in words])
    inside = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros(inside.shape, dtype=np.int64)
    padded[inside] = np.concatenate(words)
    return padded, (inside / lengths[:, None]).astype(np.float32)


class LabelPart(nn.Module):
    """The labels' part of the encoder input ``[CLS] text [SEP] labels [SEP]``, with padding only at the end.

    Texts of a batch differ in length, so the labels start at different positions. They directly follow the last token of each
    text. So positions, attention and padding are as in pretraining, and any encoder can be used. The states do not depend on the
    padding of a batch. Tensor shapes are those of the padded texts.

    With several blocks, the same text is encoded with each of them. A label is encoded with the text and its own block. A word of
    the text has one state per block; their mean depends on all labels and is the one vector per word that eq. 1 to 3 need. With
    one block this is the paper's method. With ``apart``, the positions of every label start after the first token. So they depend
    neither on the length of the text nor on other labels.
    """

    ids: Tensor
    mask: Tensor
    owners: Tensor
    share: Tensor
    place: Tensor
    within: Tensor
    words: Tensor | None
    weights: Tensor | None

    def __init__(
        self, blocks: Blocks, embedding: int = 0, words: Sequence[NDArray[Any]] | None = None, *, apart: bool = False
    ) -> None:
        """Store the tokens of the labels.

        With ``embedding``, every label has one new embedding of that size; with ``words``, the mean of its tokens' embeddings. In
        both cases a label is one token in the blocks, whose id is ignored.
        """
        super().__init__()
        self.apart = apart
        n_labels = int(blocks.owners.max()) + 1
        own = blocks.owners >= 0
        first = np.array([row[row >= 0].min() for row in blocks.owners])  # the first label of every block
        counts = np.array([row.max() + 1 for row in blocks.owners]) - first
        share = np.zeros((len(first), counts.max(), blocks.ids.shape[1]), dtype=np.float32)
        at, token = np.nonzero(own)
        share[at, blocks.owners[own] - first[at], token] = 1
        share /= np.maximum(share.sum(axis=2, keepdims=True), 1)
        place = np.concatenate([block * share.shape[1] + np.arange(count) for block, count in enumerate(counts)])
        for name, array in (*blocks._asdict().items(), ("share", share), ("place", place), ("within", _within(blocks.owners))):
            self.register_buffer(name, torch.from_numpy(np.asarray(array)), persistent=False)  # they follow from the labels
        self.new = nn.Parameter(torch.randn(n_labels, embedding) * 0.02) if embedding else None
        means = (None, None) if words is None else map(torch.from_numpy, _mean_of(words))
        for name, tensor in zip(("words", "weights"), means, strict=True):
            self.register_buffer(name, tensor, persistent=False)

    def trim(self) -> bool:
        """Remove the padding that all blocks share; return whether none is left."""
        width = int(self.mask.sum(dim=1).max())
        for name in ("ids", "mask", "owners", "share", "within"):
            setattr(self, name, getattr(self, name)[..., :width])
        return bool(self.mask.all())

    def forward(self, encoder: Encoder, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """States of the texts (batch, length, hidden) and of the labels (batch, labels, hidden)."""
        (batch, length), (blocks, width) = ids.shape, self.ids.shape
        count = mask.sum(dim=1, keepdim=True)  # (batch, 1)
        place = torch.arange(length + width, device=ids.device)
        in_text = place < count  # (batch, length + width)
        at = (place - count).clamp(0, width - 1)  # the label token at each position
        inside = in_text | (self.mask[:, at] & (place < count + width))  # (blocks, batch, length + width)
        text = nn.functional.pad(ids, (0, width))
        embedded = encoder.token_table()(torch.where(in_text, text, self.ids[:, at]))
        table = self._one_each(encoder)
        if table is not None:
            owner = self.owners[:, at]
            new = nn.functional.embedding(owner.clamp(min=0), table)
            embedded = torch.where(((owner >= 0) & ~in_text)[..., None], new, embedded)
        segments = (~in_text).long().expand(blocks, -1, -1)
        positions = torch.where(in_text, place, self.within[:, at]).flatten(0, 1) if self.apart else None
        states = encoder.encode(embedded.flatten(0, 1), inside.flatten(0, 1), segments.flatten(0, 1), positions)
        states = states.view(blocks, batch, length + width, -1)
        words = states[0, :, :length] if blocks == 1 else states[:, :, :length].mean(dim=0)
        return words, self._labels(states, count)

    def _one_each(self, encoder: Encoder) -> Tensor | None:
        """The single embedding of each label (labels, embedding), if labels are one token."""
        if self.words is None or self.weights is None:
            return self.new
        words: Tensor = encoder.token_table()(self.words)  # (labels, most, embedding)
        return (self.weights[..., None] * words).sum(dim=1)  # not a matrix product, so that autocast keeps it in float32

    def _labels(self, states: Tensor, count: Tensor) -> Tensor:
        """The mean state of every label's tokens (batch, labels, hidden)."""
        blocks, batch, _, hidden = states.shape
        width = self.ids.shape[1]
        at = count + torch.arange(width, device=states.device)  # (batch, width)
        tokens = states.gather(2, at[None, ..., None].expand(blocks, -1, -1, hidden))  # (blocks, batch, width, hidden)
        pooled = self.share.to(tokens.dtype)[:, None] @ tokens  # (blocks, batch, most labels of a block, hidden)
        if blocks == 1:
            return pooled[0]
        return pooled.transpose(0, 1).reshape(batch, -1, hidden).index_select(1, self.place)
