"""``polytag auto`` on half a million documents, with few labels and with half a million: time kept, memory, what it chose.

    python benchmarks/auto_scale.py [--documents 500000] [--labels 100,500000] [--minutes 2,10] [--folder FOLDER]

The corpora are synthetic (``polytag data make``). Seconds are those of the whole command, start, reading and saving included;
memory is the largest sum over the processes of the search. The winner is evaluated on the test documents.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers.report import machine

OUT = Path(__file__).parent / "results" / "auto_scale.json"
SHOWN = ("micro_f1", "p@1", "p@3", "p@5")
POLYTAG = [sys.executable, "-m", "polytag", "-q"]


def resident_gib(process: int) -> float:
    """The memory of a process and of all below it."""
    parents, sizes = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parents[int(stat.parent.name)], sizes[int(stat.parent.name)] = int(fields[1]), int(fields[21])
    below = {process}
    while more := {one for one, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(sizes.get(one, 0) for one in below) * os.sysconf("SC_PAGE_SIZE") / 2**30


def search(corpus: Path, minutes: float, out: Path) -> dict[str, Any]:
    """One search, watched from outside, and the quality of its winner."""
    files = [str(corpus / "train.jsonl"), "--valid", str(corpus / "valid.jsonl"), "--labels", str(corpus / "labels.jsonl")]
    start, peak = time.monotonic(), 0.0
    with subprocess.Popen([*POLYTAG, "auto", *files, "--minutes", f"{minutes:g}", "--out", str(out)]) as running:
        while running.poll() is None:
            peak = max(peak, resident_gib(running.pid))
            time.sleep(0.5)
    seconds = time.monotonic() - start
    if running.returncode:
        raise SystemExit(f"the search in {corpus} ended with exit code {running.returncode}")
    found = json.loads((out / "metrics.json").read_text())["search"]
    command = [*POLYTAG, "evaluate", str(out), str(corpus / "test.jsonl"), "--json"]
    metrics = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    kept = {key: metrics[key] for key in SHOWN if key in metrics}
    tried = [{key: one[key] for key in ("name", "value", "seconds", "documents", "reason")} for one in found["tried"]]
    kept["held_out"] = found["value"]
    return {"seconds": seconds, "peak_gib": peak, **kept, "winner": found["winner"], "weights": found["weights"], "tried": tried}


def main() -> None:
    """Make the corpora, and search in each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=500_000)
    parser.add_argument("--labels", default="100,500000")
    parser.add_argument("--minutes", default="2,10")
    parser.add_argument("--folder", type=Path, help="keep corpora and runs in this folder")
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args()
    command = f"python benchmarks/auto_scale.py --documents {told.documents} --labels {told.labels} --minutes {told.minutes}"
    with tempfile.TemporaryDirectory() as temporary:
        folder = told.folder or Path(temporary)
        result: dict[str, Any] = {"command": command, "machine": machine(), "rows": []}
        for labels in map(int, told.labels.split(",")):
            corpus = folder / f"labels-{labels}"
            if not (corpus / "labels.jsonl").exists():
                sizes = ["--documents", str(told.documents), "--labels", str(labels)]
                subprocess.run([*POLYTAG, "data", "make", *sizes, "--out", str(corpus)], check=True)
            for minutes in map(float, told.minutes.split(",")):
                row = {"documents": told.documents, "labels": labels, "minutes": minutes}
                row |= search(corpus, minutes, folder / f"run-{labels}-{minutes:g}")
                result["rows"].append(row)
                print(json.dumps(row)[:400], flush=True)
                told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
