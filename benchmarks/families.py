"""Why do validation and test of debdeps disagree? Precision at k of ``xlinear`` with intervals over families of packages.

    python benchmarks/families.py --data DIR [--corpus debdeps] [--similar 0.5] [--out FILE]

Packages of one family, as of one source, have nearly the same description and nearly the same dependencies: they are right or
wrong together. A family is a connected component of near-duplicates among the documents of a part, by
``polytag.audit.near_duplicates``. Two trees of labels are trained, which differ in the seed of the clustering alone. For each
part: P@k with its interval over documents and over families, the correlation within families, the paired difference of the two
trees with both intervals, and P@k of documents with and without a near-duplicate in the training documents. Then the difference
between the parts, with both intervals. Nothing is chosen here, so the test part is only described.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from polytag import Classifier, Corpus
from polytag.audit.near_duplicates import close_documents
from polytag.metrics.bootstrap import resamples

KS, ROUNDS, PARTS = (1, 3, 5), 2000, ("valid", "test")


def families_of(texts: list[str], similar: float) -> NDArray[np.int64]:
    """The number of the family of every document."""
    pairs = close_documents(texts, similar=similar).pairs
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(texts), len(texts)))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


def has_copy(texts: list[str], train: list[str], similar: float) -> NDArray[np.bool_]:
    """Whether a training document is a near-duplicate of each document."""
    pairs = close_documents([*train, *texts], similar=similar).pairs
    across = pairs[(pairs[:, 0] < len(train)) & (pairs[:, 1] >= len(train))]
    found = np.zeros(len(texts), dtype=np.bool_)
    found[across[:, 1] - len(train)] = True
    return found


def precisions(classifier: Classifier, corpus: Corpus) -> NDArray[np.float64]:
    """Precision at each k (documents, ks)."""
    truth = corpus.with_labels(classifier.labels).truth
    labels, _ = classifier.scores(corpus.texts, max(KS)).ranked(max(KS))
    row = np.repeat(np.arange(len(labels)), labels.shape[1])
    true = set(zip(np.repeat(np.arange(len(labels)), np.diff(truth.indptr)).tolist(), truth.indices.tolist(), strict=True))
    hits = np.array([pair in true for pair in zip(row.tolist(), labels.ravel().tolist(), strict=True)]).reshape(labels.shape)
    return np.stack([hits[:, :k].mean(axis=1) for k in KS], axis=1)


def drawn(values: NDArray[np.float64], families: NDArray[np.int64] | None, seed: int = 0) -> NDArray[np.float64]:
    """The mean of values (documents, ...) in every round of a bootstrap over documents or families."""
    means = [(w.T @ values) / w.sum(axis=0)[:, None] for w in resamples(len(values), ROUNDS, seed, families=families)]
    return np.concatenate(means)


def interval(means: NDArray[np.float64]) -> list[list[float]]:
    """The middle 95% of each column."""
    return [[round(float(bound), 5) for bound in pair] for pair in np.quantile(means, (0.025, 0.975), axis=0).T]


def within(values: NDArray[np.float64], families: NDArray[np.int64]) -> float:
    """The correlation of values within families of two and more: the intraclass correlation of a one-way analysis of variance."""
    sizes = np.bincount(families)
    keep = sizes[families] > 1
    values, families = values[keep], np.unique(families[keep], return_inverse=True)[1]
    sizes = np.bincount(families)
    means = np.bincount(families, values) / sizes
    n, k = len(values), len(sizes)
    between = (sizes * (means - values.mean()) ** 2).sum() / (k - 1)
    inside = ((values - means[families]) ** 2).sum() / (n - k)
    size = (n - (sizes**2).sum() / n) / (k - 1)
    return float((between - inside) / (between + (size - 1) * inside))


def described(found: dict[str, Any], families: NDArray[np.int64], copies: NDArray[np.bool_]) -> dict[str, Any]:
    """The figures of a part; ``found`` has the precisions of both models."""
    one, other = found["precisions"]
    sizes = np.bincount(families)
    row: dict[str, Any] = {
        "documents": len(one), "families": len(sizes), "in_families_of_two_or_more": int(sizes[sizes > 1].sum()),
        "largest_families": np.sort(sizes)[::-1][:5].tolist(), "precision": [round(float(p), 5) for p in one.mean(axis=0)],
        "interval_documents": interval(drawn(one, None)), "interval_families": interval(drawn(one, families)),
        "correlation_within_families": [round(within(one[:, at], families), 4) for at in range(len(KS))],
    }  # fmt: skip
    row["other_seed"] = {
        "difference": [round(float(p), 5) for p in (other - one).mean(axis=0)],
        "interval_documents": interval(drawn(other - one, None)), "interval_families": interval(drawn(other - one, families)),
    }  # fmt: skip
    for name, chosen in (("with_copy_in_train", copies), ("without_copy_in_train", ~copies)):
        row[name] = {"documents": int(chosen.sum()), "precision": [round(float(p), 5) for p in one[chosen].mean(axis=0)]}
    return row


def main() -> None:
    """Train, describe, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="debdeps")
    parser.add_argument("--similar", type=float, default=0.5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/families.json"))
    told = parser.parse_args()
    folder = told.data / told.corpus
    train = Corpus.read(folder / "train.jsonl.xz")
    parts = {name: Corpus.read(folder / f"{name}.jsonl.xz", labels=train.labels) for name in PARTS}
    start = time.perf_counter()
    models = [Classifier("xlinear", {"seed": seed, "refit": False}).fit(train, parts["valid"]) for seed in (0, 1)]
    print(f"two models trained in {time.perf_counter() - start:.0f} s", flush=True)
    result: dict[str, Any] = {
        "corpus": told.corpus,
        "model": "xlinear",
        "ks": list(KS),
        "rounds": ROUNDS,
        "similar": told.similar,
    }
    kept = {}
    for name, part in parts.items():
        families = families_of(part.texts, told.similar)
        found = {"precisions": [precisions(model, part) for model in models]}
        result[name] = described(found, families, has_copy(part.texts, train.texts, told.similar))
        kept[name] = found["precisions"][0], families
        print(name, json.dumps(result[name]), flush=True)
    gaps = [
        drawn(kept["valid"][0], by[0], 1) - drawn(kept["test"][0], by[1], 2)
        for by in ((None, None), (kept["valid"][1], kept["test"][1]))
    ]
    result["valid_minus_test"] = {
        "difference": [round(float(p), 5) for p in kept["valid"][0].mean(axis=0) - kept["test"][0].mean(axis=0)],
        "interval_documents": interval(gaps[0]), "interval_families": interval(gaps[1]),
    }  # fmt: skip
    print(json.dumps(result["valid_minus_test"]), flush=True)
    told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
