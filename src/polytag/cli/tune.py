"""``polytag tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import ClusterOption, JsonOption, Overrides, Reading, ResumeOption, TrainingInput
from polytag.cli.resumable import resumable
from polytag.cli.standard_streams import note


def tune(
    inputs: TrainingInput,
    overrides: Overrides,
    reading: Reading,
    corpus: Annotated[
        Path | None,
        typer.Argument(
            metavar="TRAIN", help="training documents, or a recipe (.toml) that names them [default: those of --recipe]"
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="folder of the search; the best model is its subfolder model/")] = Path(
        "run"
    ),
    ranges: Annotated[list[str] | None, typer.Option("--range", help="search range, as in 'epochs={low=3,high=9}'")] = None,
    trials: Annotated[int | None, typer.Option("--trials", help="number of trials [default: the recipe's, or 20]", min=1)] = None,
    at_once: Annotated[
        int | None, typer.Option("--at-once", help="trials in parallel, on a cluster [default: the recipe's, or 1]", min=1)
    ] = None,
    pilot: Annotated[
        float | None,
        typer.Option(
            "--pilot",
            help="share of documents on which a trial has to reach the median of the others; 0 = no pilot",
            min=0,
            max=0.9,
        ),
    ] = None,
    cluster: ClusterOption = None,
    resume: ResumeOption = False,
    json: JsonOption = False,
) -> None:
    """Search the ranges of a recipe for the settings with the best metric on held-out documents."""
    from polytag.cli.tables import as_json, show
    from polytag.verbs.training import DataPlan
    from polytag.verbs.tuning import BEST, as_record, trials_table, tune_run, with_search

    path = inputs.recipe
    if corpus and corpus.suffix == ".toml" and not path:
        corpus, path = None, corpus
    recipe = overrides.recipe(path, inputs.model)
    recipe = with_search(recipe, ranges or [], overrides.settings or [], {"trials": trials, "at_once": at_once, "pilot": pilot})
    plan = DataPlan.of(recipe, corpus, inputs.valid, inputs.labels, reading.options())
    with resumable():
        if cluster is None:
            finished = tune_run(recipe, plan, out, resume=resume)
        else:
            from polytag.cluster.cluster_training import tune_on_cluster

            finished = tune_on_cluster(recipe, plan, out, cluster=cluster, resume=resume)
    if json:
        typer.echo(as_json(as_record(finished, recipe.optimise)))
    else:
        show(trials_table(finished, recipe.optimise))
    note(f"best recipe: {out / BEST}")
