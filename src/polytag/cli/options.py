"""Options that several verbs share, each declared once, and groups of them."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from polytag.config.recipe import Recipe
    from polytag.formats.document import ReadOptions

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="a run, or its model folder")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="label file: names, descriptions, parents; or a SKOS vocabulary")
]
ValidOption = Annotated[Path | None, typer.Option("--valid", help="validation documents")]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="use a Ray cluster: local, or ray://HOST:PORT [default: this process]")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="continue the interrupted run in this folder")]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="jsonl, csv, tsv, parquet, fasttext, libmultilabel, libsvm, label-studio, doccano or text [default: detected]",
    ),
]
TextOption = Annotated[
    str | None, typer.Option("--text", help="text columns, joined by a space, as in title,body [default: detected]")
]
AskOption = Annotated[
    float | None, typer.Option("--ask", help="share of documents to leave to people, the least sure ones", min=0, max=1)
]
AskUntilOption = Annotated[
    str | None,
    typer.Option("--ask-until", help="goal for the documents that are not left to people, as in precision=.95"),
]
BadOption = Annotated[str, typer.Option("--on-bad", help="bad lines: fail = stop with an error, skip = skip and count them")]


def asked(ask: float | None, ask_until: str | None) -> float | str | None:
    """What ``--ask`` or ``--ask-until`` says."""
    if ask is not None and ask_until is not None:
        raise typer.BadParameter("give --ask or --ask-until, not both")
    return ask if ask_until is None else ask_until


class Reading(NamedTuple):
    """Options for reading labelled documents."""

    format: FormatOption = None
    text: TextOption = None
    label_column: Annotated[str | None, typer.Option("--label-column", help="column with the labels [default: detected]")] = None
    separator: Annotated[
        str | None, typer.Option("--separator", help="separator between the labels of a cell [default: detected]")
    ] = None
    on_bad: BadOption = "fail"

    def options(self) -> ReadOptions:
        """The options in the form of the library."""
        from polytag.formats.document import ReadOptions

        return ReadOptions(
            format=self.format,
            text=self.text or (),
            labels=self.label_column,
            separator=self.separator,
            on_bad=self.on_bad,  # type: ignore[arg-type]
        )


class Overrides(NamedTuple):
    """Settings that override those of a recipe, of an earlier run, or the defaults."""

    settings: Annotated[
        list[str] | None, typer.Option("--set", help="setting of the model, as in c=2; `polytag info MODEL` lists them")
    ] = None
    seed: Annotated[int | None, typer.Option("--seed", help="random seed; same seed, same machine: same scores [default: 0]")] = (
        None
    )
    optimise: Annotated[
        str | None, typer.Option("--optimise", help="metric: micro_f1, macro_f1 or subset_accuracy [default: micro_f1]")
    ] = None
    promise: Annotated[
        str | None,
        typer.Option("--promise", help="promise to keep: recall=.9, recall=.9,confidence=.9 or precision=.9 [default: none]"),
    ] = None
    costs: Annotated[
        Path | None,
        typer.Option("--costs", help="file with costs of mistakes per label, to minimise instead of optimising [default: none]"),
    ] = None
    closed: Annotated[
        bool | None,
        typer.Option("--closed/--open", help="whether ancestors of predicted labels are predicted too [default: open]"),
    ] = None

    def recipe(self, path: Path | None, model: str | None, earlier: Recipe | None = None) -> Recipe:
        """The recipe of a file or of an earlier run, or the default one, with these settings applied."""
        import dataclasses

        from polytag.config.recipe import Recipe

        recipe = Recipe.read(path) if path else earlier or Recipe()
        if model and model != recipe.model:
            recipe = dataclasses.replace(recipe, model=model, options={}, tune={})
        keys: dict[str, Any] = {"seed": self.seed, "optimise": self.optimise, "closed": self.closed, "promise": self.promise}
        if self.costs is not None:
            from polytag.formats.cost_files import read_costs

            keys["costs"] = read_costs(self.costs)
        recipe = dataclasses.replace(recipe, **{key: value for key, value in keys.items() if value is not None})
        return recipe.checked().with_overrides(self.settings or [])


class TrainingInput(NamedTuple):
    """The model to train, and its data besides the training documents."""

    valid: ValidOption = None
    labels: LabelsOption = None
    model: Annotated[str | None, typer.Option("--model", help="name of the model [default: br]")] = None
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="TOML file with settings, as every run writes one; search ranges under [tune]")
    ] = None


_GROUPS = (Reading, Overrides, TrainingInput)


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """A command in which every parameter that is a group of options is replaced by these options."""
    signature = inspect.signature(command, eval_str=True)
    groups = {name: p.annotation for name, p in signature.parameters.items() if p.annotation in _GROUPS}
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += _options_of(groups[name]) if name in groups else [parameter]

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field: values.pop(field) for field in kind._fields})
        command(**values)

    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _options_of(kind: Any) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(kind, include_extras=True)
    defaults = kind._field_defaults
    return [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=defaults[name], annotation=hints[name])
        for name in kind._fields
    ]
