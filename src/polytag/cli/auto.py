"""``polytag auto``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import ClusterOption, JsonOption, LabelsOption, Reading, ResumeOption, ValidOption
from polytag.cli.resumable import resumable
from polytag.cli.standard_streams import note


def auto(
    corpus: Annotated[Path, typer.Argument(metavar="TRAIN", help="training documents")],
    reading: Reading,
    valid: ValidOption = None,
    labels: LabelsOption = None,
    minutes: Annotated[float, typer.Option("--minutes", help="time for the whole search")] = 10.0,
    optimise: Annotated[
        str,
        typer.Option("--optimise", help="metric: micro_f1, macro_f1 or subset_accuracy [default: micro_f1]", show_default=False),
    ] = "micro_f1",
    out: Annotated[Path, typer.Option("--out", help="folder of the run; the artefact is its subfolder model/")] = Path("run"),
    speed: Annotated[
        float, typer.Option("--predict-speed", help="documents per second that the winner has to predict; 0 = any", min=0)
    ] = 0.0,
    memory: Annotated[float, typer.Option("--memory", help="GiB that the winner may need; 0 = any", min=0)] = 0.0,
    closed: Annotated[
        bool, typer.Option("--closed/--open", help="whether ancestors of predicted labels are predicted too")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="random seed")] = 0,
    cluster: ClusterOption = None,
    resume: ResumeOption = False,
    json: JsonOption = False,
) -> None:
    """Find the best model for a number of minutes: try from cheap to dear, mix what helps, and say why."""
    from polytag.auto.automatic import auto_run
    from polytag.auto.choice import Limits
    from polytag.auto.model_search import Wanted
    from polytag.cli.tables import as_json
    from polytag.config.recipe import Recipe
    from polytag.verbs.training import DataPlan

    recipe = Recipe(optimise=optimise, seed=seed).checked()
    wanted = Wanted(minutes, recipe.optimise, recipe.seed, closed, Limits(speed, memory))
    plan = DataPlan.of(recipe, corpus, valid, labels, reading.options())
    with resumable():
        if cluster is None:
            ended = auto_run(plan, wanted, out, resume=resume)
        else:
            from polytag.cluster.cluster_training import auto_on_cluster

            ended = auto_on_cluster(plan, wanted, out, cluster=cluster, resume=resume)
    if json:
        typer.echo(as_json(ended.record()))
    for sentence in ended.sentences():
        note(sentence)
    note(f"{out}: {ended.found.seconds:.0f} s of {60 * minutes:.0f} s")
