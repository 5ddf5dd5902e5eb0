"""Edits of the labels of a trained ``xlinear`` on debdeps: how long they take, and what they cost a prediction.

    python benchmarks/relabelling.py [--data DIR] [--run RUN] [--repeat 5]

Without ``--run`` the model is trained first. Every time includes loading the old run and saving the new one; ``seconds`` is the
shortest of the repeats. Times of the plain and of the edited classifier alternate, so that other work on the machine slows both.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from peers.report import machine
from peers.running import add_data_argument, save
from polytag.classifier import Classifier
from polytag.corpus import Corpus

OUT = Path(__file__).parent / "results" / "relabelling.json"
EDITS: dict[str, Callable[[Classifier], Classifier]] = {
    "rename one": lambda c: c.rename({c.labels[7]: "renamed"}),
    "rename all": lambda c: c.rename({name: f"new {name}" for name in c.labels}),
    "merge 100 pairs": lambda c: c.merge({f"pair {i}": [c.labels[2 * i], c.labels[2 * i + 1]] for i in range(100)}),
    "drop 1,000": lambda c: c.drop(c.labels.names[:1000]),
    "split 100": lambda c: c.split({c.labels[i]: [f"part {i}", f"other part {i}"] for i in range(100)}),
}


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """The seconds that some work takes, by the clock and of the processor."""
    start, own = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - own


def trained(data: Path, folder: Path) -> None:
    """Train and save the model."""
    train = Corpus.read(data / "debdeps" / "train.jsonl.xz", labels=data / "debdeps" / "labels.jsonl.xz")
    Classifier("xlinear").fit(train).save(folder)


def edited(run: Path, name: str, texts: list[str], repeat: int, folder: Path) -> dict[str, Any]:
    """How long an edit takes, and the share of predictions per second that is left."""
    times = [seconds(lambda: EDITS[name](Classifier.load(run)).save(folder)) for _ in range(repeat)]
    plain, found = Classifier.load(run), Classifier.load(folder)
    pairs = [(seconds(lambda: plain.predict(texts))[0], seconds(lambda: found.predict(texts))[0]) for _ in range(repeat + 1)][1:]
    row: dict[str, Any] = {
        "seconds": round(min(wall for wall, _ in times), 2),
        "median_seconds": round(median(wall for wall, _ in times), 2),
        "processor_seconds": round(median(own for _, own in times), 2),
        "labels": len(found.labels),
        "load_ratio": round(_ratio(run, folder, repeat), 2),
        "prediction_time_ratio": round(median(after / before for before, after in pairs), 2),
    }
    if name.startswith("rename"):
        one, other = plain.scores(texts).matrix, found.scores(texts).matrix
        row["scores_equal"] = all(np.array_equal(getattr(one, p), getattr(other, p)) for p in ("data", "indices", "indptr"))
    return row


def _ratio(one: Path, other: Path, repeat: int) -> float:
    """The time to load one run over that of the other, in turns."""
    times = [(seconds(lambda: Classifier.load(one))[1], seconds(lambda: Classifier.load(other))[1]) for _ in range(repeat)]
    return median(after / before for before, after in times)


def main() -> None:
    """Train unless a run is given, edit, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_argument(parser)
    parser.add_argument("--run", type=Path, help="a run of xlinear on debdeps")
    parser.add_argument("--repeat", type=int, default=5)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = told.run or Path(temporary) / "run"
        if told.run is None:
            trained(told.data, run)
        texts = Corpus.read(told.data / "debdeps" / "test.jsonl.xz").texts[:1000]
        found: dict[str, Any] = {"command": "python benchmarks/relabelling.py", "machine": machine(), "repeat": told.repeat}
        found["trained_labels"], found["edits"] = len(Classifier.load(run).labels), {}
        for name in EDITS:
            found["edits"][name] = edited(run, name, texts, told.repeat, Path(temporary) / "edited")
            save(found, OUT)
            print(name, found["edits"][name], flush=True)


if __name__ == "__main__":
    main()
