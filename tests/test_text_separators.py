"""Labels that are added by their texts and a few examples: the separators against brute force, whole models, the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array

from conftest import Command
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.decision.calibration import Platt
from polytag.errors import DataError
from polytag.linear.text_separators import (
    EXAMPLES,
    LabelTexts,
    Relatives,
    Source,
    TextWeights,
    comparisons,
    logistic_weights,
    pair_features,
)
from polytag.models.base.text_match import readable, texts_of

THINGS = [f"thing{i}" for i in range(24)]
KNOWN, NEW = THINGS[:18], {f"new {thing}": f"about {thing}" for thing in THINGS[18:]}


def documents(n: int, seed: int, things: list[str]) -> Corpus:
    """Documents about one or two things, which are named in the text together with a word that goes with each."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        own = rng.choice(things, rng.integers(1, 3), replace=False).tolist()
        friends = [f"friend{thing[5:]}" for thing in own if rng.random() < 0.7]
        words = [thing for thing in own if rng.random() < 0.8] + friends + rng.choice(["a", "the", "of", "some"], 4).tolist()
        texts.append(" ".join(rng.permutation(words).tolist()))
        labels.append([("label " if thing in KNOWN else "new ") + thing for thing in own])
    return Corpus.of(texts, labels)


def all_documents() -> Corpus:
    """Documents about all things, from before anybody thought of the new labels."""
    corpus = documents(900, 1, THINGS)
    lists = [[name for name in own if not name.startswith("new")] for own in corpus.label_lists()]
    return Corpus.of(corpus.texts, lists)


@pytest.fixture(scope="module")
def trained() -> Classifier:
    return Classifier("br", {"keep_features": True, "c": [1.0], "ngrams": [1]}).fit(all_documents())


@pytest.fixture
def classifier(trained: Classifier, tmp_path: Path) -> Classifier:
    trained.save(tmp_path / "copy")
    return Classifier.load(tmp_path / "copy")


def quality(classifier: Classifier, names: dict[str, str] | None = None) -> float:
    """Micro-F1 over the new labels alone, which may have other names."""
    other = names or {name: name for name in NEW}
    test = documents(300, 2, THINGS)
    found = [set(own) & set(other.values()) for own in classifier.predict(test.texts)]
    true = [{other[name] for name in own if name in NEW} for own in test.label_lists()]
    hits = sum(len(f & t) for f, t in zip(found, true, strict=True))
    return 2 * hits / (sum(map(len, found)) + sum(map(len, true)))


OPAQUE = {name: f"code {number}" for number, name in enumerate(NEW)}  # names that say nothing


def few(seed: int) -> Corpus:
    """Examples of the labels with names that say nothing."""
    source = documents(300, seed, THINGS[18:])
    some = source.subset([at for at, own in enumerate(source.label_lists()) if len(own) == 1][:60])
    return Corpus.of(some.texts, [[OPAQUE[name] for name in own] for own in some.label_lists()])


def rows(n: int, seed: int, dense: int = 4, words: int = 9) -> csr_array:
    rng = np.random.default_rng(seed)
    table = np.hstack([rng.normal(size=(n, dense)), rng.random((n, words)) * (rng.random((n, words)) < 0.5)])
    return csr_array(table.astype(np.float32))


def relatives(source: Source) -> Relatives:
    """Five known labels, the last of which has one document."""
    truth = np.zeros((source.rows.shape[0], 5), dtype=np.float32)
    for label in range(4):
        truth[label * 5 : label * 5 + 5, label] = 1
    truth[30, 4] = 1
    return Relatives.of(LabelTexts(rows(5, 10), rows(5, 11)), csr_array(truth), source)


# -- the separators ---------------------------------------------------------------------------------------------------------


def test_a_separator_is_the_weighted_sum_of_the_comparisons() -> None:
    source = Source.of(rows(50, 1), 4)
    texts, examples = LabelTexts(rows(3, 2), rows(3, 3)), rows(5, 4)
    of_label = csr_array(np.array([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]], dtype=np.float32))
    known = relatives(source)
    parts = comparisons(texts, source, known, examples, of_label)
    rng = np.random.default_rng(0)
    weights = TextWeights(rng.normal(size=(len(EXAMPLES), len(parts) + 1)), np.array([0.1, 0.2, 0.3, 0.4]))
    separators, thresholds = weights.made(texts, source, known, examples, of_label)
    asked = rows(7, 5)
    kind = [2, 0, 1]  # four examples, none, one
    wanted = np.stack([pair_features(asked, parts, source)[:, j] @ weights.weights[k][:-1] + weights.weights[k][-1]
                       for j, k in enumerate(kind)], axis=1)  # fmt: skip
    assert separators.all(asked) == pytest.approx(wanted, abs=1e-4)
    assert thresholds.tolist() == [0.3, 0.1, 0.2]


