"""Train models with given settings and measure them: on validation while settings are chosen, on test once they are frozen.

    python benchmarks/neural.py --data DIR --jobs JOBS.json --parallel 6 --out FILE [--test]

JOBS.json is a list of ``{"name": ..., "corpus": "reuters", "model": "bert", "options": {...}, "seeds": [0, 1, 2]}``. Jobs run
side by side, one process each. Validation numbers are those of the decision fitted there, and cross-fitted (thresholds from the
other four fifths); test numbers come from the same classifier, with nothing chosen on test.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

KEPT = ("micro_f1", "macro_f1", "subset_accuracy", "p@1", "p@3", "p@5", "hamming_loss", "samples_f1", "calibration_error")


def run_one(data: Path, job: dict[str, Any], seed: int, test: bool) -> dict[str, Any]:
    """Train once and measure."""
    from polytag import Classifier, Corpus, LabelSet

    folder = data / job["corpus"]
    labels = LabelSet.read(folder / "labels.jsonl")
    parts = {name: Corpus.read(folder / f"{name}.jsonl.xz", labels=labels) for name in ("train", "valid", "test")[: 2 + test]}
    classifier = Classifier(job["model"], {**job.get("options", {}), "seed": seed})
    start = time.perf_counter()
    classifier.fit(parts["train"], parts["valid"])
    seconds = time.perf_counter() - start
    row: dict[str, Any] = {"seed": seed, "train_seconds": seconds, "decision": classifier.decision.report}
    row["valid"] = {key: value for key, value in classifier.evaluate(parts["valid"]).items() if key in KEPT}
    if test:
        start = time.perf_counter()
        row["test"] = {key: value for key, value in classifier.evaluate(parts["test"]).items() if key in KEPT}
        row["test_seconds"] = time.perf_counter() - start
    return row


def run_job(told: argparse.Namespace, job: dict[str, Any], seed: int) -> dict[str, Any]:
    """One job in a process of its own; what it prints last is its row."""
    command = [sys.executable, __file__, "--data", str(told.data), "--one", json.dumps(job), "--seed", str(seed)]
    done = subprocess.run([*command, *(["--test"] if told.test else [])], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"seed": seed, "error": done.stderr[-2000:]}
    row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def summary(rows: list[dict[str, Any]], part: str) -> dict[str, list[float]]:
    """Mean and standard deviation over seeds."""
    import numpy as np

    found = [row[part] for row in rows if part in row]
    keys = found[0] if found else {}
    return {key: [float(np.mean([r[key] for r in found])), float(np.std([r[key] for r in found]))] for key in keys}


def main() -> None:
    """Run all jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--jobs", type=Path)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--test", action="store_true", help="open the test documents too")
    parser.add_argument("--one", help="a job as JSON, run in this process")
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    if told.one:
        print(json.dumps(run_one(told.data, json.loads(told.one), told.seed, told.test)))
        return
    jobs = json.loads(told.jobs.read_text())
    with ThreadPoolExecutor(told.parallel) as pool:
        pending = [[pool.submit(run_job, told, job, seed) for seed in job.get("seeds", [0])] for job in jobs]
        for job, futures in zip(jobs, pending, strict=True):
            job["rows"] = [future.result() for future in futures]
            job["summary"] = {part: summary(job["rows"], part) for part in ("valid", "test")}
            told.out.write_text(json.dumps(jobs, indent=1) + "\n")
            _print(job)


def _print(job: dict[str, Any]) -> None:
    errors = [row["error"][-300:] for row in job["rows"] if "error" in row]
    crossed = [max(row["decision"].get("cross_fitted", {"": 0}).values()) for row in job["rows"] if "error" not in row]
    seconds = [round(row["train_seconds"]) for row in job["rows"] if "error" not in row]
    for part, found in job["summary"].items():
        if found:
            words = " ".join(f"{key}={found[key][0]:.4f}±{found[key][1]:.4f}" for key in KEPT[:4])
            print(f"{job['name']} {part} {words}", "cross", [round(v, 4) for v in crossed], "s", seconds, flush=True)
    for error in errors:
        print(job["name"], "ERROR", error, flush=True)


if __name__ == "__main__":
    main()
