"""The shell of a page that stands alone: one file, no request anywhere, no inline code that was not put there by us.

How a page is made::

    page = Page("What the model does", "One sentence under the title.")
    part = page.section("Summary")                       # an anchor and a line of the table of contents
    part.add(paragraph("Micro F1 is ", strong("0.71"), "."))
    part.add(figure(picture(svg, "F1 falls with the number of labels"), "Documents with many labels are harder."))
    page.write(Path("report.html"))

Pieces are in :mod:`polytag.report.markup`. ``Page.script`` takes JavaScript of this package or of an installed one, never
text of a user; ``Page.data`` gives it JSON values. The Content-Security-Policy names the checksum of every script and of
the style sheet, so a browser runs nothing else, and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from polytag.errors import file_error
from polytag.report.markup import Element, element, escaped, markup, paragraph
from polytag.storage.atomic_text import replace_text

_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src {styles}; script-src {scripts}"


@dataclass
class Section:
    """A part of a page under its own heading."""

    title: str
    anchor: str
    children: list[Element | str] = field(default_factory=list)

    def add(self, *children: Element | str) -> None:
        """Put pieces at the end; a ``str`` is a paragraph."""
        self.children.extend(paragraph(child) if isinstance(child, str) else child for child in children)

    def element(self) -> Element:
        """The heading and what stands under it."""
        heading = element("h2", self.title, attributes={"id": f"{self.anchor}-title"})
        return element(
            "section", heading, *self.children, attributes={"id": self.anchor, "aria-labelledby": f"{self.anchor}-title"}
        )


@dataclass
class Page:
    """A page with a title, a sentence under it, sections and a table of contents."""

    title: str
    lead: str = ""
    footer: str = ""
    sections: list[Section] = field(default_factory=list)
    _scripts: list[str] = field(default_factory=list)
    _data: dict[str, str] = field(default_factory=dict)

    def section(self, title: str, lead: str = "") -> Section:
        """Start a section; its anchor is its title in lower case."""
        section = Section(title, self._anchor(title))
        if lead:
            section.add(lead)
        self.sections.append(section)
        return section

    def data(self, name: str, value: Any) -> None:
        """A JSON value that a script finds by ``document.getElementById(name)``."""
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or name in self._data:
            raise ValueError(f"{name!r} is no new name of data; use lower case letters, digits and hyphens")
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        self._data[name] = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

    def script(self, code: str) -> None:
        """A script that runs when the page is complete, after the scripts before it. Never built from a user's text."""
        text = code.replace("\r\n", "\n").replace("\r", "\n")
        for ending in (
            "</script",
            "<script",
            "<!--",
        ):  # these would end or change the script; in strings the backslash is nothing
            text = re.sub(re.escape(ending), lambda found: f"<\\{found[0][1:]}", text, flags=re.IGNORECASE)
        self._scripts.append(text)

    def html(self) -> str:
        """The whole page."""
        style = files("polytag.report").joinpath("page.css").read_text(encoding="utf-8").replace("\r\n", "\n")
        policy = _POLICY.format(styles=_checksums([style]), scripts=_checksums(self._scripts))
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">',
                f"<title>{escaped(self.title)}</title>\n<style>{style}</style>\n</head>\n<body>",
                *(markup(piece) for piece in self._body()),
                *(f'<script type="application/json" id="{name}">{text}</script>' for name, text in self._data.items()),
                *(f"<script>{text}</script>" for text in self._scripts),
                "</body>\n</html>\n",
            ]
        )

    def write(self, path: str | Path) -> None:
        """Write the page in one step: a reader sees the old file or the new one."""
        try:
            replace_text(Path(path), self.html())
        except OSError as error:
            raise file_error(path, error) from error

    def _body(self) -> list[Element]:
        lead = [paragraph(self.lead, kind="lead")] if self.lead else []
        pieces = [element("header", element("h1", self.title), *lead)]
        if len(self.sections) > 1:
            links = (element("a", part.title, attributes={"href": f"#{part.anchor}"}) for part in self.sections)
            items = element("ul", *(element("li", link) for link in links))
            pieces.append(element("nav", items, attributes={"aria-label": "Contents"}))
        pieces.append(element("main", *(part.element() for part in self.sections)))
        return [*pieces, element("footer", self.footer)] if self.footer else pieces

    def _anchor(self, title: str) -> str:
        plain = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "part"
        taken = {part.anchor for part in self.sections}
        return next(name for name in (plain, *(f"{plain}-{n}" for n in range(2, 1000))) if name not in taken)


def _checksums(texts: list[str]) -> str:
    """What a policy allows: these texts and nothing else."""
    sums = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{value}'" for value in sums) or "'none'"
