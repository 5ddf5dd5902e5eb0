"""The command line: each verb is a thin function over the library; heavy imports stay inside."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polytag.cli_data import data_app
from polytag.cli_options import (
    BadOption,
    ClosedOption,
    FormatOption,
    JsonOption,
    LabelColumnOption,
    LabelsOption,
    ModelOption,
    OptimiseOption,
    RunArgument,
    SeedOption,
    SeparatorOption,
    SetOption,
    TextOption,
    ValidOption,
    read_options,
)

if TYPE_CHECKING:
    from polytag.recipe import Recipe

app = typer.Typer(
    name="polytag",
    help="Reads plain text and assigns every label that fits: ten labels or half a million, flat or in a tree.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data_app, name="data", help="Look at data, build it, get it.")


@app.callback(invoke_without_command=True)
def polytag(
    version: Annotated[bool, typer.Option("--version", help="print the version and stop")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress, only warnings and results")] = False,
) -> None:
    """Set up the log lines that a person sees."""
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("polytag").setLevel(logging.WARNING if quiet else logging.NOTSET)  # bars ask for that, see Run.track
    for noisy in ("numba", "matplotlib", "transformers", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if version:
        from polytag.artefact import polytag_version

        typer.echo(polytag_version())
        raise typer.Exit


def _recipe(
    path: Path | None, model: str | None, settings: list[str] | None, keys: dict[str, Any], earlier: Recipe | None = None
) -> Recipe:
    """The recipe from a file or of an earlier run, then what the command line says on top."""
    import dataclasses

    from polytag.recipe import Recipe

    recipe = Recipe.read(path) if path else earlier or Recipe()
    if model and model != recipe.model:
        recipe = dataclasses.replace(recipe, model=model, options={}, tune={})
    recipe = dataclasses.replace(recipe, **{key: value for key, value in keys.items() if value is not None})
    return recipe.checked().with_overrides(settings or [])


@app.command()
def train(
    corpus: Annotated[Path | None, typer.Argument(metavar="TRAIN", help="training documents, unless a recipe names them")] = None,
    out: Annotated[Path, typer.Option("--out", help="folder of the run; the artefact is its folder model/")] = Path("run"),
    valid: ValidOption = None,
    labels: LabelsOption = None,
    model: ModelOption = None,
    recipe: Annotated[Path | None, typer.Option("--recipe", help="TOML file with the settings, as every run leaves one")] = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    optimise: OptimiseOption = None,
    closed: ClosedOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on where an interrupted run in this folder stopped")] = False,
    start: Annotated[
        Path | None, typer.Option("--from", help="go on from this finished run, with its settings; neural models only")
    ] = None,
    format: FormatOption = None,
    text: TextOption = None,
    label_column: LabelColumnOption = None,
    separator: SeparatorOption = None,
    on_bad: BadOption = "fail",
) -> None:
    """Train a model on labelled documents."""
    from polytag.classifier import Classifier
    from polytag.training import DataPlan, first_process, train_run

    if not first_process():  # of several processes one speaks
        logging.getLogger().setLevel(logging.WARNING)
    options = read_options(format, text, label_column, separator, on_bad)
    earlier = Classifier.load(start) if start else None
    keys = {"seed": seed, "optimise": optimise, "closed": closed}
    told = _recipe(recipe, model, settings, keys, earlier.recipe if earlier else None)
    plan = DataPlan.of(told, corpus, valid, labels, earlier.reading(options) if earlier else options, start)
    with _resumable():
        classifier = train_run(told, plan, out, resume=resume, earlier=earlier)
    if not first_process():
        return
    report = classifier.decision.report
    if report:
        error = f", calibration error {report['calibration_error']:.4f}" if "calibration_error" in report else ""
        typer.echo(f"{report['metric']} {report['fitted']:.4f} on held-out documents ({report['rule']}){error}", err=True)
    size = f"{classifier.training['documents']:,} documents, {len(classifier.labels):,} labels"
    typer.echo(f"trained {told.model} on {size}: {out}", err=True)


@app.command()
def evaluate(
    run: RunArgument,
    test: Annotated[Path, typer.Argument(metavar="TEST", help="labelled documents")],
    json: JsonOption = False,
    format: FormatOption = None,
    text: TextOption = None,
    label_column: LabelColumnOption = None,
    separator: SeparatorOption = None,
    on_bad: BadOption = "fail",
) -> None:
    """Measure a trained model on labelled documents."""
    from polytag.classifier import Classifier
    from polytag.corpus import Corpus
    from polytag.tables import metrics_table, tell

    classifier = Classifier.load(run)
    options = classifier.reading(read_options(format, text, label_column, separator, on_bad))
    corpus = Corpus.read(test, labels=classifier.labels, options=options)
    tell(classifier.evaluate(corpus), metrics_table, json)


@app.command()
def predict(
    run: RunArgument,
    documents: Annotated[Path, typer.Argument(metavar="IN", help="documents to label; - for standard input")],
    out: Annotated[Path, typer.Option("--out", help="where to write JSON lines; - for standard output")] = Path("-"),
    top: Annotated[int | None, typer.Option("--top", help="that many best labels instead of the decided ones", min=1)] = None,
    format: FormatOption = None,
    text: TextOption = None,
    on_bad: BadOption = "fail",
) -> None:
    """Label documents: JSON lines with id, labels and scores, in the order of the input."""
    from polytag.predicting import predict_file

    try:
        counts = predict_file(run, documents, out, top=top, options=read_options(format, text, None, None, on_bad))
    except BrokenPipeError:  # the reader of our output went away, as `head` does; what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    skipped = f", {counts.bad:,} bad {'line' if counts.bad == 1 else 'lines'} skipped" if counts.bad else ""
    typer.echo(f"labelled {counts.read:,} {'document' if counts.read == 1 else 'documents'}{skipped}", err=True)


@app.command()
def compare(
    corpus: Annotated[Path, typer.Argument(metavar="TRAIN", help="training documents")],
    test: Annotated[Path, typer.Option("--test", help="documents to measure on")],
    valid: ValidOption = None,
    labels: LabelsOption = None,
    models: Annotated[str, typer.Option("--models", help="names, separated by commas")] = "br,cc,lp",
    settings: SetOption = None,
    seed: SeedOption = None,
    optimise: OptimiseOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="keep the runs in this folder")] = None,
    json: JsonOption = False,
    format: FormatOption = None,
    text: TextOption = None,
    label_column: LabelColumnOption = None,
    separator: SeparatorOption = None,
    on_bad: BadOption = "fail",
) -> None:
    """Train several models on one corpus and print one table."""
    from polytag.comparing import compare_models
    from polytag.errors import ConfigError
    from polytag.tables import comparison_table, tell
    from polytag.training import DataPlan

    keys = {"seed": seed, "optimise": optimise}
    recipes = [_recipe(None, name.strip(), settings, keys) for name in models.split(",") if name.strip()]
    if not recipes:
        raise ConfigError("there is no model to compare; name some, as in --models br,cc,lp")
    plan = DataPlan.of(recipes[0], corpus, valid, labels, read_options(format, text, label_column, separator, on_bad))
    tell(compare_models(recipes, plan, test, out), comparison_table, json)


@app.command()
def tune(
    corpus: Annotated[
        Path | None, typer.Argument(metavar="TRAIN", help="training documents, or a recipe (.toml) that names them")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="folder of the search; the best model is its folder model/")] = Path("run"),
    valid: ValidOption = None,
    labels: LabelsOption = None,
    model: ModelOption = None,
    recipe: Annotated[Path | None, typer.Option("--recipe", help="TOML file with the settings, and ranges under [tune]")] = None,
    ranges: Annotated[list[str] | None, typer.Option("--range", help="a range to search, as in 'epochs={low=3,high=9}'")] = None,
    trials: Annotated[int | None, typer.Option("--trials", help="how many settings to try [default: 20]", min=1)] = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    optimise: OptimiseOption = None,
    closed: ClosedOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the search in this folder, or make it longer")] = False,
    json: JsonOption = False,
    format: FormatOption = None,
    text: TextOption = None,
    label_column: LabelColumnOption = None,
    separator: SeparatorOption = None,
    on_bad: BadOption = "fail",
) -> None:
    """Search the ranges of a recipe for the settings that do best on held-out documents."""
    from polytag.tables import as_json, show
    from polytag.training import DataPlan
    from polytag.tuning import BEST, as_record, trials_table, tune_run, with_search

    if corpus and corpus.suffix == ".toml" and not recipe:
        corpus, recipe = None, corpus
    told = _recipe(recipe, model, settings, {"seed": seed, "optimise": optimise, "closed": closed})
    told = with_search(told, ranges or [], settings or [], trials)
    plan = DataPlan.of(told, corpus, valid, labels, read_options(format, text, label_column, separator, on_bad))
    with _resumable():
        made = tune_run(told, plan, out, resume=resume)
    if json:
        typer.echo(as_json(as_record(made, told.optimise)))
    else:
        show(trials_table(made, told.optimise))
    typer.echo(f"best recipe: {out / BEST}", err=True)


@app.command()
def info(
    run: Annotated[str, typer.Argument(metavar="RUN", help="a run, its model folder, or the name of a model")],
    json: JsonOption = False,
) -> None:
    """Say what a trained model is, or which settings a model has."""
    from polytag.inspecting import describe_model, describe_run
    from polytag.models.model import MODELS
    from polytag.tables import model_table, run_table, tell

    if run in MODELS and not Path(run).exists():
        tell(describe_model(run), model_table, json)
    else:
        tell(describe_run(run), run_table, json)


@app.command()
def export(
    run: RunArgument,
    onnx: Annotated[bool, typer.Option("--onnx", help="for ONNX Runtime, which predicts faster on a CPU")] = False,
    int8: Annotated[bool, typer.Option("--int8", help="matrix products in 8 bits: faster still, a little coarser")] = False,
) -> None:
    """Write a trained network in a form that predicts faster on a CPU."""
    from polytag.artefact import artefact_folder
    from polytag.classifier import Classifier
    from polytag.errors import ConfigError

    if not onnx:
        raise ConfigError("there is one form to export to; ask for it with --onnx")
    model = Classifier.load(run).model
    if not hasattr(model, "export"):
        raise ConfigError(f"{run}: its model has no network to export; only trained networks, as of bert or cnn, can be")
    folder = model.export(artefact_folder(run), int8=int8)
    typer.echo(f"exported {'in 8 bits' if int8 else 'in float32'}: {folder}", err=True)


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2, a bug shows its trace."""
    from polytag.errors import PolytagError

    try:
        app()
    except PolytagError as error:
        typer.echo(f"polytag: {' '.join(str(error).split())}", err=True)
        sys.exit(2)


@contextmanager
def _resumable() -> Iterator[None]:
    """Say how to go on when somebody interrupts work that can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("polytag: interrupted; the same command with --resume goes on from where it was", err=True)
        raise typer.Exit(130) from None


if __name__ == "__main__":
    main()
