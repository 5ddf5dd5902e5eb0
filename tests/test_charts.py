"""A chart is drawn twice from the same values; the SVG is well formed, the specification holds the values."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from polytag.report.chart import Chart, Heat, Series, colours, theme
from polytag.report.drawing import plain_svg, png, svg
from polytag.report.vega import library, spec, starter

GROUPS = ["1", "2", "3-4"]
BAND = Series("a", GROUPS, [0.5, 0.25, 0.125], [0.4, 0.2, 0.1], [0.6, 0.3, 0.2])
BOTH = [Series("a", [0, 0.5], [0, 0.4]), Series("_b", [0, 1], [0, 1])]
ENDS = Series("b - a", ["x", "y"], [0.1, -0.1], [0, -0.2], [0.2, 0])
NAMED = Series("a", [0, 10, 1000], [0, 0.5, 1], names=["u", "v", "$w$ <b>"])
MANY = [Series(name, [1, 2], [3, 4], names=["u", "v"]) for name in "abcdefghij"]
CHARTS = {
    "line": Chart("line", "A line", "labels", "F1", [BAND], "Falls."),
    "two lines": Chart("line", "Lines", "p", "share", BOTH, "Rises.", diagonal=True),
    "bar": Chart("bar", "Bars", "group", "F1", [Series(n, GROUPS, [0.5, 0.2, 0.1]) for n in "ab"], "Falls.", bounds=(0, 1)),
    "range": Chart("range", "Ranges", "metric", "difference", [ENDS], "Zero?"),
    "point": Chart("point", "Points", "documents", "F1", [NAMED], "Up.", log_x=True),
    "map": Chart("point", "A map", "", "", MANY, "Near.", axes=False),
    "heat": Heat("Heat", ["a", "b & c"], [[1, -0.5], [-0.5, 1]], "phi", "Blue."),
}


@pytest.mark.parametrize("name", CHARTS)
def test_an_svg_is_well_formed_follows_the_theme_and_is_the_same_again(name: str) -> None:
    image = svg(CHARTS[name])
    root = ElementTree.fromstring(image)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root[0].text == theme()
    assert not any(element.tag.endswith("script") for element in root.iter())
    assert image == svg(CHARTS[name])
    drawn = image.decode().replace(theme(), "")
    assert "var(--ink)" in drawn or name == "map"
    assert not any(value in drawn for value in colours().values())


@pytest.mark.parametrize("name", CHARTS)
def test_files_for_documents_are_complete(name: str) -> None:
    assert png(CHARTS[name]).startswith(b"\x89PNG")
    assert b"var(--" not in plain_svg(CHARTS[name])


def test_names_are_never_read_as_formulas_and_never_hidden() -> None:
    chart = Chart("line", "t", "x", "$y_1$", [Series("_hidden $a$", [1, 2], [1, 2]), Series("b", [1, 2], [2, 1])], "m")
    texts = "".join(ElementTree.fromstring(svg(chart)).itertext())
    assert "$y_1$" in texts and "_hidden $a$" in texts


@pytest.mark.parametrize("name", CHARTS)
def test_a_specification_is_json_without_addresses_and_describes_itself(name: str) -> None:
    found = spec(CHARTS[name])
    text = json.dumps(found, allow_nan=False)
    assert "http" not in text and '"url"' not in text
    assert found["description"] == CHARTS[name].alternative


def test_a_specification_holds_the_values_of_every_series() -> None:
    values = spec(CHARTS["line"])["data"]["values"]
    assert values[1] == {"series": "a", "x": "2", "y": 0.25, "low": 0.2, "high": 0.3}
    missing = Chart("line", "t", "x", "y", [Series("a", [0, 1], [float("nan"), 1.0])], "m")
    assert [row["y"] for row in spec(missing)["data"]["values"]] == [None, 1.0]
    assert [row["v"] for row in spec(CHARTS["heat"])["data"]["values"]] == [1.0, -0.5, -0.5, 1.0]


def test_words_of_a_chart_name_its_values() -> None:
    assert CHARTS["line"].alternative == "Line chart: A line. F1 by labels. a: 1: 0.5; 2: 0.25; 3-4: 0.125."
    y = np.sin(np.arange(20)).tolist()
    long = Chart("line", "t", "x", "y", [Series("a", list(range(20)), y)], "m").alternative
    assert f"highest {max(y):.3g} at {y.index(max(y))}" in long and f"lowest {min(y):.3g} at {y.index(min(y))}" in long
    assert "And 2 more series." in CHARTS["map"].alternative
    assert "a and b & c -0.50" in CHARTS["heat"].alternative


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        Series("a", [1, 2], [1.0])


def test_the_library_is_whole_and_the_starter_asks_for_the_interpreter() -> None:
    assert re.search(r"\bast: true\b", starter())
    code = library()
    if code is None:
        pytest.skip("vl-convert-python is not installed")
    assert "</script" not in code and 500_000 < len(code) < 2_000_000
