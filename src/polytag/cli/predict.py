"""``polytag predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import AskOption, AskUntilOption, BadOption, FormatOption, Reading, RunArgument, TextOption, asked
from polytag.cli.standard_streams import note


def predict(
    run: RunArgument,
    documents: Annotated[Path, typer.Argument(metavar="IN", help="documents to label; - = standard input")],
    out: Annotated[Path, typer.Option("--out", help="output file of JSON lines; - = standard output")] = Path("-"),
    top: Annotated[int | None, typer.Option("--top", help="number of best labels, instead of the predicted set", min=1)] = None,
    ask: AskOption = None,
    ask_until: AskUntilOption = None,
    format: FormatOption = None,
    text: TextOption = None,
    on_bad: BadOption = "fail",
) -> None:
    """Label documents: JSON lines with id, labels and scores, in the order of the input."""
    from polytag.verbs.prediction import predict_file

    options = Reading(format=format, text=text, on_bad=on_bad).options()
    counts = predict_file(run, documents, out, top=top, ask=asked(ask, ask_until), options=options)
    skipped = f", {counts.bad:,} bad {'line' if counts.bad == 1 else 'lines'} skipped" if counts.bad else ""
    note(f"labelled {counts.read:,} {'document' if counts.read == 1 else 'documents'}{skipped}")
