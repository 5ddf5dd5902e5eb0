"""The papers' studies of label sequences, one command each: it trains what is missing, and writes numbers and a picture.

    python benchmarks/sequences.py ablations|lambda|alpha|beams|convergence [--data DIR] [--parallel N] [--train]

``ablations`` (SGM, table 3), ``lambda`` (SGM, figure 2), ``alpha`` (BERT paper, figure 4), ``beams`` (BERT paper, 4.3) and
``convergence`` (BERT paper, figure 3), on reuters. Numbers are rows of results/sequences.json, which ``--train`` makes anew with
the jobs in jobs/; pictures go to results/pictures/. Without ``--train`` only the picture is drawn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

HERE = Path(__file__).parent
RESULTS, PICTURES = HERE / "results" / "sequences.json", HERE / "results" / "pictures"
Rows = dict[str, dict[str, Any]]
_REUTERS = 6993  # training documents


def ablations(rows: Rows, axes: Axes) -> None:
    """Micro-F1 on test of SGM as it is, with the global embedding, and without mask or sorting."""
    names = ["reuters sgm, global embedding", "reuters sgm", "reuters sgm, no mask", "reuters sgm, no sorting"]
    found = [(name.removeprefix("reuters "), rows[name]["test_mean_and_deviation"]["micro_f1"]) for name in names]
    axes.barh([name for name, _ in found], [value[0] for _, value in found], xerr=[value[1] for _, value in found])
    axes.invert_yaxis()
    axes.set_xlim(min(value[0] for _, value in found) - 0.05, max(value[0] for _, value in found) + 0.02)
    axes.set_xlabel("micro-F1 on reuters test, mean and deviation over seeds")


def sweep(rows: Rows, axes: Axes) -> None:
    """Micro-F1 by the fixed share of the mean embedding, and that of the adaptive gate."""
    shares = sorted((row["options"]["proportion"], row) for name, row in rows.items() if ", lambda " in name)
    for part, style in (("valid", "o-"), ("test", "s--")):
        values = [row[f"{part}_mean_and_deviation"]["micro_f1"][0] for _, row in shares]
        axes.plot([share for share, _ in shares], values, style, label=f"fixed share, {part}")
        gate = rows["reuters sgm, global embedding"][f"{part}_mean_and_deviation"]["micro_f1"][0]
        axes.axhline(gate, linestyle=":", color="grey", label=f"adaptive gate, {part}")
    axes.set_xlabel("lambda: share of the mean embedding")
    axes.set_ylabel("micro-F1 on reuters")
    axes.legend()


def alpha(rows: Rows, axes: Axes) -> None:
    """Micro-F1 on validation by the weight of BERT+SGM in the mixture, one line a seed."""
    for corpus in ("reuters", "aapd"):
        for number, log in enumerate(rows[f"{corpus} mixed"]["mixing"]):
            points = sorted(zip((weights[0] for weights in log["tried"]), log["micro_f1"], strict=True))
            best = max(value for _, value in points)
            label = corpus if number == 0 else None
            colour = "tab:blue" if corpus == "reuters" else "tab:orange"
            axes.plot([a for a, _ in points], [value - best for _, value in points], color=colour, alpha=0.8, label=label)
    axes.set_xlabel("alpha: weight of BERT+SGM")
    axes.set_ylabel("micro-F1 on validation, from the best")
    axes.legend()


def beams(rows: Rows, axes: Axes) -> None:
    """Quality of the decoded sets by the beam."""
    variants = rows["reuters bert-sgm, beams"]["valid_variants"][0]
    sizes = [variant["options"]["beam"] for variant in variants]
    for key in ("micro_f1", "subset_accuracy"):
        axes.plot(sizes, [variant["decoded"][key] for variant in variants], "o-", label=key.replace("_", " "))
    axes.set_xlabel("beam")
    axes.set_ylabel("decoded sets on reuters validation")
    axes.legend()


def within_epochs(rows: Rows, axes: Axes) -> bool:
    """The metric on validation several times per epoch, by epochs trained, mean over seeds; False without such rows."""
    found = {name: row for name, row in rows.items() if name.startswith("reuters") and name.endswith("evaluations per epoch")}
    for name, row in found.items():
        curves, steps = row["by_epoch"], -(-_REUTERS // row["options"].get("batch_size", 32))
        points = [curve[at]["step"] / steps for curve in curves[:1] for at in range(len(curve))]
        values = [sum(curve[at]["micro_f1"] for curve in curves) / len(curves) for at in range(len(points))]
        axes.plot(points, values, "o-", label=name.removeprefix("reuters ").partition(",")[0])
    return bool(found)


def convergence(rows: Rows, axes: Axes) -> None:
    """The metric on validation for BERT and BERT+SGM: within epochs where it was measured, else after every epoch."""
    if within_epochs(rows, axes):
        axes.set_xlabel("epochs")
        axes.set_ylabel("micro-F1 on reuters validation")
        axes.legend()
        return
    for name, style in (("reuters bert", "o-"), ("reuters bert-sgm", "s-")):
        curves = rows[name]["by_epoch"]
        values = [sum(curve[epoch]["micro_f1"] for curve in curves) / len(curves) for epoch in range(len(curves[0]))]
        axes.plot(range(1, len(values) + 1), values, style, label=name.removeprefix("reuters "))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel("micro-F1 on reuters validation")
    axes.legend()


STUDIES: dict[str, tuple[Callable[[Rows, Axes], None], list[tuple[str, str]]]] = {
    "ablations": (ablations, [("baselines", "reuters sgm"), ("studies", "reuters sgm, no")]),
    "lambda": (sweep, [("baselines", "reuters sgm, global embedding"), ("studies", "reuters sgm, lambda")]),
    "alpha": (alpha, [("", "reuters"), ("", "aapd"), ("mixed", "reuters mixed"), ("mixed", "aapd mixed")]),
    "beams": (beams, [("studies", "reuters bert-sgm, beams")]),
    "convergence": (convergence, [("", "reuters bert")]),
}


def train(wanted: list[tuple[str, str]], told: argparse.Namespace) -> None:
    """Run the jobs of a study, file by file, and collect what they give."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        for number, (name, prefix) in enumerate(wanted):
            jobs = json.loads((HERE / "jobs" / f"sequences{'-' * bool(name)}{name}.json").read_text())
            (place / "jobs.json").write_text(json.dumps([job for job in jobs if job["name"].startswith(prefix)]))
            out = place / f"{number}.json"
            command = [sys.executable, str(HERE / "neural.py"), "--data", str(told.data), "--jobs", str(place / "jobs.json")]
            subprocess.run(
                [*command, "--runs", str(place / "runs"), "--parallel", str(told.parallel), "--test", "--out", str(out)]
            )
            subprocess.run([sys.executable, str(HERE / "collect.py"), str(out), "--into", str(RESULTS)], check=True)


def main() -> None:
    """Train if asked to, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--train", action="store_true")
    told = parser.parse_args()
    draw, wanted = STUDIES[told.study]
    if told.train:
        train(wanted, told)
    rows = {row["name"]: row for row in json.loads(RESULTS.read_text())["rows"]}
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    draw(rows, figure.add_subplot())
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / f"sequences-{told.study}.png", dpi=110)


if __name__ == "__main__":
    main()
