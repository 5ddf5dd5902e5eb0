"""How well the audit finds labels that were spoiled on purpose, against cleanlab; and its time with 35,425 labels.

    python benchmarks/audit.py find [--data ../shared/data] [--seeds 0 1 2 3 4]
    python benchmarks/audit.py time [--data ../shared/data]

``find`` spoils 5% of the given (document, label) pairs of the training files of reuters and debtags: a third is removed, a
third swapped for another label, and as many wrong labels are added. Every second wrong label is confusable: one of the five
labels whose mean text is most similar to a label that the document has. A swap counts as two spoiled pairs. Both tools get the
same calibrated out-of-fold probabilities of all labels. The interval is a paired bootstrap over documents. Settings of the audit
were chosen on draws with seeds of 100 and more. ``time`` audits the training file of debdeps. Results:
benchmarks/results/audit.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.audit.findings import FOLDS, audit
from polytag.audit.out_of_fold import CANDIDATES, OutOfFold, out_of_fold
from polytag.audit.planted_errors import planted_errors
from polytag.audit.suspicion import NEIGHBOURS, suspicion
from polytag.corpus import Corpus
from polytag.kernels.nearest_rows import nearest_rows
from polytag.labels import indicator, indicator_of_pairs
from polytag.linear.svm import Problem
from polytag.run import Run
from polytag.scores import Scores
from polytag.text.tfidf import Tfidf

RESULTS = Path(__file__).parent / "results" / "audit.json"
SHARE, NEAREST, REPEATS = 0.05, 5, 200
DEPTH = 400_000  # the bootstrap compares rankings down to this place; later pairs count as not found
Table = NDArray[np.bool_]


def spoiled(features: csr_array, truth: csr_array, seed: int) -> tuple[csr_array, Table]:
    """The labels with errors, and where they are (documents, labels)."""
    rng = np.random.default_rng(seed)
    true = truth.toarray() > 0
    near = confusable(features, truth)
    pairs = np.argwhere(true)
    third = round(SHARE * len(pairs)) // 3
    lost = pairs[rng.permutation(len(pairs))[: 2 * third]]
    labels, used = true.copy(), np.flatnonzero(true.any(axis=0))
    labels[tuple(lost.T)] = False
    documents = np.flatnonzero(true.any(axis=1))
    for number in range(2 * third):  # first the swaps, then the additions
        while True:
            document, start = lost[third + number] if number < third else (rng.choice(documents), -1)
            start = rng.choice(np.flatnonzero(true[document])) if start < 0 else start
            label = rng.choice(near[start]) if number % 2 == 0 else rng.choice(used)
            taken = true[document] | labels[document]
            if taken[label] and number < third and taken[near[start]].all():
                label = rng.choice(np.flatnonzero(~true[document]))  # no confusable one is left
            if not taken[label]:
                break
        labels[document, label] = True
    documents, columns = np.nonzero(labels)
    return indicator_of_pairs(documents, columns, (len(true), true.shape[1])), labels != true


def confusable(features: csr_array, truth: csr_array) -> NDArray[np.int64]:
    """For every label the labels whose mean texts are most similar."""
    means = csr_array(truth.T @ features)
    norms = np.sqrt(np.asarray(means.multiply(means).sum(axis=1)).ravel())
    cosine = (means @ means.T).toarray() / np.maximum(np.outer(norms, norms), 1e-12)
    cosine[:, norms == 0] = -1
    np.fill_diagonal(cosine, -1)
    return np.argsort(-cosine, axis=1, kind="stable")[:, :NEAREST]


def kept(found: OutOfFold, truth: csr_array, planted: csr_array) -> OutOfFold:
    """The entries that an audit keeps: the best labels, the given and the planted ones."""
    table = found.scores.matrix.data.reshape(truth.shape)
    keep = (truth + planted).toarray() > 0
    k = min(CANDIDATES, truth.shape[1])
    best = np.argpartition(-table, k - 1, axis=1)[:, :k]
    among = np.zeros_like(keep)
    np.put_along_axis(among, best, True, axis=1)
    rows, columns = np.nonzero(keep | among)
    indptr = np.searchsorted(rows, np.arange(len(table) + 1))
    matrix = csr_array((table[rows, columns], columns.astype(np.int32), indptr), shape=truth.shape)
    return OutOfFold(Scores(matrix, found.scores.names, "probability", 0.0), among[rows, columns])


def rankings(features: csr_array, truth: csr_array, full: OutOfFold, filters: list[str]) -> dict[str, NDArray[np.float32]]:
    """How suspect each pair is (documents, labels), by method."""
    given = truth.toarray() > 0
    p = full.scores.matrix.data.reshape(truth.shape)
    planted = planted_errors(features, truth)
    found = suspicion(kept(full, truth, planted), truth, planted, nearest_rows(features, NEIGHBOURS))
    rows = np.repeat(np.arange(len(given)), np.diff(found.matrix.indptr))
    ours, combined = np.zeros_like(p), np.zeros_like(p)
    ours[rows, found.matrix.indices] = found.matrix.data
    combined[rows, found.matrix.indices] = np.abs(found.given - found.right)
    own = np.abs(given - p)  # 1 - self-confidence, cleanlab's label quality
    methods = {"polytag": ours, "label quality of polytag's probabilities": combined}
    methods["cleanlab, label quality"] = own
    for name in filters:
        methods[f"cleanlab, {name}"] = own + flagged(given, p, name)
    return methods


def flagged(given: Table, p: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    """The pairs that cleanlab calls issues."""
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

    used = np.flatnonzero(given.any(axis=0) & ~given.all(axis=0))
    labels = [np.flatnonzero(row).tolist() for row in given[:, used]]
    found: Any = find_multilabel_issues_per_class(labels, p[:, used].astype(np.float64), filter_by=name, n_jobs=1)
    out = np.zeros(p.shape, dtype=np.float32)
    out[:, used] = np.asarray(found)
    return out


def measured(wrong: Table, given: Table, score: NDArray[np.float32]) -> dict[str, float]:
    """Average precision, precision at the number of spoiled pairs, and AUC; ties count as half (AUC) or by place."""
    values = {"ap": _ap(wrong.ravel(), score.ravel())}
    count, order = int(wrong.sum()), np.argsort(-score, axis=None, kind="stable")
    values["precision_at_spoiled"] = float(wrong.ravel()[order[:count]].mean())
    values["auc"] = _auc(wrong.ravel(), score.ravel())
    values["ap_given"] = _ap(wrong[given], score[given])
    values["ap_missing"] = _ap(wrong[~given], score[~given])
    return values


def _ap(wrong: Table, score: NDArray[np.float32]) -> float:
    order = np.argsort(-score, kind="stable")
    places = np.flatnonzero(wrong[order])
    return float((np.arange(1, len(places) + 1) / (places + 1)).mean())


def _auc(wrong: Table, score: NDArray[np.float32]) -> float:
    ordered, mine = np.sort(score), score[wrong]
    below, upto = np.searchsorted(ordered, mine), np.searchsorted(ordered, mine, side="right")
    among, among_upto = (np.searchsorted(np.sort(mine), mine, side=side) for side in ("left", "right"))
    ranks = (below - among) + 0.5 * ((upto - below) - (among_upto - among))
    return float(ranks.mean() / (len(score) - len(mine)))


def top(wrong: Table, score: NDArray[np.float32]) -> tuple[NDArray[np.int32], Table]:
    """Documents of the most suspect pairs, best first, and whether they are spoiled."""
    order = np.argsort(-score, axis=None, kind="stable")[:DEPTH]
    return (order // wrong.shape[1]).astype(np.int32), wrong.ravel()[order]


def weighted_ap(ranked: tuple[NDArray[np.int32], Table], total: float, weights: NDArray[np.int64]) -> float:
    """Average precision where every document counts as often as its weight says."""
    w = weights[ranked[0]]
    hits = np.cumsum(w * ranked[1])
    places = np.cumsum(w)
    at = ranked[1] & (w > 0)
    return float((w[at] * hits[at] / places[at]).sum() / max(total, 1))


def gains(wrong: Table, methods: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float64]]:
    """Paired bootstrap over documents: how much the average precision of polytag is higher than that of the others."""
    rng, n, per_document = np.random.default_rng(0), len(wrong), wrong.sum(axis=1)
    ranked = {name: top(wrong, score) for name, score in methods.items() if name == "polytag" or "cleanlab" in name}
    found = {name: np.zeros(REPEATS) for name in ranked}
    for repeat in range(REPEATS):
        weights = np.bincount(rng.integers(0, n, n), minlength=n)
        for name, one in ranked.items():
            found[name][repeat] = weighted_ap(one, float(weights @ per_document), weights)
    return {name: found["polytag"] - values for name, values in found.items() if name != "polytag"}


def compared(draws: list[dict[str, Any]], other: str) -> dict[str, float]:
    """The difference to another method, averaged over the draws, with the middle 95% of the bootstrap."""
    mean = np.mean([draw["gains"][other] for draw in draws], axis=0)
    low, high = np.quantile(mean, [0.025, 0.975])
    return {"difference": float(mean.mean()), "low": float(low), "high": float(high), "share_ahead": float((mean > 0).mean())}


def find(data: Path, names: list[str], seeds: list[int], filters: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Spoil, score and rank every corpus with every seed; yield what is known after each draw."""
    for name in names:
        corpus = Corpus.read(data / name / "train.jsonl.xz", labels=data / name / "labels.jsonl")
        features = Tfidf().fit(corpus.texts).transform(corpus.texts)
        draws: list[dict[str, Any]] = []
        for seed in seeds:
            start = time.perf_counter()
            labels, wrong = spoiled(features, corpus.truth, seed)
            problem = Problem(features, labels)
            folds = corpus.folds(FOLDS, seed=seed)
            none = indicator([[]] * len(corpus), len(corpus.labels))
            full = out_of_fold(problem, corpus.labels, folds, none, Run(), candidates=len(corpus.labels))
            methods = rankings(features, labels, full, filters)
            given = labels.toarray() > 0
            rows = {method: measured(wrong, given, score) for method, score in methods.items()}
            draws.append({"spoiled": int(wrong.sum()), "rows": rows, "gains": gains(wrong, methods)})
            print(name, seed, f"{time.perf_counter() - start:.0f} s", {m: round(r["ap"], 4) for m, r in rows.items()}, flush=True)
            yield name, {"seeds": seeds[: len(draws)], **summary(draws)}


