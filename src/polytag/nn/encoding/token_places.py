"""One text as an encoder gets it, and the word that stands at each position of the input."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from polytag.config.groups.text_settings import TextSettings
from polytag.nn.training.batch import Batch, Documents, Layout, TokenArrays, tokenise
from polytag.text.preprocess import aligned
from polytag.text.tokens import Tokens
from polytag.text.word_shares import spans_in, spans_of


class Located(NamedTuple):
    """A batch of one document, its words, and the word at each position.

    ``spans`` (words, 2) are start and end of each word in the original text. ``words`` (positions,) has numbers of words; -1
    stands for special tokens, punctuation and padding. The positions of several windows are concatenated.
    """

    batch: Batch
    spans: NDArray[np.int64]
    words: NDArray[np.int64]

    def by_word(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Values of positions (positions, any) summed over the positions of each word: (words, any)."""
        found = np.zeros((len(self.spans), values.shape[1]))
        inside = self.words >= 0
        np.add.at(found, self.words[inside], values[inside])
        return found


def located(
    tokens: Tokens, layout: Layout, device: torch.device, text: str, settings: TextSettings, *, given: bool = False
) -> Located:
    """The input of one text, and the words at its positions; ``given`` if the text is a feature vector."""
    original = aligned(text, settings.preprocess, settings.max_words)
    words, pieces = spans_of(original.text, given=given), tokens.spans(original.text)
    batch = _only(tokenise(tokens, [original.text]), layout, device)
    frame = dataclasses.replace(layout, prefix=(-1,) * len(layout.prefix), suffix=(-1,) * len(layout.suffix), pad=-1)
    numbers = TokenArrays(np.arange(len(pieces), dtype=np.int32), np.array([0, len(pieces)], dtype=np.int64))
    token = _only(numbers, frame, torch.device("cpu")).ids.flatten().numpy()  # the number of the token at each position
    word = np.append(_word_of(pieces, words), -1)
    return Located(batch, spans_in(original, words[:, 0], words[:, 1]), word[token])


def _only(arrays: TokenArrays, layout: Layout, device: torch.device) -> Batch:
    """The batch of a single document."""
    data = Documents(arrays, layout, device)
    return data.batch(torch.zeros(1, dtype=torch.long, device=device), *data.shape(np.zeros(1, dtype=np.int64)))


def _word_of(pieces: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
    """The word in which each token starts, or -1."""
    if not len(words):
        return np.full(len(pieces), -1, dtype=np.int64)
    at = np.maximum(np.searchsorted(words[:, 0], pieces[:, 0], side="right") - 1, 0)
    inside = (pieces[:, 0] >= words[at, 0]) & (pieces[:, 0] < words[at, 1])
    return np.where(inside, at, -1).astype(np.int64)
