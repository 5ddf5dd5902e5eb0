"""The tables of results in docs/: what was installed and run, how long tutorials take, what auto chose, how label trees grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from auto_tables import ahead
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


def write_docs(docs: Path, results: Path) -> None:
    """Put every table that has results into its pages."""
    pages = (
        ("environments", "platforms.md", environments),
        ("tutorials", "tutorials/index.md", tutorials),
        ("auto", "auto.md", ahead),
    )
    for name, page, made in pages:
        path = results / f"{name}.json"
        if path.exists():
            put(docs / page, name, made(json.loads(path.read_text(encoding="utf-8"))))
    for page in ("extreme.md", "tutorials/half-a-million.md"):
        put(docs / page, "growth", growth(results))
