"""Tf-idf equals scikit-learn's, term by term, on words that both cut alike; and it cuts what has no spaces."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

import polytag.text.tfidf as tfidf
from polytag.errors import DataError
from polytag.text.tfidf import Tfidf
from polytag.text.words import word_hashes

TEXTS = [
    "The cat sat on the mat, and the cat purred.",
    "A dog sat: the dog BARKED at the cat!",
    "Ünïcode naïve café — Straße, ÉTÉ été",
    "numbers 123 and 4.5, under_scores and don't",
    "",
    "... !!!",
    "cat cat cat dog",
    "Привет мир, ПРИВЕТ",
]


def table(rows: Any, terms: list[str]) -> dict[tuple[int, str], float]:
    """Every stored entry by document and term."""
    found = rows.tocoo()
    return {(int(i), terms[j]): float(v) for i, j, v in zip(*found.coords, found.data, strict=True)}


def reference(texts: list[str], **options: Any) -> tuple[dict[tuple[int, str], float], list[str], TfidfVectorizer]:
    vectorizer = TfidfVectorizer(token_pattern=r"\w+", **options)
    rows = vectorizer.fit_transform(texts)
    terms = vectorizer.get_feature_names_out().tolist()
    return table(rows, terms), terms, vectorizer


def compare(texts: list[str], more: list[str], ngrams: int, min_df: int, lowercase: bool, sublinear: bool) -> None:
    options = {"ngram_range": (1, ngrams), "min_df": min_df, "lowercase": lowercase, "sublinear_tf": sublinear}
    expected, terms, vectorizer = reference(texts, **options)
    ours = Tfidf(ngrams=ngrams, min_df=min_df, lowercase=lowercase, sublinear=sublinear).fit(texts)
    assert sorted(ours.terms) == sorted(terms)
    assert table(ours.transform(texts), ours.terms) == pytest.approx(expected, rel=1e-5)
    assert table(ours.transform(more), ours.terms) == pytest.approx(table(vectorizer.transform(more), terms), rel=1e-5)


@pytest.mark.parametrize("ngrams", [1, 2, 3])
@pytest.mark.parametrize("min_df", [1, 2])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("sublinear", [True, False])
def test_equal_to_scikit_learn(ngrams: int, min_df: int, lowercase: bool, sublinear: bool) -> None:
    compare(TEXTS, ["a cat, a CAT and something unseen", "", "unseen"], ngrams, min_df, lowercase, sublinear)


ALPHABET = "abcXYZ019_ ,.!-\n\t'éÉüßñÆøŻ"
WRITTEN = st.lists(st.text(ALPHABET, max_size=40), min_size=2, max_size=8)


@given(WRITTEN, WRITTEN, st.integers(1, 3), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=80)
def test_equal_to_scikit_learn_on_any_latin_text(
    texts: list[str], more: list[str], ngrams: int, lowercase: bool, sublinear: bool
) -> None:
    assume(any(c.isalnum() or c == "_" for text in texts for c in text))
    compare(texts, more, ngrams, 1, lowercase, sublinear)


def terms_of(*texts: str, **options: Any) -> set[str]:
    return set(Tfidf(min_df=1, **options).fit(texts).terms)


def test_rows_are_what_models_expect() -> None:
    rows = Tfidf(min_df=1).fit(TEXTS).transform(TEXTS)
    assert rows.data.dtype == np.float32 and rows.shape[0] == len(TEXTS)
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)))
    assert np.allclose(length[[0, 1, 2, 3, 6, 7]], 1) and not length[[4, 5]].any()
    for i in range(rows.shape[0]):
        assert (np.diff(rows.indices[rows.indptr[i] : rows.indptr[i + 1]]) > 0).all()


def test_unknown_words_and_empty_texts_give_empty_rows() -> None:
    model = Tfidf(min_df=1).fit(["one two", "two three"])
    rows = model.transform(["", "four five", "two four", "\x00\x01"])
    assert np.diff(rows.indptr).tolist() == [0, 0, 1, 0]
    assert rows.data.tolist() == [1.0]
    assert model.transform([]).shape == (0, 3)


def test_ideographs_and_kana_stand_alone() -> None:
    assert terms_of("海嵐 word海", "カタ") == {"海", "嵐", "word", "カ", "タ"}
    assert terms_of("海嵐", ngrams=2) == {"海", "嵐", "海 嵐"}
    rare = "\U00030000\U0003134f"  # beyond the tables
    assert terms_of(f"a{rare}b") == {"a", rare[0], rare[1], "b"}


def test_emoji_separate_and_marks_stay_with_their_letter() -> None:
    assert terms_of("fun😀times") == {"fun", "times"}
    assert terms_of("e\u0301te\u0301") == {"e\u0301te\u0301"}
    hindi = "हिन्दी"  # its vowel signs are marks, at which \w+ would cut
    assert any(unicodedata.category(c)[0] == "M" for c in hindi) and terms_of(hindi) == {hindi}


def test_upper_and_lower_case_are_one_word_in_any_script() -> None:
    model = Tfidf(min_df=1).fit(["ПРИВЕТ Привет привет", "ΑΘΗΝΑ Αθηνα", "ÅNGSTRÖM ångström"])
    assert len(model.terms) == 3
    assert len(Tfidf(min_df=1, lowercase=False).fit(["ПРИВЕТ Привет привет", "x"]).terms) == 4


def test_ngrams_do_not_cross_documents_and_do_cross_punctuation() -> None:
    assert terms_of("a b", "c", ngrams=2) == {"a", "b", "c", "a b"}
    assert terms_of("a, (b)\n\nc", ngrams=3) == {"a", "b", "c", "a b", "b c", "a b c"}
    rows = Tfidf(ngrams=2, min_df=1).fit(["a b", "a, b", "b a"]).transform(["a b", "a...b", "b a"]).toarray()
    assert np.array_equal(rows[0], rows[1]) and not np.array_equal(rows[0], rows[2])


def test_max_features_keeps_those_of_most_documents() -> None:
    texts = ["common often rare", "common often", "common often", "common once", "common twice twice twice"]
    assert set(Tfidf(min_df=1, max_features=2).fit(texts).terms) == {"common", "often"}
    model = Tfidf(min_df=1, max_features=3).fit(texts)
    assert len(model.terms) == 3 == model.transform(texts).shape[1]
    assert set(Tfidf(min_df=1, max_features=100).fit(texts).terms) == set(Tfidf(min_df=1).fit(texts).terms)


def test_a_handful_of_documents_keeps_its_words() -> None:
    """min_df 2 on one document would leave nothing."""
    assert set(Tfidf(min_df=2).fit(["just one"]).terms) == {"just", "one"}
    assert set(Tfidf(min_df=2).fit(["a b", "b c", "b", "c"]).terms) == {"b", "c"}


@pytest.mark.parametrize("texts", [[""], ["", "..."], ["😀", "!"]])
def test_no_words_at_all_is_a_data_error(texts: list[str]) -> None:
    with pytest.raises(DataError, match="no word occurs often enough"):
        Tfidf().fit(texts)


def test_state_and_restore() -> None:
    model = Tfidf(ngrams=2, min_df=1).fit([*TEXTS, "海嵐 कि \u2028 x\u0085y"])
    again = Tfidf(ngrams=2, min_df=1)
    again.restore(model.state())
    assert again.terms == model.terms and len(again.terms) == len(again.keys)
    a, b = model.transform(TEXTS), again.transform(TEXTS)
    assert all(np.array_equal(getattr(a, part), getattr(b, part)) for part in ("data", "indices", "indptr"))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [1, 20, 400])
def test_neither_batches_nor_threads_show(size: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are scanned in runs of bounded length, several at once; where a run ends makes no difference."""
    words = [*" ".join(TEXTS).split(), *(f"w{i}" for i in range(50))]
    draw = np.random.default_rng(0)
    texts = [*TEXTS, *(" ".join(draw.choice(words, draw.integers(0, 9))) for _ in range(80))]
    whole = Tfidf(ngrams=2, min_df=1).fit(texts)
    before = whole.transform(texts)
    monkeypatch.setenv("POLYTAG_THREADS", str(threads))
    monkeypatch.setattr(tfidf, "_BATCH", size)
    monkeypatch.setattr(tfidf, "_LEAST", 1)
    cut = list(tfidf._batches(texts))
    assert len(cut) > 2 and [text for batch in cut for text in batch] == texts
    parts = Tfidf(ngrams=2, min_df=1).fit(texts)
    after = parts.transform(texts)
    assert parts.terms == whole.terms and (parts.keys == whole.keys).all() and (parts.idf == whole.idf).all()
    assert all((getattr(after, name) == getattr(before, name)).all() for name in ("indptr", "indices", "data"))


