"""Explanations: sums are sums, what is left out is what brute force leaves out, and planted words come first for every model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import FILLER, Command, Toy, toy_corpus
from polytag.classifier import Classifier
from polytag.config.groups.text_settings import PREPARATIONS, TextSettings
from polytag.corpus import Corpus
from polytag.errors import DataError
from polytag.explain.explanation import Explanation
from polytag.explain.nearest import Neighbourhood
from polytag.models.base.attribution import leave_words_out
from polytag.text.preprocess import aligned, prepare
from polytag.text.tfidf import Tfidf
from polytag.text.word_shares import word_shares, word_spans
from quick import AVAILABLE, OPTIONS, make_encoders

TEXT = "the trawler and the quota met a storm in the harbour"
ODD = st.text(st.sampled_from("aB3 .,'ß\u0130Σ7\n\tçé海😀-"), max_size=40)
PLANTED = ("copper", "strike")
LINEAR = {
    "br": {"ngrams": [3], "c": [1.0]},
    "br clean": {"ngrams": [2], "c": [1.0], "preprocess": "numbers", "max_words": 12},
    "cc": {"ngrams": [2], "c": [1.0]},
    "lp": {"c": [1.0]},
    "embed": OPTIONS["embed"],
    "embed max": {**OPTIONS["embed"], "pooling": "max"},
    "embed vectors": {**OPTIONS["embed"], "inputs": "vectors"},
    "xlinear": OPTIONS["xlinear"],
    "xlinear trees": {**OPTIONS["xlinear"], "trees": 3, "worth": "sigmoid"},
}
LONGER: dict[str, dict[str, Any]] = {  # what some models need to learn that both words must occur
    "cnn": {"epochs": 15, "dropout": 0.0},
    "cnn-rnn": {"epochs": 20, "dropout": 0.0},
    "nearest": {"neighbours": 50},
    "seq2seq": {"epochs": 25, "encoder_rate": 0.02},
    "sgm": {"epochs": 20},
}


def planted(count: int, seed: int) -> Corpus:
    """Texts of any length; the label ``both`` applies if and only if both planted words occur."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for number in range(count):
        one, other = [(1, 1), (1, 0), (0, 1), (0, 0), (1, 1)][number % 5]
        words = [*rng.choice(FILLER, int(rng.integers(3, 10))), *PLANTED[:1] * one, *PLANTED[1:] * other]
        own = ["any", *["both"] * (one * other)]
        if not one * other and rng.random() < 0.4:
            words.append("tea")
            own.append("drink")
        texts.append(" ".join(map(str, rng.permutation(words))))
        labels.append(own)
    return Corpus.of(texts, labels)


@pytest.fixture(scope="module", autouse=True)
def encoder() -> None:
    if "embed" in AVAILABLE:
        make_encoders([*toy_corpus(144, 1).texts, *planted(20, 1).texts])


def fitted(name: str, toy: Toy) -> Classifier:
    return Classifier(name.split()[0], LINEAR[name]).fit(toy.train, toy.valid)


# -- words -------------------------------------------------------------------------------------------------------------


@given(ODD, st.sampled_from(PREPARATIONS), st.integers(0, 4))
def test_an_aligned_text_is_the_prepared_text(text: str, how: str, most: int) -> None:
    found = aligned(text, how, most)
    assert found.text == prepare([text], how, most)[0]
    assert len(found.starts) == len(found.ends) == len(found.text)
    assert (found.starts[1:] >= found.starts[:-1]).all() and (found.ends <= len(text)).all()
    for character, start, end in zip(found.text, found.starts, found.ends, strict=True):
        if character.isalpha():
            assert character.casefold() in text[start:end].casefold()


