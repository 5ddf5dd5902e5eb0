"""The memory of models over very many labels: peaks of training and of prediction, and the size of the artefact.

    python benchmarks/extreme_memory.py --data DIR --jobs benchmarks/jobs/extreme-labels.json --minutes 2 [--only PATTERN]

Every job of the file is trained once, in a process of its own, and predicts in another one. Memory does not depend on how long a
network is trained, so ``--minutes`` ends that early; nothing is evaluated. A mixture names runs by their seeds: the run of one
seed stands for those of the others, as a copy, since members do not share memory. ``gpu_gib`` is the peak of torch where there is
a GPU, and ``gpu_announced_gib`` what a training announces beforehand.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from neural import filled, run_folder
from peers.report import machine
from peers.worker import peak_mb

OUT = Path(__file__).parent / "results" / "extreme_memory.json"
SEED = 1  # the first of the jobs
TOP = 5  # labels per document
GIB = 2**30


def train(told: argparse.Namespace, job: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: train, save, and say how much memory that took."""
    from polytag import Classifier, Corpus, LabelSet

    folder = told.data / job["corpus"]
    labels = LabelSet.read(next(folder.glob("labels.jsonl*")))
    documents, held = (Corpus.read(folder / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid"))
    options = filled(job["options"], argparse.Namespace(runs=told.runs, seed=SEED))
    limit = {} if job["model"] == "mixed" else {"minutes": told.minutes}
    classifier = Classifier(job["model"], {**options, **limit, "seed": SEED}).fit(documents, held)
    classifier.save(run_folder(told.runs, job, SEED))
    return {"training_gib": (peak_mb() or 0) / 1024, **_gpu(classifier, job)}


def _gpu(classifier: Any, job: dict[str, Any]) -> dict[str, float]:
    """The memory of a GPU: what was used, if there is one, and what a network needs by the rule that announces it."""
    import torch

    from polytag.nn.gpu.memory_plan import needed

    found = {"gpu_gib": torch.cuda.max_memory_allocated() / GIB} if torch.cuda.is_available() else {}
    if job["model"] == "mixed":
        return found
    tokens = job["options"]["batch_size"] * job["options"]["max_length"]
    return {**found, "gpu_announced_gib": needed(classifier.model.matcher.network, tokens) / GIB}


def predict(told: argparse.Namespace, job: dict[str, Any]) -> dict[str, Any]:
    """In another process: load and label the test texts."""
    from polytag import Classifier, Corpus

    texts = Corpus.read(told.data / job["corpus"] / "test.jsonl.xz").texts
    run = run_folder(told.runs, job, SEED)
    classifier = Classifier.load(run)
    loaded = peak_mb() or 0
    start = time.perf_counter()
    classifier.scores(texts, TOP)
    seconds = time.perf_counter() - start
    size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    found = {"loaded_gib": loaded / 1024, "prediction_gib": (peak_mb() or 0) / 1024, "artefact_gib": size / GIB}
    return {**found, "documents_per_second": len(texts) / seconds}


def copies(runs: Path, jobs: list[dict[str, Any]], job: dict[str, Any]) -> None:
    """The runs of other seeds that a mixture names, as copies of the trained one."""
    for name, seed in (needs for needs in job.get("needs", []) if not isinstance(needs, str)):
        other = next(one for one in jobs if one["name"] == name)
        place = run_folder(runs, other, seed)
        if not place.exists():
            shutil.copytree(run_folder(runs, other, SEED), place)


def main() -> None:
    """Train and predict with every job, and write a row after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--jobs", type=Path, default=Path(__file__).parent / "jobs" / "extreme-labels.json")
    parser.add_argument("--only", default="", help="jobs in whose name this pattern is found")
    parser.add_argument("--minutes", type=float, default=2, help="of each network's training")
    parser.add_argument("--runs", type=Path, help="keep the trained classifiers in this folder")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.one:
        measured = {"train": train, "predict": predict}[told.one[0]]
        print(json.dumps(measured(told, json.loads(told.one[1]))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        told.runs = told.runs or Path(temporary)
        jobs = json.loads(told.jobs.read_text())
        command = f"python benchmarks/extreme_memory.py --data DIR --jobs benchmarks/jobs/{told.jobs.name}"
        result: dict[str, Any] = {"command": command, "machine": machine(), "rows": []}
        for job in (one for one in jobs if re.search(told.only, one["name"])):
            copies(told.runs, jobs, job)
            row: dict[str, Any] = {"name": job["name"]}
            for step in ("train", "predict"):
                call = [sys.executable, __file__, "--data", str(told.data), "--runs", str(told.runs)]
                call += ["--minutes", str(told.minutes), "--one", step, json.dumps(job)]
                row |= json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout)
            result["rows"].append(row)
            print(json.dumps(row), flush=True)
            told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