@given(st.lists(st.text(max_size=30), max_size=6), st.integers(1, 3))
@settings(deadline=None)
def test_any_unicode_is_scanned_within_its_bounds(texts: list[str], ngrams: int) -> None:
    """Places lie inside their own document, and equal words have equal hashes."""
    hashes, indptr, starts, stops = word_hashes(texts, ngrams=ngrams, lowercase=False)
    ends = np.cumsum([0, *map(len, texts)])
    for d in range(len(texts)):
        part: slice = slice(indptr[d], indptr[d + 1])
        assert (starts[part] >= ends[d]).all() and (stops[part] <= ends[d + 1]).all() and (starts[part] < stops[part]).all()
    if ngrams == 1:
        joined = "".join(texts)
        words: dict[str, Any] = {}
        for h, start, stop in zip(hashes.tolist(), starts, stops, strict=True):
            assert words.setdefault(joined[start:stop], h) == h
        assert len(set(words.values())) == len(words)


def test_half_a_surrogate_pair_is_no_word() -> None:
    found: NDArray[Any] = Tfidf(min_df=1).fit(["a\ud800b", "x"]).transform(["a", "b"]).indptr
    assert found.tolist() == [0, 1, 2]


def test_it_is_shown_by_its_settings_alone() -> None:
    found = Tfidf(min_df=1).fit(["one two", "two three"])
    found.transform(["one"])
    assert repr(found) == "Tfidf(ngrams=1, min_df=1, max_features=0, lowercase=True, sublinear=True)"
