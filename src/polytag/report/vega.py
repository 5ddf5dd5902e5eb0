"""Charts for the screen: Vega-Lite specifications, and the library that draws them, taken from an installed package.

The library is embedded once. It evaluates expressions with its interpreter, not with ``eval``, so the strict policy of the
page holds. Without the extra ``report`` there is no library, and a page shows the pictures of matplotlib.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import Any

from polytag.report.chart import Chart, Heat, Series

_SHAPES = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left"]
_FEW_POINTS = 30


@cache
def library() -> str | None:
    """JavaScript that defines ``vegaEmbed``, or None where the package ``vl-convert-python`` is not installed."""
    try:
        import vl_convert
    except ImportError:
        return None
    code: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return code


def starter() -> str:
    """JavaScript that draws every chart of a page and puts it in the place of its picture."""
    return files("polytag.report").joinpath("charts.js").read_text(encoding="utf-8")


def spec(chart: Chart | Heat) -> dict[str, Any]:
    """The specification of a chart; colours come from the page when it is drawn."""
    if isinstance(chart, Heat):
        return _heat(chart)
    values = [row for one in chart.series for row in _rows(one)]
    layers = {"line": _line, "bar": _bar, "point": _point, "range": _range}[chart.kind](chart)
    common = {
        "width": "container", "autosize": {"type": "fit-x", "contains": "padding"}, "description": chart.alternative,
        "data": {"values": values},
    }  # fmt: skip
    return common | layers


def _rows(one: Series) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"series": one.name, "x": x, "y": _number(y)} for x, y in zip(one.x, one.y, strict=True)]
    for key, column in (("low", one.low), ("high", one.high)):
        for row, value in zip(rows, column, strict=False):
            row[key] = _number(value)
    for row, name in zip(rows, one.names, strict=False):
        row["name"] = name
    return rows


def _number(value: float) -> float | None:
    return round(float(value), 5) if math.isfinite(value) else None


def _colour(chart: Chart) -> dict[str, Any]:
    """Colour by series, with a legend where there are several."""
    legend = {"orient": "top", "title": None} if len(chart.series) > 1 else None
    return {"field": "series", "type": "nominal", "sort": None, "legend": legend}


def _axis(chart: Chart) -> dict[str, Any]:
    if chart.has_categories:
        return {"field": "x", "type": "ordinal", "sort": None, "title": chart.x, "axis": {"labelAngle": 0, "labelOverlap": True}}
    scale: dict[str, Any] = {"zero": False, "nice": False} | ({"type": "symlog"} if chart.log_x else {})
    if not chart.axes:
        return {"field": "x", "type": "quantitative", "axis": None, "scale": {"zero": False, "padding": 30}}
    ticks = {"values": _decades(chart)} if chart.log_x else {}
    return {"field": "x", "type": "quantitative", "title": chart.x, "scale": scale, "axis": {"labelOverlap": True, **ticks}}


def _decades(chart: Chart) -> list[int]:
    top = max((float(x) for one in chart.series for x in one.x), default=1.0)
    return [0, *(10**power for power in range(math.ceil(math.log10(max(top, 1))) + 1))]


def _values(chart: Chart) -> dict[str, Any]:
    if not chart.axes:
        return {"field": "y", "type": "quantitative", "axis": None, "scale": {"zero": False, "padding": 15}}
    scale = {"domain": list(chart.bounds), "clamp": True} if chart.bounds else {"zero": False}
    return {"field": "y", "type": "quantitative", "title": chart.y, "scale": scale}


def _tooltip(chart: Chart) -> list[dict[str, Any]]:
    names = [{"field": "name", "title": "name"}] if any(one.names for one in chart.series) else []
    several = [{"field": "series", "title": "series"}] if len(chart.series) > 1 else []
    if not chart.axes:
        return [*names, *several]
    shown = {"format": ",.3~f"}
    x = {"field": "x", "title": chart.x} | ({} if chart.has_categories else shown)
    ends = [{"field": key, "title": key, **shown} for key in ("low", "high") if any(getattr(one, key) for one in chart.series)]
    return [*names, *several, x, {"field": "y", "title": chart.y, **shown}, *ends]


def _line(chart: Chart) -> dict[str, Any]:
    """Lines with marked points, distinguished by colour and shape; long ones without points by colour and dashes."""
    few = max(len(one.y) for one in chart.series) <= _FEW_POINTS
    place, silent = {"x": _axis(chart), "y": _values(chart)}, _colour(chart) | {"legend": None}
    layers: list[dict[str, Any]] = [_diagonal()] if chart.diagonal else []
    if any(one.low for one in chart.series):
        band = place | {"y": _values(chart) | {"field": "low"}, "y2": {"field": "high"}, "fill": silent}
        layers.append({"mark": {"type": "area", "opacity": 0.15}, "encoding": band})
    lines = {"stroke": silent} if few else {"stroke": _colour(chart), "strokeDash": _colour(chart)}
    layers.append({"mark": {"type": "line", "strokeWidth": 2}, "encoding": place | lines})
    dots: dict[str, Any] = {"color": _colour(chart), "shape": _colour(chart) | {"scale": {"range": _SHAPES}}}
    mark = {"type": "point", "size": 50, "filled": True} if few else {"type": "point", "size": 80, "opacity": 0}
    layers.append({"mark": mark, "encoding": place | (dots if few else {}) | {"tooltip": _tooltip(chart)}})
    return {"height": 240, "layer": layers}


def _diagonal() -> dict[str, Any]:
    data = {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]}
    place = {key: {"field": key, "type": "quantitative"} for key in "xy"}
    return {"data": data, "mark": {"type": "line", "strokeDash": [2, 3], "strokeWidth": 1, "color": "gray"}, "encoding": place}


def _bar(chart: Chart) -> dict[str, Any]:
    offset = {"xOffset": {"field": "series", "sort": None}} if len(chart.series) > 1 else {}
    base = {"x": _axis(chart), **offset}
    bars = base | {"y": _values(chart), "color": _colour(chart), "tooltip": _tooltip(chart)}
    layers: list[dict[str, Any]] = [{"mark": {"type": "bar"}, "encoding": bars}]
    if any(one.low for one in chart.series):
        ends = base | {"y": _values(chart) | {"field": "low"}, "y2": {"field": "high"}}
        layers.append({"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": ends})
    return {"height": 240, "layer": layers}


def _range(chart: Chart) -> dict[str, Any]:
    several = len(chart.series) > 1
    place = {"field": "x", "type": "nominal", "sort": None, "title": None}
    base = {"y": place} | ({"yOffset": {"field": "series", "sort": None}} if several else {})
    value = {
        "field": "y",
        "type": "quantitative",
        "title": chart.y,
        "scale": {"zero": True, "nice": True},
        "axis": {"tickCount": 5},
    }
    ends = base | {"x": value | {"field": "low"}, "x2": {"field": "high"}, "color": _colour(chart)}
    dots = base | {"x": value, "color": _colour(chart), "tooltip": _tooltip(chart)}
    layers = [
        {"mark": {"type": "rule", "strokeWidth": 1}, "encoding": {"x": {"datum": 0}}},
        {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": ends},
        {"mark": {"type": "point", "filled": True, "size": 60}, "encoding": dots},
    ]
    rows = len(chart.series[0].x) * (len(chart.series) if several else 1)
    return {"height": 28 * rows + 12, "layer": layers}


def _point(chart: Chart) -> dict[str, Any]:
    """Points with a search box; a click on the legend shows one series, shift and wheel zoom."""
    several = len(chart.series) > 1
    found = "length(find) > 0 && indexof(lower(datum.name), lower(find)) >= 0"
    zoom = {
        "type": "interval",
        "zoom": "wheel![event.shiftKey]",
        "translate": "[pointerdown[event.shiftKey], window:pointerup] > window:pointermove!",
    }
    params: list[dict[str, Any]] = [
        {"name": "find", "value": "", "bind": {"input": "search", "name": "Find ", "placeholder": "part of a name"}},
        {"name": "zoom", "select": zoom, "bind": "scales"},
    ]
    visible: list[dict[str, Any]] = [{"test": "length(find) > 0", "value": 0.12}]
    if several:
        params.append({"name": "chosen", "select": {"type": "point", "fields": ["series"]}, "bind": "legend"})
        visible.append({"param": "chosen", "value": 0.8})
    encoding = {
        "x": _axis(chart), "y": _values(chart), "color": _colour(chart), "tooltip": _tooltip(chart),
        "opacity": {"condition": [{"test": found, "value": 1}, *visible], "value": 0.12 if several else 0.8},
        "size": {"condition": {"test": found, "value": 130}, "value": 36},
    }  # fmt: skip
    if several:
        encoding["shape"] = _colour(chart) | {"scale": {"range": _SHAPES}}
    points = {"mark": {"type": "point", "filled": True}, "encoding": encoding}
    if not chart.writes_names:
        return {"height": 260 if chart.axes else 460, "params": params, **points}
    names = {"x": encoding["x"], "y": encoding["y"], "text": {"field": "name"}}
    written = {"mark": {"type": "text", "align": "left", "dx": 5, "dy": -3, "fontSize": 10}, "encoding": names}
    return {"height": 460, "params": params[:1], "layer": [points | {"params": params[1:]}, written]}


def _heat(chart: Heat) -> dict[str, Any]:
    pairs = [
        {"a": chart.names[i], "b": chart.names[j], "v": _number(chart.values[i][j])}
        for i in range(len(chart.names)) for j in range(len(chart.names))
    ]  # fmt: skip
    axis = {"labelLimit": 110, "labelFontSize": 9, "labelOverlap": True}
    place = {key: {"field": key, "type": "nominal", "sort": None, "title": None, "axis": dict(axis)} for key in "ab"}
    place["a"]["axis"]["labelAngle"] = -90  # type: ignore[index]
    colour = {
        "field": "v", "type": "quantitative", "title": chart.value,
        "scale": {"domain": [-1, 0, 1], "range": "diverging", "interpolate": "rgb"},
        "legend": {"orient": "top", "gradientLength": 150},
    }  # fmt: skip
    tips = [
        {"field": "a", "title": "label"},
        {"field": "b", "title": "and"},
        {"field": "v", "title": chart.value, "format": ".2f"},
    ]
    return {
        "width": "container", "height": max(260, 15 * len(chart.names)), "autosize": {"type": "fit-x", "contains": "padding"},
        "description": chart.alternative, "data": {"values": pairs}, "mark": "rect",
        "encoding": {"x": place["a"], "y": place["b"], "color": colour, "tooltip": tips},
    }  # fmt: skip
