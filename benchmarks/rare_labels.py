"""What helps rare labels of an extreme label set: votes of nearest documents and of labels' texts, and ``favour_rare``.

    python benchmarks/rare_labels.py --data DIR [--corpus debdeps] [--out FILE]

``xlinear`` (three trees), ``nearest`` and ``nearest`` with labels as voters are trained on the training documents alone. On
validation documents, their probabilities are mixed with several weights, and ranked as they are or with ``favour_rare``. A row
has P@k and propensity-scored P@k, by the counts of training and validation documents as in ``evaluate``.
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


def rows_of(train: Corpus, valid: Corpus) -> list[dict[str, Any]]:
    """One row for every weight and power."""
    labels = train.labels.union(valid.labels)
    train, valid = train.with_labels(labels), valid.with_labels(labels)
    tree, near, own = (Classifier(name, options).fit(train, None).scores(valid.texts).matrix for name, options in PARTS)
    counts = sum(np.bincount(corpus.truth.indices, minlength=len(labels)) for corpus in (train, valid))
    training = {"label_counts": counts, "documents": len(train) + len(valid)}
    rarity = 1 / propensities(np.asarray(counts), len(train) + len(valid))
    found = []
    for weights in product(NEAR, LABELS):
        mixed = csr_array((1 - sum(weights)) * tree + weights[0] * near + weights[1] * own).astype(np.float32)
        for power in POWERS:
            scores = favour_rare(Scores(mixed, labels.names, "probability", 0.0), power, training)
            metrics = ranking_metrics(valid.truth, scores, inverse_propensities=rarity)
            row = {"nearest": weights[0], "labels": weights[1], "favour_rare": power}
            found.append(row | {key: round(metrics[key], 4) for key in KEPT})
            print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    """Train, mix, rank and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="debdeps")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/rare_labels.json"))
    told = parser.parse_args()
    folder = told.data / told.corpus
    labels = LabelSet.read(next(folder.glob("labels.jsonl*")))
    train, valid = (Corpus.read(folder / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid"))
    command = f"python benchmarks/rare_labels.py --data DIR --corpus {told.corpus}"
    result = {"command": command, "part": "valid", "documents": len(valid), "rows": rows_of(train, valid)}
    told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
