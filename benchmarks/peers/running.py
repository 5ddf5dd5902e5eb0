"""Running workers from a benchmark: each in a process of its own, in the environment of its peer."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
THREAD_VARIABLES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA", "RAYON")


def run_worker(python: Path, worker: Sequence[str], out: Path, threads: int, fresh: bool = False) -> dict[str, Any]:
    """What a worker reports, or an ``error``; its other results lie in the folder ``out``.

    ``fresh`` hides what numba compiled before, so that the time of compiling is the time of a first run.
    """
    command = [str(python), "-m", *worker, "--out", str(out), "--threads", str(threads)]
    environment = os.environ | {f"{name}_NUM_THREADS": str(threads) for name in THREAD_VARIABLES}
    environment |= {"POLYTAG_THREADS": str(threads), **({"NUMBA_CACHE_DIR": str(out / "numba")} if fresh else {})}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": last.replace(str(HERE.parent), ".")[:200]}  # the results name no folder of this machine
    report: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return report


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """Let the command line say where the corpora are."""
    default = os.environ.get("POLYTAG_DATA", str(HERE.parent.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=Path(default), help="folder with one folder per corpus (or POLYTAG_DATA)")


def save(results: dict[str, Any], path: Path) -> None:
    """Write what there is so far: a run that is stopped loses only its last row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
