"""Active learning: how many labelled documents reach 95% of the micro-F1 of all of them, against random order.

    python benchmarks/active_learning.py [--data ../shared/data] [--corpora reuters debtags] [--seeds 5] [--minutes 4]

Every finished run is in the file of results at once, and a later call goes on after it. ``--minutes`` ends a call early, with
exit code 1 if something is left.

Each order starts with the same random documents. Then, step by step, a model is trained on the documents so far and chooses the
next ones from the rest: the most uncertain ones (``uncertain``), or uncertain and different ones (``both``). Progress is
measured on the test documents, which choose nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import cached_property
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


class Story:
    """A corpus: its documents, their vectors, and what all of them reach."""

    def __init__(self, data: Path, name: str, most: int) -> None:
        """Read the documents that have labels."""
        place = data / name
        corpus = Corpus.read(place / "train.jsonl.xz", labels=place / "labels.jsonl")
        self.test = Corpus.read(place / "test.jsonl.xz", labels=corpus.labels)
        if most and len(corpus) > most:
            corpus = corpus.subset(np.sort(np.random.default_rng(0).permutation(len(corpus))[:most]))
        self.corpus = corpus.subset(np.flatnonzero(np.diff(corpus.truth.indptr) > 0))

    @cached_property
    def vectors(self) -> Any:
        """tf-idf rows of all documents; no label is needed for them."""
        return Tfidf().fit(self.corpus.texts).transform(self.corpus.texts)

    @cached_property
    def whole(self) -> float:
        """Micro-F1 of a model of all documents."""
        return reached(fitted(self.corpus, list(range(len(self.corpus)))), self.test)

    def run(self, order: str, seed: int, goal: float) -> dict[str, Any]:
        """Documents until the goal is reached, and the curve."""
        corpus = self.corpus
        shuffled = np.random.default_rng(seed).permutation(len(corpus))
        chosen = shuffled[: max(100, len(corpus) // 50)].tolist()
        curve: list[tuple[int, float]] = []
        while True:
            classifier = fitted(corpus, chosen)
            curve.append((len(chosen), reached(classifier, self.test)))
            if curve[-1][1] >= goal or len(chosen) == len(corpus):
                return {"documents": _crossing(curve, goal), "curve": curve}
            count = min(len(corpus) - len(chosen), max(1, round(len(chosen) * (GROWTH - 1))))
            chosen += self.next(classifier, order, chosen, shuffled, count)

    def next(self, classifier: Classifier, order: str, chosen: list[int], shuffled: NDArray[Any], count: int) -> list[int]:
        """The documents to label next."""
        diversity = ORDERS[order]
        if diversity is None:
            return [int(row) for row in shuffled[len(chosen) : len(chosen) + count]]
        left = np.setdiff1d(np.arange(len(self.corpus)), chosen)
        unsure = scores_of(classifier, self.corpus, left)
        return [int(row) for row in left[labelling_order(unsure, self.vectors[left], count, diversity)]]


def _crossing(curve: list[tuple[int, float]], goal: float) -> float:
    """Where the line between the last two steps meets the goal."""
    if len(curve) < 2 or curve[-1][1] < goal:
        return float(curve[-1][0])
    (few, low), (many, high) = curve[-2:]
    return many - (many - few) * (high - goal) / max(high - low, 1e-9)


def measured(found: dict[str, Any], data: Path, name: str, seeds: int) -> Iterator[str]:
    """Do the runs of a corpus that are not there yet; yields after each."""
    story = Story(data, name, found["most"])
    if name not in found["corpora"]:
        found["corpora"][name] = {"documents": len(story.corpus), "micro_f1": story.whole, "goal": GOAL * story.whole, "runs": {}}
    here = found["corpora"][name]
    for seed in range(seeds):
        for order in ORDERS:
            runs = here["runs"].setdefault(order, {})
            if str(seed) not in runs:
                runs[str(seed)] = story.run(order, seed, here["goal"])
                yield f"{name} {order} {seed}: {runs[str(seed)]['documents']:.0f}"


def summed_up(here: dict[str, Any]) -> None:
    """The mean documents needed, and their share of the random order's, by the seeds that all orders have."""
    runs = here["runs"]
    seeds = sorted(set.intersection(*(set(runs.get(order, {})) for order in ORDERS)))
    if not seeds:
        return
    needed = {order: [runs[order][seed]["documents"] for seed in seeds] for order in ORDERS}
    shares = {order: [one / base for one, base in zip(needed[order], needed["random"], strict=True)] for order in ORDERS}
    here["mean_documents"] = {order: float(np.mean(values)) for order, values in needed.items()}
    here["share_of_random"] = {
        order: {"mean": float(np.mean(values)), "least": min(values), "most": max(values)} for order, values in shares.items()
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpora", nargs="+", default=["reuters", "debtags"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=0, help="training documents; 0 = all")
    parser.add_argument("--minutes", type=float, default=0.0, help="start no further run after this; 0 = no limit")
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args()
    start = time.monotonic()
    found: dict[str, Any] = {"command": "python benchmarks/active_learning.py", "machine": machine(), "most": told.most}
    found = json.loads(told.out.read_text()) if told.out.exists() else {**found, "corpora": {}}
    for name in told.corpora:
        for line in measured(found, told.data, name, told.seeds):
            summed_up(found["corpora"][name])
            told.out.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{line} ({time.monotonic() - start:.0f} s)", flush=True)
            if told.minutes and time.monotonic() - start > 60 * told.minutes:
                raise SystemExit(1)
    print(json.dumps({name: found["corpora"][name]["share_of_random"] for name in told.corpora}, indent=1))


if __name__ == "__main__":
    main()
