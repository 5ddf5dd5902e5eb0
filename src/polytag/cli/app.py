"""The command line: all verbs in one program, log lines on standard error, errors in one line."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from polytag.cli.compare import compare
from polytag.cli.data import data_app
from polytag.cli.evaluate import evaluate
from polytag.cli.export import export
from polytag.cli.info import info
from polytag.cli.options import expanded
from polytag.cli.predict import predict
from polytag.cli.train import train
from polytag.cli.tune import tune

app = typer.Typer(
    name="polytag",
    help="Multi-label text classification: from ten labels to half a million, flat or in a tree.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (train, evaluate, predict, compare, tune, info, export):
    app.command()(expanded(verb))
app.add_typer(data_app, name="data", help="Describe, build, download and generate corpora.")


@app.callback(invoke_without_command=True)
def polytag(
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="print only warnings and results, no progress")] = False,
) -> None:
    """Configure logging to standard error."""
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("polytag").setLevel(logging.WARNING if quiet else logging.NOTSET)  # Run.track checks this level
    for noisy in ("numba", "matplotlib", "transformers", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if version:
        from polytag.storage.artefact import polytag_version

        typer.echo(polytag_version())
        raise typer.Exit


def main() -> None:
    """Run the command line; a ``PolytagError`` is one line and exit code 2, a bug shows its traceback."""
    from polytag.errors import PolytagError

    try:
        app()
    except PolytagError as error:
        typer.echo(f"polytag: {' '.join(str(error).split())}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
