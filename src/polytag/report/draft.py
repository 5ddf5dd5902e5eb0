"""A report while it is written: the page, its charts, and the tables that also go into a paper."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from polytag.errors import file_error
from polytag.report.chart import Chart, Heat
from polytag.report.data_table import DataTable
from polytag.report.drawing import plain_svg, png, svg
from polytag.report.markup import Element, element, paragraph, picture, table
from polytag.report.page import Page, Section
from polytag.report.vega import library, spec, starter

_MOST_POINTS = 4000  # a picture with more is a PNG: every point of an SVG takes a hundred bytes


@dataclass
class Draft:
    """The page with what belongs to its charts; ``interactive`` None means: where the extra ``report`` is installed."""

    page: Page
    interactive: bool | None = None
    charts: list[Chart | Heat] = field(default_factory=list)
    tables: list[DataTable] = field(default_factory=list)
    _sorted: bool = False

    def __post_init__(self) -> None:
        """Look for the library that draws on the screen."""
        if self.interactive is None:
            self.interactive = library() is not None

    def section(self, title: str, lead: str = "") -> Section:
        """Start a section of the page."""
        return self.page.section(title, lead)

    def figure(self, chart: Chart | Heat) -> Element:
        """A chart with its title and its meaning; a picture, which the screen's version replaces."""
        self.charts.append(chart)
        name = f"chart-{len(self.charts)}"
        image = png(chart) if _points(chart) > _MOST_POINTS else svg(chart)
        pieces = [element("p", chart.title, attributes={"class": "title"}), picture(image, chart.alternative)]
        if self.interactive:
            self.page.data(name, spec(chart))
            pieces.append(element("div", attributes={"class": "plot", "data-chart": name, "hidden": ""}))
        return element("figure", *pieces, element("figcaption", chart.meaning))

    def figures(self, *charts: Chart | Heat) -> Element:
        """Charts in columns, as far as the screen is wide."""
        return element("div", *(self.figure(chart) for chart in charts), attributes={"class": "figures"})

    def table(self, data: DataTable, meaning: str = "") -> Element:
        """A table of the page and of the paper, above the sentence that says what it means."""
        self.tables.append(data)
        return element("div", data.element(), *([paragraph(meaning, kind="note")] if meaning else []))

    def long_table(self, data: DataTable) -> Element:
        """A table of the page alone, which a reader can sort and filter."""
        if not self._sorted:
            self.page.script(files("polytag.report").joinpath("tables.js").read_text(encoding="utf-8"))
            self._sorted = True
        return element("div", table(data.header, data.rows, data.caption), attributes={"class": "sortable"})

    def finished(self) -> Page:
        """The page with the scripts that its charts need."""
        if self.interactive and self.charts:
            code = library()
            assert code is not None
            self.page.script(code)
            self.page.script(starter())
        return self.page

    def write_pictures(self, folder: Path) -> list[Path]:
        """Every chart as SVG and PNG, numbered in the order of the report."""
        written = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for number, chart in enumerate(self.charts, 1):
                stem = f"{number:02}-{re.sub(r'[^a-z0-9]+', '-', chart.title.lower()).strip('-')}"
                for ending, image in ((".svg", plain_svg(chart)), (".png", png(chart))):
                    (folder / f"{stem}{ending}").write_bytes(image)
                    written.append(folder / f"{stem}{ending}")
        except OSError as error:
            raise file_error(folder, error) from error
        return written


def _points(chart: Chart | Heat) -> int:
    return 0 if isinstance(chart, Heat) else sum(len(one.y) for one in chart.series)
