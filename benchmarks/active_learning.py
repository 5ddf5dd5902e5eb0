"""Active learning: how many labelled documents reach 95% of the micro-F1 of all of them, against random order.

    python benchmarks/active_learning.py [--data ../shared/data] [--corpora reuters debtags] [--seeds 5]

Each order starts with the same random documents. Then, step by step, a model is trained on the documents so far and chooses the
next ones from the rest: the most uncertain ones (``uncertain``), or uncertain and different ones (``both``). Progress is
measured on the test documents, which choose nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers.report import machine
from polytag import Classifier, Corpus
from polytag.analysis.labelling_order import labelling_order, uncertainty
from polytag.metrics.of_sets import micro_f1
from polytag.text.tfidf import Tfidf

OUT = Path(__file__).parent / "results" / "active_learning.json"
ORDERS = {"random": None, "uncertain": 0.0, "both": 1.0}
GROWTH = 1.25  # documents of a step, relative to the step before
GOAL = 0.95


def fitted(corpus: Corpus, chosen: list[int]) -> Classifier:
    """A quick model of the documents so far."""
    return Classifier("br", {"c": [1.0], "ngrams": [1], "folds": 3}).fit(corpus.subset(np.sort(chosen)))


def reached(classifier: Classifier, test: Corpus) -> float:
    """Micro-F1 on the test documents."""
    found = classifier.outcome(test)
    return float(micro_f1(found.truth, found.predicted))


def scores_of(classifier: Classifier, corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The uncertainty of documents, in batches."""
    texts = [corpus.texts[row] for row in rows.tolist()]
    parts = [uncertainty(classifier.scores(texts[at : at + 500])) for at in range(0, len(texts), 500)]
    return np.concatenate(parts) if parts else np.empty(0)


def documents_needed(order: str, corpus: Corpus, test: Corpus, goal: float, seed: int, start: int) -> dict[str, Any]:
    """Documents until the goal is reached, and the curve."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(corpus))
    vectors = Tfidf().fit(corpus.texts).transform(corpus.texts)
    chosen = shuffled[:start].tolist()
    curve: list[tuple[int, float]] = []
    while True:
        classifier = fitted(corpus, chosen)
        curve.append((len(chosen), reached(classifier, test)))
        if curve[-1][1] >= goal or len(chosen) == len(corpus):
            return {"documents": _crossing(curve, goal), "curve": curve}
        count = min(len(corpus) - len(chosen), max(1, round(len(chosen) * (GROWTH - 1))))
        left = np.setdiff1d(np.arange(len(corpus)), chosen)
        diversity = ORDERS[order]
        if diversity is None:
            chosen = shuffled[: len(chosen) + count].tolist()
        else:
            unsure = scores_of(classifier, corpus, left)
            chosen += left[labelling_order(unsure, vectors[left], count, diversity)].tolist()


def _crossing(curve: list[tuple[int, float]], goal: float) -> float:
    """Where the line between the last two steps meets the goal."""
    if len(curve) < 2 or curve[-1][1] < goal:
        return float(curve[-1][0])
    (few, low), (many, high) = curve[-2:]
    return many - (many - few) * (high - goal) / max(high - low, 1e-9)


def measured(data: Path, name: str, seeds: int, most: int) -> dict[str, Any]:
    """All orders and seeds of a corpus."""
    place = data / name
    corpus = Corpus.read(place / "train.jsonl.xz", labels=place / "labels.jsonl")
    test = Corpus.read(place / "test.jsonl.xz", labels=corpus.labels)
    if most and len(corpus) > most:
        corpus = corpus.subset(np.sort(np.random.default_rng(0).permutation(len(corpus))[:most]))
    corpus = corpus.subset(np.flatnonzero(np.diff(corpus.truth.indptr) > 0))
    whole = reached(fitted(corpus, list(range(len(corpus)))), test)
    found: dict[str, Any] = {"documents": len(corpus), "micro_f1": whole, "goal": GOAL * whole, "orders": {}}
    for order in ORDERS:
        runs = [documents_needed(order, corpus, test, GOAL * whole, seed, max(100, len(corpus) // 50)) for seed in range(seeds)]
        needed = [run["documents"] for run in runs]
        found["orders"][order] = {
            "documents_needed": needed,
            "mean": float(np.mean(needed)),
            "curves": [run["curve"] for run in runs],
        }
        print(name, order, [round(value) for value in needed], flush=True)
    base = found["orders"]["random"]["mean"]
    found["share_of_random"] = {order: one["mean"] / base for order, one in found["orders"].items()}
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpora", nargs="+", default=["reuters", "debtags"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=0, help="training documents; 0 = all")
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args()
    found: dict[str, Any] = {"command": "python benchmarks/active_learning.py", "machine": machine(), "most": told.most}
    for name in told.corpora:
        found[name] = measured(told.data, name, told.seeds, told.most)
        told.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: found[name]["share_of_random"] for name in told.corpora}, indent=1))


if __name__ == "__main__":
    main()
