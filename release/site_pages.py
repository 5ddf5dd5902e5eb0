"""Collect the pages of the site: ``python release/site_pages.py OUT``; ``make docs`` then builds it with mkdocs.

The pages stay where a reader of the repository expects them: README.md, docs/, benchmarks/. Here they get their places on the
site, and links follow. A link to a file that is no page, such as a recipe, becomes its path as text.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "results/index.md",
}
FOLDERS = {"docs": "", "benchmarks/book": "results", "benchmarks/results/pictures": "results/pictures"}
KINDS = {".md", ".webp", ".png", ".svg", ".js", ".css"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(`{3,}).*?^\1$", re.DOTALL | re.MULTILINE)


def places(root: Path = ROOT) -> dict[Path, Path]:
    """Where every page and picture goes on the site."""
    found = {root / source: Path(target) for source, target in PLACES.items()}
    for folder, target in FOLDERS.items():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in KINDS:
                found[path] = Path(target) / path.relative_to(root / folder)
    return found


def relinked(text: str, source: Path, known: dict[Path, Path], root: Path = ROOT) -> str:
    """A page's text with links to where their targets are on the site; examples stay as they are."""

    def link(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        file, _, anchor = target.partition("#")
        if target.startswith(("http", "#", "mailto:")):
            return match[0]
        path = Path(os.path.normpath(source.parent / file))
        if path not in known:
            return words if words.startswith("`") else f"{words} (`{path.relative_to(root)}`)"
        place = os.path.relpath(known[path], known[source].parent)
        return f"{mark}[{words}]({place}{'#' + anchor if anchor else ''})"

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(link, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(link, text[end:])])


def chapters(known: dict[Path, Path]) -> list[str]:
    """The lines of the table of contents for the results."""
    pages = sorted(str(place) for place in known.values() if place.parts[0] == "results" and place.suffix == ".md")
    return [f"      - {page}" for page in sorted(pages, key=lambda page: (page != "results/index.md", page))]


def main(out: Path) -> None:
    """Write the pages, and next to them the completed configuration."""
    shutil.rmtree(out, ignore_errors=True)
    known = places()
    for source, place in known.items():
        target = out / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(relinked(source.read_text(encoding="utf-8"), source, known), encoding="utf-8")
        else:
            shutil.copy(source, target)
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace(" RESULTS", "\n" + "\n".join(chapters(known)))
    settings = settings.replace("docs_dir: build/pages", f"docs_dir: {out.name}").replace(
        "site_dir: build/site", "site_dir: site"
    )
    (out.parent / "mkdocs.yml").write_text(settings, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
