"""Extreme label sets on one tf-idf matrix: polytag's xlinear against PECOS, omikuji, napkinXC and fastText.

    python benchmarks/extreme.py [--split valid|test] [--repeat 3] [--peers polytag,pecos,...] [--rows REGEX]

``--split valid`` (the default, while developing) ranks the validation documents after training on the training documents alone;
``--split test`` trains on both and ranks the test documents. fastText gets the same words, not the matrix.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from scipy.sparse import csr_array

from peers.environments import python_of
from peers.features import WORD, Problem, Task, build, read_split, save_problem
from peers.report import machine
from peers.running import add_data_argument, run_worker, save

HERE = Path(__file__).resolve().parent
KS = (1, 3, 5)
MARGIN = 0.003  # how much lower a precision may be and still count as not below


@dataclass(frozen=True)
class Row:
    """One line of the table: a peer, and the variant it is asked for."""

    name: str
    peer: str
    variant: str


ROWS = [
    Row("polytag xlinear", "polytag", "1"),
    Row("polytag xlinear, 3 trees", "polytag", "3"),
    Row("PECOS XR-Linear", "pecos", "tree"),
    Row("PECOS XR-Linear, C = 0.5 as ours", "pecos", "tree:0.5"),
    Row("omikuji Parabel (3 trees)", "omikuji", "parabel"),
    Row("omikuji Bonsai (3 trees)", "omikuji", "bonsai"),
    Row("napkinXC PLT", "napkinxc", "plt"),
    Row("fastText, hierarchical softmax", "fasttext", "50:0.04:100"),
]
OURS = "polytag xlinear"


def of_split(task: Task, split: str) -> Task:
    """The task as it is (test), or with the validation documents to be predicted from the training documents alone."""
    if split == "test":
        return task
    p = task.problem
    known = np.unique(p.y[: p.n_train].indices)
    problem = Problem(p.x[: p.n_train], csr_array(p.y[: p.n_train][:, known]), p.x[p.n_train :], p.n_train)
    return replace(task, problem=problem, truth=csr_array(p.y[p.n_train :]), label_numbers=known)


def hits(truth: csr_array, labels: np.ndarray) -> np.ndarray:
    """Which of each document's ranked labels are true."""
    keys = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr)) * truth.shape[1] + truth.indices
    asked = np.arange(len(labels), dtype=np.int64)[:, None] * truth.shape[1] + labels
    return np.isin(asked, keys) & (labels >= 0)


def precisions(truth: csr_array, hit: np.ndarray) -> dict[str, float]:
    """P@k and R@k."""
    true = np.maximum(np.diff(truth.indptr), 1)
    found = {f"p@{k}": float(hit[:, :k].mean()) for k in KS}
    return found | {f"r@{k}": float((hit[:, :k].sum(axis=1) / true).mean()) for k in KS}


def words_of(folder: Path, split: str) -> dict[str, list[str]]:
    """The words that tf-idf counts, of the documents to train on and of those to be ranked."""
    names = {"valid": (["train"], ["valid"]), "test": (["train", "valid"], ["test"])}[split]
    texts = [[text for name in part for text in read_split(folder / f"{name}.jsonl.xz")[0]] for part in names]
    train, test = ([" ".join(WORD.findall(text.lower())) for text in part] for part in texts)
    return {"train": train, "test": test}


def hit_difference(ours: np.ndarray, theirs: np.ndarray, k: int) -> np.ndarray:
    """Document by document, how much higher our P@k is."""
    return np.asarray(ours[:, :k].mean(axis=1) - theirs[:, :k].mean(axis=1))


def worst_difference(ours: np.ndarray, theirs: np.ndarray, k: int, draws: int = 2000) -> float:
    """The 5% quantile of the difference in P@k over resampled documents (paired bootstrap)."""
    difference = hit_difference(ours, theirs, k)
    generator = np.random.default_rng(0)
    means = [difference[generator.integers(0, len(difference), len(difference))].mean() for _ in range(draws)]
    return float(np.quantile(means, 0.05))


