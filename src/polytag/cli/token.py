"""``polytag token``: who may use a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

token_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="file of tokens, which has names, roles and hashes")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="who has the token")]


@token_app.command("add")
def add(
    file: FileArgument,
    name: NameArgument,
    role: Annotated[str, typer.Option("--role", help="read, correct or admin; each may do what those before it may")] = "read",
) -> None:
    """Make a token and print it; only its hash is kept."""
    from polytag.cli.serve import server_part

    typer.echo(server_part("access").add_token(file, name, role))


@token_app.command("list")
def list_tokens(file: FileArgument) -> None:
    """List names and roles."""
    from polytag.cli.serve import server_part

    for row in server_part("access").read_tokens(file):
        typer.echo(f"{row['name']}\t{row['role']}")


@token_app.command("remove")
def remove(file: FileArgument, name: NameArgument) -> None:
    """Remove a token; a running service refuses it within seconds."""
    from polytag.cli.serve import server_part

    server_part("access").remove_token(file, name)
