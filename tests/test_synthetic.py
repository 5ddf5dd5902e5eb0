"""Made-up corpora: a power law of labels, words that tell the labels, the same for the same seed, in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polytag.corpus import Corpus
from polytag.datasets import synthetic
from polytag.datasets.synthetic import Shape, corpus, documents, features_and_truth
from polytag.errors import ConfigError

SMALL = Shape(documents=1500, labels=120, vocabulary=3000, labels_per_document=3, words_per_document=40, group=10)


def frequencies(power: float) -> Any:
    """How often each label occurs, most frequent first."""
    truth = features_and_truth(replace(SMALL, documents=20_000, words_per_document=1, group=1, power=power))[1]
    return np.sort(np.bincount(truth.indices, minlength=SMALL.labels))[::-1]


@pytest.mark.parametrize("power", [0.3, 0.6])
def test_labels_follow_the_power_law_that_was_asked_for(power: float) -> None:
    """With a topic to each label, frequency by rank is a straight line on logarithmic axes, with that slope."""
    counts, ranks = frequencies(power), np.arange(1, SMALL.labels + 1)
    slope = np.polyfit(np.log(ranks), np.log(counts), 1)[0]
    assert slope == pytest.approx(-power, abs=0.1)
    assert frequencies(0.0)[0] < 1.5 * frequencies(0.0)[-1], "without a power all labels are as frequent"


def test_words_tell_the_labels() -> None:
    """The mean of a label's documents finds it in new documents; with labels of other documents it finds nothing."""
    counts, truth = features_and_truth(SMALL)
    rows = counts.multiply(1 / np.sqrt(counts.multiply(counts).sum(axis=1)).reshape(-1, 1)).tocsr()
    half = SMALL.documents // 2

    def precision(known: Any) -> float:
        means = known.T @ rows[:half]
        lengths = np.sqrt(np.asarray(means.multiply(means).sum(axis=1)).reshape(-1))
        best = np.argmax((rows[half:] @ means.T).toarray() / np.maximum(lengths, 1e-9), axis=1)
        return float(np.mean(truth[half:].toarray()[np.arange(len(best)), best]))

    assert precision(truth[:half]) > 0.8
    assert precision(truth[np.random.default_rng(0).permutation(half)]) < 0.2


def test_labels_of_one_topic_come_together() -> None:
    """Pairs of labels from one topic are far more frequent than a tenth of the labels would make them."""
    truth = features_and_truth(SMALL)[1]
    pairs = (truth.T @ truth).toarray()
    np.fill_diagonal(pairs, 0)
    topic = np.arange(SMALL.labels) // SMALL.group
    assert pairs[topic[:, None] == topic].sum() > 3 * pairs.sum() * SMALL.group / SMALL.labels


def test_the_seed_decides_everything() -> None:
    first, again, other = corpus(SMALL), corpus(SMALL), corpus(replace(SMALL, seed=1))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def test_documents_are_the_same_with_and_without_text() -> None:
    counts, truth = features_and_truth(SMALL)
    made = corpus(SMALL)
    assert abs(made.truth - truth).nnz == 0 and len(made) == SMALL.documents
    assert np.all(np.asarray(counts.sum(axis=1)).reshape(-1) == SMALL.words_per_document)
    for i in range(0, SMALL.documents, 100):
        row = slice(counts.indptr[i], counts.indptr[i + 1])
        words = zip(counts.indices[row].tolist(), counts.data[row].tolist(), strict=True)
        assert Counter(made.texts[i].split()) == {f"w{j}": n for j, n in words}


def test_memory_does_not_grow_with_the_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "_BLOCK", 200)

    def peak(count: int) -> int:
        tracemalloc.start()
        assert sum(1 for _ in documents(replace(SMALL, documents=count))) == count
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(4000) < 1.3 * peak(400)


def test_the_command_writes_splits_and_labels(polytag: Callable[..., Any], tmp_path: Path) -> None:
    told = polytag("data", "make", "--documents", 300, "--labels", 40, "--vocabulary", 500, "--out", tmp_path / "made")
    assert told.code == 0 and "300 train, 30 valid, 30 test, 40 labels" in told.out
    parts = [Corpus.read(tmp_path / "made" / f"{split}.jsonl") for split in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [300, 30, 30]
    assert len({text for part in parts for text in part.texts}) == 360, "no text stands in two splits"
    read = Corpus.read(tmp_path / "made" / "test.jsonl", labels=tmp_path / "made" / "labels.jsonl")
    assert list(read.labels) == [f"label{j}" for j in range(40)]
    refused = polytag("data", "make", "--documents", 0, "--labels", 40, "--out", tmp_path / "none")
    assert refused.code == 2 and "at least 1" in refused.err


def test_a_corpus_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Shape(labels=0)


def test_common_words_are_as_frequent_as_their_ranks_say() -> None:
    """One over ten plus the rank: of offsets from 8 to 12, ten makes the words most likely."""
    shape = Shape(documents=4000, labels=1, vocabulary=200, labels_per_document=1, words_per_document=100, group=1, own=1)
    counts = np.asarray(features_and_truth(shape)[0].sum(axis=0)).reshape(-1)
    usual = counts < 10_000  # without the few words of the label and of its topic
    ranks = np.flatnonzero(usual)

    def likelihood(offset: int) -> float:
        chance = 1 / (offset + ranks)
        return float(np.log(chance / chance.sum()) @ counts[usual])

    assert max(range(8, 13), key=likelihood) == 10
