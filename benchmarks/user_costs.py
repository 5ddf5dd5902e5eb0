"""Costs that users meet, before and after: ``python benchmarks/user_costs.py OLD NEW --model RUN [--rounds 5] [--cold]``.

OLD and NEW are checkouts; they take turns, each measurement in a process of its own, and the result is the median. RUN is a
trained ``xlinear`` with many labels. Seconds of the processor stand beside those of the clock: they say more on a machine that
others use too. With ``--cold``, only what an empty cache of compiled code costs is measured, on 777 documents of the sample.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from peers.report import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DOCUMENTS, ROWS = 777, 20_000
READ = "from polytag.corpus import Corpus; Corpus.read({path!r})"
LOAD = "from polytag import Classifier; Classifier.load({run!r})"
Pair = tuple[float, float]


def seconds(command: list[str], checkout: Path, cache: Path) -> Pair:
    """Seconds of the clock and of the processor, with all processes that the command started and waited for."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "NUMBA_CACHE_DIR": str(cache)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def polytag(*arguments: str | Path) -> list[str]:
    """A command of Polytag."""
    return [sys.executable, "-m", "polytag", "-q", *map(str, arguments)]


def sample(checkout: Path, folder: Path) -> list[dict[str, Any]]:
    """The documents of the sample; some of them as files of several formats."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    place = checkout / "src" / "polytag" / "datasets" / "sample" / "train.jsonl.xz"
    lines = lzma.decompress(place.read_bytes()).decode("utf-8").splitlines()
    documents = [json.loads(line) for line in lines]
    (folder / "some.jsonl").write_text("\n".join(lines[:DOCUMENTS]) + "\n", encoding="utf-8")
    (folder / "one.jsonl").write_text(lines[0] + "\n", encoding="utf-8")
    many = [documents[i % len(documents)] for i in range(ROWS)]
    columns = {"id": [str(i) for i in range(ROWS)], "text": [d["text"] for d in many]}
    parquet.write_table(pa.table({**columns, "labels": [d["labels"] for d in many]}), folder / "many.parquet")
    csv.write_csv(pa.table({**columns, "labels": [";".join(d["labels"]) for d in many]}), folder / "many.csv")
    return documents


def costs(folder: Path, model: Path) -> dict[str, list[str]]:
    """What is measured with a filled cache."""
    python = [sys.executable, "-c"]
    return {
        "import polytag": [*python, "import polytag"],
        "polytag --help": polytag("--help"),
        "predict one document, br": polytag("predict", folder / "br", folder / "one.jsonl"),
        "predict one document, xlinear": polytag("predict", folder / "xlinear", folder / "one.jsonl"),
        "Classifier.load, many labels": [*python, LOAD.format(run=str(model))],
        "evaluate 777 documents, br": polytag("evaluate", folder / "br", folder / "some.jsonl"),
        f"read {ROWS:,} documents, CSV": [*python, READ.format(path=str(folder / "many.csv"))],
        f"read {ROWS:,} documents, Parquet": [*python, READ.format(path=str(folder / "many.parquet"))],
    }


def cold(folder: Path, model: str, verb: str) -> list[str]:
    """A verb on 777 documents."""
    if verb == "predict":
        return polytag("predict", folder / model, folder / "some.jsonl")
    shutil.rmtree(folder / "trial", ignore_errors=True)
    return polytag("train", folder / "some.jsonl", "--model", model, "--out", folder / "trial")


def measure(told: argparse.Namespace, folder: Path) -> dict[str, dict[str, list[Pair]]]:
    """Both checkouts in turn: the seconds of every round, by what was measured and by checkout."""
    checkouts = {"old": told.old, "new": told.new}
    caches = {name: folder / f"cache-{name}" for name in checkouts}
    for model in ("br", "xlinear"):
        seconds(polytag("train", folder / "some.jsonl", "--model", model, "--out", folder / model), told.old, caches["old"])
    found: dict[str, dict[str, list[Pair]]] = {}
    names = [f"{verb} {model}" for verb in ("train", "predict") for model in ("br", "xlinear")] if told.cold else []
    for turn in range(-1, told.rounds) if not told.cold else range(told.rounds):
        for name, checkout in checkouts.items():
            for what in names:
                shutil.rmtree(caches[name], ignore_errors=True)
                verb, model = what.split()
                lap = seconds(cold(folder, model, verb), checkout, caches[name])
                found.setdefault(what, {}).setdefault(name, []).append(lap)
            for what, command in ({} if told.cold else costs(folder, told.model)).items():
                lap = seconds(command, checkout, caches[name])
                if turn >= 0:  # the first one fills the cache
                    found.setdefault(what, {}).setdefault(name, []).append(lap)
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sample(told.new, folder)
        found = measure(told, folder)
    rows = {}
    for what, laps in found.items():
        row = {
            f"{name}_{kind}": round(median(lap[at] for lap in laps[name]), 3)
            for name in laps
            for at, kind in enumerate(("s", "cpu_s"))
        }
        row["least_new_s"] = round(min(lap[0] for lap in laps["new"]), 3)
        row["cpu_ratio"] = round(row["old_cpu_s"] / row["new_cpu_s"], 2)
        rows[what] = row
        print(f"{what:36s}", row, flush=True)
    name = "cold_start" if told.cold else "user_costs"
    command = f"python benchmarks/user_costs.py OLD NEW {'--cold' if told.cold else '--model RUN'}"
    whole = {"command": command, "machine": machine(), "rounds": told.rounds, "rows": rows}
    (told.out or RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
