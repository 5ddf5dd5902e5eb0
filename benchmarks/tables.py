"""Puts the numbers of results/*.json into README.md, between its markers: ``python benchmarks/tables.py``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers.report import put, render

HERE = Path(__file__).parent
QUALITY = ("micro_f1", "macro_f1", "subset_accuracy", "hamming_loss", "p@1")
PAPERS = {  # rows of the papers, beside ours: micro-F1, macro-F1, subset accuracy, Hamming loss, P@1
    "reuters": [("paper: BERT", ".899 | .534 | .857 | | ")],
    "aapd": [
        ("paper (all of AAPD's training documents): BERT", ".734 | .572 | | .0224 | "),
        ("paper: LSAN", ".706 | .535 | | .0242 | "),
        ("paper: LEAM", ".670 | .456 | | .0261 | "),
        ("paper: CNN", ".664 | | | .0256 | "),
    ],
}


def _row(*cells: Any) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _plain(value: float) -> str:
    return f"{value:.4f}".lstrip("0")


def baselines(found: dict[str, Any]) -> str:
    """One row for every corpus and model."""
    head = ["corpus", "model", *(key.replace("_", " ") for key in QUALITY), "train s", "docs/s", "MB"]
    lines = [_row(*head), _row(*["---"] * len(head))]
    for row in found["rows"]:
        speed = (f"{row['train_seconds']:.1f}", f"{row['documents_per_second']:,.0f}", f"{row['megabytes']:.1f}")
        lines.append(_row(row["corpus"], row["model"], *(_plain(row[key]) for key in QUALITY), *speed))
    return "\n".join(lines)


def neural(found: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds, one table a corpus."""
    parts = []
    for corpus in dict.fromkeys(row["corpus"] for row in found["rows"]):
        head = [corpus, "seeds", *(key.replace("_", " ") for key in QUALITY)]
        parts += ["", _row(*head), _row(*["---"] * len(head))]
        rows = [row for row in found["rows"] if row["corpus"] == corpus]
        for row in sorted(rows, key=lambda row: -row["test_mean_and_deviation"]["micro_f1"][0]):
            cells = []
            for key in QUALITY:
                mean, spread = row["test_mean_and_deviation"][key]
                cells.append(_plain(mean) + (f" ± {_plain(spread)}" if len(row["seeds"]) > 1 else ""))
            parts.append(_row(row["model"], len(row["seeds"]), *cells))
        parts += [f"| *{name}* | | {cells} |" for name, cells in PAPERS.get(corpus, [])]
    return "\n".join(parts)


def training_speed(found: dict[str, Any]) -> str:
    """Documents a second of every loop."""
    lines = [_row("loop", "documents/s", "times the Trainer", "share of the chip's peak"), _row(*["---"] * 4)]
    for name, row in found["rows"].items():
        share = f"{100 * row['share_of_peak']:.1f} %" if "share_of_peak" in row else ""
        lines.append(_row(name, f"{row['documents_per_second']:,.0f}", f"{found['times_the_trainer'][name]:.1f}", share))
    return "\n".join(lines)


SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "baselines": baselines,
    "neural": neural,
    "training_speed": training_speed,
}


def main() -> None:
    """Write every section whose results are there."""
    readme = HERE / "README.md"
    render(readme, HERE / "results")
    for name, table in SECTIONS.items():
        results = HERE / "results" / f"{name}.json"
        if results.exists():
            put(readme, name, table(json.loads(results.read_text())))


if __name__ == "__main__":
    main()
