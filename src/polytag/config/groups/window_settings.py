"""How wide filters and windows over the words of a text are."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.settings import param


@dataclass
class FilterSettings:
    """Convolution filters."""

    widths: tuple[int, ...] = param((3, 4, 5), "filter widths, in words", minimum=1, first=True)
    filters: int = param(256, "filters per width", minimum=1, first=True)


@dataclass
class WindowSettings:
    """Attention window."""

    window: int = param(
        5,
        "window of words over which the match with a label is pooled; leam: words on either side, laco: all",
        minimum=0,
        first=True,
    )
