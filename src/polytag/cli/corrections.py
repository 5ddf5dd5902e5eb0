"""``polytag corrections``: the database of corrections."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.standard_streams import note

corrections_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="sqlite:///FILE, postgresql://..., or a file")]


@corrections_app.command("export")
def export(
    url: UrlArgument,
    out: Annotated[Path, typer.Option("--out", help="output file; - = standard output")] = Path("-"),
    disputed: Annotated[bool, typer.Option("--disputed", help="include texts that people disagree on, by majority")] = False,
) -> None:
    """Write the corrected texts as a corpus of JSON lines."""
    from polytag.cli.serve import server_part

    count = server_part("corrections.maintenance").export_corpus(url, out, disputed=disputed)
    note(f"exported {count:,} texts")


@corrections_app.command("backup")
def backup(url: UrlArgument, out: Annotated[Path, typer.Argument(metavar="FILE", help="output file")]) -> None:
    """Write everything, undone corrections and the audit trail included, to one file."""
    from polytag.cli.serve import server_part

    note(f"saved {server_part('corrections.maintenance').backup(url, out):,} rows: {out}")


@corrections_app.command("restore")
def restore(url: UrlArgument, source: Annotated[Path, typer.Argument(metavar="FILE", help="a backup")]) -> None:
    """Read a backup into an empty database."""
    from polytag.cli.serve import server_part

    note(f"restored {server_part('corrections.maintenance').restore(url, source):,} rows")


@corrections_app.command("forget")
def forget(url: UrlArgument, user: Annotated[str, typer.Argument(metavar="USER", help="whose data to delete")]) -> None:
    """Delete a person's corrections, and the texts that nobody else corrected."""
    from polytag.cli.serve import server_part

    found = server_part("corrections.maintenance").forget(url, user)
    note(f"deleted {found['corrections']:,} corrections and {found['texts']:,} texts of {user}")
