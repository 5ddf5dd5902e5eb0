"""``polytag explain``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polytag.cli.options import BadOption, FormatOption, JsonOption, Reading, RunArgument, TextOption
from polytag.cli.standard_streams import note

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from polytag.explain.explanation import Explanation, Reasons, Word

_STRONGEST = 8  # words of each side in the table
_STEPS = (0.05, 0.25, 0.5, 0.75)  # relative contributions at which the colour grows stronger
_MARKED = 0.25  # relative contribution from which a word is marked where there are no colours
_FOR = ("", "black on #dbe9f6", "black on #bad6eb", "black on #89bedc", "bold black on #539ecd")
_AGAINST = ("", "black on #fee8d3", "black on #fdd0a2", "underline black on #fdae6b", "bold underline black on #f67824")


def explain(
    run: RunArgument,
    source: Annotated[str, typer.Argument(metavar="TEXT|FILE|-", help="a text, a file, or - for standard input")],
    label: Annotated[
        list[str] | None, typer.Option("--label", help="label to explain, predicted or not [default: the predicted ones]")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="leave out every word of a network's text, not phrases first")] = False,
    near: Annotated[
        Path | None, typer.Option("--near", help="labelled documents; the nearest ones with the label are shown")
    ] = None,
    neighbours: Annotated[int, typer.Option("--neighbours", help="number of nearest documents per label", min=1)] = 3,
    html: Annotated[Path | None, typer.Option("--html", help="output file: a page that stands alone")] = None,
    json: JsonOption = False,
    format: FormatOption = None,
    text: TextOption = None,
    on_bad: BadOption = "fail",
) -> None:
    """Show which words speak for and against the labels of a text, or for a label that was not predicted."""
    from polytag.verbs.questions import Question, explain_texts

    options = Reading(format=format, text=text, on_bad=on_bad).options()
    found = explain_texts(run, source, Question(tuple(label or ()), exact, near, neighbours), options)
    if html is not None:
        _write_page(html, list(found), run)
    else:
        _print(found, json)


def _write_page(path: Path, found: Sequence[tuple[str | None, Explanation]], run: Path) -> None:
    from polytag.report.explanation_page import explanation_page

    explanation_page(found, run.resolve().name).write(path)
    note(f"explained {len(found):,} {'text' if len(found) == 1 else 'texts'}: {path}")


def _print(found: Iterator[tuple[str | None, Explanation]], as_lines: bool) -> None:
    """JSON, an object of one line for every document of a file; or coloured text."""
    from json import dumps

    from polytag.cli.tables import as_json, show

    for name, explanation in found:
        if not as_lines:
            show(_shown(name, explanation))
        elif name is None:
            typer.echo(as_json(explanation.to_json()))
        else:
            typer.echo(dumps({"id": name, **explanation.to_json()}, ensure_ascii=False))


def _shown(name: str | None, found: Explanation) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from polytag.report.explanation_page import verdict

    lines: list[RenderableType] = [] if name is None else [Text(name, style="dim")]
    if not found.labels:
        nearest = f" The nearest is {found.best}: add --label {found.best!r}." if found.best else ""
        return Group(*lines, Text(f"No label was decided for this text.{nearest}"))
    for reasons in found.labels:
        inside = [Text(verdict(reasons)), _text(found, reasons.words), _table(reasons), *map(Text, _more(reasons))]
        lines += [Text(reasons.label, style="bold"), Padding(Group(*inside), (0, 0, 0, 2)), Text()]
    return Group(*lines[:-1])


def _text(found: Explanation, words: Sequence[Word]) -> Text:
    """The text in colours; where there are none, strong words are marked as {+for+} and {-against-}."""
    from rich.console import Console
    from rich.text import Text

    from polytag.report.explanation_page import pieces

    shown, plain = Text(), Console().color_system is None
    most = max((abs(word.contribution) for word in words), default=0.0) or 1.0
    for piece, word in pieces(found.text.rstrip("\n"), words):
        share = 0.0 if word is None else word.contribution / most
        if plain and abs(share) >= _MARKED:
            mark = "+" if share > 0 else "-"
            shown.append(f"{{{mark}{piece}{mark}}}")
        else:
            shown.append(piece, style=(_FOR if share > 0 else _AGAINST)[sum(abs(share) >= step for step in _STEPS)])
    return shown


def _table(reasons: Reasons) -> RenderableType:
    """The strongest words on both sides."""
    from rich.table import Table

    table = Table("speaks for", "", "speaks against", "", box=None, header_style="dim", pad_edge=False)
    sides = [reasons.strongest(_STRONGEST), reasons.strongest(_STRONGEST, against=True)]
    for place in range(max(map(len, sides))):
        cells = [(side[place].text, f"{side[place].contribution:+.3f}") if place < len(side) else ("", "") for side in sides]
        table.add_row(*cells[0], *cells[1])
    if reasons.bias is not None and reasons.margin is not None:
        table.add_row("bias", f"{reasons.bias:+.3f}", "margin (the sum)", f"{reasons.margin:+.3f}", style="dim")
    return table


def _more(reasons: Reasons) -> Iterator[str]:
    """What else the model knows, one line each."""
    known = reasons.details
    for level in known.get("path", ()):
        words = ", ".join(f"{word['text']} {word['contribution']:+.2f}" for word in level["words"][:4]) or "by the network"
        such = ", ".join(level["such_as"])
        below = f"{level['labels_below']} {'label' if level['labels_below'] == 1 else 'labels'} ({such})"
        yield f"level {level['level']}: probability {level['probability']:.3f}, {below}; {words}"
    for part in known.get("parts", ()):
        yield f"part {part['part']}: probability {part['probability']:.3f}, weight {part['weight']:.2f}"
    for link in known.get("links", ()):
        yield f"predicted label {link['label']}: {link['contribution']:+.3f}"
    if known.get("set"):
        yield f"scored as part of the label set {', '.join(known['set'])}"
    if reasons.attention:
        best = sorted(reasons.attention, key=lambda word: -word.contribution)[:5]
        yield "attention: " + ", ".join(f"{word.text} {word.contribution:.2f}" for word in best)
    for one in reasons.near:
        start = " ".join(one.text.split())[:100]
        yield f"near {one.similarity:.2f}: {one.id} [{', '.join(one.labels)}] {start}"