@pytest.mark.parametrize("how", PREPARATIONS)
@pytest.mark.parametrize("ngrams", [1, 2, 3])
def test_the_words_share_the_tfidf_row(how: str, ngrams: int) -> None:
    texts = ["Red fish, red sea: 3,000 fish!", "the fish doesn't see the red sea", "3,000 red ships"]
    settings = TextSettings(preprocess=how)
    tfidf = Tfidf(ngrams=ngrams, min_df=1).fit(prepare(texts, how))
    for text in texts:
        found = word_shares(tfidf, text, settings)
        row = tfidf.transform(prepare([text], how)).toarray()[0]
        assert np.allclose(found.shares.sum(axis=0), row, atol=1e-12)
        words = [text[start:end].lower() for start, end in found.spans]
        assert words[:2] == {"R": ["red", "fish"], "t": ["the", "fish"], "3": ["3,000", "red"]}[text[0]][:2] or how in (
            "none",
            "spaced",
        )


def test_the_words_of_an_ngram_share_it_evenly() -> None:
    tfidf = Tfidf(ngrams=2, min_df=1).fit(["red fish"])
    shares = word_shares(tfidf, "red fish", TextSettings()).shares.toarray()
    pair, single = tfidf.terms.index("red fish"), tfidf.terms.index("red")
    assert shares[0, pair] == shares[1, pair] > 0
    assert shares[0, single] > 0 == shares[1, single]


def test_entries_of_feature_vectors_are_words() -> None:
    tfidf = Tfidf(min_df=1).fit(["17:0.5 203:1", "17:1 4:2"])
    found = word_shares(tfidf, "17:3 99:1 4:4", TextSettings())
    assert found.spans.tolist() == [[0, 4], [5, 9], [10, 13]]
    assert np.allclose(found.shares.sum(axis=1), [0.6, 0, 0.8])


# -- sums --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LINEAR)
def test_linear_contributions_sum_to_the_score(name: str, toy: Toy) -> None:
    if "embed" in name:
        pytest.importorskip("torch")
    classifier = fitted(name, toy)
    for text in [*toy.test.texts[:10], "Storm, 3,000 trawlers? RAIN", "", "zzz"]:
        for label, reasons in zip(toy.test.labels, classifier.explain(text, toy.test.labels.names).labels, strict=True):
            assert reasons.label == label and reasons.margin is not None and reasons.bias is not None
            total = reasons.bias + sum(word.contribution for word in reasons.words)
            assert total == pytest.approx(reasons.margin, abs=1e-9) or not np.isfinite(total)
            scores = dict(classifier.model.score([text]).top(8)[0])
            if label not in scores:
                continue
            expected = 1 / (1 + np.exp(-total)) if "xlinear" in name else total
            assert expected == pytest.approx(scores[label], abs=1e-6)
            assert all(text[word.start : word.end] == word.text for word in reasons.words)


def test_each_level_of_a_tree_is_a_sum_and_the_levels_multiply(toy: Toy) -> None:
    classifier = fitted("xlinear", toy)
    model: Any = classifier.model
    for reasons in classifier.explain(TEXT, toy.test.labels.names).labels:
        path = reasons.details["path"]
        label = np.array([classifier.labels.find(reasons.label)])
        logs = model.forest.given(model.rows([TEXT]), classifier.labels.encode([[reasons.label]]), model.ranking.worth)
        assert len(label) == 1 and path[-1]["such_as"] == [reasons.label] and path[-1]["labels_below"] == 1
        assert sum(np.log(level["probability"]) for level in path) == pytest.approx(float(logs.data[0]), rel=1e-4, abs=1e-5)
        for level in path:
            total = level["bias"] + sum(word["contribution"] for word in level["words"])
            assert total == pytest.approx(level["margin"], abs=1e-6)


def test_a_chain_adds_its_links(toy: Toy) -> None:
    classifier = fitted("cc", toy)
    reasons = classifier.explain("goal match striker penalty offside corner keeper", "football").labels[0]
    link = {one["label"]: one["contribution"] for one in reasons.details["links"]}
    chain = classifier.model.trained  # type: ignore[attr-defined]
    sport, football = (classifier.labels.find(name) for name in ("sport", "football"))
    assert link["sport"] == pytest.approx(chain.links[sport, football])


# -- words left out ----------------------------------------------------------------------------------------------------


