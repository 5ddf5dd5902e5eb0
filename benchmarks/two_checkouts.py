"""Compare two checkouts of Polytag in one run: ``python benchmarks/two_checkouts.py OLD NEW [--data DIR] [--rounds 5]``.

The checkouts take turns, each in a process of its own. Every round trains, saves, loads and predicts; the artefact that is loaded
is always the one that OLD saved, so that both load the same bytes. The result is the median over rounds, and new divided by old.
Seconds of processor time stand beside those of the clock: they say more on a machine that others use too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

JOBS: dict[str, tuple[str, str, dict[str, Any], int]] = {  # name: corpus, model, options, training documents (0 = all)
    "br on reuters": ("reuters", "br", {}, 0),
    "br on debtags": ("debtags", "br", {"c": [0.5], "ngrams": [1]}, 0),
    "xlinear on debdeps": ("debdeps", "xlinear", {}, 0),
    "bert on reuters": ("reuters", "bert", {"epochs": 1, "max_length": 64}, 200),
    "embed on debtags": ("debtags", "embed", {"c": [0.5]}, 1_000),
}

NETWORKS = ("bert", "embed")  # trained once, and on a tenth of the texts in inference


def work(name: str, data: Path, saved: Path, train: bool) -> dict[str, float]:
    """Seconds of one job with the polytag on the path: fit (if asked), load, predict; and the peak of memory in MB."""
    import logging

    from polytag import Classifier, Corpus, LabelSet

    logging.disable(logging.WARNING)
    corpus, model, options, most = JOBS[name]
    folder = data / corpus
    labels = LabelSet.read(next(folder.glob("labels.jsonl*")))
    texts = Corpus.read(folder / "test.jsonl.xz", labels=labels).texts[:: 10 if model in NETWORKS else 1]
    found = {}
    if train:
        documents, valid = (Corpus.read(folder / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid"))
        documents = documents.subset(range(most)) if most else documents
        start = _clocks()
        classifier = Classifier(model, options).fit(documents, valid)
        found["fit_s"], found["fit_cpu_s"] = _clocks() - start
        if not saved.exists():
            classifier.save(saved)
    Classifier.load(saved).predict(texts[:50])
    return {**found, **_repeated(saved, texts), "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _clocks() -> NDArray[np.float64]:
    """Seconds of the clock and of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


def _repeated(saved: Path, texts: list[str], times: int = 5) -> dict[str, float]:
    """The shortest of several loads and predictions."""
    from polytag import Classifier

    loads, predictions = [], []
    for _ in range(times):
        start = _clocks()
        classifier = Classifier.load(saved)
        loads.append(_clocks() - start)
        start = _clocks()
        classifier.predict(texts)
        predictions.append(_clocks() - start)
    (load_s, load_cpu_s), (predict_s, predict_cpu_s) = np.min(loads, axis=0), np.min(predictions, axis=0)
    return {"load_s": load_s, "load_cpu_s": load_cpu_s, "predict_s": predict_s, "predict_cpu_s": predict_cpu_s}


def in_process(checkout: Path, name: str, data: Path, saved: Path, train: bool) -> dict[str, float]:
    """``work`` by another process that imports the package of a checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), str(checkout), str(checkout), "--data", str(data)]
    command += ["--job", name, "--saved", str(saved), *(["--train"] if train else [])]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(checkout / "src")}, check=True, capture_output=True, text=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(old: Path, new: Path, data: Path, rounds: int, jobs: list[str]) -> dict[str, Any]:
    """For every job and quantity: the medians of both checkouts and their ratio."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(jobs):
            found: dict[Path, list[dict[str, float]]] = {old: [], new: []}
            for turn in range(rounds):
                train = JOBS[name][1] not in NETWORKS or turn == 0
                for checkout in (old, new) if turn % 2 == 0 else (new, old):
                    found[checkout].append(in_process(checkout, name, data, Path(folder) / str(number), train))
            result[name] = {key: _row(found[old], found[new], key) for key in found[old][0]}
            print(name, json.dumps(result[name]), flush=True)
    return result


def _row(old: list[dict[str, float]], new: list[dict[str, float]], key: str) -> dict[str, float]:
    before, after = (statistics.median([found[key] for found in side if key in found]) for side in (old, new))
    return {"old": round(before, 4), "new": round(after, 4), "new/old": round(after / before, 3)}


def main() -> None:
    """Read the arguments; compare, or be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", nargs="*", default=list(JOBS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--saved", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        print(json.dumps(work(asked.job, asked.data, asked.saved, asked.train)))
        return
    result = {"rounds": asked.rounds, "jobs": compare(asked.old, asked.new, asked.data, asked.rounds, asked.jobs)}
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
