"""The tables of ``polytag auto``: beside the best reference for docs/auto.md, beside all models for the results book."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from auto import PEERS
from speed_tables import cells_of

TEXTS = ("command", "machine", "note", "earlier")  # keys that are no corpus
RANKED = ("p@1", "p@3", "p@5")
HEAD = ("corpus", "minutes", "model", "micro-F1, or P@1 / 3 / 5", "seconds", "auto minus this", "95 % interval")
SHORT = ("corpus", "minutes", "chosen", "micro-F1, or P@1 / 3 / 5", "best other model", "", "difference", "95 % interval")


def budgets(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], tuple[str, ...]]]:
    """Every corpus with every number of minutes: its rows, and the metrics to show."""
    for corpus, times in found.items():
        for minutes, rows in () if corpus in TEXTS else times.items():
            many = any("p@1" in row.get("auto_minus_this", {}) for row in rows.values())
            yield corpus, minutes, rows, RANKED if many else ("micro_f1",)


def every_model(found: dict[str, Any]) -> str:
    """``auto`` and every model with the same time: the metric on test, seconds, and the difference with its interval."""
    lines = [cells_of(*HEAD), cells_of(*["---"] * len(HEAD))]
    for corpus, minutes, rows, keys in budgets(found):
        for model in sorted(rows, key=lambda name: -rows[name].get(keys[0], 0.0)):
            row, name = rows[model], "**auto**" if model == "auto" else model
            if row["finished"]:
                cells = (_values(row, keys), f"{row['seconds']:.0f}", *_gaps(row, keys))
            else:
                cells = ("not finished in time", "", "", "")
            lines.append(cells_of(corpus, minutes, name, *cells))
    return "\n".join(lines)


def ahead(found: dict[str, Any]) -> str:
    """``auto`` and the best of Polytag's own models with the same time, and the mean difference."""
    lines, gaps = [cells_of(*SHORT), cells_of(*["---"] * len(SHORT))], []
    for corpus, minutes, rows, keys in budgets(found):
        others = [name for name, row in rows.items() if row["finished"] and name not in ("auto", *PEERS)]
        best = max(others, key=lambda name: float(rows[name].get(keys[0], 0.0)))
        chosen = ", ".join(f"`{name}`" for name in rows["auto"]["winner"])
        values = _values(rows["auto"], keys), f"`{best}`", _values(rows[best], keys)
        lines.append(cells_of(corpus, minutes, chosen, *values, *_gaps(rows[best], keys)))
        gaps.append(rows["auto"][keys[0]] - rows[best][keys[0]])
    mean = f"Mean difference over these {len(gaps)} runs: {sum(gaps) / len(gaps):+.4f} (P@1 where rankings are compared)."
    return "\n".join([*lines, "", mean])


def looked_at_before(found: dict[str, Any]) -> str:
    """Earlier runs of ``auto`` on test documents, and what was changed after each."""
    head = ("corpus", "minutes", "`auto` then", "against", "what was changed")
    lines = [cells_of(*head), cells_of(*["---"] * len(head))]
    for run in found["earlier"]:
        then = f"{run['auto']:.4f}".lstrip("0") if "auto" in run else ""
        against = f"{run['difference']:+.4f} `{run['reference']}`" if "difference" in run else ""
        lines.append(cells_of(run["corpus"], run["minutes"], then, against, run["changed"]))
    return "\n".join(lines)


def _values(row: dict[str, Any], keys: tuple[str, ...]) -> str:
    return " / ".join(f"{row[key]:.4f}".lstrip("0") for key in keys)


def _gaps(row: dict[str, Any], keys: tuple[str, ...]) -> tuple[str, str]:
    """What auto has more than a model, and the interval; empty where predictions were not kept."""
    gaps = [row["auto_minus_this"][key] for key in keys] if row.get("auto_minus_this") else []
    return " / ".join(f"{gap[0]:+.4f}" for gap in gaps), " / ".join(f"{gap[1]:+.4f} to {gap[2]:+.4f}" for gap in gaps)
