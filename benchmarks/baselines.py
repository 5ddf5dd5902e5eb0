"""The classic baselines at their defaults on every corpus: train and validation given, test scored once.

python benchmarks/baselines.py [--data DIR] [--corpora reuters,aapd,rcv1-small,debtags] [--models br,cc,lp]
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from peers.report import machine
from polytag.config.recipe import Recipe
from polytag.formats.document import ReadOptions
from polytag.verbs.comparison import compare_models
from polytag.verbs.training import DataPlan

OUT = Path(__file__).parent / "results" / "baselines.json"


def rows_of(folder: Path, models: list[str]) -> list[dict[str, Any]]:
    """One row a model, as ``polytag compare`` makes them."""
    plan = DataPlan(folder / "train.jsonl.xz", folder / "valid.jsonl.xz", folder / "labels.jsonl", ReadOptions())
    rows = compare_models([Recipe(model) for model in models], plan, folder / "test.jsonl.xz")
    return [{"corpus": folder.name, **{key: _short(value) for key, value in row.items()}} for row in rows]


def _short(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value


def main() -> None:
    """Measure all of them; a corpus that is measured again replaces its earlier rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLYTAG_DATA", "../shared/data")))
    parser.add_argument("--corpora", default="reuters,aapd,rcv1-small,debtags")
    parser.add_argument("--models", default="br,cc,lp")
    told = parser.parse_args()
    found = json.loads(OUT.read_text()) if OUT.exists() else {"rows": []}
    for name in told.corpora.split(","):
        for model in told.models.split(","):
            new = rows_of(told.data / name, [model])
            kept = [row for row in found["rows"] if (row["corpus"], row["model"]) != (name, model)]
            found |= {"command": "python benchmarks/baselines.py", "machine": machine(), "rows": [*kept, *new]}
            OUT.write_text(json.dumps(found, indent=1) + "\n")
            keys = ("micro_f1", "macro_f1", "subset_accuracy", "p@1", "train_seconds", "documents_per_second", "megabytes")
            print(name, model, {key: new[0][key] for key in keys}, flush=True)


if __name__ == "__main__":
    main()