def test_exact_means_that_every_word_is_left_out() -> None:
    pytest.importorskip("torch")
    from polytag.decision.calibration import logit

    corpus = toy_corpus(48, 1)
    classifier = Classifier("cnn", {**OPTIONS["cnn"], "epochs": 2}).fit(corpus, toy_corpus(24, 2))
    found = classifier.explain(TEXT, ["fishing", "weather"], exact=True)
    for reasons in found.labels:
        column = classifier.labels.find(reasons.label)
        texts = [TEXT, *(TEXT[: word.start] + TEXT[word.end :] for word in reasons.words)]
        margins = logit(classifier.scores(texts).matrix.toarray()[:, column])
        assert [word.contribution for word in reasons.words] == pytest.approx((margins[0] - margins[1:]).tolist(), abs=1e-5)


def test_phrases_first_finds_the_words_that_matter_with_fewer_scores() -> None:
    words = [f"w{number}" for number in range(400)]
    words[37], words[311] = PLANTED
    text, asked = " ".join(words), []

    def score(texts: list[str]) -> Any:
        asked.extend(texts)
        return np.array([[4.0 * all(word in text.split() for word in PLANTED), float("w5 " in text)] for text in texts])

    spans = word_spans(text)
    exact = leave_words_out(text, spans, score, exact=True)
    every = len(asked)
    asked.clear()
    coarse = leave_words_out(text, spans, score, exact=False)
    assert every == 401 and len(asked) < 80
    assert set(np.argsort(-coarse[:, 0])[:2]) == set(np.flatnonzero(exact[:, 0])) == {37, 311}
    assert np.argmax(coarse[:, 1]) == np.argmax(exact[:, 1]) == 5


@pytest.mark.parametrize("name", AVAILABLE)
def test_both_planted_words_come_first(name: str) -> None:
    """For the documents on which the model has learned the rule, and it has learned it on most."""
    train, valid, test = planted(300, 1), planted(50, 2), planted(25, 3)
    classifier = Classifier(name, {**OPTIONS.get(name, {}), **LONGER.get(name, {})}).fit(train, valid)
    asked = [text for text, own in zip(test.texts, test.labels.decode(test.truth), strict=True) if "both" in own]
    learned = 0
    for text in asked:
        variants = [text, *(" ".join(word for word in text.split() if word != planted) for planted in PLANTED)]
        if ["both" in labels for labels in classifier.predict(variants)] != [True, False, False]:
            continue
        learned += 1
        words = classifier.explain(text, "both").labels[0].words
        assert {word.text for word in sorted(words, key=lambda word: -word.contribution)[:2]} == set(PLANTED), text
    assert learned >= len(asked) // 2


# -- what else models know ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["new", "old"])
def test_attention_is_what_the_decoder_used(query: str) -> None:
    """The weights give the context vectors that the decoder's states hold."""
    torch = pytest.importorskip("torch")
    from polytag.nn.decoding.lstm_decoder import LstmDecoder, LstmSettings
    from toys import shaken, states_of

    decoder = shaken(LstmDecoder(12, 5, LstmSettings(8, layers=2, embedding=6, attention_size=7, query=query))).eval()
    states, mask = states_of([6, 3], 12)
    inputs = torch.tensor([[6, 1, 4], [6, 0, 2]])
    with torch.no_grad():
        weights = decoder.attention(states, mask, inputs)  # (batch, T, length)
        memory, state = decoder.start(states, mask)
        for step, previous in enumerate(inputs.unbind(dim=1)):
            _, state = decoder.step(previous[:, None], state, memory)
            assert torch.allclose((weights[:, step : step + 1] @ states), state[5], atol=1e-5)
    assert torch.allclose(weights.sum(dim=2), torch.ones(2, 3)) and (weights[1, :, 3:] == 0).all()