def summary(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the draws, every draw, and the comparison with each of cleanlab's rankings."""
    methods = list(draws[0]["rows"])
    mean = {
        method: {key: float(np.mean([d["rows"][method][key] for d in draws])) for key in draws[0]["rows"][method]}
        for method in methods
    }
    others = [method for method in methods if method.startswith("cleanlab")]
    return {
        "spoiled_pairs": [draw["spoiled"] for draw in draws],
        "mean": mean,
        "draws": [draw["rows"] for draw in draws],
        "against": {method: compared(draws, method) for method in others},
    }


def timed(data: Path) -> dict[str, Any]:
    """The audit of debdeps."""
    corpus = Corpus.read(data / "debdeps" / "train.jsonl.xz", labels=data / "debdeps" / "labels.jsonl.xz")
    start = time.perf_counter()
    found = audit(corpus, Run())
    seconds = time.perf_counter() - start
    return {
        "documents": len(corpus), "labels": len(corpus.labels), "assignments": found.assignments, "seconds": seconds,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "found": {"suspects": len(found.suspects), "copies": len(found.copies), "same_labels": len(found.same),
                  "unlearnable": len(found.unlearnable)},
        "note": "two cores, shared with other work while measured",
    }  # fmt: skip


def main() -> None:
    """Run a part and write it to the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=["find", "time"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpora", nargs="+", default=["reuters", "debtags"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--filters", nargs="+", default=["prune_by_noise_rate", "confident_learning"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    results = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    if asked.what == "time":
        results["time"] = timed(asked.data)
    else:
        for name, found in find(asked.data, asked.corpora, asked.seeds, asked.filters):
            results.setdefault("find", {})[name] = found
            asked.out.write_text(json.dumps(results, indent=1) + "\n")
    asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
