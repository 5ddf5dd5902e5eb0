"""What a cluster costs and gains on one machine: one worker against no cluster, two workers against one.

    python benchmarks/cluster.py [--verbs train,predict] [--documents 60000] [--labels 30000] [--repeats 2]

Every measurement runs in its own process with one thread per worker. A small job comes first, so that workers are started and
kernels compiled; what it takes when it is repeated is the start-up, which is subtracted. Plain runs and runs with one and two
workers take turns. Results are in results/cluster.json; a verb that is measured replaces its earlier row.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from peers.report import machine

RESULTS = Path(__file__).resolve().parent / "results" / "cluster.json"
SMALL = 2_000, 1_000  # documents and labels of the first job


# -- what runs in a process of its own ---------------------------------------------------------------------------------


def training(folder: Path, workers: int) -> Callable[[str], None]:
    """A function that trains on the documents of a name."""
    from polytag.cluster.cluster_training import train_on_cluster
    from polytag.config.recipe import Recipe
    from polytag.formats.document import ReadOptions
    from polytag.verbs.training import DataPlan, train_run

    recipe = Recipe("xlinear", {"trees": 3, "refit": False})

    def work(name: str) -> None:
        plan = DataPlan(folder / name / "train.jsonl", folder / name / "valid.jsonl", None, ReadOptions())
        with tempfile.TemporaryDirectory() as out:
            if workers:
                train_on_cluster(recipe, plan, out)
            else:
                train_run(recipe, plan, out)

    return work


def prediction(folder: Path, workers: int) -> Callable[[str], None]:
    """A function that labels the documents of a name."""
    from polytag.cluster.batch_prediction import predict_folder
    from polytag.verbs.prediction import predict_file

    def work(name: str) -> None:
        with tempfile.TemporaryDirectory() as out:
            if workers:
                predict_folder(folder / "run", [str(folder / name / "in.jsonl")], f"{out}/labelled", workers=workers)
            else:
                predict_file(folder / "run", str(folder / name / "in.jsonl"), f"{out}/labelled.jsonl")

    return work


def timed(verb: str, folder: Path, workers: int) -> dict[str, float]:
    """Seconds of the job, and of the start-up that was subtracted."""
    if workers:
        import ray

        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    work = (training if verb == "train" else prediction)(folder, workers)
    work("small")
    laps = [time.perf_counter()]
    for name in ("small", "large"):
        work(name)
        laps.append(time.perf_counter())
    start_up = laps[1] - laps[0]
    return {"seconds": laps[2] - laps[1] - start_up, "start_up": start_up}


# -- the measurement ---------------------------------------------------------------------------------------------------


def make(folder: Path, documents: int, labels: int, repeated: int) -> None:
    """Write the documents of both jobs, and train the model that labels them."""
    from polytag.config.recipe import Recipe
    from polytag.datasets.synthetic import Shape, corpus
    from polytag.formats.document import ReadOptions
    from polytag.verbs.training import DataPlan, train_run

    for name, size in (("small", SMALL), ("large", (documents, labels))):
        (folder / name).mkdir(parents=True)
        whole = corpus(Shape(documents=size[0] + 1_000, labels=size[1]))
        whole.subset(range(size[0])).write(folder / name / "train.jsonl")
        whole.subset(range(size[0], size[0] + 1_000)).write(folder / name / "valid.jsonl")
        texts = (folder / name / "train.jsonl").read_text(encoding="utf-8")
        (folder / name / "in.jsonl").write_text(texts * (repeated if name == "large" else 1), encoding="utf-8")
    plan = DataPlan(folder / "large" / "train.jsonl", folder / "large" / "valid.jsonl", None, ReadOptions())
    train_run(Recipe("xlinear", {"refit": False}), plan, folder / "run")


def measured(verb: str, folder: Path, workers: int) -> dict[str, float]:
    """Measure in a process of its own."""
    environment = {**os.environ, "POLYTAG_THREADS": "1", "OMP_NUM_THREADS": "1", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    command = [sys.executable, __file__, "--one", verb, str(folder), str(workers)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(verb: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Plain, one worker and two workers in turn; ratios of medians."""
    rows: dict[int, list[dict[str, float]]] = {0: [], 1: [], 2: []}
    for _ in range(repeats):
        for workers, found in rows.items():
            found.append(measured(verb, folder, workers))
            print(verb, workers, found[-1], file=sys.stderr, flush=True)
    plain, one, two = (median(row["seconds"] for row in rows[workers]) for workers in (0, 1, 2))
    names = {0: "plain", 1: "one_worker", 2: "two_workers"}
    return {"overhead_of_one": one / plain - 1, "gain_of_two": one / two, **{names[key]: row for key, row in rows.items()}}


def main() -> None:
    """Measure the verbs, and write the results."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(timed(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbs", default="train,predict")
    parser.add_argument("--documents", type=int, default=60_000)
    parser.add_argument("--labels", type=int, default=30_000)
    parser.add_argument("--repeated", type=int, default=8, help="times that the documents are labelled")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="folder of the documents, kept for the next call")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = told.folder or Path(temporary)
        if not (folder / "run").exists():
            make(folder, told.documents, told.labels, told.repeated)
        rows = {verb: compared(verb, folder, told.repeats) for verb in told.verbs.split(",") if verb}
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    sizes = {"documents": told.documents, "labels": told.labels, "repeated": told.repeated}
    about = {
        "command": "python benchmarks/cluster.py",
        "machine": machine(),
        "note": "light processes of others ran at the same time",
    }
    RESULTS.write_text(json.dumps({**known, **about, **{k: {**sizes, **v} for k, v in rows.items()}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
