"""The tables of results in docs/: what was installed and run, how long tutorials take, how label trees grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headlines import growth
from peers.report import put

SHOWN = ("numpy", "scipy", "numba", "torch", "transformers")


def environments(found: dict[str, Any]) -> str:
    """One row for each new environment: its Python, extras, dependencies and how it ended."""
    lines = ["| trial | Python | extras | dependencies | versions | result |", "|---|---|---|---|---|---|"]
    for row in found["rows"]:
        versions = ", ".join(f"{name} {row['packages'][name]}" for name in SHOWN if name in row["packages"])
        result = f"**fails**: {row['failed']}" if "failed" in row else row.get("tests") or f"works: {row['shows']}"
        cells = (row["name"], row["python"], row["extras"] or "none", row["dependencies"], versions, result)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def tutorials(found: dict[str, Any]) -> str:
    """One row for each tutorial: its commands, its seconds and the longest wait."""
    lines = ["| tutorial | commands and examples | seconds | longest wait, seconds |", "|---|---|---|---|"]
    for row in found["rows"]:
        cells = (f"[{row['tutorial']}]({row['tutorial']}.md)", row["commands"], row["seconds"], row["longest_seconds"])
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, "", found["note"]])


def automatic(found: dict[str, Any]) -> str:
    """``auto`` and every model with the same time: the metric on test, seconds, and the difference with its interval."""
    head = ("corpus", "minutes", "model", "micro-F1, or P@1 / 3 / 5", "seconds", "auto minus this", "95 % interval")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for corpus, times in found.items():
        if corpus in ("command", "machine", "note"):
            continue
        for minutes, rows in times.items():
            many = any("p@1" in row.get("auto_minus_this", {}) for row in rows.values())
            keys = ("p@1", "p@3", "p@5") if many else ("micro_f1",)
            for model in sorted(rows, key=lambda name: -rows[name].get(keys[0], 0.0)):
                name = "**auto**" if model == "auto" else model
                lines.append(f"| {' | '.join((corpus, minutes, name, *_compared(rows[model], keys)))} |")
    return "\n".join(lines)


def _compared(row: dict[str, Any], keys: tuple[str, ...]) -> tuple[str, str, str, str]:
    """The metrics of a model, its seconds, and what auto has more, with the interval."""
    if not row["finished"]:
        return "not finished in time", "", "", ""
    gaps = [row["auto_minus_this"][key] for key in keys] if row.get("auto_minus_this") else []
    values = " / ".join(f"{row[key]:.4f}".lstrip("0") for key in keys)
    more, interval = (" / ".join(f"{gap[0]:+.4f}" for gap in gaps), " / ".join(f"{gap[1]:+.4f} to {gap[2]:+.4f}" for gap in gaps))
    return values, f"{row['seconds']:.0f}", more, interval


def write_docs(docs: Path, results: Path) -> None:
    """Put every table that has results into its pages."""
    pages = (
        ("environments", "platforms.md", environments),
        ("tutorials", "tutorials/index.md", tutorials),
        ("auto", "auto.md", automatic),
    )
    for name, page, made in pages:
        path = results / f"{name}.json"
        if path.exists():
            put(docs / page, name, made(json.loads(path.read_text(encoding="utf-8"))))
    for page in ("extreme.md", "tutorials/half-a-million.md"):
        put(docs / page, "growth", growth(results))
