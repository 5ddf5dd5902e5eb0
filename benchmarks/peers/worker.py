"""The timing protocol that every worker follows, in its own process and virtual environment.

A worker is a module that calls ``main`` with an object that has the methods of ``Peer``. Needs numpy and scipy only.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy import sparse


class Peer(Protocol):
    """What a worker says about its library. Matrices are of the type that ``features`` and ``targets`` return."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages whose versions are reported."""

    def compile(self, variant: str, threads: int) -> None:
        """Do what happens once per installation or process, such as just-in-time compilation; timed apart."""

    def features(self, x: sparse.csr_matrix) -> Any:
        """Bring the tf-idf matrix into the type that the library likes best; not timed."""

    def targets(self, y: sparse.csr_matrix) -> Any:
        """Bring the label matrix into the type that the library likes best; not timed."""

    def train(self, variant: str, x: Any, y: Any, threads: int) -> Any:
        """Fit; timed."""

    def ready(self, model: Any) -> Any:
        """Bring a trained model into its best shape for prediction, as by saving and loading; not timed."""

    def decide(self, model: Any, x: Any, threads: int) -> sparse.csr_matrix:
        """The label sets that the library itself decides on, as the pattern of a sparse matrix; timed."""

    def scores(self, model: Any, x: Any, threads: int) -> Any:
        """Scores as an array (documents, labels), or as a sparse matrix where only candidates have one; timed."""


def is_sparse(scores: Any) -> bool:
    """Whether only candidates have a score."""
    return bool(sparse.issparse(scores))


def above(scores: Any, threshold: float) -> sparse.csr_matrix:
    """The entries that are greater than the threshold, as the pattern of a sparse matrix."""
    if is_sparse(scores):
        keep = scores.data > threshold
        indptr = np.concatenate(([0], np.cumsum(keep)))[scores.indptr]
        return sparse.csr_matrix((keep[keep], scores.indices[keep], indptr), shape=scores.shape)
    mask = scores > threshold
    indices = np.nonzero(mask.reshape(-1))[0] % mask.shape[1]
    indptr = np.concatenate(([0], np.cumsum(mask.sum(axis=1))))
    return sparse.csr_matrix((np.ones(len(indices), dtype=bool), indices, indptr), shape=mask.shape)


def best_threshold(truth: sparse.csr_matrix, scores: Any, known: np.ndarray) -> float:
    """The threshold with the highest micro-F1, among the middles between neighbouring scores; unknown labels do not take part."""
    if is_sparse(scores):
        rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
        columns, values = scores.indices, scores.data
    else:
        rows, columns = (a.reshape(-1) for a in np.indices(scores.shape))
        values = np.asarray(scores).reshape(-1)
    keep = known[columns]
    rows, columns, values = rows[keep], columns[keep], values[keep]
    order = np.argsort(-values, kind="stable")
    values = values[order].astype(np.float64)
    # a pair of document and label as one number: never a dense matrix
    hit = np.isin(rows[order].astype(np.int64) * truth.shape[1] + columns[order], positives(truth))
    f1 = 2 * np.cumsum(hit) / (np.arange(1, len(hit) + 1) + truth.nnz)
    f1[:-1][values[:-1] == values[1:]] = -1  # equal scores stand or fall together
    best = int(np.argmax(f1))
    return float(values[best] - 1e-6) if best + 1 == len(values) else float((values[best] + values[best + 1]) / 2)


def positives(truth: sparse.csr_matrix) -> np.ndarray:
    """Every (document, label) of the truth as one number."""
    rows = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr))
    return np.asarray(rows * truth.shape[1] + truth.indices)


def cpu_seconds() -> float:
    """CPU time of this process, its finished children, and (on Linux) its living ones, such as a pool of worker processes."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[1]) == os.getpid():
            ticks += sum(map(int, fields[11:15]))
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")


def peak_mb() -> int | None:
    """The most memory this process has had; not from getrusage, which carries over the parent's peak."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+)", status.read_text(encoding="utf-8")) if status.exists() else None
    return round(int(found.group(1)) / 1024) if found else None