@pytest.mark.parametrize("name", ["sgm", "laco"])
def test_attention_is_per_label_and_at_the_words(name: str, toy: Toy) -> None:
    pytest.importorskip("torch")
    classifier = Classifier(name, {**OPTIONS[name], "epochs": 3}).fit(toy.train, toy.valid)
    model: Any = classifier.model
    found = model.attention(TEXT)
    assert found.weights.shape == (len(TEXT.split()), len(found.labels)) and (found.weights >= 0).all()
    if name == "sgm":
        assert np.allclose(found.weights.sum(axis=0), 1, atol=1e-5)
        decoded = classifier.model.score([TEXT]).decoded
        assert decoded is not None and sorted(found.labels) == decoded.indices.tolist()
    label = classifier.labels[int(found.labels[0])]
    attention = classifier.explain(TEXT, label).labels[0].attention
    assert attention is not None and [word.text for word in attention] == TEXT.split()


def test_the_parts_of_an_ensemble_sum_to_its_probability(toy: Toy) -> None:
    pytest.importorskip("torch")
    classifier = Classifier("mixed", OPTIONS["mixed"]).fit(toy.train, toy.valid)
    for reasons in classifier.explain(TEXT, ["fishing", "space"]).labels:
        parts = reasons.details["parts"]
        assert sum(part["weight"] * part["probability"] for part in parts) == pytest.approx(reasons.probability, abs=1e-6)


def test_a_match_model_knows_its_cluster(toy: Toy) -> None:
    pytest.importorskip("torch")
    classifier = Classifier("xbert", OPTIONS["xbert"]).fit(toy.train, toy.valid)
    cluster, label = classifier.explain(TEXT, "fishing").labels[0].details["path"]
    assert 0 <= cluster["probability"] <= 1 and label["such_as"] == ["fishing"] and cluster["labels_below"] > 1
    total = label["bias"] + sum(word["contribution"] for word in label["words"])
    assert total == pytest.approx(label["margin"] - label.get("document_vector", 0), abs=1e-6)


def test_the_nearest_documents_have_the_label_and_are_nearest(toy: Toy, br: Classifier) -> None:
    near = br.explain(TEXT, "fishing", near=toy.train, neighbours=4).labels[0].near
    tfidf = Tfidf().fit(toy.train.texts)
    cosine = (tfidf.transform(toy.train.texts) @ tfidf.transform([TEXT]).T).toarray()[:, 0]
    having = [row for row, own in enumerate(toy.train.labels.decode(toy.train.truth)) if "fishing" in own]
    assert [one.similarity for one in near] == pytest.approx(sorted(cosine[having], reverse=True)[:4])
    assert all("fishing" in one.labels for one in near)
    assert Neighbourhood(toy.train).nearest(TEXT, "unheard of", 3) == ()


# -- the explanation ---------------------------------------------------------------------------------------------------


def test_without_labels_the_decided_ones_are_explained_best_first(br: Classifier, toy: Toy) -> None:
    for text in toy.test.texts[:10]:
        found = br.explain(text)
        assert [reasons.label for reasons in found.labels] == br.predict([text])[0]
        assert all(reasons.decided and reasons.threshold is not None for reasons in found.labels)


def test_why_not_tells_by_how_much_a_label_misses_its_threshold(br: Classifier) -> None:
    reasons = br.explain("a trawler in the harbour", "opera").labels[0]
    assert not reasons.decided and reasons.threshold is not None and reasons.score < reasons.threshold
    assert reasons.strongest(3, against=True)[0].contribution < 0


def test_the_json_has_the_fixed_form(br: Classifier) -> None:
    found = br.explain(TEXT, "fishing").to_json()
    assert list(found)[:2] == ["text", "labels"] and found["text"] == TEXT
    label = found["labels"][0]
    assert list(label)[:5] == ["label", "probability", "margin", "bias", "words"]
    assert all(list(word) == ["text", "start", "end", "contribution"] for word in label["words"])
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("wrong", ["fishin", "xyz", 7])
def test_an_unknown_label_is_one_line(br: Classifier, wrong: Any) -> None:
    with pytest.raises(DataError, match="there is no label"):
        br.explain(TEXT, [wrong])


