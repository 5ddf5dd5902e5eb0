"""Flat linear models on one tf-idf matrix: polytag against scikit-learn, LibMultiLabel and PECOS, with trees beside."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markdown import Markdown

from peers.environments import python_of
from peers.evaluate import evaluate, label_sets
from peers.features import Task, build, save_problem
from peers.report import machine, markdown, render

HERE = Path(__file__).resolve().parent
THREAD_VARIABLES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA", "RAYON")


@dataclass(frozen=True)
class Row:
    """One line of the table: a peer's worker, the variant it is asked for, and the environment it runs in."""

    name: str
    peer: str
    variant: str
    kind: str = "flat"
    environment: str = ""
    slow: bool = False


ROWS = [
    Row("polytag br, C = 1, no class weights", "polytag", "br-plain"),
    Row("polytag br", "polytag", "br"),
    Row("polytag br, complete", "polytag", "br-complete"),
    Row("scikit-learn OvR LinearSVC", "sklearn", "default"),
    Row("scikit-learn, balanced", "sklearn", "balanced"),
    Row("scikit-learn, tol 0.1", "sklearn", "dual-tol-0.1"),
    Row("scikit-learn, balanced, tol 0.1", "sklearn", "balanced-dual-tol-0.1"),
    Row("LibMultiLabel 1vsrest", "libmultilabel", "1vsrest"),
    Row("LibMultiLabel 1vsrest, `-B 1`", "libmultilabel", "1vsrest-bias"),
    Row("LibMultiLabel thresholding, `-B 1`", "libmultilabel", "thresholding", environment="libmultilabel-scipy113", slow=True),
    Row("LibMultiLabel cost-sensitive micro, `-B 1`", "libmultilabel", "cost-sensitive-micro", slow=True),
    Row("PECOS one-vs-all", "pecos", "flat"),
    Row("napkinXC BR", "napkinxc", "br"),
    Row("PECOS XR-Linear", "pecos", "tree", "tree"),
    Row("omikuji Parabel", "omikuji", "parabel", "tree"),
    Row("LibMultiLabel tree, `-B 1`", "libmultilabel", "tree", "tree"),
    Row("napkinXC PLT", "napkinxc", "plt", "tree"),
]
ALL_PEERS = ",".join(dict.fromkeys(row.peer for row in ROWS))


def measure(row: Row, corpus: str, task: Task, problem: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run one worker in its own process and environment, and evaluate the label sets that it decided on."""
    about = {"corpus": corpus, "name": row.name, "peer": row.peer, "variant": row.variant, "kind": row.kind}
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = run_worker(row, problem, Path(folder), options)
        except RuntimeError as error:
            return {**about, "error": str(error)}
        for decision in ("own", "tuned"):
            with np.load(Path(folder) / f"{decision}.npz", allow_pickle=False) as sets:
                predicted = label_sets(sets["indices"], sets["indptr"], task.label_numbers, task.truth.shape[1])
            report[decision] = {key: round(value, 5) for key, value in evaluate(task.truth, predicted).items()}
    return {**about, **report}


def run_worker(row: Row, problem: Path, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The worker's own report: times, threshold, versions."""
    python = python_of(row.environment or row.peer, HERE.parent / ".venvs")
    repeat = 1 if row.slow else options.repeat
    command = [str(python), "-m", f"peers.{row.peer}_worker", "--variant", row.variant, "--problem", str(problem)]
    command += ["--out", str(out), "--repeat", str(repeat), "--threads", str(options.threads)]
    environment = os.environ | {f"{name}_NUM_THREADS": str(options.threads) for name in THREAD_VARIABLES}
    environment["POLYTAG_THREADS"] = str(options.threads)
    environment["NUMBA_CACHE_DIR"] = str(out / "numba")  # empty, so that the time of compiling is the time of a first run
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(last.replace(str(HERE.parent), ".")[:200])  # the results name no folder of this machine
    report: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return report


def chosen_rows(options: argparse.Namespace) -> list[Row]:
    """The rows of the peers that were asked for; the slow ones only when they were asked for too."""
    asked = [row for row in ROWS if row.peer in options.peers.split(",") and re.search(options.rows, row.name)]
    return [row for row in asked if options.slow or not row.slow]


def benchmark(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Every chosen row on every corpus; one file of arrays per corpus, made once."""
    results: dict[str, Any] = {"command": command_of(options), "machine": machine()}
    results |= {"threads": options.threads, "repeat": options.repeat, "corpora": {}, "rows": []}
    rows = chosen_rows(options)
    for row in rows:
        python_of(row.environment or row.peer, HERE.parent / ".venvs")
    for corpus in options.corpora.split(","):
        task = build(options.data / corpus)
        results["corpora"][corpus] = task.describe()
        with tempfile.TemporaryDirectory() as folder:
            problem = Path(folder) / "problem.npz"
            save_problem(task.problem, problem)
            for row in rows:
                console.print(f"{corpus}: {row.name}")
                results["rows"].append(measure(row, corpus, task, problem, options))
                save(results, options.out)
    return results


def save(results: dict[str, Any], path: Path) -> None:
    """Write what there is so far: a run that is stopped loses only its last row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def command_of(options: argparse.Namespace) -> str:
    """The command that makes these results, without the folder of the data."""
    words = ["python benchmarks/linear.py", "--corpora", options.corpora]
    if options.peers != ALL_PEERS:
        words += ["--peers", options.peers]
    if options.rows:
        words += ["--rows", f"'{options.rows}'"]
    words += ["--repeat", str(options.repeat), "--threads", str(options.threads)]
    return " ".join(words) + (" --slow" if options.slow else "")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("POLYTAG_DATA", str(HERE.parent.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=Path(default), help="folder with one folder per corpus (or POLYTAG_DATA)")
    parser.add_argument("--corpora", default="reuters,debtags")
    parser.add_argument("--peers", default=ALL_PEERS)
    parser.add_argument("--rows", default="", help="only rows whose name matches this regular expression")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slow", action="store_true", help="also the methods that cross-validate inside, once each")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "linear.json")
    parser.add_argument("--render", action="store_true", help="only put the tables of the results into the README")
    return parser.parse_args()


def main() -> None:
    """Measure, write the results, print the tables and put them into the README."""
    options, console = arguments(), Console()
    if not options.render:
        results = benchmark(options, console)
        tables = markdown(results)
        console.print(Markdown(tables) if console.is_terminal else tables, soft_wrap=True)
    render(HERE / "README.md", HERE / "results")


if __name__ == "__main__":
    main()
