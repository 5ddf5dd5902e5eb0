"""What helps rare labels of an extreme label set: votes of nearest documents and of labels' texts, and ``favour_rare``.

    python benchmarks/rare_labels.py --data DIR [--corpus debdeps] [--scores SCORES.npz...] [--out FILE]

``xlinear`` (three trees), ``nearest`` and ``nearest`` with labels as voters are trained on the training documents alone. On
validation documents, their probabilities are mixed with several weights, and ranked as they are or with ``favour_rare``. A row
has P@k and propensity-scored P@k, by the counts of training and validation documents as in ``evaluate``. With ``--scores``, the
scores that ``neural.py --scores`` kept of other models take the place of ``xlinear``; their rows are added to FILE.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from polytag import Classifier, Corpus, LabelSet
from polytag.decision.rare_labels import favour_rare
from polytag.linear.class_weights import propensities
from polytag.metrics.of_rankings import ranking_metrics
from polytag.scores import Scores

NEAR, LABELS, POWERS = (0.0, 0.1, 0.2), (0.0, 0.1, 0.2, 0.3, 0.4), (0.0, 0.25, 0.5)
PARTS: list[tuple[str, dict[str, Any]]] = [
    ("xlinear", {"trees": 3}), ("nearest", {}), ("nearest", {"voters": "labels", "sharpness": 4.0}),
]  # fmt: skip
KEPT = tuple(f"{name}@{k}" for name in ("p", "psp") for k in (1, 3, 5))


class Judge:
    """Ranks validation documents by mixtures of scores."""

    def __init__(self, train: Corpus, valid: Corpus) -> None:
        """Count labels, and let documents and labels vote."""
        self.labels = train.labels.union(valid.labels)
        self.train, self.valid = train.with_labels(self.labels), valid.with_labels(self.labels)
        counts = sum(np.bincount(corpus.truth.indices, minlength=len(self.labels)) for corpus in (self.train, self.valid))
        self.training: dict[str, Any] = {"label_counts": np.asarray(counts), "documents": len(train) + len(valid)}
        self.rarity = 1 / propensities(self.training["label_counts"], self.training["documents"])
        self.tree, self.near, self.own = (self._scores(*part) for part in PARTS)

    def _scores(self, name: str, options: dict[str, Any]) -> csr_array:
        return Classifier(name, options).fit(self.train, None).scores(self.valid.texts).matrix

    def kept(self, path: Path) -> csr_array:
        """Scores of validation documents that were kept."""
        with np.load(path, allow_pickle=False) as found:
            data, indices, indptr = (found[f"valid_{key}"] for key in ("data", "indices", "indptr"))
        return csr_array((data.astype(np.float32), indices, indptr), shape=(len(self.valid), len(self.labels)))

    def rows(self, base: csr_array) -> list[dict[str, Any]]:
        """One row for every weight and power."""
        found = []
        for weights in product(NEAR, LABELS):
            mixed = csr_array((1 - sum(weights)) * base + weights[0] * self.near + weights[1] * self.own).astype(np.float32)
            for power in POWERS:
                scores = favour_rare(Scores(mixed, self.labels.names, "probability", 0.0), power, self.training)
                metrics = ranking_metrics(self.valid.truth, scores, inverse_propensities=self.rarity)
                row = {"nearest": weights[0], "labels": weights[1], "favour_rare": power}
                found.append(row | {key: round(metrics[key], 4) for key in KEPT})
                print(json.dumps(found[-1]), flush=True)
        return found


def main() -> None:
    """Train, mix, rank and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="debdeps")
    parser.add_argument("--scores", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/rare_labels.json"))
    told = parser.parse_args()
    folder = told.data / told.corpus
    labels = LabelSet.read(next(folder.glob("labels.jsonl*")))
    train, valid = (Corpus.read(folder / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid"))
    result: dict[str, Any] = json.loads(told.out.read_text(encoding="utf-8")) if told.out.exists() else {}
    result |= {"command": f"python benchmarks/rare_labels.py --data DIR --corpus {told.corpus} [--scores SCORES.npz...]"}
    result |= {"part": "valid", "documents": len(valid)}
    judge = Judge(train, valid)
    for path in told.scores:
        result.setdefault("of_kept_scores", {})[path.stem] = judge.rows(judge.kept(path))
    if not told.scores:
        result["rows"] = judge.rows(judge.tree)
    told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
