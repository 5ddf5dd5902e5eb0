"""Charts as SVG or PNG, drawn by matplotlib. The SVG follows the reader's light or dark colours."""

from __future__ import annotations

import io
import math
import re
import warnings
from typing import TYPE_CHECKING, Any

from polytag.report.chart import COLOURS, Chart, Heat, colour_of, colours, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 4.6, 3.1  # inches; small, so that its text can be read on a phone
_MARKERS, _DASHES = "os^Dv*PX", ("-", "--", "-.", ":")
_FEW_POINTS = 30
_LETTERS = 28
_DIVERGING = ("#b8420c", "#f5f7f9", "#0b62a8")
_RULES: dict[Any, Any] = {
    "font.size": 9.5, "font.family": "sans-serif", "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    "svg.fonttype": "none", "svg.hashsalt": "polytag", "axes.grid": True, "grid.linewidth": 0.6, "axes.axisbelow": True,
    "savefig.transparent": True, "axes.unicode_minus": False, "text.parse_math": False,
}  # fmt: skip


def svg(chart: Chart | Heat) -> bytes:
    """The chart as SVG without background; its colours change with those of the page."""
    text = _saved(chart, "svg").decode()
    start = text.index("<svg")
    text = text[start:]
    for name, value in colours().items():
        text = text.replace(value, f"var(--{name})")
    return re.sub(r"(<svg[^>]*>)", lambda found: f"{found[1]}<style>{theme()}</style>", text, count=1).encode()


def png(chart: Chart | Heat, *, dpi: int = 160) -> bytes:
    """The chart as PNG on white, for documents."""
    return _saved(chart, "png", dpi=dpi, transparent=False, facecolor="white")


def plain_svg(chart: Chart | Heat) -> bytes:
    """The chart as SVG in light colours, for documents."""
    return _saved(chart, "svg")


def _saved(chart: Chart | Heat, form: str, **options: Any) -> bytes:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ink, soft, line = colours()["ink"], colours()["soft"], colours()["line"]
    look: dict[Any, Any] = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), ink)
    look |= dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), soft) | {"grid.color": line}
    with rc_context(_RULES | look):
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        FigureCanvasAgg(figure)  # no window, and no global state of pyplot
        if isinstance(chart, Heat):
            _heat(figure, chart)
        else:
            _draw(figure, chart)
        target = io.BytesIO()
        extra = {"metadata": {"Date": None, "Creator": None}} if form == "svg" else {"metadata": {"Software": None}}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # an SVG has text; the reader has fonts
            figure.savefig(target, format=form, **extra, **options)  # type: ignore[arg-type]
    return target.getvalue()


def _short(name: str) -> str:
    """A name in one line that leaves room for the chart; characters that an SVG must not have are left out."""
    plain = " ".join("".join(letter for letter in name if letter.isprintable()).split())
    return plain if len(plain) <= _LETTERS else f"{plain[: _LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


def _draw(figure: Figure, chart: Chart) -> None:
    if not chart.axes:
        figure.set_figheight(_WIDTH)
    axes = figure.add_subplot()
    if chart.kind == "range":
        handles = _ranges(figure, axes, chart)
    elif chart.kind == "bar":
        handles = _bars(axes, chart)
    else:
        handles = [_points(axes, chart, number) if chart.kind == "point" else _line(axes, chart, number)
                   for number in range(len(chart.series))]  # fmt: skip
        _axes(axes, chart)
    if chart.diagonal:
        axes.axline((0, 0), slope=1, color=colours()["soft"], linestyle=":", linewidth=1)
    if len(chart.series) > 1:
        columns = 2
        figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(handles) / columns))
        figure.legend(handles, [_short(one.name) for one in chart.series], loc="outside upper left", ncols=columns, fontsize=8.5,
                      markerscale=2 if chart.kind == "point" else 1)  # fmt: skip


def _points(axes: Axes, chart: Chart, number: int) -> Any:
    one, marker = chart.series[number], _MARKERS[number % len(_MARKERS)]
    if chart.writes_names:
        for x, y, name in zip(one.x, one.y, one.names, strict=True):
            axes.annotate(_short(name), (float(x), y), (3, 2), textcoords="offset points", fontsize=6.5)
    look: dict[str, Any] = {"color": colour_of(number), "markersize": 3.2, "alpha": 0.75, "markeredgewidth": 0}
    return axes.plot(one.x, one.y, marker, **look)[0]


def _line(axes: Axes, chart: Chart, number: int) -> Any:
    one, colour = chart.series[number], colour_of(number)
    place: list[Any] = list(range(len(one.y))) if chart.has_categories else list(one.x)
    dash = _DASHES[(number + number // COLOURS) % len(_DASHES)]
    dots = _MARKERS[number % len(_MARKERS)] if len(one.y) <= _FEW_POINTS else ""
    handle = axes.plot(place, one.y, dash, marker=dots, color=colour, markersize=4, linewidth=1.5)[0]
    if one.low:
        axes.fill_between(place, one.low, one.high, color=colour, alpha=0.15, linewidth=0)
    if chart.has_categories:
        axes.set_xticks(place, [_short(str(x)) for x in one.x])
    return handle


def _axes(axes: Axes, chart: Chart) -> None:
    if chart.log_x:
        axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    if chart.bounds is not None:
        axes.set_ylim(*chart.bounds)
    if not chart.axes:
        axes.set_axis_off()
        axes.set_aspect("equal", "datalim")
        return
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)


def _bars(axes: Axes, chart: Chart) -> list[Any]:
    count, handles = len(chart.series), []
    width = 0.8 / max(count, 1)
    for number, one in enumerate(chart.series):
        place = [at + (number - (count - 1) / 2) * width for at in range(len(one.y))]
        handles.append(axes.bar(place, one.y, width * 0.92, color=colour_of(number)))
        if one.low:
            axes.vlines(place, one.low, one.high, color=colours()["ink"], linewidth=1)
    axes.set_xticks(range(len(chart.series[0].x)), [_short(str(name)) for name in chart.series[0].x])
    axes.grid(visible=False, axis="x")
    _axes(axes, chart)
    return handles


def _ranges(figure: Figure, axes: Axes, chart: Chart) -> list[Any]:
    names, count, handles = [_short(str(name)) for name in chart.series[0].x], len(chart.series), []
    figure.set_figheight(max(1.6, 0.32 * len(names) * count + 0.9))
    for number, one in enumerate(chart.series):
        place = [at + (number - (count - 1) / 2) * 0.6 / count for at in range(len(names))]
        axes.hlines(place, one.low, one.high, color=colour_of(number), linewidth=1.8)
        handles += axes.plot(one.y, place, _MARKERS[number % len(_MARKERS)], color=colour_of(number), markersize=5)
    axes.axvline(0, color=colours()["soft"], linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(chart.y)
    return handles


def _heat(figure: Figure, chart: Heat) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    size = max(3.2, 1.4 + 0.16 * len(chart.names))
    figure.set_size_inches(size, size * 0.95)
    axes = figure.add_subplot()
    colouring = LinearSegmentedColormap.from_list("diverging", _DIVERGING)
    image = axes.imshow(chart.values, cmap=colouring, vmin=-1, vmax=1)
    names = [_short(name) for name in chart.names]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, shrink=0.5, label=chart.value)