def test_what_documents_are_compared_with() -> None:
    """The parts by hand: vectors, words, the best documents, the mean of the examples."""
    source, texts, examples = Source.of(rows(40, 6), 4), LabelTexts(rows(2, 7), rows(2, 8)), rows(3, 9)
    of_label = csr_array(np.array([[1, 0, 1], [0, 0, 0]], dtype=np.float32))
    parts = [part.toarray() for part in comparisons(texts, source, relatives(source), examples, of_label)]
    long, short, all_rows, shown = (part.toarray() for part in (texts.long, texts.short, source.rows, examples))
    words = (long + short)[:, 4:] / np.linalg.norm((long + short)[:, 4:], axis=1, keepdims=True)
    assert parts[0][:, :4] == pytest.approx(long[:, :4]) and not parts[0][:, 4:].any()
    assert parts[2][:, 4:] == pytest.approx(words, abs=1e-6)
    similar = all_rows[:, :4] @ (long + short)[:, :4].T / 2 + all_rows[:, 4:] @ words.T / 2
    similar += all_rows @ (parts[-3] + parts[-4]).T  # the examples ask too
    for label in range(2):
        best = np.argsort(-similar[:, label])[:10]
        weight = similar[best, label] - similar[:, label].mean()
        mean = (weight / weight.sum()) @ all_rows[best]
        centred = mean[:4] - all_rows[:, :4].mean(axis=0)
        assert parts[4][label, :4] == pytest.approx(centred / np.linalg.norm(centred), abs=1e-5)
        assert parts[5][label, 4:] == pytest.approx(mean[4:] / np.linalg.norm(mean[4:]), abs=1e-5)
    mean = shown[[0, 2]].mean(axis=0)
    assert parts[-3][0, 4:] == pytest.approx(mean[4:] / np.linalg.norm(mean[4:]), abs=1e-5)
    assert not parts[-3][1].any() and not parts[-4][1].any()


def test_labels_with_similar_texts_lend_their_documents() -> None:
    source = Source.of(rows(40, 6), 4)
    known = relatives(source)
    assert known.means.toarray()[1] == pytest.approx(source.rows.toarray()[5:10].mean(axis=0), abs=1e-6)
    shares = known.near(known.texts, 4, None).toarray()
    assert (shares.argmax(axis=1)[:4] == np.arange(4)).all()  # a text is the most similar to itself
    assert not shares[:, 4].any() and (np.count_nonzero(shares, axis=1) == 3).all()  # one document is too few
    assert shares.sum(axis=1) == pytest.approx(1)
    others = known.near(known.texts, 4, np.arange(5)).toarray()
    assert not np.diag(others).any()
    long = (known.texts.long + known.texts.short).toarray()[:, :4]
    long = long - long.mean(axis=0)
    similar = long @ long.T / np.outer(np.linalg.norm(long, axis=1), np.linalg.norm(long, axis=1))
    best = np.argsort(-np.where(np.arange(5) < 4, similar[0], -2) + 9 * (np.arange(5) == 0))[:3]
    assert others[0, best] == pytest.approx(np.exp(20 * similar[0, best]) / np.exp(20 * similar[0, best]).sum(), rel=1e-4)
    words = known.near(LabelTexts(rows(1, 12), rows(1, 13)), 0, None).toarray()
    assert words.shape == (1, 5) and words.sum() == pytest.approx(1)
    nothing = Relatives.of(known.texts, csr_array((40, 5), dtype=np.float32), source)
    assert not nothing.near(known.texts, 4, None).toarray().any()


def test_the_regression_minimises_its_loss() -> None:
    rng = np.random.default_rng(3)
    x, importance = rng.normal(2, 3, size=(200, 4)), rng.random(200) + 0.5
    y = (x[:, 0] - x[:, 1] + rng.normal(size=200) > 0).astype(float)
    z = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)

    def loss(w: np.ndarray) -> float:
        return float((importance * np.logaddexp(0, -(2 * y - 1) * (z @ w[:-1] + w[-1]))).sum() + 0.5 * (w[:-1] ** 2).sum())

    best = minimize(loss, np.zeros(5)).x
    found = logistic_weights(x, y, importance)
    assert x @ found[:-1] + found[-1] == pytest.approx(z @ best[:-1] + best[-1], abs=1e-3)


