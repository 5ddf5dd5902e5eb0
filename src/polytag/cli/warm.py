"""``polytag warm``."""

from __future__ import annotations

from typing import Annotated

import typer

from polytag.cli.standard_streams import note


def warm(
    jobs: Annotated[int, typer.Option("--jobs", help="number of processes; 0 = one per CPU", min=0)] = 0,
    cpu: Annotated[str, typer.Option("--cpu", help="LLVM name of another processor, as in x86-64-v3 [default: this one]")] = "",
) -> None:
    """Compile the kernels of linear and tree models now, so that no later command waits for it."""
    from polytag.verbs.warming import warm

    found = warm(jobs, cpu)
    note(f"compiled {found.kernels} kernels for {found.cpu} in {found.seconds:.1f} s: {found.folder}")
    if cpu:
        note(f"they are used where the variable NUMBA_CPU_NAME is {cpu}")
