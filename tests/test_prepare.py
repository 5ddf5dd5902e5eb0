"""Preparation does to every text what its name says, and a model repeats at prediction what it did in training."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polytag.classifier import Classifier
from polytag.config.groups.text_settings import PREPARATIONS
from polytag.text.preprocess import NUMBER, prepare


def test_none_leaves_the_text_alone() -> None:
    texts = ["Fish & Chips,  £3.50!\n", ""]
    assert prepare(texts, "none") == texts


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Fish & Chips!", "fish  chips"),
        ("don't STOP", "dont stop"),
        ("«Ünïcode» — “quotes”…", "ünïcode  quotes"),
        ("3.5%", "35"),
        ("naïve 海\uff0c嵐\u3002", "naïve 海嵐"),
        ("snake_case", "snakecase"),
        ("", ""),
    ],
)
def test_clean_lower_cases_and_deletes_punctuation(text: str, clean: str) -> None:
    assert prepare([text], "clean") == [clean]


@given(st.text())
def test_clean_leaves_no_capital_and_no_punctuation(text: str) -> None:
    (clean,) = prepare([text], "clean")
    assert not any(unicodedata.category(c)[0] in "PS" for c in clean)
    assert clean.lower() == clean or "İ" in text  # its lower case has two code points
    assert prepare([clean], "clean") == [clean]


@pytest.mark.parametrize(
    ("text", "spaced"),
    [
        ("U.S./Japan", "u s japan"),
        ("Fish & Chips!", "fish chips"),
        ("multi-label, top-k", "multi label top k"),
        ("(see\\cite{x})", "see cite x"),
        ("3.5%", "3 5"),
        (" , ", ""),
    ],
)
def test_spaced_joins_no_words(text: str, spaced: str) -> None:
    assert prepare([text], "spaced") == [spaced]


@given(st.text(), st.sampled_from("./-,&"), st.text())
def test_spaced_words_are_those_on_either_side_of_a_mark(before: str, mark: str, after: str) -> None:
    (found,) = prepare([before + mark + after], "spaced")
    first, second = prepare([before, after], "spaced")
    assert found.split() == [*first.split(), *second.split()]
    assert not any(unicodedata.category(c)[0] in "PS" for c in found)


def test_spaced_numbers_are_one_token() -> None:
    assert prepare(["U.S./Japan paid 1,250.5 yen"], "spaced-numbers") == [f"u s japan paid {NUMBER} yen"]


@pytest.mark.parametrize("number", ["7", "1987", "3.14", "1,000,000", "١٩"])
def test_numbers_are_all_alike(number: str) -> None:
    """Whatever number stands there, the words that a model sees are the same."""
    (found,) = prepare([f"Paid {number} dollars"], "numbers")
    (other,) = prepare(["Paid 42 dollars"], "numbers")
    assert found.split() == other.split()
    assert found.split() == ["paid", NUMBER, "dollars"]


def test_numbers_differ_from_words() -> None:
    """The one token for numbers is not a word that a text would hold by itself."""
    (found,) = prepare(["num 5"], "numbers")
    first, second = found.split()
    assert first == "num" and second != "num"


@given(st.text(), st.integers(1, 5))
def test_max_words_keeps_the_first_words(text: str, most: int) -> None:
    (found,) = prepare([text], "none", most)
    assert found.split() == text.split()[:most]


def test_max_words_counts_after_the_preparation() -> None:
    assert prepare(["Well - that , is"], "clean", 2) == ["well that"]


@pytest.mark.parametrize("how", PREPARATIONS)
@pytest.mark.parametrize("most", [0, 2])
def test_one_result_for_every_text(how: str, most: int) -> None:
    assert len(prepare(["a b c", "", "d"], how, most)) == 3
    assert list(prepare([], how, most)) == []


def test_prediction_sees_what_training_saw() -> None:
    """The setting is saved with the model: numbers count as one word, and only the first words are read."""
    texts = ["Paid 1,250 today", "Sunny all day", "Paid 7 cash", "Sunny and warm"] * 5
    labels = [["money"], ["weather"], ["money"], ["weather"]] * 5
    classifier = Classifier("br", {"preprocess": "numbers", "max_words": 2, "c": [1.0]}).fit(texts, labels)
    one, two, three = classifier.scores(["PAID 99.5 sunny", "paid 3 sunny sunny", "paid!! 3"]).top(2)
    assert one == two == three
