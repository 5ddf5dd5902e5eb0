"""Parts of texts as further texts: a teacher can label them, and students learn which words it went by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_SHARES = 0.3, 0.9  # of the words of a text: the size of a part
_FEWEST = 5  # words of a part, if the text has as many


def views_of(texts: Sequence[str], count: int, seed: int) -> list[str]:
    """Random parts of every text, ``count`` of each, one text after the other; a higher count adds further ones."""
    drawn = np.random.default_rng(seed).random((count, len(texts), 2))
    found = []
    for text, draws in zip(texts, drawn.transpose(1, 0, 2), strict=True):
        words = text.split()
        for share, place in draws.tolist():
            size = max(min(_FEWEST, len(words)), round(len(words) * (_SHARES[0] + (_SHARES[1] - _SHARES[0]) * share)))
            start = int(place * (len(words) - size + 1))
            found.append(" ".join(words[start : start + size]))
    return found
