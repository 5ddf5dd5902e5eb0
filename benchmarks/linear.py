"""Flat linear models on one tf-idf matrix: polytag against scikit-learn, LibMultiLabel and PECOS, with trees beside."""

from __future__ import annotations

import argparse
import re
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
from peers.running import add_data_argument, run_worker, save

HERE = Path(__file__).resolve().parent


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
        report = report_of(row, problem, Path(folder), options)
        if "error" in report:
            return {**about, **report}
        for decision in ("own", "tuned"):
            with np.load(Path(folder) / f"{decision}.npz", allow_pickle=False) as sets:
                predicted = label_sets(sets["indices"], sets["indptr"], task.label_numbers, task.truth.shape[1])
            report[decision] = {key: round(value, 5) for key, value in evaluate(task.truth, predicted).items()}
    return {**about, **report}


def report_of(row: Row, problem: Path, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The worker's own report: times, threshold, versions."""
    worker = [f"peers.{row.peer}_worker", "--variant", row.variant, "--problem", str(problem)]
    worker += ["--repeat", str(1 if row.slow else options.repeat)]
    return run_worker(python_of(row.environment or row.peer, HERE.parent / ".venvs"), worker, out, options.threads, fresh=True)


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
    add_data_argument(parser)
    parser.add_argument("--corpora", default="reuters,debtags")
    parser.add_argument("--peers", default=ALL_PEERS)
    parser.add_argument("--rows", default="", help="only rows whose name matches this regular expression")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slow", action="store_true", help="also the methods that cross-validate inside, once each")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "linear.json")
    parser.add_argument("--render", action="store_true", help="only put the tables of the results into the book")
    return parser.parse_args()


def main() -> None:
    """Measure, write the results, print the tables and put them into the book."""
    options, console = arguments(), Console()
    if not options.render:
        results = benchmark(options, console)
        tables = markdown(results)
        console.print(Markdown(tables) if console.is_terminal else tables, soft_wrap=True)
    render(HERE / "book", HERE / "results")


if __name__ == "__main__":
    main()
