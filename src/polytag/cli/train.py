"""``polytag train``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import ClusterOption, Overrides, Reading, ResumeOption, TrainingInput
from polytag.cli.resumable import resumable
from polytag.cli.standard_streams import note
from polytag.cli.training_notes import note_training


def train(
    inputs: TrainingInput,
    overrides: Overrides,
    reading: Reading,
    corpus: Annotated[
        Path | None, typer.Argument(metavar="TRAIN", help="training documents [default: those of the recipe]")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="folder of the run; the artefact is its subfolder model/")] = Path("run"),
    resume: ResumeOption = False,
    start: Annotated[
        Path | None,
        typer.Option("--from", help="learn on from this finished run, with its settings, words and labels"),
    ] = None,
    with_corrections: Annotated[
        str | None,
        typer.Option("--with-corrections", metavar="URL", help="also train on the corrections of a service, from its database"),
    ] = None,
    keep_features: Annotated[
        bool,
        typer.Option("--keep-features", help="keep the features of all documents, no texts, to learn on from them"),
    ] = False,
    cluster: ClusterOption = None,
    workers: Annotated[
        int, typer.Option("--workers", help="processes that train a network on a cluster; 0 = one per GPU or node", min=0)
    ] = 0,
    gpus: Annotated[float, typer.Option("--gpus", help="GPUs per process or piece of work on a cluster", min=0)] = 0.0,
) -> None:
    """Train a model on labelled documents."""
    from polytag.classifier import Classifier
    from polytag.verbs.training import DataPlan, first_process, train_run

    if not first_process():  # only the first process logs
        logging.getLogger().setLevel(logging.WARNING)
    options = reading.options()
    earlier = Classifier.load(start) if start else None
    recipe = overrides.recipe(inputs.recipe, inputs.model, earlier.recipe if earlier else None)
    if keep_features:
        recipe = recipe.with_overrides(["keep_features=true"])
    options = earlier.reading(options) if earlier else options
    plan = DataPlan.of(recipe, corpus, inputs.valid, inputs.labels, options, start)
    more = None
    if with_corrections is not None:
        from polytag.cli.serve import server_part

        more = server_part("corrections.maintenance").corrected(with_corrections)
        note(f"{len(more):,} corrected texts are added to the training documents")
    if (workers or gpus) and cluster is None:
        raise typer.BadParameter("--workers and --gpus need --cluster; add --cluster local, or leave them out")
    with resumable():
        if cluster is None:
            classifier = train_run(recipe, plan, out, resume=resume, earlier=earlier, more=more)
        else:
            from polytag.cluster.cluster_training import train_on_cluster

            classifier = train_on_cluster(
                recipe, plan, out, cluster=cluster, workers=workers, gpus=gpus, resume=resume, earlier=earlier, more=more
            )
    if first_process():
        note_training(classifier, f"trained {recipe.model}", out)
