"""A page stands alone: text is never HTML, nothing is loaded, and the policy allows exactly the scripts that are in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polytag.errors import DataError
from polytag.report.markup import details, element, figure, listing, paragraph, picture, shaded, shown, table
from polytag.report.page import Page

SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;<!-- \x00\ud800"


class Tags(HTMLParser):
    """Everything that a parser finds in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@given(st.text())
def test_any_text_comes_back_as_the_same_text(text: str) -> None:
    found = Tags(str(element("p", text, attributes={"title": text})))
    assert [tag for tag, _ in found.tags] == ["p"]
    kept = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]", "\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    assert "".join(found.texts) == kept
    assert found.tags[0][1]["title"] == kept


def test_every_piece_escapes_what_it_is_given() -> None:
    page = Page(HOSTILE, HOSTILE, HOSTILE)
    part = page.section(HOSTILE, HOSTILE)
    page.section(HOSTILE)
    part.add(paragraph(HOSTILE), table([HOSTILE], [[HOSTILE, HOSTILE]], HOSTILE), details(HOSTILE, HOSTILE), listing([HOSTILE]))
    part.add(figure(picture(SVG, HOSTILE), HOSTILE), shaded(HOSTILE, 1.0, HOSTILE))
    page.data("values", {HOSTILE.replace("\ud800", ""): HOSTILE.replace("\ud800", "")})
    found = Tags(page.html())
    assert [attributes for tag, attributes in found.tags if tag == "script"] == [{"type": "application/json", "id": "values"}]
    assert all(attributes["src"].startswith("data:image/svg+xml") for tag, attributes in found.tags if tag == "img")  # type: ignore[union-attr]
    assert not any(key.startswith("on") or key == "style" for _, attributes in found.tags for key in attributes)


@pytest.mark.parametrize("name", ["script", "style", "iframe", "link", "meta", "base", "form", "P", "p onclick", ""])
def test_elements_that_could_load_or_run_something_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no element of a page"):
        element(name)


@pytest.mark.parametrize(
    ("key", "value"),
    [("onclick", "x()"), ("style", "color:red"), ("href", "javascript:x()"), ("src", "//host/x.png"), ("x y", "")],
)
def test_attributes_that_could_load_or_run_something_are_refused(key: str, value: str) -> None:
    with pytest.raises(ValueError, match="attribute"):
        element("a", attributes={key: value})


def test_the_policy_names_the_checksums_of_what_a_browser_sees() -> None:
    page = Page("A page")
    page.script("const a = '</script>' +\r\n '<!-- é';")
    page.script("const b = 2;")
    text = page.html()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none';")
    assert "unsafe" not in policy[1]
    inside = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", text, flags=re.DOTALL)
    assert len(inside) == 3
    assert "\r" not in "".join(inside)
    sums = {f"sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}" for part in inside}
    assert sums == set(re.findall(r"'(sha256-[^']+)'", policy[1]))


def test_data_comes_back_as_the_same_value() -> None:
    value = {"a": [1, 2.5, None, "</script><!--&\u2028"], "é": {}}
    page = Page("A page")
    page.data("some-values", value)
    with pytest.raises(ValueError, match="no new name"):
        page.data("some-values", 1)
    found = re.search(r'<script type="application/json" id="some-values">(.*?)</script>', page.html())
    assert found is not None
    assert json.loads(found[1]) == value


def test_anchors_are_unique_and_the_contents_link_to_them() -> None:
    page = Page("A page")
    for title in ("Case studies", "Case: studies!", "Überblick", "日本"):
        page.section(title)
    found = Tags(page.html())
    ids = [attributes["id"] for tag, attributes in found.tags if tag == "section"]
    assert ids == ["case-studies", "case-studies-2", "berblick", "part"]
    assert [attributes["href"] for tag, attributes in found.tags if tag == "a"] == [f"#{name}" for name in ids]


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345, "12,345"), (np.int64(7), "7"), (0.5, "0.500"), (np.float32(0.25), "0.250"), (None, "–"), (np.nan, "–")],  # noqa: RUF001
)
def test_numbers_are_shown_as_a_reader_expects(value: float | None, text: str) -> None:
    assert shown(value) == text


def test_a_picture_has_a_text_alternative_and_a_figure_a_meaning() -> None:
    with pytest.raises(ValueError, match="text alternative"):
        picture(SVG, " ")
    with pytest.raises(ValueError, match="what it means"):
        figure(picture(SVG, "a line"), "")
    with pytest.raises(ValueError, match="PNG or SVG"):
        picture(b"GIF89a", "a line")


def test_shades_follow_the_weight() -> None:
    names = [shaded("word", weight).attributes.get("class", "") for weight in (-1, -0.5, -0.01, 0, 0.01, 0.1, 0.5, 1, 7, np.nan)]
    assert names == ["against-5", "against-3", "", "", "", "for-1", "for-3", "for-5", "for-5", ""]


def _luminance(colour: str) -> float:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_colours_of_text_have_enough_contrast_in_light_and_dark() -> None:
    style = (Path(__file__).parent.parent / "src" / "polytag" / "report" / "page.css").read_text(encoding="utf-8")
    themes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in style.split("@media (prefers-color-scheme: dark)", 1)
    ]
    assert len(themes) == 2
    for theme in themes:
        for text in ("ink", "soft", "link", "good", "bad"):
            for behind in ("paper", "card"):
                high, low = sorted((_luminance(theme[text]), _luminance(theme[behind])), reverse=True)
                assert (high + 0.05) / (low + 0.05) >= 4.5, (text, behind)


def test_a_page_replaces_a_file_in_one_step_and_says_what_is_wrong_with_a_path(tmp_path: Path) -> None:
    page = Page("A page")
    page.write(tmp_path / "new" / "a.html")
    assert (tmp_path / "new" / "a.html").read_text(encoding="utf-8") == page.html()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.html"]
    with pytest.raises(DataError, match="is a folder"):
        page.write(tmp_path / "new")
