"""What a linear student could learn at best: separators on a teacher's probabilities, by words, weights, trust and C.

    python benchmarks/linear_students.py --data DIR --corpus aapd-even --said SAID --texts TEXTS --out FILE

SAID is what ``distil.py teach`` wrote, and TEXTS are its unlabelled texts. Every row is a training on the training documents.
It is measured on the validation documents, which no teacher has seen: by the micro-averaged precision of all scores, and by
micro-F1 with one threshold from nine tenths of them for the last tenth. Thresholds of labels are left to ``distil.py learn``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from distil import corpora, said_of
from polytag import Corpus
from polytag.kernels.sparse_rows import stack_rows
from polytag.linear.svm import Problem, Solver, train_separators
from polytag.text.tfidf import Tfidf
from polytag.transfer.distillation import BALANCE, OTHERS, SURE
from polytag.transfer.text_views import views_of

VIEWS, PARTS = 2, 10
STRENGTHS = (0.5, 1.0, 2.0, 4.0)


class Lessons(NamedTuple):
    """Texts and targets: of the labelled documents, of their views, and of unlabelled texts that a teacher is sure of."""

    texts: tuple[list[str], list[str], list[str]]
    truth: csr_array
    soft: tuple[csr_array, csr_array, csr_array]

    @classmethod
    def of(cls, told: argparse.Namespace, train: Corpus) -> Lessons:
        """Read what the teachers say."""
        said, asked = said_of(told.said, train)
        first = np.flatnonzero(np.arange(said.views.shape[0]) % asked < VIEWS)
        sure = np.flatnonzero(np.diff(csr_array((said.others >= SURE).astype(np.float32)).indptr))
        others = Corpus.read(told.texts).texts
        texts = train.texts, views_of(train.texts, VIEWS, 0), [others[row] for row in sure.tolist()]
        return cls(texts, train.truth, (said.labelled, csr_array(said.views[first]), csr_array(said.others[sure])))

    def problem(self, rows: list[csr_array], trust: float, weights: tuple[float, float]) -> Problem:
        """The problem of a student; a weight of 0 leaves views or unlabelled texts out."""
        own = csr_array(self.truth * np.float32(1 - trust) + self.soft[0] * np.float32(trust))
        parts = [(rows[0], own, 1.0)]
        parts += [part for part in zip(rows[1:], self.soft[1:], weights, strict=True) if part[2]]
        soft = stack_rows([target for _, target, _ in parts])
        each = np.concatenate([np.full(part.shape[0], weight, dtype=np.float32) for part, _, weight in parts])
        likely = csr_array((soft >= SURE).astype(np.float32))
        return Problem(stack_rows([part for part, _, _ in parts]), likely, each, None, soft)


def average_precision(truth: NDArray[np.bool_], scores: NDArray[np.float32]) -> float:
    """The mean precision at every true pair, over all pairs of documents and labels."""
    hits = truth.ravel()[np.argsort(-scores.ravel(), kind="stable")]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())


def one_threshold(truth: NDArray[np.bool_], scores: NDArray[np.float32]) -> float:
    """Micro-F1 with one threshold, cross-fitted, and at least the best label."""
    chosen = np.zeros_like(truth)
    part = np.random.default_rng(0).integers(0, PARTS, len(truth))
    for number in range(PARTS):
        known, asked = part != number, part == number
        order = np.argsort(-scores[known].ravel())
        hits = np.cumsum(truth[known].ravel()[order])
        best = int(np.argmax(2 * hits / (np.arange(1, len(hits) + 1) + hits[-1])))
        chosen[asked] = scores[asked] >= scores[known].ravel()[order[best]]
    none = ~chosen.any(axis=1)
    chosen[none, scores[none].argmax(axis=1)] = True
    return float(2 * (chosen & truth).sum() / (chosen.sum() + truth.sum()))


def main() -> None:
    """Train every row, and print and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="aapd-even")
    parser.add_argument("--said", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    train, valid, _ = corpora(told)
    lessons, truth = Lessons.of(told, train), valid.truth.toarray().astype(bool)
    found: dict[str, Any] = {}

    def measured(name: str, problem: Problem, asked: csr_array) -> None:
        for c, one in zip(STRENGTHS, train_separators(problem, STRENGTHS, Solver(BALANCE, 0.3, prune=0.01)), strict=True):
            scores = one.all(asked)
            row = {"average_precision": average_precision(truth, scores), "micro_f1": one_threshold(truth, scores)}
            found[f"{name}, C {c:g}"] = {key: round(value, 4) for key, value in row.items()}
            print(name, c, found[f"{name}, C {c:g}"], flush=True)

    both, own = lessons.texts[0] + lessons.texts[2], lessons.texts[0]
    words = {"pairs of words": (2, 300_000, own), "a million pairs": (2, 1_000_000, both), "words": (1, 300_000, own)}
    for name, (ngrams, most, texts) in words.items():
        tfidf = Tfidf(ngrams=ngrams, max_features=most).fit(texts)
        rows, asked = [tfidf.transform(part) for part in lessons.texts], tfidf.transform(valid.texts)
        measured(f"{name}: no teacher", Problem(rows[0], lessons.truth), asked)
        measured(f"{name}: trust .5", lessons.problem(rows, 0.5, (OTHERS, OTHERS)), asked)
        if name == "pairs of words":
            for trust in (0.3, 0.8):
                measured(f"{name}: trust {trust}", lessons.problem(rows, trust, (OTHERS, OTHERS)), asked)
            for title, weights in {
                "no unlabelled texts": (OTHERS, 0.0),
                "no views": (0.0, OTHERS),
                "weights .6, 1": (0.6, 1.0),
            }.items():
                measured(f"{name}: trust .5, {title}", lessons.problem(rows, 0.5, weights), asked)
    if told.out:
        told.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
