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
    """``auto`` and every model with the same time: micro-F1 on test, seconds, and the difference with its interval."""
    head = ("corpus", "minutes", "model", "micro-F1", "seconds", "auto minus this", "95 % interval")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for corpus, times in found.items():
        if corpus in ("command", "machine", "note"):
            continue
        for minutes, rows in times.items():
            for model in sorted(rows, key=lambda name: -rows[name].get("micro_f1", 0.0)):
                row = rows[model]
                if not row["finished"]:
                    lines.append(f"| {corpus} | {minutes} | {model} | not finished in time | | | |")
                    continue
                gap = row.get("auto_minus_this", {}).get("micro_f1")
                shown = (f"{gap[0]:+.4f}", f"{gap[1]:+.4f} to {gap[2]:+.4f}") if gap else ("", "")
                name = "**auto**" if model == "auto" else model
                cells = (corpus, minutes, name, f"{row['micro_f1']:.4f}".lstrip("0"), f"{row['seconds']:.0f}", *shown)
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


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
