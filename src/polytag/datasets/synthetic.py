"""Synthetic corpora of any size, similar to Wiki-500K: labels follow a power law, and words depend on the labels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.corpus import Corpus
from polytag.errors import ConfigError, brief
from polytag.formats.document import Document
from polytag.formats.document_files import write_documents
from polytag.formats.inputs import checked_seed
from polytag.labels import LabelSet, indicator_of_pairs

if TYPE_CHECKING:
    from polytag.run import Run

_BLOCK = 20_000  # documents generated at once; bounds the memory
_LARGEST = 10**9
_MOST_HELD = 10_000  # maximum number of validation documents, and of test documents


@dataclass(frozen=True)
class Shape:
    """The sizes of a synthetic corpus; the defaults are close to those of Wiki-500K, with shorter texts.

    The probability of a label is its rank to the power of minus ``power``. A word of a document comes from one of three sources:
    the ``own`` words of one of its labels, the 4 · ``own`` words of that label's topic, or the whole vocabulary, by Zipf's law.
    ``group`` labels share a topic.
    """

    documents: int = 100_000
    labels: int = 50_000
    labels_per_document: float = 5.0
    words_per_document: int = 60
    vocabulary: int = 100_000
    own: int = 6
    group: int = 50
    power: float = 0.6
    seed: int = 0

    def __post_init__(self) -> None:
        """Reject sizes that are out of range."""
        sizes = (self.documents, self.labels, self.words_per_document, self.vocabulary, self.own, self.group)
        if not all(isinstance(size, int) and 1 <= size <= _LARGEST for size in sizes):
            raise ConfigError(f"every size of a synthetic corpus must be at least 1 and at most {_LARGEST:,}, not {brief(sizes)}")
        checked_seed(self.seed)


def features_and_truth(shape: Shape) -> tuple[csr_array, csr_array]:
    """Word counts (documents, words) and truth (documents, labels) without texts, for benchmarks of linear models."""
    parts = list(_blocks(shape))
    return _joined([counts for counts, _ in parts]), _joined([truth for _, truth in parts])


def corpus(shape: Shape) -> Corpus:
    """The same corpus with texts: word 17 is ``w17``, label 4 is ``label4``."""
    return Corpus.of_documents(list(documents(shape)), label_set=label_set(shape))


def label_set(shape: Shape) -> LabelSet:
    """The names of the labels."""
    return LabelSet(f"label{j}" for j in range(shape.labels))


def documents(shape: Shape) -> Iterator[Document]:
    """Yield the documents in bounded memory."""
    words = np.array([f"w{j}" for j in range(shape.vocabulary)])
    number = 0
    for counts, truth in _blocks(shape):
        for i in range(counts.shape[0]):
            row = slice(counts.indptr[i], counts.indptr[i + 1])
            text = " ".join(np.repeat(words[counts.indices[row]], counts.data[row].astype(np.int64)))
            own = truth.indices[truth.indptr[i] : truth.indptr[i + 1]]
            yield Document(str(number), text, tuple(f"label{j}" for j in own.tolist()))
            number += 1


def write_synthetic(shape: Shape, out: str | Path, run: Run) -> dict[str, int]:
    """Write ``shape.documents`` training documents, and a tenth as many (at most 10,000) for validation and for test.

    The files are not compressed: compression would take longer than the generation.
    """
    held = min(max(1, shape.documents // 10), _MOST_HELD)
    sizes = {"train": shape.documents, "valid": held, "test": held}
    total = sum(sizes.values())
    stream = run.track(documents(replace(shape, documents=total)), "documents", total)
    for split, size in sizes.items():
        write_documents(Path(out) / f"{split}.jsonl", itertools.islice(stream, size))
    label_set(shape).write(Path(out) / "labels.jsonl")
    return {**sizes, "labels": shape.labels}


def _blocks(shape: Shape) -> Iterator[tuple[csr_array, csr_array]]:
    """Word counts and truth, in blocks of documents."""
    generator = np.random.default_rng(shape.seed)
    chance = np.cumsum((1.0 + np.arange(shape.labels)) ** -shape.power)
    common = np.cumsum(1.0 / (10.0 + np.arange(shape.vocabulary)))
    rank = generator.permutation(shape.labels)  # a label's number must not depend on its frequency
    own = generator.integers(0, shape.vocabulary, (shape.labels, shape.own))
    topics = generator.integers(0, shape.vocabulary, (-(-shape.labels // shape.group), 4 * shape.own))
    for start in range(0, shape.documents, _BLOCK):
        n = min(_BLOCK, shape.documents - start)
        truth = _labels(shape, n, rank, chance, generator)
        yield _words(shape, truth, own, topics, common, generator), truth


def _labels(
    shape: Shape, n: int, rank: NDArray[np.int64], chance: NDArray[np.float64], generator: np.random.Generator
) -> csr_array:
    """Labels of n documents: the first by frequency, the others often from the same topic."""
    counts = 1 + generator.poisson(max(shape.labels_per_document - 1, 0), n)
    row = np.repeat(np.arange(n), counts)
    drawn = rank[np.searchsorted(chance, generator.random(len(row)) * chance[-1])]
    first = np.repeat(drawn[np.cumsum(counts) - counts], counts)
    near = np.minimum(first // shape.group * shape.group + generator.integers(0, shape.group, len(row)), shape.labels - 1)
    alike = (generator.random(len(row)) < 0.5) & (first != drawn)
    return indicator_of_pairs(row, np.where(alike, near, drawn).astype(np.int32), (n, shape.labels))


def _words(
    shape: Shape, truth: csr_array, own: NDArray[np.int64], topics: NDArray[np.int64], common: NDArray[np.float64],
    generator: np.random.Generator,
) -> csr_array:  # fmt: skip
    """Word counts: 40% of the words from a label, 20% from its topic, the rest from the whole vocabulary."""
    n = int(truth.shape[0])
    row = np.repeat(np.arange(n), shape.words_per_document)
    each = np.diff(truth.indptr)[row]
    label = truth.indices[truth.indptr[row] + (generator.random(len(row)) * each).astype(np.int64)]
    source = generator.random(len(row))
    word = np.searchsorted(common, generator.random(len(row)) * common[-1])
    from_label = own[label, generator.integers(0, shape.own, len(row))]
    from_topic = topics[label // shape.group, generator.integers(0, topics.shape[1], len(row))]
    word = np.where(source < 0.4, from_label, np.where(source < 0.6, from_topic, word))
    counts = csr_array((np.ones(len(row), np.float32), (row, word)), shape=(n, shape.vocabulary))
    counts.sum_duplicates()
    return counts


def _joined(parts: list[csr_array]) -> csr_array:
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.indptr) for part in parts]))])
    indices = np.concatenate([part.indices for part in parts]).astype(np.int32, copy=False)
    return csr_array((np.concatenate([part.data for part in parts]), indices, indptr), shape=(len(indptr) - 1, parts[0].shape[1]))
