"""The papers' studies of label sequences, one command each: it trains what is missing, and writes numbers and a picture.

    python benchmarks/sequences.py ablations|lambda|alpha|beams|convergence [--data DIR] [--parallel N] [--train]

``ablations`` (SGM, table 3), ``alpha`` (BERT paper, figure 4) and ``beams`` (BERT paper, 4.3) are on reuters, ``lambda`` (SGM,
figure 2) on aapd-even, ``convergence`` (BERT paper, figure 3) on both. Numbers are rows of results/*.json, which ``--train``
makes anew with the jobs in jobs/; pictures go to results/pictures/. Without ``--train`` only the picture is drawn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

HERE = Path(__file__).parent
RESULTS, PICTURES = HERE / "results", HERE / "results" / "pictures"
Rows = dict[str, dict[str, Any]]
_DOCUMENTS = {"reuters": 6_993, "aapd-even": 38_544}  # for training


def ablations(rows: Rows, axes: Axes) -> None:
    """Micro-F1 on test of SGM as it is, with the global embedding, and without mask or sorting."""
    names = ["reuters sgm, global embedding", "reuters sgm", "reuters sgm, no mask", "reuters sgm, no sorting"]
    found = [(name.removeprefix("reuters "), rows[name]["test_mean_and_deviation"]["micro_f1"]) for name in names]
    axes.barh([name for name, _ in found], [value[0] for _, value in found], xerr=[value[1] for _, value in found])
    axes.invert_yaxis()
    axes.set_xlim(min(value[0] for _, value in found) - 0.05, max(value[0] for _, value in found) + 0.02)
    axes.set_xlabel("micro-F1 on reuters test, mean and deviation over seeds")


def sweep(rows: Rows, axes: Axes, metric: str) -> None:
    """A metric of the decoded sets by the fixed share of the mean embedding; without a share, and with the adaptive gate."""
    shares = {row["options"]["proportion"]: row for name, row in rows.items() if name.startswith("aapd-even sgm, lambda ")}
    shares[0] = rows["aapd-even sgm"]  # no global embedding
    for part, style, colour in (("valid", "o-", "tab:blue"), ("test", "s--", "tab:orange")):
        found = sorted((share, row[f"{part}_by_rule"]["decoded"][metric]) for share, row in shares.items())
        axes.errorbar(
            [share for share, _ in found], [mean for _, (mean, _) in found], [spread for _, (_, spread) in found],
            fmt=style, color=colour, capsize=3, label=f"fixed share, {part}",
        )  # fmt: skip
        gate = rows["aapd-even sgm+ge"][f"{part}_by_rule"]["decoded"][metric][0]
        axes.axhline(gate, linestyle=":", color=colour, label=f"adaptive gate, {part}")
    axes.set_xlabel("lambda: share of the mean embedding")
    axes.set_ylabel(f"{metric.replace('_', ' ')}, decoded sets of aapd-even")
    axes.legend(fontsize=8)


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


def within_epochs(rows: Rows, corpus: str) -> dict[str, list[tuple[float, float]]]:
    """Epochs trained and micro-F1 on validation, mean over seeds, by model."""
    found = {}
    for name, row in rows.items():
        if name.startswith(f"{corpus} ") and name.endswith("evaluations per epoch"):
            curves, steps = row["by_epoch"], -(-_DOCUMENTS[corpus] // row["options"].get("batch_size", 32))
            means = [sum(curve[at]["micro_f1"] for curve in curves) / len(curves) for at in range(len(curves[0]))]
            model = name.removeprefix(f"{corpus} ").partition(",")[0]
            found[model] = [(point["step"] / steps, mean) for point, mean in zip(curves[0], means, strict=True)]
    return found


def convergence(rows: Rows, axes: Axes, corpus: str) -> None:
    """Micro-F1 several times per epoch; its values after half an epoch and at the end are written next to the rows."""
    found = within_epochs(rows, corpus)
    for model, curve in found.items():
        axes.plot([epoch for epoch, _ in curve], [value for _, value in curve], ".-", label=model)
    axes.axvline(0.5, linestyle=":", color="grey", label="half an epoch")
    axes.set_xlabel("epochs")
    axes.set_ylabel(f"micro-F1 on validation of {corpus}")
    axes.legend()
    path = RESULTS / "convergence.json"
    kept = json.loads(path.read_text())
    halves = {model: min(curve, key=lambda point: abs(point[0] - 0.5))[1] for model, curve in found.items()}
    ends = {model: curve[-1][1] for model, curve in found.items()}
    kept.setdefault("micro_f1", {})[corpus] = {m: [round(halves[m], 4), round(ends[m], 4)] for m in found}
    path.write_text(json.dumps(kept, indent=1) + "\n")


class Study(NamedTuple):
    """Panels, each drawn into its axes, and the jobs: file, start of their names, and the results that have them."""

    panels: list[Callable[[Rows, Axes], None]]
    jobs: list[tuple[str, str, str]]


STUDIES = {
    "ablations": Study(
        [ablations],
        [("sequences-baselines", "reuters sgm", "sequences"), ("sequences-studies", "reuters sgm, no", "sequences")],
    ),
    "lambda": Study(
        [partial(sweep, metric="micro_f1"), partial(sweep, metric="hamming_loss")],
        [("aapd-even", "aapd-even sgm", "aapd-even"), ("sgm-studies", "aapd-even sgm, lambda", "sgm-studies")],
    ),
    "alpha": Study(
        [alpha],
        [
            ("sequences", "reuters", "sequences"),
            ("sequences", "aapd", "sequences"),
            ("sequences-mixed", "reuters mixed", "sequences"),
            ("sequences-mixed", "aapd mixed", "sequences"),
        ],
    ),
    "beams": Study([beams], [("sequences-studies", "reuters bert-sgm, beams", "sequences")]),
    "convergence": Study(
        [partial(convergence, corpus="reuters"), partial(convergence, corpus="aapd-even")], [("convergence", "", "convergence")]
    ),
}


def train(study: Study, told: argparse.Namespace) -> None:
    """Run the jobs of a study, file by file, and collect what they give."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        for number, (file, prefix, into) in enumerate(study.jobs):
            jobs = json.loads((HERE / "jobs" / f"{file}.json").read_text())
            (place / "jobs.json").write_text(json.dumps([job for job in jobs if job["name"].startswith(prefix)]))
            out = place / f"{number}.json"
            command = [sys.executable, str(HERE / "neural.py"), "--data", str(told.data), "--jobs", str(place / "jobs.json")]
            subprocess.run(
                [*command, "--runs", str(place / "runs"), "--parallel", str(told.parallel), "--test", "--out", str(out)]
            )
            collected = [str(HERE / "collect.py"), str(out), "--into", str(RESULTS / f"{into}.json")]
            subprocess.run([sys.executable, *collected], check=True)


def main() -> None:
    """Train if asked to, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--train", action="store_true")
    told = parser.parse_args()
    study = STUDIES[told.study]
    if told.train:
        train(study, told)
    files = dict.fromkeys(into for _, _, into in study.jobs)
    rows = {row["name"]: row for file in files for row in json.loads((RESULTS / f"{file}.json").read_text())["rows"]}
    figure = Figure(figsize=(7 if len(study.panels) == 1 else 11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    for panel, axes in zip(study.panels, figure.subplots(1, len(study.panels), squeeze=False)[0], strict=True):
        panel(rows, axes)
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / f"sequences-{told.study}.png", dpi=110)


if __name__ == "__main__":
    main()