def test_texts_of_labels() -> None:
    assert readable("implemented-in::c++") == "implemented in c"
    corpus = Corpus.of(["a"], [["role::data"]])
    assert texts_of(corpus.labels) == (["role data."], ["role data"])


# -- models -----------------------------------------------------------------------------------------------------------------


def test_new_labels_are_found_by_their_texts(classifier: Classifier) -> None:
    test = documents(80, 3, KNOWN).texts
    before = classifier.scores(test).matrix.toarray()
    classifier.add_labels(NEW)
    after = classifier.scores(test).matrix.toarray()
    assert (after[:, : before.shape[1]] == before).all() and after.shape[1] == before.shape[1] + len(NEW)
    assert quality(classifier) > 0.7


def test_labels_whose_names_say_nothing_are_found_by_their_examples(classifier: Classifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "run")
    names = dict.fromkeys(OPAQUE.values(), "")
    assert quality(classifier.add_labels(names), OPAQUE) < 0.3
    assert quality(Classifier.load(tmp_path / "run").add_labels(names, few(4)), OPAQUE) > 0.65


def test_added_labels_are_saved_explained_and_learned(classifier: Classifier, tmp_path: Path) -> None:
    classifier.add_labels(NEW)
    classifier.save(tmp_path / "run")
    again, test = Classifier.load(tmp_path / "run"), documents(50, 5, THINGS)
    assert (again.scores(test.texts).matrix.data == classifier.scores(test.texts).matrix.data).all()
    assert again.predict(test.texts) == classifier.predict(test.texts)
    name = next(iter(NEW))
    assert "thing18" in str(again.explain("thing18 some", [name]))
    again.learn(["thing18 friend18"] * 3, [[name]] * 3)
    assert name in again.predict(["thing18 friend18"])[0]
    again.add_labels({"one more": "thing3"})
    assert again.labels.names[-1] == "one more"


def test_thresholds_and_calibration_of_added_labels() -> None:
    known = Platt(np.array([2.0, 4.0, 9.0], np.float32), np.array([-1.0, 0.0, 5.0], np.float32))
    usual, odds = known.extended(2), known.extended(1, log_odds=True)
    assert usual.slopes.tolist() == [2, 4, 9, 4, 4] and usual.offsets.tolist() == [-1, 0, 5, 0, 0]
    assert odds.slopes.tolist() == [2, 4, 9, 1] and odds.offsets.tolist() == [-1, 0, 5, 0]


# -- the command ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(trained: Classifier, tmp_path: Path) -> Path:
    trained.save(tmp_path / "first")
    lines = [json.dumps({"name": name, "description": text}) for name, text in NEW.items()]
    (tmp_path / "labels.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_the_command_adds_labels(place: Path, polytag: Command) -> None:
    few(6).write(place / "few.jsonl")
    (place / "codes.txt").write_text("\n".join(OPAQUE.values()), encoding="utf-8")
    told = polytag("labels", "add", place / "first", place / "labels.jsonl", "--out", place / "texts")
    assert told.code == 0 and "24 labels" in told.out, told.err
    told = polytag(
        "labels", "add", place / "first", place / "codes.txt", "--examples", place / "few.jsonl", "--out", place / "examples"
    )
    assert told.code == 0, told.err
    assert quality(Classifier.load(place / "texts")) > 0.7
    assert quality(Classifier.load(place / "examples"), OPAQUE) > 0.65


def test_mistakes_are_one_line_and_nothing_is_written(place: Path, polytag: Command) -> None:
    documents(20, 7, THINGS).write(place / "others.jsonl")

    def complaint(*arguments: object) -> str:
        return polytag("-q", "labels", "add", *arguments, "--out", place / "no").complaint

    labels = place / "labels.jsonl"
    assert "which is not added; add it, or leave it out" in complaint(
        place / "first", labels, "--examples", place / "others.jsonl"
    )
    Classifier("cc").fit(documents(40, 8, KNOWN)).save(place / "chain")
    assert "'cc' cannot score labels that it was not trained on" in complaint(place / "chain", labels)
    (place / "known.jsonl").write_text('{"name": "label thing0"}', encoding="utf-8")
    assert "known already" in complaint(place / "first", place / "known.jsonl")
    assert "no such file" in complaint(place / "first", place / "nowhere.jsonl")
    assert not (place / "no").exists()


def test_examples_are_a_corpus(classifier: Classifier) -> None:
    with pytest.raises(DataError, match=r"the examples are .*; pass a Corpus"):
        classifier.add_labels(NEW, [("text", ["label"])])  # type: ignore[arg-type]
    assert len(classifier.labels) == len(KNOWN)
