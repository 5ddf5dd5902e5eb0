"""``polytag labels``: edit the labels of a trained model without training, and write them to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polytag.cli.options import Reading, RunArgument, expanded

if TYPE_CHECKING:
    from polytag.classifier import Classifier

labels_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
OutOption = Annotated[Path, typer.Option("--out", help="folder of the new run; the old one stays as it is")]
FitOption = Annotated[
    Path | None,
    typer.Option(
        "--fit", help="labelled documents, best not those of training: fit thresholds of new labels, promise and sureness"
    ),
]


@labels_app.command()
def rename(
    run: RunArgument,
    names: Annotated[list[str], typer.Argument(metavar="OLD=NEW...", help="a label, by name or id, and its new name")],
    out: OutOption,
) -> None:
    """Give labels other names; scores stay the same to the last bit."""
    from polytag.verbs.vocabulary import rename_labels

    _tell(rename_labels(run, names, out), out)


@labels_app.command()
@expanded
def merge(
    run: RunArgument,
    groups: Annotated[list[str], typer.Argument(metavar="A,B=C...", help="labels, and the one that takes their place")],
    out: OutOption,
    reading: Reading,
    fit: FitOption = None,
) -> None:
    """Merge labels; the score is the probability that one of them applies."""
    from polytag.verbs.vocabulary import merge_labels

    _tell(merge_labels(run, groups, out, fit, reading.options()), out)


@labels_app.command()
@expanded
def drop(
    run: RunArgument,
    names: Annotated[list[str], typer.Argument(metavar="A...", help="labels, by name or id")],
    out: OutOption,
    reading: Reading,
    fit: FitOption = None,
) -> None:
    """Remove labels."""
    from polytag.verbs.vocabulary import drop_labels

    _tell(drop_labels(run, names, out, fit, reading.options()), out)


@labels_app.command()
@expanded
def split(
    run: RunArgument,
    splits: Annotated[list[str], typer.Argument(metavar="A=B,C...", help="a label, and those that take its place")],
    out: OutOption,
    reading: Reading,
    fit: FitOption = None,
) -> None:
    """Split labels; all parts have the old score until they are trained."""
    from polytag.verbs.vocabulary import split_labels

    _tell(split_labels(run, splits, out, fit, reading.options()), out)


@labels_app.command()
@expanded
def add(
    run: RunArgument,
    labels: Annotated[Path, typer.Argument(metavar="LABELS", help="label file: names, descriptions, parents")],
    out: OutOption,
    reading: Reading,
    examples: Annotated[
        Path | None, typer.Option("--examples", help="documents with labels that are added, best up to 16 for each")
    ] = None,
) -> None:
    """Add labels that training never saw, by their texts and a few examples."""
    from polytag.verbs.vocabulary import add_labels

    _tell(add_labels(run, labels, out, examples, reading.options()), out)


@labels_app.command()
def write(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="a run, or a label file")],
    out: Annotated[
        Path, typer.Option("--out", help="label file: .jsonl, SKOS as .ttl, .rdf or .nt, or the table of Annif as .tsv")
    ],
    language: Annotated[
        str | None, typer.Option("--language", help="language of names in a SKOS file, as in de [default: the most frequent one]")
    ] = None,
) -> None:
    """Write the labels of a run or of a label file, in the format of the output's ending."""
    from polytag.verbs.vocabulary import write_label_file

    typer.echo(f"{out}: {len(write_label_file(source, out, language)):,} labels")


def _tell(classifier: Classifier, out: Path) -> None:
    typer.echo(f"{out}: {len(classifier.labels):,} labels; {classifier.edits[-1]}")
