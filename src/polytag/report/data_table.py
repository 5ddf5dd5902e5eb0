"""A table of results, once as data: for the page, and as Markdown or LaTeX for a paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from polytag.report.markup import Element, shown, table

Value = str | float | None
Rows = list[list[Value]]
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#])")
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "\N{EN DASH}": "--",
}  # fmt: skip


@dataclass(frozen=True)
class DataTable:
    """A caption, a header and rows of values; the first cell of a row is its name."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Value]]

    def element(self) -> Element:
        """The table on the page."""
        return table(self.header, self.rows, self.caption)

    def markdown(self) -> str:
        """The table in GitHub's Markdown, under its caption."""
        lines = [self.header, *(self._texts(row) for row in self.rows)]
        cells = [" | ".join(_markdown(cell) for cell in line) for line in lines]
        rule = " | ".join(["---", *["---:"] * (len(self.header) - 1)])
        return "\n".join([f"**{_markdown(self.caption)}**", "", *(f"| {line} |" for line in (cells[0], rule, *cells[1:]))]) + "\n"

    def latex(self) -> str:
        """The table as a floating LaTeX table; it needs the package booktabs."""
        lines = [" & ".join(_latex(cell) for cell in line) + r" \\" for line in [self.header, *map(self._texts, self.rows)]]
        columns = "l" + "r" * (len(self.header) - 1)
        head = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(self.caption)}}}", rf"\begin{{tabular}}{{{columns}}}"]
        return (
            "\n".join([*head, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", r"\end{table}"])
            + "\n"
        )

    def _texts(self, row: Sequence[Value]) -> list[str]:
        return [str(shown(value)) for value in row]


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def markdown_of(title: str, tables: Sequence[DataTable]) -> str:
    """All tables of a report as a Markdown document."""
    return "\n".join([f"# {_markdown(title)}\n", *(one.markdown() for one in tables)])


def latex_of(title: str, tables: Sequence[DataTable]) -> str:
    """All tables of a report, to be included in a LaTeX document."""
    return "\n".join([f"% {' '.join(title.split())}; needs \\usepackage{{booktabs}}\n", *(one.latex() for one in tables)])
