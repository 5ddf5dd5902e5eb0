"""Puts what neural.py wrote into a file of results: ``python benchmarks/collect.py FILE... --into results/sequences.json``.

Rows of the same name are replaced, others stay. What the file says about itself (command, machine, note) is left as it is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np


def row_of(job: dict[str, Any]) -> dict[str, Any] | None:
    """A job's rows as one row of results; None where nothing finished."""
    done = [row for row in job["rows"] if "error" not in row]
    if not done:
        return None
    made: dict[str, Any] = {key: job[key] for key in ("name", "corpus", "model", "options")}
    made["seeds"] = [row["seed"] for row in done]
    made["rules"] = [row["decision"]["rule"] for row in done]
    made["valid_cross_fitted_micro_f1"] = [max(row["decision"]["cross_fitted"].values(), default=None) for row in done]
    for part in ("valid", "test"):
        if all(part in row for row in done):
            made[f"{part}_mean_and_deviation"] = spread([row[part] for row in done])
            made[part] = [row[part] for row in done]
            for rule in done[0].get(f"{part}_decisions", {}):
                made.setdefault(f"{part}_by_rule", {})[rule] = spread([row[f"{part}_decisions"][rule] for row in done])
            if done[0].get(f"{part}_variants"):
                made[f"{part}_variants"] = [row[f"{part}_variants"] for row in done]
    made["train_seconds"] = [round(row["train_seconds"]) for row in done]
    for key in ("by_epoch", "mixing", "power", "valid_matching", "test_matching"):
        if any(row.get(key) for row in done):
            made[key] = [row[key] for row in done]
    found: dict[str, Any] = rounded(made)
    return found


def spread(rows: list[dict[str, float]]) -> dict[str, list[float]]:
    """Mean and standard deviation of every metric."""
    return {key: [float(np.mean([row[key] for row in rows])), float(np.std([row[key] for row in rows]))] for key in rows[0]}


def rounded(value: Any) -> Any:
    """Four digits are what the documents allow."""
    if isinstance(value, dict):
        return {key: item if key == "options" else rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    """Read, merge, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--encoder", default="", help="the folder that stood for the packaged encoder; it is called minilm")
    parser.add_argument("--bootstrap", nargs="+", type=Path, default=[], help="what bootstrap.py wrote about these rows")
    told = parser.parse_args()
    result: dict[str, Any] = json.loads(told.into.read_text()) if told.into.exists() else {"rows": []}
    for path in told.files:
        text = path.read_text()
        for job in json.loads(text.replace(json.dumps(told.encoder), '"minilm"') if told.encoder else text):
            made = row_of(job)
            if made is not None:
                result["rows"] = [row for row in result["rows"] if row.get("name") != made["name"]] + [made]
    if told.bootstrap:
        result["bootstrap"] = rounded([row for path in told.bootstrap for row in json.loads(path.read_text())])
    told.into.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
