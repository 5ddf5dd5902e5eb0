"""The command line: all verbs in one program, log lines on standard error, errors in one line."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from polytag.cli.adapt import adapt
from polytag.cli.audit import audit
from polytag.cli.auto import auto
from polytag.cli.compare import compare
from polytag.cli.corrections import corrections_app
from polytag.cli.curve import curve
from polytag.cli.data import data_app
from polytag.cli.diff import diff
from polytag.cli.distil import distil
from polytag.cli.evaluate import evaluate
from polytag.cli.explain import explain
from polytag.cli.export import export
from polytag.cli.info import info
from polytag.cli.labels import labels_app
from polytag.cli.options import expanded
from polytag.cli.predict import predict
from polytag.cli.report import report
from polytag.cli.serve import serve
from polytag.cli.standard_streams import discard_output, note, open_closed_streams
from polytag.cli.token import token_app
from polytag.cli.train import train
from polytag.cli.tune import tune
from polytag.cli.warm import warm
from polytag.errors import PolytagError, brief, file_error

_OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory")  # torch has no class of its own for it on a CPU
_UsageError: Any = typer.BadParameter.__bases__[0]  # typer has it from click, or from a copy of click inside of it


class ReaderGone(Exception):
    """Whoever read standard output has closed it, as ``head`` does; that is no error."""


class Verbs(TyperGroup):
    """The verbs; a closed pipe ends them quietly, where the library would end with exit code 1."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse the command line; ``--help`` prints."""
        with _until_the_reader_goes():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        with _until_the_reader_goes():
            return super().invoke(ctx)


@contextmanager
def _until_the_reader_goes() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None


app = typer.Typer(
    name="polytag",
    cls=Verbs,
    help="Multi-label text classification: from ten labels to half a million, flat or in a tree.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (
    train, auto, distil, adapt, evaluate, predict, explain, compare, diff, audit, curve, tune, info, export, report, serve, warm,
):  # fmt: skip
    app.command()(expanded(verb))
app.add_typer(labels_app, name="labels", help="Edit the labels of a trained model, without training.")
app.add_typer(data_app, name="data", help="Describe, build, download and generate corpora.")
app.add_typer(corrections_app, name="corrections", help="Export, back up, restore and delete corrections of a service.")
app.add_typer(token_app, name="token", help="Make and remove tokens for a service.")


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
    """Run the command line; what a user can cause is one line and exit code 2, a bug shows its traceback."""
    open_closed_streams()
    try:
        code = _run()
    except PolytagError as error:
        code = _refused(str(error))
    except OSError as error:  # of a file that no other code expected to fail
        if error.errno is None:
            raise
        code = _refused(str(file_error(error.filename, error)) if error.filename else error.strerror or str(error))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        code = _refused(f"out of memory ({brief(str(error), 200)}); take smaller sizes, or a machine with more memory")
    discard_output()
    sys.exit(code)


def _run() -> int:
    """Run a verb and return the exit code."""
    try:
        code = app(standalone_mode=False, prog_name="polytag")
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return 2
        where = error.ctx.command_path if error.ctx else "polytag"
        words = error.format_message().rstrip(".")
        return _refused(f"{words[:1].lower()}{words[1:]}; see '{where} --help'")
    except ReaderGone:
        return 0
    return code if isinstance(code, int) else 0


def _refused(reason: str) -> int:
    note(f"polytag: {reason}")
    return 2