def report_of(row: Row, problem: Path, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One method in its own process and environment: its report; the labels lie in the folder."""
    worker = ["peers.ranking", "--peer", row.peer, "--variant", row.variant, "--problem", str(problem)]
    worker += ["--repeat", str(options.repeat)]
    return run_worker(python_of(row.peer, HERE.parent / ".venvs"), worker, out, options.threads)


def benchmark(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Every chosen row on every corpus, and how xlinear stands against PECOS."""
    results: dict[str, Any] = {"machine": machine(), "threads": options.threads, "repeat": options.repeat, "split": options.split}
    results |= {"corpora": {}, "rows": [], "against": []}
    rows = [row for row in ROWS if row.peer in options.peers.split(",") and re.search(options.rows, row.name)]
    for corpus in options.corpora.split(","):
        task = of_split(build(options.data / corpus), options.split)
        results["corpora"][corpus] = task.describe()
        found: dict[str, np.ndarray] = {}
        with tempfile.TemporaryDirectory() as folder:
            problem = Path(folder) / "problem.npz"
            save_problem(task.problem, problem)
            words = words_of(options.data / corpus, options.split)
            (Path(folder) / "words.json").write_text(json.dumps(words), encoding="utf-8")
            for row in rows:
                console.print(f"{corpus}: {row.name}")
                about = {"corpus": corpus, "name": row.name, "peer": row.peer}
                report = report_of(row, problem, Path(folder), options)
                if "error" not in report:
                    labels = np.load(Path(folder) / "labels.npy")
                    labels = np.where(labels >= 0, task.label_numbers[labels], -1)
                    found[row.name] = hits(task.truth, labels)
                    report |= precisions(task.truth, found[row.name])
                results["rows"].append({**about, **report})
                save(results, options.out)
        results["against"] += compared(corpus, found, results["rows"])
        save(results, options.out)
    return results


def compared(corpus: str, found: dict[str, np.ndarray], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each polytag row against each of PECOS's: the difference in every P@k and its lower end, and what it costs."""
    measured = {row["name"]: row for row in rows if row["corpus"] == corpus}
    lines = []
    for name, peer in itertools.product(found, found):
        if not name.startswith(OURS) or measured[peer]["peer"] != "pecos":
            continue
        mean = {f"p@{k}": float(hit_difference(found[name], found[peer], k).mean()) for k in KS}
        low = {f"p@{k}": worst_difference(found[name], found[peer], k) for k in KS}
        costs = {
            "train_s": median(measured[name]["train_s"]) / median(measured[peer]["train_s"]),
            "docs_per_s": median(measured[peer]["predict_s"]) / median(measured[name]["predict_s"]),
            "peak_mb": measured[name]["peak_mb"] / measured[peer]["peak_mb"],
        }
        line = {"corpus": corpus, "name": name, "peer": peer, "mean": mean, "low": low}
        lines.append({**line, "not_below": all(v >= -MARGIN for v in low.values()), "times_theirs": costs})
    return lines


def table(results: dict[str, Any], corpus: str) -> str:
    """The rows of one corpus as Markdown."""
    n = results["corpora"][corpus]["test_documents"]
    lines = ["| method | train s (CPU s) | P@1 / 3 / 5 | R@1 / 3 / 5 | docs/s | peak MB |", "|---|---:|---|---|---:|---:|"]
    for row in results["rows"]:
        if row["corpus"] != corpus:
            continue
        if "error" in row:
            lines.append(f"| {row['name']} | failed: {row['error']} |||||")
            continue
        p, r = (" / ".join(f"{row[f'{kind}@{k}']:.4f}".lstrip("0") for k in KS) for kind in "pr")
        seconds = f"{median(row['train_s']):.2f} ({median(row['train_cpu_s']):.2f})"
        lines.append(f"| {row['name']} | {seconds} | {p} | {r} | {n / median(row['predict_s']):,.0f} | {row['peak_mb']} |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_argument(parser)
    parser.add_argument("--corpora", default="debdeps")
    parser.add_argument("--split", default="valid", choices=("test", "valid"), help="valid while developing")
    parser.add_argument("--peers", default=",".join(dict.fromkeys(row.peer for row in ROWS)))
    parser.add_argument("--rows", default="", help="only rows whose name matches this regular expression")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="[default: results/extreme.json for test, results/extreme-valid.json for valid]")
    options = parser.parse_args()
    options.out = options.out or HERE / "results" / f"extreme{'' if options.split == 'test' else '-valid'}.json"
    return options


def markdown(results: dict[str, Any]) -> str:
    """The tables, and how our rows stand against PECOS's."""
    parts = [f"{corpus}\n\n{table(results, corpus)}" for corpus in results["corpora"]]
    for line in results["against"]:
        low = ", ".join(f"{k} {line['mean'][k]:+.4f} (lower bound {v:+.4f})" for k, v in line["low"].items())
        times = ", ".join(f"{what} {value:.2f}" for what, value in line["times_theirs"].items())
        verdict = "not worse" if line["not_below"] else "worse"
        parts.append(f"{line['name']} against {line['peer']}: {low}: {verdict}; ratio to the baseline: {times}.")
    return "\n\n".join(parts)


def main() -> None:
    """Measure, write the results and print the tables."""
    options, console = arguments(), Console()
    console.print(markdown(benchmark(options, console)), soft_wrap=True)


if __name__ == "__main__":
    main()
