"""Prediction beside PECOS on extreme label sets, from the same tf-idf rows: in batches, and one document at a time.

    python benchmarks/extreme_prediction.py [--sizes debdeps,50000,150000,500000] [--rounds 7] [--work DIR] [--prepare]

A size is ``debdeps`` or a number of synthetic labels, which is also the number of training documents. Both models are trained on
the same rows, and kept in the folder ``--work``; ``--prepare`` trains and stops. Then both are loaded, each in a process of its
own, and predict in turn, so that both meet the same load: ``ratio`` is the median of PECOS's time divided by ours, per round. The
beam is 10, the best 20 labels are asked for, and PECOS predicts with its hashed chunks, the fastest of its three kinds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy import sparse

from peers.environments import python_of
from peers.report import machine
from peers.worker import matrix

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "extreme_prediction.json"
BEAM, BEST, SINGLE = 10, 20, 400
Predict = Callable[[Any], Any]


# -- what runs in the process of one library ---------------------------------------------------------------------------


def polytag_predictor(folder: Path) -> Predict:
    """The search through the trees of a saved ``xlinear``, from sparse rows."""
    from polytag.classifier import Classifier
    from polytag.models.xlinear import XLinear

    model = Classifier.load(folder / "run").model
    assert isinstance(model, XLinear) and model.forest is not None
    forest, worth = model.forest, model.ranking.worth
    return lambda rows: forest.best(rows, BEST, BEAM, worth)[0]


def pecos_predictor(folder: Path) -> Predict:
    """XR-Linear, loaded for prediction only."""
    from pecos.xmc.xlinear.model import XLinearModel  # type: ignore[import-not-found]

    model = XLinearModel.load(str(folder / "pecos"), is_predict_only=True, weight_matrix_type="HASH_CHUNKED")
    threads = len(os.sched_getaffinity(0))
    return lambda rows: model.predict(rows, beam_size=BEAM, only_topk=BEST, threads=threads if rows.shape[0] > 1 else 1)


def train_pecos(folder: Path) -> None:
    """Train XR-Linear with its defaults on the rows of the problem, and save it."""
    from peers.pecos_worker import Pecos

    with np.load(folder / "problem.npz", allow_pickle=False) as arrays:
        x, y = matrix(arrays, "x"), matrix(arrays, "y")
    peer = Pecos()
    peer.compile("tree", 2)
    peer.train("tree", peer.features(x), peer.targets(y), len(os.sched_getaffinity(0))).save(str(folder / "pecos"))


def serve(name: str, folder: Path) -> None:
    """For every line of standard input, time one batch of all test rows and some rows one by one, and print the seconds."""
    predict = {"polytag": polytag_predictor, "pecos": pecos_predictor}[name](folder)
    with np.load(folder / "problem.npz", allow_pickle=False) as arrays:
        rows: Any = matrix(arrays, "x_test")
    rows = sparse.csr_array(rows) if name == "polytag" else rows
    singles = [rows[i : i + 1] for i in range(min(SINGLE, rows.shape[0]))]
    found = predict(rows)
    np.save(folder / f"{name}.npy", found if name == "polytag" else best_labels(found))
    for single in singles:
        predict(single)
    print(json.dumps({"documents": rows.shape[0]}), flush=True)
    for _ in sys.stdin:
        laps = [time.perf_counter()]
        predict(rows)
        laps.append(time.perf_counter())
        for single in singles:
            predict(single)
        laps.append(time.perf_counter())
        print(json.dumps([(laps[1] - laps[0]) / rows.shape[0], (laps[2] - laps[1]) / len(singles)]), flush=True)


def best_labels(scores: Any) -> np.ndarray:
    """The best labels of every document, best first, -1 to fill."""
    found = np.full((scores.shape[0], BEST), -1, dtype=np.int32)
    for i in range(scores.shape[0]):
        part = slice(scores.indptr[i], scores.indptr[i + 1])
        order = np.lexsort((scores.indices[part], -scores.data[part]))[:BEST]
        found[i, : len(order)] = scores.indices[part][order]
    return found


# -- preparation -------------------------------------------------------------------------------------------------------


def prepare(size: str, folder: Path, data: Path) -> None:
    """Train both models on the same rows, unless that was done before."""
    if (folder / "pecos" / "param.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    source = data / "debdeps" if size == "debdeps" else folder
    if size != "debdeps":
        command = ["data", "make", "--documents", size, "--labels", size, "--out", str(folder)]
        subprocess.run([sys.executable, "-m", "polytag", "-q", *command], check=True, stdout=subprocess.DEVNULL)
    train_polytag(source, folder)
    peer = [str(python_of("pecos", HERE.parent / ".venvs")), str(HERE / "extreme_prediction.py")]
    subprocess.run([*peer, "--worker", "train", "--work", str(folder)], check=True, env=_outside())


def train_polytag(source: Path, folder: Path) -> None:
    """Train ``xlinear`` with its defaults, save it, and write its rows and the truth as plain arrays."""
    from peers.features import Problem, save_problem
    from polytag import Classifier, Corpus, LabelSet
    from polytag.models.xlinear import XLinear

    labels = LabelSet.read(next(source.glob("labels.jsonl*")))
    train, valid, test = (Corpus.read(next(source.glob(f"{part}.jsonl*")), labels=labels) for part in ("train", "valid", "test"))
    classifier = Classifier("xlinear", {"refit": False}).fit(train, valid)
    classifier.save(folder / "run")
    model = classifier.model
    assert isinstance(model, XLinear)
    truth = sparse.csr_array(test.truth)
    save_problem(Problem(model.tfidf.transform(train.texts), train.truth, model.tfidf.transform(test.texts), len(train)),
                 folder / "problem.npz")  # fmt: skip
    np.savez(folder / "truth.npz", indptr=truth.indptr, indices=truth.indices)


def _outside() -> dict[str, str]:
    """The environment of a process of another library: only this folder is on its path."""
    return {**os.environ, "PYTHONPATH": str(HERE)}


# -- the measurement ---------------------------------------------------------------------------------------------------


def measure(size: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Both libraries in turn: milliseconds per document, their ratio, and the precision of both."""
    own = [sys.executable, str(HERE / "extreme_prediction.py"), "--work", str(folder), "--worker"]
    other = [str(python_of("pecos", HERE.parent / ".venvs")), *own[1:]]
    commands = {"polytag": ([*own, "polytag"], None), "pecos": ([*other, "pecos"], _outside())}
    laps: dict[str, list[list[float]]] = {name: [] for name in commands}
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(
                subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for name, (command, env) in commands.items()
        }
        documents = max(json.loads(_line(process))["documents"] for process in processes.values())
        for _ in range(rounds):
            for name, process in processes.items():
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
                laps[name].append(json.loads(_line(process)))
    row: dict[str, Any] = {"corpus": size, "documents": documents, "rounds": rounds, "machine": machine()}
    for at, kind in enumerate(("batch", "single")):
        for name in laps:
            row[f"{name}_{kind}_ms"] = round(1000 * median(lap[at] for lap in laps[name]), 4)
        pairs = zip(laps["pecos"], laps["polytag"], strict=True)
        row[f"{kind}_ratio"] = round(median(theirs[at] / ours[at] for theirs, ours in pairs), 2)
    return row | {f"{name}_p@1,3,5": precision(folder, name) for name in laps}


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{' '.join(map(str, process.args))} ended")  # type: ignore[arg-type]
    return line


