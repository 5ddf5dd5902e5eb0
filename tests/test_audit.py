"""The audit finds errors that were planted, near-duplicates as brute force does, and the same with the same seed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import Command
from polytag.audit.findings import Audit, audit, copies_that_differ, proposals
from polytag.audit.label_context import label_context, ridge_weights
from polytag.audit.label_synonyms import label_synonyms, name_similarity
from polytag.audit.near_duplicates import SIMILAR, close_documents, shingles, signatures
from polytag.audit.out_of_fold import OutOfFold
from polytag.audit.planted_errors import planted_errors
from polytag.audit.suspicion import logistic
from polytag.audit.unlearnable_labels import label_average_precisions
from polytag.corpus import Corpus
from polytag.errors import DataError
from polytag.kernels.nearest_rows import nearest_rows
from polytag.labels import LabelSet, indicator
from polytag.scores import Scores
from polytag.text.tfidf import Tfidf
from polytag.verbs.auditing import write_lines

TOPICS = {
    "animals": "cat dog horse bird fish wolf",
    "space": "star moon planet comet orbit rocket",
    "food": "bread cheese apple soup salt butter",
    "sport": "goal match team league ball coach",
}


def planted_corpus(seed: int = 0, n: int = 240) -> tuple[Corpus, set[tuple[str, str]]]:
    """Documents of one or two topics, of which six labels were added and six removed; and these pairs."""
    rng = np.random.default_rng(seed)
    names = list(TOPICS)
    texts, labels = [], []
    for _ in range(n):
        own = rng.choice(names, rng.integers(1, 3), replace=False).tolist()
        words = [word for name in own for word in rng.choice(TOPICS[name].split(), 5)]
        texts.append(" ".join([*words, *rng.choice(["the", "a", "of", "in"], 6)]))
        labels.append(set(own))
    spoiled = set()
    for i in range(12):
        wrong = next(name for name in names if name not in labels[i]) if i % 2 else sorted(labels[i])[0]
        labels[i] ^= {wrong}
        spoiled.add((str(i + 1), wrong))
    return Corpus.of(texts, [sorted(own) for own in labels], label_set=LabelSet(names)), spoiled


@pytest.fixture(scope="module")
def found() -> tuple[Corpus, set[tuple[str, str]], Audit]:
    corpus, spoiled = planted_corpus()
    return corpus, spoiled, audit(corpus)


# -- suspects ----------------------------------------------------------------------------------------------------------


def test_planted_errors_come_first(found: tuple[Corpus, set[tuple[str, str]], Audit]) -> None:
    corpus, spoiled, result = found
    first = {(suspect.id, suspect.label) for suspect in result.suspects[: len(spoiled)]}
    assert len(first & spoiled) >= 11
    for suspect in result.suspects:
        i, j = suspect.document, corpus.labels.find(suspect.label)
        assert suspect.given == bool(corpus.truth[i, j])
    errors = [suspect.error for suspect in result.suspects]
    assert errors == sorted(errors, reverse=True) and 0 <= errors[-1] <= errors[0] <= 1


def test_a_missing_label_has_words_of_its_topic_and_similar_documents(
    found: tuple[Corpus, set[tuple[str, str]], Audit],
) -> None:
    corpus, spoiled, result = found
    missing = [s for s in result.suspects if not s.given and (s.id, s.label) in spoiled]
    assert missing
    for suspect in missing:
        word, value = suspect.words[0]
        assert word in TOPICS[suspect.label].split() and value > 0
        assert word in corpus.texts[suspect.document].split()
        assert sum(has for _, _, has in suspect.nearest) >= 2


def test_same_seed_same_audit(found: tuple[Corpus, set[tuple[str, str]], Audit]) -> None:
    assert audit(found[0]) == found[2]


def test_proposals_correct_the_planted_errors(found: tuple[Corpus, set[tuple[str, str]], Audit]) -> None:
    corpus, spoiled, result = found
    proposed = proposals(corpus, [s for s in result.suspects if (s.id, s.label) in spoiled], least=0.0)
    for document, label in spoiled:
        row = int(document) - 1
        assert (label in proposed[row]) != (label in corpus.label_lists()[row])
        assert set(proposed[row]) ^ set(corpus.label_lists()[row]) == {label}


def test_a_small_corpus_is_refused() -> None:
    corpus = Corpus.of(["a b", "c d"], [["x"], ["y"]])
    with pytest.raises(DataError, match="2 documents are too few for an audit"):
        audit(corpus)


def test_planted_pairs_are_not_given() -> None:
    corpus, _ = planted_corpus()
    features = Tfidf().fit(corpus.texts).transform(corpus.texts)
    planted = planted_errors(features, corpus.truth, seed=3)
    assert planted.nnz > 100
    assert not csr_array(planted.multiply(corpus.truth)).nnz
    again = planted_errors(features, corpus.truth, seed=3)
    assert (planted != again).nnz == 0


def test_logistic_regression_equals_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.normal(size=(400, 3)), np.ones(400)])
    truth = rng.random(400) < 1 / (1 + np.exp(-(features @ [1.0, -2.0, 0.5, 0.3])))
    counts = rng.random(400)
    theirs = linear.LogisticRegression(C=1000, fit_intercept=False, tol=1e-10, max_iter=1000)
    theirs.fit(features, truth, sample_weight=counts)
    assert logistic(features, truth, counts) == pytest.approx(theirs.coef_[0], abs=1e-4)


def test_ridge_weights_equal_the_regression_of_each_label_on_the_others() -> None:
    rng = np.random.default_rng(0)
    dense = (rng.random((50, 6)) < 0.4).astype(np.float32)
    weights = ridge_weights(csr_array(dense), ridge=3.0)
    for label in range(6):
        others = [j for j in range(6) if j != label]
        x, y = dense[:, others].astype(float), dense[:, label]
        expected = np.linalg.solve(x.T @ x + 3.0 * np.eye(5), x.T @ y)
        assert weights[others, label] == pytest.approx(expected, abs=1e-5)
        assert weights[label, label] == 0


def test_context_without_an_inverse_is_the_strongest_conditional_frequency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polytag.audit.label_context._INVERTED", 0)
    rng = np.random.default_rng(1)
    dense = (rng.random((30, 5)) < 0.4).astype(np.float32)
    truth = indicator([np.flatnonzero(row) for row in dense], 5)
    entries = csr_array((np.zeros(150), np.tile(np.arange(5, dtype=np.int32), 30), np.arange(0, 151, 5)), shape=(30, 5))
    context = label_context(truth, entries).reshape(30, 5)
    for i in range(30):
        for label in range(5):
            rest = np.delete(dense, i, axis=0)
            others = [m for m in range(5) if dense[i, m] and m != label]
            values = [(rest[:, label] * rest[:, m]).sum() / (rest[:, m].sum() + 2) for m in others]
            assert context[i, label] == pytest.approx(max(values, default=0.0), abs=1e-6)


# -- similar documents -------------------------------------------------------------------------------------------------


def test_nearest_rows_equal_brute_force() -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((80, 40)) * (rng.random((80, 40)) < 0.2)
    dense /= np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-9)
    found = nearest_rows(csr_array(dense.astype(np.float32)), 5)
    cosine = dense @ dense.T
    np.fill_diagonal(cosine, -1)
    assert found.similarity == pytest.approx(-np.sort(-cosine, axis=1)[:, :5], abs=1e-5)
    assert np.take_along_axis(cosine, found.rows, 1) == pytest.approx(found.similarity, abs=1e-5)


def _texts(seed: int) -> list[str]:
    """Random texts, and copies of some of them with a few words changed."""
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(400)]
    texts = [rng.choice(words, 60).tolist() for _ in range(60)]
    for i in range(30):
        copy = list(texts[i])
        for place in rng.integers(0, 60, i // 6):
            copy[place] = "changed"
        texts.append(copy)
    return [" ".join(text) for text in texts]


def _jaccard(texts: list[str]) -> np.ndarray:
    """Brute force over sets of word n-grams."""
    sets = []
    for text in texts:
        words = text.split()
        sets.append({tuple(words[i : i + n]) for n in (1, 2, 3) for i in range(len(words) - n + 1)})
    return np.array([[len(a & b) / max(len(a | b), 1) for b in sets] for a in sets])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_near_duplicates_equal_brute_force(seed: int) -> None:
    texts = _texts(seed)
    exact = _jaccard(texts)
    expected = {(i, j) for i in range(len(texts)) for j in range(i + 1, len(texts)) if exact[i, j] >= SIMILAR}
    found = close_documents(texts, seed=seed)
    assert {tuple(pair) for pair in found.pairs.tolist()} == expected and len(expected) > 5
    assert [exact[i, j] for i, j in found.pairs.tolist()] == pytest.approx(found.similarity.tolist(), abs=1e-6)


def test_signatures_agree_as_often_as_the_jaccard_similarity_says() -> None:
    texts = _texts(0)
    exact, signed = _jaccard(texts), signatures(shingles(texts), 2000)
    for i in range(30):
        assert (signed[i] == signed[60 + i]).mean() == pytest.approx(exact[i, 60 + i], abs=0.05)


def test_many_copies_of_one_text_give_few_pairs() -> None:
    found = close_documents(["one two three four five six"] * 500 + ["", "", "something else entirely here"])
    assert len(found.pairs) <= 1000 and (found.similarity == 1).all()
    assert set(found.pairs.ravel().tolist()) == set(range(500))


def test_copies_with_the_same_labels_are_not_reported() -> None:
    texts = ["a b c d e f g", "a b c d e f g", "h i j k l m n", "h i j k l m n"]
    corpus = Corpus.of(texts, [["x"], ["x"], ["x", "y"], ["y", "z"]])
    (pair,) = copies_that_differ(corpus)
    assert (pair.ids, pair.only_one, pair.only_other, pair.similarity) == (("3", "4"), ["x"], ["z"], 1.0)


# -- labels ------------------------------------------------------------------------------------------------------------


def test_a_label_split_in_two_and_a_label_given_twice_are_found() -> None:
    rng = np.random.default_rng(0)
    corpus, _ = planted_corpus(1)
    labels = []
    for own in corpus.label_lists():
        new = set(own)
        if "space" in new and rng.random() < 0.5:
            new ^= {"space", "astronomy"}
        if "food" in new:
            new.add("foods")
        labels.append(sorted(new))
    split = Corpus.of(corpus.texts, labels)
    features = Tfidf().fit(split.texts).transform(split.texts)
    found = label_synonyms(features, split.truth, split.labels)
    pairs = {frozenset((split.labels[pair.one], split.labels[pair.other])): pair.how for pair in found}
    assert pairs == {frozenset(("food", "foods")): "together", frozenset(("space", "astronomy")): "instead"}


def test_names_are_compared_by_their_letters() -> None:
    assert name_similarity("Fish-Quota", "fish quota") == 1 > name_similarity("lang:c", "lang:c++")
    assert name_similarity("food", "foods") > name_similarity("food", "space")


def test_average_precision_of_labels_equals_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    values = rng.random((60, 4)).astype(np.float32)
    dense = rng.random((60, 4)) < 0.3
    truth = indicator([np.flatnonzero(row) for row in dense], 4)
    found = OutOfFold(Scores.full(values, list("abcd"), "probability"), np.ones(240, dtype=bool))
    expected = [metrics.average_precision_score(dense[:, j], values[:, j]) for j in range(4)]
    assert label_average_precisions(found, truth) == pytest.approx(expected, abs=1e-6)


def test_a_random_label_cannot_be_learned() -> None:
    corpus, _ = planted_corpus(2)
    rng = np.random.default_rng(0)
    labels = [[*own, *(["noise"] if rng.random() < 0.1 else [])] for own in corpus.label_lists()]
    labels[5].append("single")
    noisy = Corpus.of(corpus.texts, labels)
    result = audit(noisy)
    failed = {noisy.labels[one.label]: one for one in result.unlearnable}
    assert set(failed) == {"noise", "single"}
    assert failed["single"].reason == "one document only"
    assert failed["noise"].reason == "its documents share no more words than any others"
    assert failed["noise"].average_precision <= failed["noise"].chance


# -- files and command line --------------------------------------------------------------------------------------------


def test_the_lines_are_a_corpus_again(found: tuple[Corpus, set[tuple[str, str]], Audit], tmp_path: Path) -> None:
    corpus, _, result = found
    path = tmp_path / "audit.jsonl"
    write_lines(corpus, result, path)
    again = Corpus.read(path)
    assert sorted(again.ids) == sorted(corpus.ids)
    before = dict(zip(corpus.ids, corpus.label_lists(), strict=True))
    assert all(set(own) == set(before[name]) for name, own in zip(again.ids, again.label_lists(), strict=True))
    first = json.loads(path.read_text().splitlines()[0])
    assert first["id"] == result.suspects[0].id and first["suspects"][0]["label"] == result.suspects[0].label
    assert first["proposed"] != first["labels"]


def test_audit_on_the_command_line(polytag: Command, tmp_path: Path) -> None:
    corpus, spoiled = planted_corpus()
    source = tmp_path / "train.jsonl"
    corpus.write(source)
    shown = polytag("audit", source, "--out", tmp_path / "audit.html")
    assert shown.code == 0 and "Suspect labels" in shown.out
    page = (tmp_path / "audit.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "Labels that cannot be learned" in page
    listed = polytag("audit", source, "--json", "--suspects", "5")
    assert isinstance(listed.json, dict) and len(listed.json["suspects"]) == 5
    assert (listed.json["suspects"][0]["id"], listed.json["suspects"][0]["label"]) in spoiled
    refused = polytag("audit", source, "--out", tmp_path / "audit.pdf")
    assert refused.code == 2 and "written as .jsonl or .html" in refused.err
