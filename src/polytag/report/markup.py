"""Pieces of an HTML page. Text is escaped by construction: a ``str`` is always text, and there is no way to pass HTML.

What a piece may be: :func:`element`, and above it :func:`paragraph`, :func:`table`, :func:`figure`, :func:`shaded`,
:func:`details` and :func:`listing`. Scripts, styles, handlers and addresses of other files are refused here, so a page
that was made of these pieces loads nothing.
"""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_REFUSED = ("script", "style", "iframe", "object", "embed", "link", "meta", "base", "form")
_VOID = ("br", "hr", "img", "col", "wbr")
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # no HTML file may hold these
_IMAGES = {b"\x89PNG": "image/png", b"<?xm": "image/svg+xml", b"<svg": "image/svg+xml"}
SHADES = 5  # steps of colour in each direction


@dataclass(frozen=True)
class Element:
    """One element of a page; build it by :func:`element`, which checks it."""

    name: str
    children: tuple[Element | str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The element as HTML."""
        inside = "".join(f' {key}="{escaped(value)}"' for key, value in self.attributes.items())
        if self.name in _VOID:
            return f"<{self.name}{inside}>"
        return f"<{self.name}{inside}>{''.join(markup(child) for child in self.children)}</{self.name}>"


def escaped(text: str) -> str:
    """Text for any place of a page; characters that HTML forbids become U+FFFD."""
    return html.escape(_UNWRITABLE.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n")), quote=True)


def markup(child: Element | str) -> str:
    """HTML of a piece; a ``str`` is text, never HTML."""
    return str(child) if isinstance(child, Element) else escaped(child)


def shown(value: Element | str | float | None) -> Element | str:
    """A value as a reader expects it: 12,345, 0.734, and a dash for nothing."""
    if isinstance(value, (str, Element)):
        return value
    if value is None or math.isnan(value):
        return "\N{EN DASH}"
    return f"{value:,}" if isinstance(value, Integral) else f"{value:.3f}"


def element(name: str, *children: Element | str | float | None, attributes: Mapping[str, str] | None = None) -> Element:
    """An element with its children; strings and numbers are text. Anything that could load or run something is refused."""
    if not _NAME.fullmatch(name) or name in _REFUSED:
        raise ValueError(f"<{name}> is no element of a page; scripts and styles belong to the page")
    given = dict(attributes or {})
    for key, value in given.items():
        if not _NAME.fullmatch(key) or key == "style" or key.startswith("on"):
            raise ValueError(f"attribute {key!r} of <{name}>: use a class of page.css instead")
        if key in ("href", "src", "srcset", "action", "poster", "data") and not value.startswith(("#", "data:image/")):
            raise ValueError(f"attribute {key!r} of <{name}> names another file; a page stands alone")
    return Element(name, tuple(shown(child) for child in children), given)


def paragraph(*children: Element | str | float | None, kind: str = "") -> Element:
    """A paragraph; ``kind`` is a class: ``note`` for small print, ``good`` and ``bad`` for a verdict."""
    return element("p", *children, attributes={"class": kind} if kind else None)


def code(text: str) -> Element:
    """Text in the font of code."""
    return element("code", text)


def strong(text: str) -> Element:
    """Text that stands out."""
    return element("strong", text)


def listing(items: Sequence[Element | str]) -> Element:
    """A list with one bullet per item."""
    return element("ul", *(element("li", item) for item in items))


def details(summary: str, *children: Element | str | float | None) -> Element:
    """Something that a reader unfolds."""
    return element("details", element("summary", summary), *children)


def table(
    header: Sequence[Element | str], rows: Sequence[Sequence[Element | str | float | None]], caption: str, *, numbers: bool = True
) -> Element:
    """A table that scrolls inside the page; numbers are right-aligned; the first cell of a row is its heading.

    ``caption`` is shown above it and read aloud by screen readers. ``numbers=False`` is for rows of words.
    """
    head = element("thead", element("tr", *(element("th", cell, attributes={"scope": "col"}) for cell in header)))
    body = element("tbody", *(_row(row) for row in rows))
    attributes = {"class": "numbers"} if numbers else None
    inner = element("table", element("caption", caption), head, body, attributes=attributes)
    return element("div", inner, attributes={"class": "scroll", "role": "region", "tabindex": "0", "aria-label": caption})


def _row(row: Sequence[Element | str | float | None]) -> Element:
    first, *others = row
    return element("tr", element("th", first, attributes={"scope": "row"}), *(_cell(value) for value in others))


def _cell(value: Element | str | float | None) -> Element:
    return element("td", value, attributes={"class": "words"} if isinstance(value, str) and len(value) > 20 else None)


def picture(image: bytes, alternative: str) -> Element:
    """A PNG or SVG image inside the page. ``alternative`` says in words what it shows, for readers who do not see it."""
    kind = _IMAGES.get(image[:4])
    if kind is None:
        raise ValueError("an image is PNG or SVG")
    if not alternative.strip():
        raise ValueError("an image needs a text alternative")
    address = f"data:{kind};base64,{base64.b64encode(image).decode()}"
    return element("img", attributes={"src": address, "alt": alternative})


def figure(shown_as: Element, meaning: str) -> Element:
    """A picture, or anything else that is looked at, above the sentence that says what it means to a newcomer."""
    if not meaning.strip():
        raise ValueError("a figure needs a sentence that says what it means")
    return element("figure", shown_as, element("figcaption", meaning))


def shaded(text: str, weight: float, hover: str = "") -> Element:
    """Text on colour: blue for weights up to 1, orange and underlined for weights down to -1, plain near 0."""
    step = min(SHADES, math.ceil(abs(weight) * SHADES - 0.25)) if math.isfinite(weight) else 0
    if step <= 0:
        return element("span", text, attributes={"title": hover} if hover else None)
    name = f"{'for' if weight > 0 else 'against'}-{step}"
    return element("mark", text, attributes={"class": name} | ({"title": hover} if hover else {}))
