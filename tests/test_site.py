"""The documentation as a site: it builds without a warning, asks no other host, and its search works from a folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "release"))
from site_pages import places, relinked  # noqa: E402

SETTLED = 30_000  # milliseconds; a busy machine takes its time


def test_links_follow_the_pages_to_their_places() -> None:
    known = places()
    text = "[a](docs/cli.md#x) [b](LICENSE) [`c`](Makefile) ![d](docs/pictures/page-label.webp)\n```text\n[e](docs/cli.md)\n```\n"
    expected = "[a](cli.md#x) b (`LICENSE`) `c` ![d](pictures/page-label.webp)\n```text\n[e](docs/cli.md)\n```\n"
    assert relinked(text, ROOT / "README.md", known) == expected
    assert relinked("[r](../../README.md)", ROOT / "docs" / "tutorials" / "index.md", known) == "[r](../index.md)"


def test_every_page_has_a_place_of_its_own_in_the_table_of_contents() -> None:
    known = places()
    assert len(set(known.values())) == len(known)
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("nav:", 1)[1]
    pages = [str(place) for place in known.values() if place.suffix == ".md" and place.parts[0] != "results"]
    assert [page for page in pages if not re.search(rf"[ :]{re.escape(page)}$", listed, re.MULTILINE)] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with every warning an error."""
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    pytest.importorskip("material", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, ROOT / "release" / "site_pages.py", folder / "pages"], check=True)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", folder / "mkdocs.yml"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an advertisement for its successor
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stdout + done.stderr
    return folder / "site"


@pytest.mark.services
def test_no_page_needs_another_host_and_every_link_leads_somewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 45
    anchors = {page: set(re.findall(r'\bid="?([^"\s>]+)', page.read_text(encoding="utf-8"))) for page in pages}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"?https?://", text) == [], page.name
        if page.name == "404.html":  # its links are from the root of a server
            continue
        for target in re.findall(r'(?:href|src)="?([^"\s>]+)', text):
            address = urlparse(target)
            if address.scheme or target.startswith("data:"):
                continue
            path = (page.parent / unquote(address.path)).resolve() if address.path else page
            assert path.exists(), f"{page.relative_to(site)}: {target}"
            if address.fragment and path in anchors:
                assert unquote(address.fragment) in anchors[path] | {"__toc", "__search", "__drawer"}, f"{page.name}: {target}"


@pytest.mark.services
def test_the_search_finds_pages_from_a_folder_without_a_network(browser: Any, site: Path) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_default_timeout(SETTLED)
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((site / "index.html").as_uri())
    page.click("input[name=query]")
    page.type("input[name=query]", "propensity")
    page.wait_for_selector(".md-search-result__item a")
    found = page.eval_on_selector_all(".md-search-result__item a", "links => links.map(link => link.href)")
    assert any("metrics.html" in address for address in found)
    page.goto(found[0])
    assert page.title().endswith("Polytag")
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
    context.close()
