"""``polytag predict``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import BadOption, FormatOption, Reading, RunArgument, TextOption


def predict(
    run: RunArgument,
    documents: Annotated[Path, typer.Argument(metavar="IN", help="documents to label; - = standard input")],
    out: Annotated[Path, typer.Option("--out", help="output file of JSON lines; - = standard output")] = Path("-"),
    top: Annotated[int | None, typer.Option("--top", help="number of best labels, instead of the predicted set", min=1)] = None,
    format: FormatOption = None,
    text: TextOption = None,
    on_bad: BadOption = "fail",
) -> None:
    """Label documents: JSON lines with id, labels and scores, in the order of the input."""
    from polytag.verbs.prediction import predict_file

    options = Reading(format=format, text=text, on_bad=on_bad).options()
    try:
        counts = predict_file(run, documents, out, top=top, options=options)
    except BrokenPipeError:  # the consumer has closed the pipe, as `head` does: discard buffered output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    skipped = f", {counts.bad:,} bad {'line' if counts.bad == 1 else 'lines'} skipped" if counts.bad else ""
    typer.echo(f"labelled {counts.read:,} {'document' if counts.read == 1 else 'documents'}{skipped}", err=True)