class Clock:
    """Wall and CPU seconds of repeated calls."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def time(self, call: Callable[[], Any]) -> Any:
        """Call once and note how long it took."""
        gc.collect()
        cpu, wall = cpu_seconds(), time.perf_counter()
        result = call()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(cpu_seconds() - cpu)
        return result

    def report(self, name: str) -> dict[str, list[float]]:
        """The times under two keys."""
        return {f"{name}_s": [round(t, 5) for t in self.wall], f"{name}_cpu_s": [round(t, 3) for t in self.cpu]}


def matrix(arrays: Any, name: str) -> sparse.csr_matrix:
    """One matrix of the problem file."""
    parts = (arrays[f"{name}_data"], arrays[f"{name}_indices"], arrays[f"{name}_indptr"])
    return sparse.csr_matrix(parts, shape=tuple(arrays[f"{name}_shape"]))


def write_sets(path: Path, sets: sparse.csr_matrix) -> None:
    """Write decided label sets as plain arrays."""
    sets = sparse.csr_matrix(sets)
    sets.sort_indices()
    np.savez(path, indices=np.asarray(sets.indices, dtype=np.int32), indptr=np.asarray(sets.indptr, dtype=np.int64))


def measure(peer: Peer, variant: str, problem: Path, out: Path, repeat: int, threads: int) -> dict[str, Any]:
    """Compile, tune on validation (which also warms everything up), then train and predict ``repeat`` times."""
    with np.load(problem, allow_pickle=False) as arrays:
        x, y, x_test, n_train = matrix(arrays, "x"), matrix(arrays, "y"), matrix(arrays, "x_test"), int(arrays["n_train"])
    clocks = {name: Clock() for name in ("compile", "tune", "train", "predict", "predict_tuned")}
    clocks["compile"].time(lambda: peer.compile(variant, threads))
    threshold = clocks["tune"].time(lambda: tune(peer, variant, x, y, n_train, threads))
    native_x, native_y, native_test = peer.features(x), peer.targets(y), peer.features(x_test)
    model: Any = None
    for _ in range(repeat):
        model = None  # the old model must not stand in memory beside the new one
        model = clocks["train"].time(lambda: peer.train(variant, native_x, native_y, threads))
    model = peer.ready(model)
    peer.decide(model, native_test, threads)
    for _ in range(repeat):
        own = clocks["predict"].time(lambda: peer.decide(model, native_test, threads))
    for _ in range(repeat):
        tuned = clocks["predict_tuned"].time(lambda: above(peer.scores(model, native_test, threads), threshold))
    write_sets(out / "own.npz", own)
    write_sets(out / "tuned.npz", tuned)
    report: dict[str, Any] = {"threshold": threshold, "packages": {name: version(name) for name in peer.packages}}
    for name, clock in clocks.items():
        report |= clock.report(name)
    report["peak_mb"] = peak_mb()
    return report


def tune(peer: Peer, variant: str, x: sparse.csr_matrix, y: sparse.csr_matrix, n_train: int, threads: int) -> float:
    """Fit on the training part and choose one threshold on the validation part."""
    model = peer.ready(peer.train(variant, peer.features(x[:n_train]), peer.targets(y[:n_train]), threads))
    scores = peer.scores(model, peer.features(x[n_train:]), threads)
    known = np.bincount(y[:n_train].indices, minlength=y.shape[1]) > 0
    return best_threshold(y[n_train:], scores, known)


def main(peer: Peer) -> None:
    """Measure one variant as the command line says and write ``report.json`` beside the label sets."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", required=True)
    parser.add_argument("--problem", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    report = measure(peer, a.variant, a.problem, a.out, a.repeat, a.threads)
    (a.out / "report.json").write_text(json.dumps(report), encoding="utf-8")
