"""``polytag auto`` against single models, each with the whole time: quality on test by paired bootstrap, and the time kept.

    python benchmarks/auto.py --data DIR --corpora sample,reuters-50,reuters-500 --minutes 2 [--out FILE] [--seconds 1500]

A corpus is a folder of DIR, ``sample`` for the corpus that ships, or ``NAME-N`` for N training documents of it, drawn with the
seed, or with another one, S: ``NAME-N-S``; then the validation documents are left out. Every reference gets all minutes,
networks by their setting ``minutes``; one that is not finished after 1.1 times that is ended and has no row. Each run is a
process of its own. Rows are written after every run and kept, so a call goes on where an earlier one ended; ``--seconds`` ends it
before a run that would take longer.
``--device gpu`` says that networks run on a GPU, and keeps those rows apart; without it they do not see one. ``--machine`` is
noted in every row. Runs that were made side by side, each with a file of its own, are put together with ``--add FILE...``. The
difference of ``auto`` and each reference is that of the test documents, with its interval by ``paired_bootstrap``; P@k of large
label sets is the mean over documents, drawn in the same way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag import Classifier, Corpus, LabelSet
from polytag.datasets import load_sample
from polytag.kernels.sparse_rows import contains
from polytag.metrics.bootstrap import paired_bootstrap, resamples, two_sided_p
from polytag.metrics.of_outcomes import outcome_metrics
from polytag.metrics.of_sets import micro_f1

REFERENCES = ("br", "cc", "lp", "cnn", "embed", "bert", "xlinear", "sklearn")
NETWORKS, PEERS = ("cnn", "bert"), ("sklearn", "autogluon")
LATE = 1.1  # of the time that was given
EXTREME = 3_000  # labels from which P@k is compared in place of micro-F1
KS = (1, 3, 5)
SHOWN = ("micro_f1", "macro_f1", "subset_accuracy", *(f"p@{k}" for k in KS))


def corpora(data: Path, name: str, seed: int) -> tuple[Corpus, Corpus | None, Corpus]:
    """Training, validation and test documents; validation documents are left out where training documents are drawn."""
    asked = re.fullmatch(r"(.+?)-(\d+)(?:-(\d+))?", name)
    base, count, draw = asked.groups() if asked else (name, None, None)
    if base == "sample":
        train, valid, test = load_sample()
    else:
        labels = LabelSet.read(next((data / base).glob("labels.jsonl*")))
        train, valid, test = (Corpus.read(data / base / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid", "test"))
    if count is None:
        return train, valid, test
    rows = np.random.default_rng(int(draw or seed)).permutation(len(train))[: int(count)]
    return train.subset(np.sort(rows)), None, test


def run_one(told: argparse.Namespace) -> None:
    """In a process of its own: train, and write what is predicted for the test documents."""
    train, valid, test = corpora(told.data, told.one[0], told.seed)
    start = time.monotonic()
    record: dict[str, Any] = {}
    if told.one[1] == "auto":
        from polytag.auto.automatic import automatic
        from polytag.auto.model_search import Wanted

        found = automatic(train, valid, Wanted(told.minutes, seed=told.seed))
        classifier, record = found.classifier, {"why": found.sentences(), **found.record()}
    elif told.one[1] in PEERS:
        if told.one[1] == "sklearn":
            from peers.sklearn_pipeline import fit_and_predict

            sets, best = fit_and_predict(train, valid, test, max(KS))
        else:
            from peers import autogluon_labels

            sets, best = autogluon_labels.fit_and_predict(train, valid, test, max(KS), 60 * told.minutes)
        seconds = time.monotonic() - start  # with the prediction of the test documents, which is small beside the rest
        _keep(Path(told.one[2]), sets, best, {"seconds": seconds, **_metrics(sets, best, train, valid, test)})
        return
    else:
        limit = {"minutes": told.minutes} if told.one[1] in NETWORKS else {}
        classifier = Classifier(told.one[1], {"seed": told.seed, **limit}).fit(train, valid)
    seconds = time.monotonic() - start
    outcome = classifier.outcome(test)
    best, _ = outcome.scores.ranked(max(KS))
    metrics = outcome_metrics(outcome, len(train))
    shown: dict[str, Any] = {key: metrics[key] for key in SHOWN if key in metrics}
    _keep(Path(told.one[2]), outcome.predicted, best, {"seconds": seconds, **shown, **record})


def _keep(place: Path, sets: csr_array, best: NDArray[np.int32], row: dict[str, Any]) -> None:
    np.savez_compressed(place, indices=sets.indices, indptr=sets.indptr, best=best)
    place.with_suffix(".json").write_text(json.dumps(row, default=str))


def _metrics(sets: csr_array, best: NDArray[np.int32], train: Corpus, valid: Corpus | None, test: Corpus) -> dict[str, float]:
    """What is shown of a peer, whose labels are those of training and validation, in that order."""
    truth = _truth(train, valid, test)
    wide = csr_array((sets.data, sets.indices, sets.indptr), shape=truth.shape)
    hits = hits_at(best, truth).mean(axis=0)
    return {"micro_f1": float(micro_f1(truth, wide)), **{f"p@{k}": float(hit) for k, hit in zip(KS, hits, strict=True)}}


def _truth(train: Corpus, valid: Corpus | None, test: Corpus) -> csr_array:
    labels = train.labels.union(valid.labels) if valid is not None else train.labels
    return test.with_labels(labels.union(test.labels)).truth


def measured(told: argparse.Namespace, corpus: str, model: str, folder: Path) -> dict[str, Any]:
    """The row of one run; without metrics if it was not finished in time."""
    place = _place(told, corpus, model, folder)
    command = [sys.executable, __file__, "--data", str(told.data), "--minutes", str(told.minutes), "--seed", str(told.seed)]
    start = time.monotonic()
    try:  # reading and scoring are not part of the time, so the process gets more
        limit = 60 * told.minutes * LATE + told.grace
        ended = subprocess.run([*command, "--one", corpus, model, str(place)], stderr=subprocess.PIPE, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"finished": False, "seconds": time.monotonic() - start}
    if ended.returncode:
        return {"finished": False, "error": ended.stderr.strip().rpartition("\n")[2]}
    row: dict[str, Any] = json.loads(place.with_suffix(".json").read_text())
    row["finished"] = row["seconds"] <= 60 * told.minutes * LATE
    return row


def _place(told: argparse.Namespace, corpus: str, model: str, folder: Path) -> Path:
    """Where the predictions of a run are kept."""
    return folder / f"{corpus}-{_budget(told).replace(' ', '-')}-{model}.npz"


def _budget(told: argparse.Namespace) -> str:
    """The minutes, and the device if it is not the CPU."""
    return f"{told.minutes:g}" + (f" {told.device}" if told.device != "cpu" else "")


def hits_at(best: NDArray[np.int32], truth: csr_array) -> NDArray[np.float64]:
    """Precision at each k (documents, ks)."""
    table = contains(truth, best)
    return np.stack([table[:, :k].mean(axis=1) for k in KS], axis=1)


def difference(told: argparse.Namespace, corpus: str, model: str, folder: Path) -> dict[str, Any]:
    """The metrics of auto minus those of a reference, with intervals."""
    truth = _truth(*corpora(told.data, corpus, told.seed))
    found = []
    for name in ("auto", model):
        with np.load(_place(told, corpus, name, folder), allow_pickle=False) as kept:
            sets = csr_array((np.ones(len(kept["indices"]), np.float32), kept["indices"], kept["indptr"]), shape=truth.shape)
            found.append((sets, kept["best"]))
    if truth.shape[1] >= EXTREME:
        gap = hits_at(found[0][1], truth) - hits_at(found[1][1], truth)
        drawn = np.concatenate([w.T @ gap / w.sum(axis=0)[:, None] for w in resamples(len(gap), 1000, 0)])
        low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
        rows = zip(KS, gap.mean(axis=0), low, high, drawn.T, strict=True)
        return {f"p@{k}": [float(mean), float(a), float(b), two_sided_p(all_)] for k, mean, a, b, all_ in rows}
    return {"micro_f1": list(paired_bootstrap(truth, found[0][0], found[1][0], "micro_f1"))}


def main() -> None:
    """Run what is missing, and write a row after each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpora", default="sample")
    parser.add_argument("--models", default="auto," + ",".join(REFERENCES))
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end before a run that would take longer")
    parser.add_argument("--grace", type=float, default=240, help="seconds beyond the minutes for reading and scoring")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--machine", default=platform.processor() or platform.machine())
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "polytag-auto", help="predictions")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/auto.json"))
    parser.add_argument("--add", type=Path, nargs="+", help="files whose rows are added; models are compared by --keep")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.one:
        return run_one(told)
    if told.add:
        return add(told)
    if told.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    told.keep.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = json.loads(told.out.read_text()) if told.out.exists() else {}
    end = time.monotonic() + told.seconds
    for corpus in told.corpora.split(","):
        rows = result.setdefault(corpus, {}).setdefault(_budget(told), {})
        for model in told.models.split(","):
            if model not in rows or "error" in rows[model]:  # a failure is tried again
                if time.monotonic() + 60 * told.minutes * LATE > end:
                    print("out of time; the same command goes on from here", flush=True)
                    return None
                rows[model] = {**measured(told, corpus, model, told.keep), "machine": told.machine}
                print(corpus, model, json.dumps(rows[model])[:300], flush=True)
            _compare(told, corpus, rows, model)
            told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return None


def add(told: argparse.Namespace) -> None:
    """Add the rows of other files, those of the same budget anew, and compare their models with auto."""
    result: dict[str, Any] = json.loads(told.out.read_text()) if told.out.exists() else {}
    for path in told.add:
        for corpus, budgets in json.loads(path.read_text()).items():
            for budget, rows in budgets.items():
                result.setdefault(corpus, {}).setdefault(budget, {}).update(rows)
    for corpus in told.corpora.split(","):
        rows = result.get(corpus, {}).get(_budget(told), {})
        for model in rows:
            _compare(told, corpus, rows, model)
    told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _compare(told: argparse.Namespace, corpus: str, rows: dict[str, Any], model: str) -> None:
    """Add the difference to auto, if both finished and their predictions are kept."""
    kept = all(_place(told, corpus, name, told.keep).exists() for name in ("auto", model))
    finished = rows[model].get("finished") and rows.get("auto", {}).get("finished")
    if kept and finished and model != "auto" and "auto_minus_this" not in rows[model]:
        rows[model]["auto_minus_this"] = difference(told, corpus, model, told.keep)


if __name__ == "__main__":
    main()
