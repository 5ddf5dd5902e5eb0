"""``polytag info``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import JsonOption


def info(
    run: Annotated[str, typer.Argument(metavar="RUN", help="a run, its model folder, or the name of a model")],
    all: Annotated[bool, typer.Option("--all", help="list all settings of a model, not only the main ones")] = False,
    json: JsonOption = False,
) -> None:
    """Describe a trained model, or list the settings of a model."""
    from polytag.cli.tables import model_table, print_result, run_table
    from polytag.config.registry import MODELS
    from polytag.verbs.inspection import describe_model, describe_run

    if run in MODELS and not Path(run).exists():
        print_result(describe_model(run, everything=all), model_table, json)
    else:
        print_result(describe_run(run), run_table, json)
