"""What helps rare labels of an extreme label set: votes of nearest documents, and ranking by scores over propensities.

    python benchmarks/rare_labels.py --data DIR [--corpus debdeps] [--out FILE]

``xlinear`` and ``nearest`` are trained on the training documents alone. On validation documents, their probabilities are mixed
with several weights of ``nearest``, and every score is multiplied by the label's inverse propensity to some power before labels
are ranked. A row has P@k and propensity-scored P@k.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from polytag import Classifier, Corpus, LabelSet
from polytag.linear.class_weights import propensities
from polytag.metrics.of_rankings import ranking_metrics
from polytag.scores import Scores

WEIGHTS, POWERS = (0.0, 0.1, 0.2, 0.3, 0.4), (0.0, 0.25, 0.5, 0.75, 1.0)
KEPT = tuple(f"{name}@{k}" for name in ("p", "psp") for k in (1, 3, 5))


def rows_of(train: Corpus, valid: Corpus) -> list[dict[str, Any]]:
    """One row for every weight and power."""
    parts = [Classifier(name).fit(train, None).scores(valid.texts) for name in ("xlinear", "nearest")]
    truth = valid.with_labels(train.labels.union(valid.labels)).truth
    counts = np.bincount(train.truth.indices, minlength=truth.shape[1])
    rarity = 1 / propensities(counts, len(train))
    tree, near = (csr_array((part.matrix.data, part.matrix.indices, part.matrix.indptr), shape=truth.shape) for part in parts)
    names = [str(number) for number in range(truth.shape[1])]
    found = []
    for weight in WEIGHTS:
        mixed = csr_array((1 - weight) * tree + weight * near)
        for power in POWERS:
            values = mixed.data * (rarity[mixed.indices] / rarity.max()) ** power
            ranked = csr_array((values.astype(np.float32), mixed.indices, mixed.indptr), shape=truth.shape)
            metrics = ranking_metrics(truth, Scores(ranked, names, "probability", 0.0), inverse_propensities=rarity)
            found.append({"weight": weight, "power": power, **{key: round(metrics[key], 4) for key in KEPT}})
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
