"""Timing of methods that rank labels: run in the environment of one peer, it trains, predicts and writes the best labels.

Needs numpy and scipy only. The peers are the classes of the other workers.
"""

from __future__ import annotations

import argparse
import importlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from peers.worker import Clock, matrix, peak_mb

PEERS = {
    "polytag": "xlinear_worker:Trees",
    "pecos": "pecos_worker:Pecos",
    "omikuji": "omikuji_worker:Omikuji",
    "napkinxc": "napkinxc_worker:NapkinXC",
    "fasttext": "fasttext_worker:FastText",
}
DEPTH = 10


def best(scores: Any) -> np.ndarray:
    """The DEPTH best labels of every document, best first, -1 to fill."""
    rows = sparse.csr_matrix(scores)
    found = np.full((rows.shape[0], DEPTH), -1, dtype=np.int32)
    for i in range(rows.shape[0]):
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        order = np.lexsort((rows.indices[part], -rows.data[part]))[:DEPTH]
        found[i, : len(order)] = rows.indices[part][order]
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compile, train and predict as often as asked, and write the labels of the last prediction."""
    module, _, name = PEERS[options.peer].partition(":")
    peer = getattr(importlib.import_module(f"peers.{module}"), name)()
    with np.load(options.problem, allow_pickle=False) as arrays:
        x, y, x_test = (matrix(arrays, part) for part in ("x", "y", "x_test"))
    if hasattr(peer, "words"):  # it reads words, not a matrix
        x, x_test = peer.words(options.problem.with_name("words.json"))
    clocks = {part: Clock() for part in ("compile", "train", "predict")}
    clocks["compile"].time(lambda: peer.compile(options.variant, options.threads))
    features, targets, test = peer.features(x), peer.targets(y), peer.features(x_test)
    model: Any = None
    for _ in range(options.repeat):
        model = None  # the old model must not stand in memory beside the new one
        model = clocks["train"].time(lambda: peer.train(options.variant, features, targets, options.threads))
    report: dict[str, Any] = {"peak_train_mb": peak_mb(), "packages": {p: version(p) for p in peer.packages}}
    model = peer.ready(model)
    peer.scores(model, test, options.threads)
    for _ in range(options.repeat):
        found = clocks["predict"].time(lambda: peer.scores(model, test, options.threads))
    np.save(options.out / "labels.npy", best(found))
    for part, clock in clocks.items():
        report |= clock.report(part)
    return {**report, "peak_mb": peak_mb()}


def main() -> None:
    """Measure one variant as the command line says and write ``report.json`` beside the labels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True, choices=PEERS)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--problem", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    (options.out / "report.json").write_text(json.dumps(measure(options)), encoding="utf-8")


if __name__ == "__main__":
    main()
