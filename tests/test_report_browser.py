"""The report in a browser: nothing is refused or requested, every picture has words, a phone shows it, a reader can use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conftest import Toy
from polytag.classifier import Classifier
from polytag.report.composition import composed
from polytag.verbs.reporting import gathered

pytestmark = pytest.mark.services
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1200, "height": 900}
WAIT = 120_000  # milliseconds; a busy machine takes its time
HOSTILE = "<img src='https://example.org/x.png' onerror='alert(1)'>"


class Opened(NamedTuple):
    """A page in the browser, with what the browser complained about and what it asked for."""

    page: Any
    complaints: list[str]
    requests: list[str]


@pytest.fixture(scope="module")
def report(toy: Toy, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interactive report of two toy runs."""
    pytest.importorskip("vl_convert", reason="the extra report is not installed")
    folder = tmp_path_factory.mktemp("report")
    for name, model in (("first", "lp"), ("second", "br")):
        Classifier(model, {"c": [1.0], "ngrams": [1]}).fit(toy.train, toy.valid).save(folder / name)
    lines = (files / "test.jsonl").read_text(encoding="utf-8").splitlines()
    hostile = {**json.loads(lines[0]), "text": HOSTILE, "labels": ["space", "music"]}  # wrong enough for the case studies
    (folder / "test.jsonl").write_text("\n".join([json.dumps(hostile), *lines[1:]]), encoding="utf-8")
    draft = composed(gathered([folder / "first", folder / "second"], folder / "test.jsonl"))
    draft.page.write(folder / "report.html")
    return folder / "report.html"


def opened(browser: Any, path: Path, size: dict[str, int], colours: str = "light", scripts: bool = True) -> Opened:
    """Open a page and wait until its charts are drawn."""
    page = browser.new_context(viewport=size, color_scheme=colours, java_script_enabled=scripts).new_page()
    page.set_default_timeout(WAIT)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    if scripts:
        page.wait_for_function("document.documentElement.dataset.charts === 'drawn'")
    return Opened(page, complaints, [url for url in requests if not url.startswith("data:image/")])


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_nothing_is_refused_or_requested_and_nothing_is_cut_off(
    browser: Any, report: Path, size: dict[str, int], colours: str
) -> None:
    assert report.stat().st_size < 5_000_000
    page, complaints, requests = opened(browser, report, size, colours)
    assert complaints == []
    assert requests == [report.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    outside = """[...document.querySelectorAll("body *")].filter((one) => !one.closest(".scroll, .plot")
        && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"""
    assert page.evaluate(outside) == []


def test_every_picture_has_words_and_a_sentence(browser: Any, report: Path) -> None:
    page = opened(browser, report, DESK).page
    figures = page.evaluate(
        """[...document.querySelectorAll("figure")].map((one) => ({
            alt: one.querySelector("img").alt, hidden: one.querySelector("img").hidden,
            drawn: one.querySelector("svg")?.getAttribute("aria-label") ?? one.querySelector("[aria-label]")?.ariaLabel,
            sentence: one.querySelector("figcaption").textContent}))"""
    )
    assert len(figures) >= 7
    for one in figures:
        assert one["hidden"] and one["alt"] == one["drawn"], one
        assert one["sentence"].endswith(".")
    assert page.evaluate("[...document.images].every((one) => one.alt.trim())")
    assert HOSTILE in page.locator("#case-studies").inner_text()


def test_without_scripts_the_pictures_are_there(browser: Any, report: Path) -> None:
    page, complaints, _ = opened(browser, report, PHONE, scripts=False)
    images = page.locator("figure img")
    assert images.count() >= 7 and all(images.nth(at).is_visible() for at in range(images.count()))
    assert [text for text in complaints if "error" in text] == []


def test_a_reader_finds_a_label_on_the_map_and_sees_its_name(browser: Any, report: Path) -> None:
    page = opened(browser, report, DESK).page
    figure = page.locator("#label-map figure")
    points = figure.locator("path[aria-roledescription=point]")
    assert points.count() == 8
    sizes = lambda: points.evaluate_all("all => all.map((one) => one.getBoundingClientRect().width)")  # noqa: E731
    before = sizes()
    figure.locator("input[type=search]").fill("oper")
    page.wait_for_timeout(300)
    larger = [at for at, (old, new) in enumerate(zip(before, sizes(), strict=True)) if new > old + 1]
    assert len(larger) == 1
    points.nth(larger[0]).scroll_into_view_if_needed()
    box = points.nth(larger[0]).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert "opera" in page.locator("#vg-tooltip-element").inner_text()


def test_a_reader_sorts_and_filters_the_labels(browser: Any, report: Path) -> None:
    page = opened(browser, report, DESK).page
    place = page.locator("#labels .sortable").first
    names = lambda: place.locator("tbody tr:visible th").all_inner_texts()  # noqa: E731
    place.locator("th button").first.click()
    assert names() == sorted(names(), reverse=True)
    place.locator("th button").first.click()
    assert names() == sorted(names())
    place.locator("input").fill("oper")
    assert names() == ["opera"]


def test_a_policy_holds_against_code_that_is_not_ours(browser: Any, report: Path) -> None:
    """What an attacker would need, and what vega would need without its interpreter, is refused."""
    page, complaints, requests = opened(browser, report, DESK)
    page.evaluate(
        """() => { setTimeout("window.broken = 1");
        const one = document.createElement("script"); one.textContent = "window.broken = 1"; document.body.append(one);
        const two = document.createElement("img"); two.src = "https://example.org/x.png"; document.body.append(two); }"""
    )
    page.wait_for_timeout(300)
    assert page.evaluate("window.broken") is None
    assert any("Content Security Policy" in text for text in complaints)
    assert requests == [report.as_uri()]


def test_umap_keeps_branches_apart() -> None:
    pytest.importorskip("umap", reason="the extra report is not installed")
    import numpy as np

    from polytag.analysis.label_map import label_map
    from test_label_map import NAMES, ONES, VECTORS

    found = label_map(VECTORS, NAMES, ONES, method="umap")
    distances = np.linalg.norm(found.places[:, None] - found.places[None], axis=2) + np.diag([np.inf] * 40)
    assert np.mean([found.groups[j] == found.groups[i] for i, j in enumerate(distances.argmin(axis=1))]) > 0.9
