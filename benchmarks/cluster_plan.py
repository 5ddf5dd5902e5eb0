"""A plan on paper for very many documents and labels: core-hours, memory, network and money, from constants measured here.

    python benchmarks/cluster_plan.py [--measure] [--documents 100000000] [--labels 3000000] [--price 0.05] [--nodes 8,16,32]

``--measure`` trains and predicts at all sizes, one thread each, in CPU seconds, which other processes hardly change. Constants
are fitted on some sizes (non-negative least squares of relative errors), and checked on others. Results are in
results/cluster_plan.json; what is there is not measured again. The table is for one tree with the settings of ``xlinear``.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from peers.report import machine
from peers.worker import peak_mb
from polytag.xmc.estimate import tree_levels

RESULTS = Path(__file__).resolve().parent / "results" / "cluster_plan.json"
FITTED = [(40_000, 20_000), (50_000, 50_000), (60_000, 120_000), (80_000, 10_000), (100_000, 20_000), (120_000, 40_000)]
FITTED += [(150_000, 150_000)]
CHECKED = [(80_000, 80_000), (200_000, 60_000), (250_000, 250_000), (90_000, 140_000), (180_000, 30_000), (300_000, 200_000)]
BEAM = 10
WORDS, LABELS_EACH, VOCABULARY = 60, 5.0, 100_000
BRANCHING, LEAF, BLOCK, TERMS = 64, 100, 16, 500
_GIB = float(1 << 30)
Row = dict[str, Any]


class Size(NamedTuple):
    """Documents and labels."""

    documents: int
    labels: int


# -- the model ---------------------------------------------------------------------------------------------------------


def terms(size: Size) -> dict[str, list[float]]:
    """What each kind of work grows with; a fitted constant belongs to each number.

    A document is at as many nodes of a level as its labels are in, and each is solved in blocks of children. After pruning, the
    weights of a child grow with the square root of its documents. Prediction scores the children of the nodes in the beam, and
    finds their weights in the caches less often as the model grows.
    """
    n, labels = (float(value) for value in size)
    words, pairs = n * WORDS, n * LABELS_EACH
    levels = tree_levels(size.labels, BRANCHING, LEAF)
    visits = [n * level.nodes * (1 - (1 - 1 / level.nodes) ** LABELS_EACH) for level in levels]
    blocks = [seen * math.ceil(level.children / BLOCK) for level, seen in zip(levels, visits, strict=True)]
    kept = [math.sqrt(pairs * level.nodes * level.children) for level in levels]
    scored = sum(min(BEAM, level.nodes) * level.children for level in levels)
    weights = [sum(kept[:-1]) / _GIB, kept[-1] / _GIB, pairs / _GIB]
    return {
        "features_s": [words],
        "index_s": [pairs * WORDS, min(pairs * WORDS, labels * TERMS) * math.log2(labels)],
        "root_s": [blocks[0] * WORDS],
        "levels_s": [sum(blocks[1:-1]) * WORDS, blocks[-1] * WORDS],
        "predict_s": [n, n * scored, n * math.sqrt(sum(kept))],
        "peak_gib": [1.0, words * 8 / _GIB, *weights],
        "model_gib": weights,
        "sent_gib": [words * 8 / _GIB, *weights],
    }


def fitted(rows: list[Row]) -> dict[str, list[float]]:
    """Constants with the smallest relative errors."""
    found = {}
    for kind in terms(Size(1000, 1000)):
        left = np.array([terms(Size(*row["size"]))[kind] for row in rows])
        right = np.array([row[kind] for row in rows])
        scale = np.abs(left).max(axis=0)
        found[kind] = (nnls(left / right[:, None] / scale, np.ones(len(rows)))[0] / scale).tolist()
    return found


def predicted(constants: dict[str, list[float]], size: Size) -> dict[str, float]:
    """The numbers of a size."""
    return {kind: float(np.dot(constants[kind], values)) for kind, values in terms(size).items()}


def errors(constants: dict[str, list[float]], rows: list[Row]) -> list[Row]:
    """Predictions beside measurements: training, prediction, memory and network."""
    found = []
    for row in rows:
        guess = predicted(constants, Size(*row["size"]))
        sums = {"train_s": ("features_s", "index_s", "root_s", "levels_s")}
        kinds = {**{name: (name,) for name in ("predict_s", "peak_gib", "model_gib", "sent_gib")}, **sums}
        pairs = {name: (sum(guess[part] for part in parts), sum(row[part] for part in parts)) for name, parts in kinds.items()}
        told = {name: {"predicted": one, "measured": other, "error": one / other - 1} for name, (one, other) in pairs.items()}
        found.append({"size": row["size"], **told})
    return found


# -- measurements ------------------------------------------------------------------------------------------------------


class Counted:
    """A workplace in this process that counts the bytes that a cluster would send."""

    pieces = 1

    def __init__(self) -> None:
        """Nothing was sent yet."""
        self.sent = 0.0

    def threads(self, jobs: int) -> int:
        """All threads."""
        return 0

    def share(self, state: Any) -> Any:
        """Count a shared state."""
        self.sent += _bytes(state)
        return state

    def submit(self, work: Any, job: Any, *shared: Any, threads: int = 0) -> Any:
        """Do a job, and count its result."""
        from concurrent.futures import Future

        future: Future[Any] = Future()
        found = work(job, *shared)
        self.sent += _bytes(found)
        future.set_result(found)
        return future

    def stop(self, future: Any) -> None:
        """Do nothing."""


def _bytes(state: Any) -> float:
    if isinstance(state, dict):
        return sum(_bytes(value) for value in state.values())
    if isinstance(state, list | tuple):
        return sum(_bytes(value) for value in state)
    if hasattr(state, "indptr"):
        return float(state.data.nbytes + state.indices.nbytes + state.indptr.nbytes)
    return float(getattr(state, "nbytes", 0))


def measure(size: Size) -> Row:
    """Train and predict in a process of its own, with one thread."""
    from polytag.datasets.synthetic import Shape, corpus
    from polytag.linear.svm import Problem
    from polytag.models.xlinear import XLinear
    from polytag.run import Run
    from polytag.xmc.tree_training import TreeTraining

    whole = corpus(Shape(documents=size.documents + 5_000, labels=size.labels, vocabulary=VOCABULARY))
    train, test = whole.subset(range(size.documents)), whole.subset(range(size.documents, size.documents + 5_000))
    laps: dict[str, float] = {"index_s": 0.0, "root_s": 0.0, "levels_s": 0.0}
    model, place, run = XLinear.build({"refit": False}), Counted(), Run(progress=False)
    run.workplace = place
    model.labels = train.labels
    depth, index = TreeTraining._depth, XLinear._index

    def timed_depth(self: TreeTraining, at: int, reached: NDArray[np.int32] | None) -> Any:
        start = time.process_time()
        found = depth(self, at, reached)
        laps["levels_s" if at else "root_s"] += time.process_time() - start
        return found

    def timed_index(self: XLinear, *given: Any) -> Any:
        start = time.process_time()
        found = index(self, *given)
        laps["index_s"] += time.process_time() - start
        return found

    TreeTraining._depth, XLinear._index = timed_depth, timed_index  # type: ignore[method-assign,assignment]
    start = time.process_time()
    problem = model._problem(train, np.arange(len(train)), run)
    laps["features_s"] = time.process_time() - start
    model.forest = model.train_forest(Problem(problem.features, problem.truth), run)
    peak = peak_mb()
    model.score(test.texts[:100], 10)
    start = time.process_time()
    model.score(test.texts, 10)
    laps["predict_s"] = (time.process_time() - start) / len(test) * size.documents
    held = _bytes(model.state()["forest"])
    return {"size": list(size), **laps, "peak_gib": (peak or 0) / 1024, "model_gib": held / _GIB, "sent_gib": place.sent / _GIB}


def alone(size: Size) -> Row:
    """Measure in a fresh process, whose memory is its own."""
    os.environ["POLYTAG_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, size).result()


# -- the plan ----------------------------------------------------------------------------------------------------------


def plan(constants: dict[str, list[float]], size: Size, nodes: int, cores: int, price: float, gigabits: float) -> Row:
    """Hours, memory, network and money of a cluster; the first node prepares features, all train and predict."""
    guess = predicted(constants, size)
    every = nodes * cores
    blocks = math.ceil(tree_levels(size.labels, BRANCHING, LEAF)[0].children / BLOCK)
    hours = {
        "features": guess["features_s"] / cores / 3600,
        "index": guess["index_s"] / cores / 3600,
        "root": guess["root_s"] / min(every, blocks) / 3600,
        "levels": guess["levels_s"] / every / 3600,
        "network": guess["sent_gib"] * 8.59 * nodes / gigabits / 3600,
    }
    total = sum(hours.values())
    labelling = guess["predict_s"] / every / 3600
    return {
        "nodes": nodes, "cores": cores, "train_hours": total, "of_which": hours, "predict_hours": labelling,
        "first_node_gib": guess["peak_gib"], "node_gib": guess["sent_gib"] + guess["model_gib"] / nodes,
        "model_gib": guess["model_gib"], "network_gib": guess["sent_gib"] * nodes,
        "money": (total + labelling) * every * price,
    }  # fmt: skip


def main() -> None:
    """Measure if asked to, fit, check, and print the plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--documents", type=int, default=100_000_000)
    parser.add_argument("--labels", type=int, default=3_000_000)
    parser.add_argument("--price", type=float, default=0.05, help="money per core and hour")
    parser.add_argument("--cores", type=int, default=32, help="cores of a node")
    parser.add_argument("--gigabits", type=float, default=10.0, help="network of a node, Gbit/s")
    parser.add_argument("--nodes", default="1,4,16")
    told = parser.parse_args()
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if told.measure:
        alone(Size(2_000, 1_000))  # compiles
        before = {tuple(row["size"]): row for row in known.get("fitted", []) + known.get("checked", [])}
        rows = {
            kind: [before.get(size) or alone(Size(*size)) for size in sizes]
            for kind, sizes in (("fitted", FITTED), ("checked", CHECKED))
        }
        known = {"command": "python benchmarks/cluster_plan.py --measure", "machine": machine(), "threads": 1, **rows}
    constants = fitted(known["fitted"])
    known |= {"constants": constants, "errors": errors(constants, known["checked"])}
    size = Size(told.documents, told.labels)
    table = [plan(constants, size, int(nodes), told.cores, told.price, told.gigabits) for nodes in told.nodes.split(",")]
    known["plan"] = {"documents": size.documents, "labels": size.labels, "price": told.price, "rows": table}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    for row in known["errors"]:
        print(row["size"], {name: f"{100 * told['error']:+.0f}%" for name, told in row.items() if name != "size"})
    for row in table:
        print({name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()})


if __name__ == "__main__":
    main()
