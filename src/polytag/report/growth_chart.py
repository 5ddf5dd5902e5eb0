"""The picture of a learning curve: measured points, the fitted power law and its interval."""

from __future__ import annotations

from pathlib import Path

from polytag.analysis.power_law import LearningCurve
from polytag.errors import ConfigError
from polytag.report.chart import Chart, Series
from polytag.report.drawing import plain_svg, png

FORMS = {".png": png, ".svg": plain_svg}


def growth_chart(found: LearningCurve) -> Chart:
    """Every metric's fitted curve with its interval, up to four times the documents, and what was measured."""
    series = []
    for curve in found.metrics:
        x, y = [row.documents for row in curve.fitted], [row.value for row in curve.fitted]
        low, high = [row.low for row in curve.fitted], [row.high for row in curve.fitted]
        series.append(Series(f"{curve.metric.replace('_', ' ')}, fitted", x, y, low, high))
    for curve in found.metrics:
        x, y = [row.documents for row in curve.points], [row.value for row in curve.points]
        series.append(Series(f"{curve.metric.replace('_', ' ')}, measured", x, y))
    meaning = "Where the curve is flat, more labelled documents buy little; the band shows how sure that is."
    title = f"Learning curve of {found.model}"
    return Chart("line", title, "training documents", "metric", series, meaning, log_x=True, bounds=(0.0, 1.0))


def checked_picture(path: Path) -> str:
    """The kind of picture that a file's name asks for."""
    ending = path.suffix.lower()
    if ending not in FORMS:
        raise ConfigError(f"{path}: a picture ends with {' or '.join(FORMS)}; name it so")
    return ending


def growth_picture(found: LearningCurve, path: Path) -> bytes:
    """The picture as a file of the kind that its name asks for."""
    return FORMS[checked_picture(path)](growth_chart(found))
