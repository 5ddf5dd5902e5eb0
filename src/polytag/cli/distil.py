"""``polytag distil``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import LabelsOption, Overrides, Reading, ResumeOption, RunArgument, ValidOption
from polytag.cli.resumable import resumable
from polytag.cli.training_notes import note_training


def distil(
    run: RunArgument,
    into: Annotated[str, typer.Option("--into", help="name of the model that learns: br, embed, bert, cnn, hmcn, leam or lsan")],
    overrides: Overrides,
    reading: Reading,
    out: Annotated[Path, typer.Option("--out", help="folder of the run; the artefact is its subfolder model/")] = Path("run"),
    unlabelled: Annotated[
        Path | None, typer.Option("--unlabelled", help="texts that nobody labelled; labels in the file are ignored")
    ] = None,
    train: Annotated[
        Path | None, typer.Option("--train", help="training documents of the teacher [default: those of its recipe]")
    ] = None,
    valid: ValidOption = None,
    labels: LabelsOption = None,
    folds: Annotated[
        int, typer.Option("--folds", help="teachers for out-of-fold probabilities; 0 = labelled documents keep their labels")
    ] = 5,
    trust: Annotated[
        float | None,
        typer.Option("--trust", help="share of the teacher in the targets of labelled documents, above 0 and up to 1 (0.5)"),
    ] = None,
    views: Annotated[
        int | None,
        typer.Option("--views", help="random parts of every labelled document that the teacher labels too (2); 0 = none"),
    ] = None,
    resume: ResumeOption = False,
) -> None:
    """Train one fast model on what a trained one, such as a mixture, says."""
    from polytag.classifier import Classifier
    from polytag.config.recipe import Recipe
    from polytag.storage.artefact import artefact_folder
    from polytag.transfer.distillation import Lesson, distil_run
    from polytag.verbs.training import DataPlan

    lesson, source = Lesson(folds, trust, views), Classifier.load(run)
    goal = Recipe(optimise=source.recipe.optimise, closed=source.recipe.closed, min_labels=source.recipe.min_labels)
    recipe = overrides.recipe(None, into, goal)
    path = artefact_folder(run).parent / "recipe.toml"
    earlier = Recipe.read(path) if train is None and path.exists() else Recipe()
    plan = DataPlan.of(earlier, train, valid, labels, source.reading(reading.options()))
    with resumable():
        student = distil_run(run, recipe, plan, out, unlabelled=unlabelled, lesson=lesson, resume=resume)
    note_training(student, f"distilled {source.recipe.model} into {into}", out)
