"""Families of documents and copies between corpora, as the benchmarks find them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from distil import copies_of, without_copies
from families import families_of, within

WORDS = [f"word{number}" for number in range(400)]


def text(seed: int, words: int = 60) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def test_a_text_with_most_of_its_words_in_place_is_a_copy_and_another_is_none() -> None:
    held = [text(seed) for seed in range(30)]
    nearly = held[4].replace(held[4].split()[30], "changed")
    texts = [nearly, text(100), held[7], text(101)]
    assert [bool(found) for found in copies_of(held, texts)] == [True, False, True, False]
    assert copies_of(held, texts)[0] == [4] and copies_of(held, texts)[2] == [7]
    assert without_copies(texts, held) == [texts[1], texts[3]]


def test_near_duplicates_are_one_family() -> None:
    first, second = text(1), text(2)
    found = families_of([first, second, f"{first} more", text(3), f"more {first}"], 0.5)
    assert found[0] == found[2] == found[4] and len(set(found.tolist())) == 3


def test_the_correlation_within_families_is_that_of_the_draw() -> None:
    """Values are a part of the family and a part of their own: the share of the variance of the first is the correlation."""
    rng = np.random.default_rng(0)
    families = np.concatenate([np.repeat(np.arange(4000), 3), 4000 + np.arange(500)])  # those of one document do not count
    values = np.sqrt(0.7) * rng.normal(size=4500)[families] + np.sqrt(0.3) * rng.normal(size=len(families))
    assert within(values, families) == pytest.approx(0.7, abs=0.02)
