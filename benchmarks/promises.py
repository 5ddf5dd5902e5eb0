"""Whether promises hold, what they cost, and what abstention buys.

python benchmarks/promises.py draws        200 random halves of test scores; MAPIE on some of the same halves
python benchmarks/promises.py refusals     an extreme label set: recall .9 is refused, .5 is kept
python benchmarks/promises.py abstention   the share that can be automated at precision .95 and .98
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag import Classifier, Corpus, LabelSet, Scores
from polytag.config.promise import Promise
from polytag.decision.risk_control import Sets, keep
from polytag.decision.thresholds import select
from polytag.errors import PolytagError

OUT = Path(__file__).parent / "results" / "promises.json"
PROMISES = ("recall=.8", "recall=.9", "recall=.95", "recall=.9,confidence=.9", "precision=.8", "precision=.9")
OPTIONS: dict[str, dict[str, Any]] = {"debtags": {"c": [0.5], "ngrams": [1]}}


def read(data: Path, corpus: str) -> tuple[LabelSet, dict[str, Corpus]]:
    """The label set and the three parts of a corpus."""
    folder = data / corpus
    labels = LabelSet.read(next(folder.glob("labels.jsonl*")))
    return labels, {part: Corpus.read(folder / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid", "test")}


def achieved(goal: str, scores: Scores, truth: csr_array, threshold: float) -> tuple[float, float]:
    """The mean recall of documents, or precision of those with labels, and the labels per document."""
    inside = csr_array(scores.matrix >= np.float32(threshold)).astype(np.float32)
    hits, sizes, true = (np.diff(m.indptr) for m in (csr_array(inside.multiply(truth)), inside, truth))
    whole = true if goal == "recall" else sizes
    some = whole > 0
    mean = float(np.mean(hits[some] / whole[some])) if some.any() else 1.0
    if goal == "recall":  # a document without labels has all of them
        mean = (mean * some.sum() + (~some).sum()) / len(some)
    return mean, float(sizes.mean())


def draws(data: Path, promises: list[str], times: int, mapie_times: int) -> dict[str, Any]:
    """For every corpus and promise: what new documents reach over random halves of the test scores."""
    result: dict[str, Any] = {}
    for corpus in ("reuters", "debtags"):
        labels, parts = read(data, corpus)
        classifier = Classifier("br", OPTIONS.get(corpus, {})).fit(parts["train"], parts["valid"])
        test = parts["test"].with_labels(classifier.labels.union(parts["test"].labels))
        scores = classifier.scores(test.texts)
        truth = test.truth[:, : len(classifier.labels)]
        for text in promises:
            result[f"{corpus} {text}"] = row = one_promise(Promise.parse(text), scores, truth, labels, times, mapie_times)
            print(corpus, text, json.dumps(row), flush=True)
    return result


def one_promise(
    promise: Promise, scores: Scores, truth: csr_array, labels: LabelSet, times: int, mapie_times: int
) -> dict[str, Any]:
    """Means over draws; with a confidence, the share of draws that miss the level, and what chance allows."""
    values, sizes, beside = [], [], []
    for draw in range(times):
        half = np.random.default_rng(draw).permutation(len(scores)) % 2 == 0
        held, new = select(scores, half), select(scores, ~half)
        kept = keep(promise, Sets.of(held, truth[half], labels, 0, False))
        value, size = achieved(promise.goal, new, truth[~half], float(kept.threshold))
        values.append(value)
        sizes.append(size)
        if draw < mapie_times:
            beside.append(mapie(promise, held, truth[half], new, truth[~half]))
    error = float(np.std(values) / math.sqrt(times))
    row: dict[str, Any] = {
        "draws": times,
        "mean": np.mean(values),
        "standard_error": error,
        "labels_per_document": np.mean(sizes),
    }
    if promise.confidence is None:
        row["kept"] = bool(np.mean(values) >= promise.level - 2 * error)
    else:
        missed, allowed = float(np.mean(np.array(values) < promise.level)), 1 - promise.confidence
        row |= {"missed": missed, "allowed": allowed + 2 * math.sqrt(allowed * promise.confidence / times)}
        row["kept"] = bool(row["missed"] <= row["allowed"])
    if beside:
        row["same_draws"] = {"draws": len(beside), "mean": np.mean(values[: len(beside)])}
        row["same_draws"]["labels_per_document"] = np.mean(sizes[: len(beside)])
        for name in beside[0]:
            found = np.array([each[name] for each in beside])
            row[name] = {"mean": found[:, 0].mean(), "labels_per_document": found[:, 1].mean()}
            row[name]["missed"] = (found[:, 0] < promise.level).mean()
    return {key: _rounded(value) for key, value in row.items()}


def mapie(
    promise: Promise, held: Scores, held_truth: csr_array, new: Scores, new_truth: csr_array
) -> dict[str, tuple[float, float]]:
    """What MAPIE's thresholds reach on new documents: with its default thresholds and with as many as ours."""
    from mapie.risk_control import MultiLabelClassificationController

    fine = 1 / (1 + np.exp(np.linspace(12, -12, 385)))
    found = {}
    for name, grid in (("mapie", np.arange(0, 1, 0.01)), ("mapie, finer thresholds", fine)):
        method = "ltt" if promise.goal == "precision" else "crc" if promise.confidence is None else "rcps"
        bound = "wsr" if method == "rcps" else None
        controller = MultiLabelClassificationController(
            dense, risk=promise.goal, method=method, target_level=promise.level,
            confidence_level=promise.confidence, rcps_bound=bound, predict_params=grid,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            controller.calibrate(held.matrix.toarray(), (held_truth.toarray() > 0).astype(int))
        threshold = np.ravel(controller.best_predict_param)[0]
        threshold = 1.0 if threshold is None or not np.isfinite(float(threshold)) else float(threshold)
        found[name] = achieved(promise.goal, new, new_truth, threshold)
    return found


def dense(values: NDArray[Any]) -> NDArray[Any]:
    """The probabilities themselves, in the form (documents, labels)."""
    return np.asarray(values)


def refusals(data: Path) -> dict[str, Any]:
    """An extreme label set with unknown labels: which promises training refuses, and what the kept one reaches on test."""
    _, parts = read(data, "debdeps")
    result: dict[str, Any] = {}
    for promise in ("recall=.9", "recall=.5"):
        try:
            classifier = Classifier("xlinear", {"promise": promise}).fit(parts["train"], parts["valid"])
        except PolytagError as error:
            result[promise] = {"refused": str(error)}
            continue
        found = classifier.outcome(parts["test"])
        hits = np.asarray(found.truth.multiply(found.predicted).sum(axis=1)).ravel()
        recall = hits / np.maximum(1, np.diff(found.truth.indptr))
        result[promise] = {
            "held_out": classifier.decision.report["labels_per_document"],
            "samples_recall": float(recall.mean()),
            "standard_error": float(recall.std(ddof=1) / len(recall) ** 0.5),
            "labels_per_document": found.predicted.nnz / len(recall),
        }
    print(json.dumps(result), flush=True)
    return result


def abstention(data: Path, models: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """The share of reuters' test that is automated for a precision chosen on held-out documents, and what it reaches."""
    _, parts = read(data, "reuters")
    result: dict[str, Any] = {}
    for model in models:
        start = time.monotonic()
        classifier = Classifier(model, options.get(model, {})).fit(parts["train"], parts["valid"])
        row: dict[str, Any] = {"train_seconds": time.monotonic() - start}
        for goal in ("precision=.95", "precision=.98"):
            try:
                found = classifier.evaluate(parts["test"], ask=goal)
            except PolytagError as error:
                row[goal] = {"refused": str(error)}
                continue
            names = ("coverage", "automated_precision", "automated_recall", "automated_subset_accuracy")
            row[goal] = {"asked": classifier.asking(goal), **{name: found[name] for name in names}}
            row["curve"] = {key: value for key, value in found.items() if "@coverage" in key}
            row["micro_f1"] = found["micro_f1"]
        result[model] = {key: _rounded(value) for key, value in row.items()}
        print(model, json.dumps(result[model]), flush=True)
    return result


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return round(float(value), 4) if isinstance(value, float | np.floating) else value


def main() -> None:
    """Run one part and write its result beside those of the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("draws", "refusals", "abstention"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--promises", nargs="*", default=list(PROMISES))
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--mapie-draws", type=int, default=10)
    parser.add_argument("--models", nargs="*", default=["br", "bert", "mixed"])
    parser.add_argument("--options", type=json.loads, default={}, help="options by model, as JSON")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    if asked.part == "draws":
        found = draws(asked.data, asked.promises, asked.draws, asked.mapie_draws)
    elif asked.part == "refusals":
        found = refusals(asked.data)
    else:
        found = abstention(asked.data, asked.models, asked.options)
    known = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    known[asked.part] = {"command": f"python benchmarks/promises.py {asked.part}", **known.get(asked.part, {}), **found}
    asked.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