def precision(folder: Path, name: str) -> list[float]:
    """Precision at 1, 3 and 5 of the labels that one library found."""
    found = np.load(folder / f"{name}.npy")
    with np.load(folder / "truth.npz") as truth:
        sets = [set(part.tolist()) for part in np.split(truth["indices"], truth["indptr"][1:-1])]
    hits = np.array([[label in own for label in row] for row, own in zip(found[:, :5].tolist(), sets, strict=True)])
    return [round(float(hits[:, :k].mean()), 4) for k in (1, 3, 5)]


def main() -> None:
    """Prepare, measure, and write one row per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="debdeps,50000,150000,500000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--work", type=Path, default=HERE.parent / "runs" / "extreme_prediction")
    parser.add_argument("--prepare", action="store_true", help="train both models and stop")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--worker", choices=("polytag", "pecos", "train"), help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.worker:
        train_pecos(told.work) if told.worker == "train" else serve(told.worker, told.work)
        return
    rows = {row["corpus"]: row for row in json.loads(told.out.read_text("utf-8"))["rows"]} if told.out.exists() else {}
    for size in told.sizes.split(","):
        prepare(size, told.work / size, told.data)
        if not told.prepare:
            rows[size] = measure(size, told.work / size, told.rounds)
            print(json.dumps(rows[size]), flush=True)
            command = "python benchmarks/extreme_prediction.py"
            told.out.write_text(json.dumps({"command": command, "rows": list(rows.values())}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
