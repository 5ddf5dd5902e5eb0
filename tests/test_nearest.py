"""``nearest``: votes of the most similar training documents, against brute force."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import Toy
from polytag import Classifier, Corpus, LabelSet
from polytag.datasets import load_sample
from polytag.kernels.nearest_rows import nearest_by_columns
from polytag.models.nearest import Nearest
from polytag.run import Run


def fitted(train: Corpus, **options: float) -> Nearest:
    """The model, without validation documents."""
    model = Nearest.build(options)
    model.fit(train, None, Run())
    return model


@pytest.fixture(scope="module")
def sample() -> tuple[Corpus, Corpus]:
    """Some documents of the corpus that ships."""
    train, valid, _ = load_sample()
    return train.subset(range(300)), valid.subset(range(40))


def votes_by_hand(model: Nearest, rows: csr_array, all_rows: csr_array, truth: np.ndarray, out: int | None = None) -> np.ndarray:
    """The equation, dense: the share of the votes of the nearest documents; ``out`` is the document that may not vote."""
    cosines = (rows @ all_rows.T).toarray()[0].astype(np.float64)
    if out is not None:
        cosines[out] = 0
    best = np.lexsort((np.arange(len(cosines)), -cosines))[: model.neighbours]
    weights = np.where(cosines[best] > 0, cosines[best] ** model.sharpness, 0)
    return weights @ truth[best] / weights.sum()


@pytest.mark.parametrize("sharpness", [0.0, 2.0])
def test_scores_are_the_shares_of_votes(sample: tuple[Corpus, Corpus], sharpness: float) -> None:
    """Computed again from dense cosines."""
    train, valid = sample
    model = fitted(train, neighbours=7, sharpness=sharpness)
    rows, asked = model.tfidf.transform(train.texts), model.tfidf.transform(valid.texts)
    found = model.score(valid.texts).matrix.toarray()
    truth = train.truth.toarray()
    for number in range(len(valid)):
        expected = votes_by_hand(model, asked[[number]], rows, truth)
        np.testing.assert_allclose(found[number], expected, atol=2e-6)


def test_a_held_out_document_does_not_vote_for_itself(sample: tuple[Corpus, Corpus]) -> None:
    """Its own labels would always win."""
    train, _ = sample
    model = Nearest.build({"neighbours": 7})
    held = model.fit(train, None, Run())
    assert held is not None and held.rows is not None
    rows, truth = model.tfidf.transform(train.texts), train.truth.toarray()
    found = held.scores.matrix.toarray()
    for number in (0, 17, 299):
        np.testing.assert_allclose(found[number], votes_by_hand(model, rows[[number]], rows, truth, out=number), atol=2e-6)


def test_a_text_without_known_words_gets_the_frequencies(sample: tuple[Corpus, Corpus]) -> None:
    """The most frequent label comes first, and its score is its frequency."""
    train, _ = sample
    model = fitted(train)
    counts = np.bincount(train.truth.indices, minlength=len(train.labels))
    [[(label, score)]] = model.score(["zzzz qqqq"], k=1).top(1)
    assert label == train.labels.names[int(counts.argmax())]
    assert score == pytest.approx(counts.max() / len(train))


LABELS = LabelSet(["cod", "rain", "quartz"], descriptions={"cod": "fish of the sea", "quartz": "a mineral found in granite"})


def of_labels() -> Corpus:
    """No document has the label quartz."""
    return Corpus.of(
        ["cod quota at sea", "rain and storm", "cod in the rain"] * 5, [["cod"], ["rain"], ["cod", "rain"]] * 5, label_set=LABELS
    )


@pytest.mark.parametrize("voters", ["labels", "both"])
def test_a_label_without_documents_is_found_by_its_text(voters: str, tmp_path: Path) -> None:
    documents = Classifier("nearest", {"min_df": 1}).fit(of_labels())
    assert all(label != "quartz" for label, _ in documents.scores(["a mineral in granite"]).top(3)[0])
    classifier = Classifier("nearest", {"voters": voters, "min_df": 1}).fit(of_labels())
    [row] = classifier.scores(["a mineral in granite"]).top(1)
    assert row[0][0] == "quartz"
    if voters == "labels":
        [(label, score)] = classifier.scores(["granite"]).top(1)[0]
        assert (label, score) == ("quartz", pytest.approx(1.0)), "nobody else knows the word"
    classifier.save(tmp_path)
    texts = ["granite at sea", "rain", "zzzz"]
    again = Classifier.load(tmp_path).scores(texts).matrix.toarray()
    assert np.array_equal(again, classifier.scores(texts).matrix.toarray())
    counts = np.array([10, 10, 0])
    assert again[2] == pytest.approx(counts / 15), "a text without known words gets the frequencies of the documents"


def test_labels_vote_for_held_out_documents_as_for_new_ones() -> None:
    """A document is no voter, so none is left out."""
    model = Nearest.build({"voters": "labels", "min_df": 1})
    train = of_labels()
    held = model.fit(train, None, Run())
    assert held is not None
    np.testing.assert_allclose(held.scores.matrix.toarray(), model.score(train.texts).matrix.toarray())


def test_many_documents_are_held_out_by_a_draw(sample: tuple[Corpus, Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    train, _ = sample
    everything = Nearest.build({"neighbours": 7}).fit(train, None, Run())
    monkeypatch.setattr("polytag.models.nearest._HELD_OUT", 40)
    held = Nearest.build({"neighbours": 7}).fit(train, None, Run())
    assert everything is not None and held is not None and held.rows is not None
    assert len(set(held.rows.tolist())) == 40 and held.rows.max() > 100
    assert np.array_equal(held.truth.toarray(), train.truth.toarray()[held.rows])
    expected = everything.scores.matrix.toarray()[held.rows]
    assert np.abs(held.scores.matrix.toarray() - expected).max(axis=1).mean() < 0.05, "ties may go to others"


def test_more_documents_than_there_are_may_be_asked_for(toy: Toy) -> None:
    """With all documents as neighbours and equal votes, every known text gets the shares among documents with a common word."""
    model = fitted(toy.train, neighbours=10_000, sharpness=0)
    scores = model.score(toy.train.texts[:3])
    assert scores.matrix.max() <= 1 and all(scores.top(1))


def test_rows_are_found_through_an_index_of_columns() -> None:
    """Against all products, with ties by number, and rows that share nothing."""
    rng = np.random.default_rng(0)
    dense = rng.random((50, 30)) * (rng.random((50, 30)) < 0.2)
    others = rng.random((70, 30)) * (rng.random((70, 30)) < 0.2)
    found = nearest_by_columns(csr_array(dense.astype(np.float32)), csr_array(others.T.astype(np.float32)), 5)
    products = dense @ others.T
    for row, product in enumerate(products):
        best = np.lexsort((np.arange(len(product)), -product))[:5]
        expected = [other if product[other] > 0 else -1 for other in best]
        assert found.rows[row].tolist() == expected


def test_it_helps_another_model_in_a_mixture(toy: Toy) -> None:
    """A mixture accepts its sparse probabilities next to margins and full scores."""
    classifier = Classifier("mixed", {"parts": ["br", "nearest"], "settings": {"br": {"c": [1.0], "ngrams": [1]}}})
    classifier.fit(toy.train, toy.valid)
    alone = Classifier("nearest").fit(toy.train, toy.valid)
    assert classifier.evaluate(toy.test)["micro_f1"] >= alone.evaluate(toy.test)["micro_f1"] - 0.05
