"""``polytag compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import JsonOption, LabelsOption, Overrides, Reading, ValidOption


def compare(
    corpus: Annotated[Path, typer.Argument(metavar="TRAIN", help="training documents")],
    test: Annotated[Path, typer.Option("--test", help="test documents")],
    overrides: Overrides,
    reading: Reading,
    valid: ValidOption = None,
    labels: LabelsOption = None,
    models: Annotated[str, typer.Option("--models", help="names of models, separated by commas")] = "br,cc,lp",
    out: Annotated[Path | None, typer.Option("--out", help="folder for the runs [default: a temporary folder]")] = None,
    json: JsonOption = False,
) -> None:
    """Train several models on one corpus and print one table."""
    from polytag.cli.tables import comparison_table, print_result
    from polytag.errors import ConfigError
    from polytag.verbs.comparison import compare_models
    from polytag.verbs.training import DataPlan

    recipes = [overrides.recipe(None, name.strip()) for name in models.split(",") if name.strip()]
    if not recipes:
        raise ConfigError("there is no model to compare; name some, as in --models br,cc,lp")
    plan = DataPlan.of(recipes[0], corpus, valid, labels, reading.options())
    print_result(compare_models(recipes, plan, test, out), comparison_table, json)
