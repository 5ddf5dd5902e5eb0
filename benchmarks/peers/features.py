"""One tf-idf matrix for everyone: read a corpus, write plain arrays that every worker loads."""

from __future__ import annotations

import json
import lzma
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

WORD = re.compile(r"\w\w+")
MIN_DOCUMENTS = 2


@dataclass(frozen=True)
class Problem:
    """What a worker trains on and is asked for; ``train`` rows below ``n_train`` are for fitting while a threshold is tuned."""

    x: csr_array
    y: csr_array
    x_test: csr_array
    n_train: int


@dataclass(frozen=True)
class Task:
    """A problem, and what only the evaluator knows: the truth, and which label each of the problem's labels is."""

    problem: Problem
    truth: csr_array
    label_numbers: np.ndarray

    def describe(self) -> dict[str, int]:
        """The sizes that a reader wants to see beside the times."""
        p = self.problem
        return {
            "train_documents": p.x.shape[0],
            "of_which_validation": p.x.shape[0] - p.n_train,
            "test_documents": p.x_test.shape[0],
            "labels_in_train": p.y.shape[1],
            "labels": self.truth.shape[1],
            "words": p.x.shape[1],
        }


def read_split(path: Path) -> tuple[list[str], list[list[str]]]:
    """Texts and label names of one split."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [r["text"] for r in records], [r["labels"] for r in records]


def label_names(folder: Path) -> list[str]:
    """The names of all labels of a corpus, whose label file may be compressed."""
    path = folder / "labels.jsonl"
    lines = path.read_bytes() if path.exists() else lzma.decompress((folder / "labels.jsonl.xz").read_bytes())
    return [json.loads(line)["name"] for line in lines.decode("utf-8").splitlines()]


def build(folder: Path) -> Task:
    """Make the task of one corpus; words and idf come from train and validation together."""
    splits = [read_split(folder / f"{name}.jsonl.xz") for name in ("train", "valid", "test")]
    names = label_names(folder)
    number = {name: j for j, name in enumerate(names)}
    y = indicator(([number[n] for n in labels] for labels in splits[0][1] + splits[1][1]), len(names))
    truth = indicator(([number[n] for n in labels] for labels in splits[2][1]), len(names))
    # A label without a training document cannot be learned by anyone; it stays in the truth and counts as missed.
    known = np.unique(y.indices)
    x, x_test = tfidf(splits[0][0] + splits[1][0], splits[2][0])
    problem = Problem(x, csr_array(y[:, known]), x_test, len(splits[0][0]))
    return Task(problem, truth, known)


def indicator(rows: Iterable[list[int]], n_labels: int) -> csr_array:
    """Label numbers per document as a sparse matrix of ones."""
    clean = [sorted(set(row)) for row in rows]
    indptr = np.cumsum([0, *map(len, clean)]).astype(np.int32)
    indices = np.array([j for row in clean for j in row], dtype=np.int32)
    return csr_array((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(clean), n_labels))


def tfidf(train: list[str], test: list[str]) -> tuple[csr_array, csr_array]:
    """Unigrams, lower-cased, words of two or more characters in at least two documents, sublinear tf, smooth idf, unit length."""
    counts = [Counter(WORD.findall(text.lower())) for text in train]
    documents = Counter(word for row in counts for word in row)
    words = sorted(word for word, n in documents.items() if n >= MIN_DOCUMENTS)
    number = {word: j for j, word in enumerate(words)}
    df = np.array([documents[word] for word in words], dtype=np.float64)
    idf = np.log((1 + len(train)) / (1 + df)) + 1
    test_counts = [Counter(WORD.findall(text.lower())) for text in test]
    return weighted(counts, number, idf), weighted(test_counts, number, idf)


def weighted(counts: list[Counter[str]], number: dict[str, int], idf: np.ndarray) -> csr_array:
    """The weights of counted words as float32 rows of unit length with sorted indices."""
    rows = [sorted((number[word], n) for word, n in row.items() if word in number) for row in counts]
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    indices = np.array([j for row in rows for j, _ in row], dtype=np.int32)
    tf = np.array([n for row in rows for _, n in row], dtype=np.float64)
    data = (1 + np.log(tf)) * idf[indices]
    row = np.repeat(np.arange(len(rows)), np.diff(indptr))
    norm = np.sqrt(np.bincount(row, weights=data**2, minlength=len(rows)))
    return csr_array(((data / norm[row]).astype(np.float32), indices, indptr), shape=(len(rows), len(number)))


def save_problem(problem: Problem, path: Path) -> None:
    """Write plain arrays only, so that nothing is unpickled on the other side."""
    arrays: dict[str, np.ndarray] = {"n_train": np.array(problem.n_train)}
    for name, m in (("x", problem.x), ("y", problem.y), ("x_test", problem.x_test)):
        arrays |= {f"{name}_data": m.data, f"{name}_indices": m.indices, f"{name}_indptr": m.indptr}
        arrays[f"{name}_shape"] = np.array(m.shape)
    np.savez(path, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own option
