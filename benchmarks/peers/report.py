"""From results to tables: the machine in words, Markdown, and the tables between markers in the book."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path
from statistics import median
from typing import Any

HEAD = (
    "| method | train s (CPU s) | default decision: micro / macro / subset | docs/s "
    "| one tuned threshold: micro / macro / subset | docs/s | tuning s | peak MB |\n"
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
        f"the run {m['load_before']}; {results['threads']} threads, medians of {results['repeat']}. "
        f"Command: `{results['command']}`."
    ]
    for name, about in results["corpora"].items():
        rows = [row for row in results["rows"] if row["corpus"] == name]
        sizes = (
            f"{about['train_documents']:,} training documents, {about['test_documents']:,} test documents, "
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
    """Polytag against the fastest flat baseline, like with like: with default decisions, and with tuned thresholds."""
    done = {row["variant"] if row["peer"] == "polytag" else row["name"]: row for row in rows if "train_s" in row}
    peers = [row for row in done.values() if row["peer"] != "polytag" and row["kind"] == "flat"]
    if not peers or not {"br", "br-complete"} <= done.keys():
        return []
    plain, complete = done["br"], done["br-complete"]
    fast = min(peers, key=lambda row: median(row["train_s"]))
    whole = min(peers, key=with_tuning)
    return [
        f"Default decision: polytag br {_times(plain, median(plain['train_s']), 'own')}; the fastest flat baseline, "
        f"{fast['name']}, {_times(fast, median(fast['train_s']), 'own')}. Tuned thresholds, tuning time included: polytag "
        f"br, complete, {_times(complete, median(complete['train_s']), 'own')}; {whole['name']} "
        f"{_times(whole, with_tuning(whole), 'tuned')}. Compilation by numba (once per installation, not included): "
        f"{sum(complete['compile_s']):.1f} s."
    ]


def _times(row: dict[str, Any], train: float, decision: str) -> str:
    """Training time, inference time and micro-F1, in words."""
    predict = median(row["predict_s" if decision == "own" else "predict_tuned_s"])
    quality = f"{row[decision]['micro_f1']:.4f}".lstrip("0")
    return f"trains in {train:.2f} s and predicts in {1000 * predict:.0f} ms at a micro-F1 of {quality}"


def with_tuning(row: dict[str, Any]) -> float:
    """Seconds for the final fit and for the threshold, which takes a fit of its own on less data."""
    return float(median(row["train_s"]) + sum(row["tune_s"]))


def render(book: Path, results_folder: Path) -> None:
    """Write the tables of the linear benchmark between their markers in the book."""
    path = results_folder / "linear.json"
    if path.exists():
        put(book, "linear", markdown(json.loads(path.read_text(encoding="utf-8"))))


def put(place: Path, name: str, content: str) -> None:
    """Replace the text between the markers of a section, in a page or wherever it is in a folder of pages."""
    start, end = f"<!-- results:{name} -->", f"<!-- end:{name} -->"
    for page in sorted(place.glob("*.md")) if place.is_dir() else [place]:
        text = page.read_text(encoding="utf-8")
        if start in text and end in text:
            before, rest = text.split(start, 1)
            page.write_text(f"{before}{start}\n{content.strip()}\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")
