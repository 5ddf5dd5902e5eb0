"""From results to tables: the machine in words, Markdown, and the tables between markers in the README."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path
from statistics import median
from typing import Any

HEAD = (
    "| method | train s (CPU s) | own decision: micro / macro / subset | docs/s "
    "| one threshold tuned: micro / macro / subset | docs/s | tune s | peak MB |\n"
    "|---|---:|---|---:|---|---:|---:|---:|"
)


def machine() -> dict[str, Any]:
    """What a reader must know to judge the times, without naming the machine."""
    return {
        "cpu": _first(r"model name\s*:\s*(.+)", "/proc/cpuinfo") or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(_first(r"MemTotal:\s*(\d+)", "/proc/meminfo") or 0) / 2**20, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _first(pattern: str, path: str) -> str | None:
    if not Path(path).exists():
        return None
    found = re.search(pattern, Path(path).read_text(encoding="utf-8"))
    return found.group(1).strip() if found else None


def markdown(results: dict[str, Any]) -> str:
    """All tables of one result file."""
    m = results["machine"]
    parts = [
        f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, {m['system']}, Python {m['python']}; load average before "
        f"the run {m['load_before']}; {results['threads']} threads, median of {results['repeat']}. "
        f"Made by `{results['command']}`."
    ]
    for name, about in results["corpora"].items():
        rows = [row for row in results["rows"] if row["corpus"] == name]
        sizes = (
            f"{about['train_documents']:,} documents to train on, {about['test_documents']:,} to predict, "
            f"{about['labels_in_train']} labels, {about['words']:,} words"
        )
        parts.append(f"### {name}: {sizes}\n\n{table(rows, about['test_documents'])}")
        parts += verdict(rows)
    versions = {f"{k} {v}" for row in results["rows"] for k, v in row.get("packages", {}).items() if k not in ("numpy", "scipy")}
    parts.append("Versions: " + ", ".join(sorted(versions)) + ".")
    return "\n\n".join(parts)


def table(rows: list[dict[str, Any]], n_test: int) -> str:
    """One corpus: flat methods first, then trees, each by training time."""
    lines = [HEAD]
    for kind in ("flat", "tree"):
        chosen = [row for row in rows if row["kind"] == kind]
        done = sorted((row for row in chosen if "error" not in row), key=lambda row: median(row["train_s"]))
        lines += [line(row, n_test) for row in done]
        lines += [f"| {row['name']} | failed: {row['error']} |||||||" for row in chosen if "error" in row]
        if kind == "flat":
            lines.append("| *trees* ||||||||")
    return "\n".join(lines)


def line(row: dict[str, Any], n_test: int) -> str:
    """One method."""
    train = f"{median(row['train_s']):.2f} ({median(row['train_cpu_s']):.2f})"
    cells = [f"**{row['name']}**" if row["peer"] == "polytag" else row["name"], train]
    for decision, times in (("own", "predict_s"), ("tuned", "predict_tuned_s")):
        figures = row[decision]
        cells.append(" / ".join(f"{figures[key]:.3f}".lstrip("0") for key in ("micro_f1", "macro_f1", "subset_accuracy")))
        cells.append(f"{n_test / median(row[times]):,.0f}")
    return "| " + " | ".join([*cells, f"{sum(row['tune_s']):.1f}", str(row["peak_mb"])]) + " |"


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Polytag's first row against the best that any flat peer does in each respect, in one sentence each."""
    done = [row for row in rows if row["kind"] == "flat" and "error" not in row]
    ours, peers = [r for r in done if r["peer"] == "polytag"], [r for r in done if r["peer"] != "polytag"]
    if not ours or not peers:
        return []
    us = ours[0]
    train = min(peers, key=lambda r: median(r["train_s"]))
    predict = min(peers, key=lambda r: min(median(r["predict_s"]), median(r["predict_tuned_s"])))
    quality = max(peers, key=lambda r: max(r["own"]["micro_f1"], r["tuned"]["micro_f1"]))
    best = [max(r["own"]["micro_f1"], r["tuned"]["micro_f1"]) for r in (us, quality)]
    fast = [min(median(r["predict_s"]), median(r["predict_tuned_s"])) * 1000 for r in (us, predict)]
    return [
        f"Training: polytag {median(us['train_s']):.2f} s, fastest flat peer {median(train['train_s']):.2f} s ({train['name']}). "
        f"Prediction: {fast[0]:.1f} ms, fastest flat peer {fast[1]:.1f} ms ({predict['name']}). "
        f"Micro-F1: {best[0]:.4f}, best flat peer {best[1]:.4f} ({quality['name']}). "
        f"Numba's compilation, once per installation and not in the times: {sum(us['compile_s']):.1f} s."
    ]


def render(readme: Path, results_folder: Path) -> None:
    """Put the tables of the linear benchmark between its markers in the README."""
    path = results_folder / "linear.json"
    if path.exists():
        put(readme, "linear", markdown(json.loads(path.read_text(encoding="utf-8"))))


def put(readme: Path, name: str, content: str) -> None:
    """Replace what stands between the markers of a section."""
    text = readme.read_text(encoding="utf-8")
    start, end = f"<!-- results:{name} -->", f"<!-- end:{name} -->"
    if start in text and end in text:
        before, rest = text.split(start, 1)
        readme.write_text(f"{before}{start}\n{content.strip()}\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")