def test_equal_words_are_added_up(br: Classifier) -> None:
    found = br.explain("cod Cod cod the", "fishing").labels[0]
    best = found.strongest(1)[0]
    assert best.text == "cod" and best.contribution == pytest.approx(sum(word.contribution for word in found.words[:3]))


# -- the verb ----------------------------------------------------------------------------------------------------------


def test_the_verb_explains_texts_files_and_standard_input(
    polytag: Command, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    expected = polytag("explain", run_folder, TEXT, "--json").json
    (tmp_path / "one.txt").write_text(TEXT, encoding="utf-8")
    assert polytag("explain", run_folder, tmp_path / "one.txt", "--json").json == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert polytag("explain", run_folder, "-", "--json").json == expected
    lines = "".join(json.dumps({"id": name, "text": TEXT}) + "\n" for name in "ab")
    (tmp_path / "two.jsonl").write_text(lines, encoding="utf-8")
    rows = [json.loads(line) for line in polytag("explain", run_folder, tmp_path / "two.jsonl", "--json").out.splitlines()]
    assert [row.pop("id") for row in rows] == ["a", "b"] and rows[0] == rows[1] == expected


def test_the_terminal_marks_words_without_colours(polytag: Command, run_folder: Path, files: Path) -> None:
    told = polytag("explain", run_folder, TEXT, "--label", "fishing", "--label", "opera", "--near", files / "train.jsonl")
    assert "{+trawler+}" in told.out and "speaks against" in told.out and "near 0." in told.out
    assert "reaches its threshold" in told.out and "misses its threshold" in told.out


def test_mistakes_of_the_verb_are_one_line(polytag: Command, run_folder: Path, tmp_path: Path) -> None:
    assert "did you mean 'fishing'?" in polytag("explain", run_folder, TEXT, "--label", "fishin").complaint
    assert "no such file" in polytag("explain", run_folder, "missing.jsonl").complaint
    assert polytag("explain", tmp_path, TEXT).complaint
    assert polytag("explain", run_folder, TEXT, "--html", tmp_path).complaint


def test_a_text_without_labels_names_the_nearest(polytag: Command, run_folder: Path, br: Classifier) -> None:
    found = Explanation("", (), best="space")
    assert found.to_json()["labels"] == []
    told = polytag("explain", run_folder, "zzz")
    assert told.code == 0 and ("The nearest is" in told.out or "Probability" in told.out)


# -- the page ----------------------------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script> trawler &amp; cod quota \"'> <img src=x onerror=alert(2)> harbour \x07 storm rain wind"


@pytest.fixture
def page(polytag: Command, run_folder: Path, files: Path, tmp_path: Path) -> Path:
    out = tmp_path / "why.html"
    told = polytag(
        "explain", run_folder, HOSTILE, "--label", "fishing", "--label", "opera", "--near", files / "train.jsonl", "--html", out
    )
    assert told.code == 0 and told.out == ""
    return out


def test_the_page_escapes_the_text_and_loads_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text and "<img" not in text and "http" not in text.replace("http-equiv", "")
    assert "&lt;</span>" in text or "&lt;" in text
    assert "default-src 'none'" in text and 'class="for-' in text
    assert len(text) < 200_000


@pytest.mark.services
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_the_page(page: Path, width: int) -> None:
    """No console error, no request elsewhere, nothing wider than the screen, a text alternative for every picture."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        told: list[str] = []
        view = browser.new_page(viewport={"width": width, "height": 800})
        view.on("console", lambda message: told.append(message.text))
        view.on("pageerror", lambda error: told.append(str(error)))
        view.on("request", lambda request: told.append(request.url) if not request.url.startswith("file:") else None)
        view.goto(page.as_uri())
        assert view.evaluate("document.documentElement.scrollWidth") <= width
        assert view.locator("mark").count() > 3 and view.locator("img:not([alt])").count() == 0
        assert view.locator("h2").all_inner_texts() == ["fishing", "opera"]
        browser.close()
    assert told == []
