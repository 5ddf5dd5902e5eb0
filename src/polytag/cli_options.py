"""Options that several verbs take, each said once: its flag, and what its help says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from polytag.formats import ReadOptions

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="a run, or its model folder")]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="jsonl, csv, tsv, parquet, fasttext, libmultilabel, libsvm or text; detected otherwise"),
]
TextOption = Annotated[str | None, typer.Option("--text", help="text columns, joined: title,body")]
LabelColumnOption = Annotated[str | None, typer.Option("--label-column", help="column with the labels")]
SeparatorOption = Annotated[str | None, typer.Option("--separator", help="what stands between the labels of a cell")]
BadOption = Annotated[str, typer.Option("--on-bad", help="a bad line is fatal (fail) or skipped and counted (skip)")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
LabelsOption = Annotated[Path | None, typer.Option("--labels", help="label file: names, descriptions, parents")]
ValidOption = Annotated[Path | None, typer.Option("--valid", help="validation documents")]
ModelOption = Annotated[str | None, typer.Option("--model", help="name of the model [default: br]")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="a setting of the model, as in c=2; `polytag info MODEL` lists them")
]
OptimiseOption = Annotated[str | None, typer.Option("--optimise", help="micro_f1 (default), macro_f1 or subset_accuracy")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="same seed, same machine: same scores [default: 0]")]
ClosedOption = Annotated[bool | None, typer.Option("--closed/--open", help="predict the ancestors of every label too")]


def read_options(
    format: str | None, text: str | None, label_column: str | None, separator: str | None, on_bad: str
) -> ReadOptions:
    """How documents are read, as the library is told."""
    from polytag.formats import ReadOptions

    return ReadOptions(format=format, text=text or (), labels=label_column, separator=separator, on_bad=on_bad)  # type: ignore[arg-type]
