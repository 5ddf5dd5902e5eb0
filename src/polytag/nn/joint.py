"""A document and all labels in one input of an encoder (LACO, 3.2); labels that do not fit beside it come in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.nn.encoders import Encoder

_EVEN = 8  # widths are multiples of this, which kernels of attention like


class Blocks(NamedTuple):
    """The tokens of labels in blocks, (blocks, width) each; behind a block's labels stands what ends a text.

    ``mask`` says where there is a token, ``owners`` whose it is: the number of a label, or -1.
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    owners: NDArray[np.int64]


class Joint(NamedTuple):
    """What an encoder makes of a document and the labels.

    ``words`` H_D (batch, length, hidden) and ``mask`` (batch, length), true for the words of the text alone; ``first``, the
    state of the first token (batch, hidden); ``labels`` H_Y (batch, labels, hidden). ``origin`` is the document's vector by the
    encoder as it came (batch, hidden), where that is asked for.
    """

    words: Tensor
    mask: Tensor
    first: Tensor
    labels: Tensor
    origin: Tensor | None = None


def label_blocks(pieces: Sequence[NDArray[Any]], room: int, suffix: Sequence[int], pad: int) -> Blocks:
    """Put labels, in their order, into as few blocks of at most ``room`` tokens as possible, and those into even ones.

    No label is left out, and none is shared by two blocks. A block ends with the suffix, and none is narrower than its longest
    label needs, whatever the room.
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
    """The next width that kernels of attention like."""
    return -(-width // _EVEN) * _EVEN


def _ends(lengths: Sequence[int], room: int) -> list[int]:
    """Where blocks end that take label after label as long as there is room."""
    ends, used = [], 0
    for label, length in enumerate(lengths):
        if label and used + length > room:
            ends.append(label)
            used = 0
        used += length
    return [*ends, len(lengths)]


def _within(owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where every token stands in its own label, from 1; what belongs to none comes after the longest."""
    place = np.arange(owners.shape[1])
    begins = np.concatenate([np.ones((len(owners), 1), dtype=np.bool_), owners[:, 1:] != owners[:, :-1]], axis=1)
    within = 1 + place - np.maximum.accumulate(np.where(begins, place, 0), axis=1)
    longest = within[owners >= 0].max()
    return np.where(owners >= 0, within, longest + 1)


def _mean_of(words: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The tokens of labels, padded (labels, most), and what each counts in their mean."""
    lengths = np.array([len(piece) for piece in words])
    inside = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros(inside.shape, dtype=np.int64)
    padded[inside] = np.concatenate(words)
    return padded, (inside / lengths[:, None]).astype(np.float32)


class LabelPart(nn.Module):
    """The labels' part of the input. What an encoder reads is ``[CLS] text [SEP] labels [SEP]``, and padding only after that.

    Texts of a batch differ in length, and so do the places where their labels begin. The input is put together with the labels
    right behind the last token of each text: then positions, attention and padding are those that the encoder was trained
    with, any encoder can read it, and nothing depends on how far a batch is padded. Shapes are those of the padded texts.

    With several blocks the same text is read with each of them. A label is read with the text and its own block; a word of the
    text has as many states as there are blocks, of which the mean is taken: it hears of all labels, one vector per word is what
    eq. 1 to 3 need, and with one block it is what the paper has. With ``apart`` every label is read as if it alone stood behind
    the first token: where it is then depends neither on the text's length nor on other labels.
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
        """Take the tokens of the labels.

        With ``embedding``, one new embedding of that size per label stands for them; with ``words``, the mean of the embeddings
        of a label's own tokens. Then a label is one token in the blocks, and it does not matter which.
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
        """Leave out padding that all blocks have; whether none is left."""
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
        at = (place - count).clamp(0, width - 1)  # which token of the labels stands there
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
        states = encoder.read(embedded.flatten(0, 1), inside.flatten(0, 1), segments.flatten(0, 1), positions)
        states = states.view(blocks, batch, length + width, -1)
        words = states[0, :, :length] if blocks == 1 else states[:, :, :length].mean(dim=0)
        return words, self._labels(states, count)

    def _one_each(self, encoder: Encoder) -> Tensor | None:
        """The embedding that stands for each label (labels, embedding), where one does."""
        if self.words is None or self.weights is None:
            return self.new
        words: Tensor = encoder.token_table()(self.words)  # (labels, most, embedding)
        return (self.weights[..., None] * words).sum(dim=1)  # no product of matrices: it stays in float32

    def _labels(self, states: Tensor, count: Tensor) -> Tensor:
        """The mean of every label's tokens (batch, labels, hidden)."""
        blocks, batch, _, hidden = states.shape
        width = self.ids.shape[1]
        at = count + torch.arange(width, device=states.device)  # (batch, width)
        tokens = states.gather(2, at[None, ..., None].expand(blocks, -1, -1, hidden))  # (blocks, batch, width, hidden)
        pooled = self.share.to(tokens.dtype)[:, None] @ tokens  # (blocks, batch, most labels of a block, hidden)
        if blocks == 1:
            return pooled[0]
        return pooled.transpose(0, 1).reshape(batch, -1, hidden).index_select(1, self.place)
