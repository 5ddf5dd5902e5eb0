"""What a picture shows, apart from how it is drawn: matplotlib draws it for files, vega for the screen."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Kind = Literal["line", "bar", "point", "range"]
COLOURS = 8  # a chart with more series repeats colours, with other markers
_NAMED = 80  # points of a map up to which their names are written
_WORDS = {"line": "Line chart", "bar": "Bar chart", "point": "Scatter plot", "range": "Estimates with intervals"}


@dataclass(frozen=True)
class Series:
    """Points of one colour; ``low`` and ``high`` bound an interval of y, ``names`` say what each point is."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        """All columns have one value per point."""
        if any(column and len(column) != len(self.y) for column in (self.x, self.low, self.high, self.names)):
            raise ValueError(f"the columns of {self.name!r} have different lengths")


@dataclass(frozen=True)
class Chart:
    """Series over common axes. x is text for ``bar`` and ``range``, where ``range`` is drawn from left to right."""

    kind: Kind
    title: str
    x: str
    y: str
    series: Sequence[Series]
    meaning: str
    log_x: bool = False
    bounds: tuple[float, float] | None = None  # of y, or of the values of a range
    diagonal: bool = False  # a line on which x equals y
    axes: bool = True  # False: positions mean nothing by themselves, as on a map

    @property
    def has_categories(self) -> bool:
        """Whether x is text."""
        return any(isinstance(x, str) for one in self.series for x in one.x[:1])

    @property
    def writes_names(self) -> bool:
        """Whether there is room for the name of every point."""
        return not self.axes and sum(len(one.names) for one in self.series) <= _NAMED

    @property
    def alternative(self) -> str:
        """The picture in words: what it shows, and the first, the last and the extreme values of every series."""
        shown = self.series[:COLOURS]
        more = f" And {len(self.series) - len(shown)} more series." if len(self.series) > len(shown) else ""
        if not self.axes:
            sizes = "; ".join(f"{one.name}: {len(one.y)}" for one in shown)
            return f"{_WORDS[self.kind]}: {self.title}. Points: {sizes}.{more}"
        return f"{_WORDS[self.kind]}: {self.title}. {self.y} by {self.x}. {' '.join(_in_words(one) for one in shown)}{more}"


@dataclass(frozen=True)
class Heat:
    """A square table of values from -1 to 1, as colours."""

    title: str
    names: Sequence[str]
    values: Sequence[Sequence[float]]
    value: str
    meaning: str

    @property
    def alternative(self) -> str:
        """The picture in words: the largest values off the diagonal."""
        pairs = [(self.values[i][j], i, j) for i in range(len(self.names)) for j in range(i)]
        best = sorted(pairs, key=lambda pair: -abs(pair[0]))[:5]
        listed = "; ".join(f"{self.names[j]} and {self.names[i]} {value:.2f}" for value, i, j in best)
        return f"Table of colours: {self.title}, {len(self.names)} labels. Largest {self.value}: {listed}."


def _in_words(series: Series) -> str:
    points = [(x, y) for x, y in zip(series.x, series.y, strict=True) if math.isfinite(y)]
    if not points:
        return f"{series.name}: no values."
    if len(points) <= 6:
        return f"{series.name}: {'; '.join(f'{_short(x)}: {_short(y)}' for x, y in points)}."
    high, low = max(points, key=lambda point: point[1]), min(points, key=lambda point: point[1])
    (first, start), (last, end) = points[0], points[-1]
    ends = f"{_short(start)} at {_short(first)}, {_short(end)} at {_short(last)}"
    extremes = f"highest {_short(high[1])} at {_short(high[0])}, lowest {_short(low[1])} at {_short(low[0])}"
    return f"{series.name}, {len(points)} points: {ends}; {extremes}."


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


@cache
def theme() -> str:
    """The colours of every page, light and dark, as the beginning of its style sheet."""
    return files("polytag.report").joinpath("page.css").read_text(encoding="utf-8").split("/* Pictures", 1)[0]


@cache
def colours() -> dict[str, str]:
    """The names of the light colours and their values, as in ``{"c1": "#0b62a8"}``."""
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", theme().split("@media", 1)[0]))


def colour_of(number: int) -> str:
    """The light colour of a series."""
    return colours()[f"c{number % COLOURS + 1}"]
