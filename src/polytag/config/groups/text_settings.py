"""How raw text is prepared, and which words of it become tf-idf features."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.settings import param

PREPARATIONS = ("none", "spaced", "spaced-numbers", "clean", "numbers")


@dataclass
class TextSettings:
    """Text preprocessing."""

    preprocess: str = param(
        "none",
        "none; spaced: lower case, a space for punctuation; spaced-numbers: and one token for every number; clean, numbers: the "
        "same without the space, as in version 0.1.0",
        choices=PREPARATIONS,
    )
    max_words: int = param(0, "maximum number of words of a text; 0 = all", minimum=0)


@dataclass
class TfidfSettings:
    """Tf-idf features."""

    ngrams: list[int] = param(
        [1, 2], "longest n-gram, in words; several are compared on held-out documents", minimum=1, maximum=5, first=True
    )
    min_df: int = param(2, "minimum number of documents that contain a feature", minimum=1)
    max_features: int = param(300_000, "maximum number of features, most frequent first; 0 = all", minimum=0)
    lowercase: bool = param(True, "whether words are lower-cased")
    sublinear: bool = param(True, "whether term frequency is 1 + log(count)")
