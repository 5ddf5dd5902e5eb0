"""Which numbers of the results book are in which results: ``python -m benchmarks check`` lists those that are in none.

A section names its results (``results/x.json``). A number of its prose or of a table written by hand is a result if it has a
decimal point, a thousands separator or a percent sign. It must be a value of the named results, rounded as it is written.
Code and generated tables are left out. A number of few digits is often found by chance: of numbers that were changed at random,
most with two digits and a quarter with four are not noticed. Where it matters, generate the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BOOK, RESULTS = HERE / "book", HERE / "results"
GENERATED = re.compile(r"<!-- results:(\S+) -->.*?<!-- end:\1 -->", re.DOTALL)
CODE = re.compile(r"^(`{3,}).*?^\1$|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->|section [\d.]+", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.,@/-])[+-]?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.\d+|\d+(?=\s?%))(?!\w|\.\d)(\s?%)?")
LOGS = ("by_epoch", "seeds", "train_seconds")  # many numbers that no chapter quotes
CITED = re.compile(r"results/([\w-]+)\.json")


def values(tree: Any) -> Iterator[float]:
    """All numbers of a JSON tree, those in its texts and keys too, without logs."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from values(key)
            yield from values(value) if key not in LOGS else ()
    elif isinstance(tree, list):
        for value in tree:
            yield from values(value)
    elif isinstance(tree, str):
        yield from (float(found[1].replace(",", "")) for found in NUMBER.finditer(tree))
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield float(tree)


def cited(text: str) -> list[Path]:
    """The results that a section names, and those of its generated tables."""
    names = [*CITED.findall(text), *(match[1] for match in GENERATED.finditer(text))]
    return [path for name in dict.fromkeys(names) if (path := RESULTS / f"{name}.json").exists()]


def known(paths: list[Path]) -> set[str]:
    """All values of some results, in every rounding that a chapter may use: shares also as per cent."""
    found: set[str] = set()
    for path in paths:
        for value in values(json.loads(path.read_text(encoding="utf-8"))):
            size = abs(value)
            found.update(f"{size:.{digits}f}" for digits in range(5))
            found.update(f"{size:.{digits}f}%" for digits in range(4))
            if size <= 1:
                found.update(f"{100 * size:.{digits}f}%" for digits in range(4))
                found.update(f"{100 * size:.{digits}f}" for digits in (1, 2))  # P@k
    return found


def prose(text: str) -> str:
    """A chapter without generated tables and code."""
    for pattern in (GENERATED, CODE):
        text = pattern.sub(" ", text)
    return text


def written(text: str) -> Iterator[tuple[str, str]]:
    """The results in a text: as they are written, and in the form of ``known``."""
    for match in NUMBER.finditer(text):
        digits = len(match[1].partition(".")[2])
        yield match[0].strip(), f"{float(match[1].replace(',', '')):.{digits}f}{'%' if match[2] else ''}"


def missing(page: Path) -> list[str]:
    """The numbers of a chapter that are in none of the results of their section."""
    absent = []
    for section in re.split(r"^(?=## )", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        there = known(cited(section))
        absent += [shown for shown, plain in written(prose(section)) if plain not in there]
    return absent


def lacking() -> dict[str, list[str]]:
    """The chapters with numbers that are in no result, with these numbers."""
    return {page.name: found for page in [HERE / "README.md", *sorted(BOOK.glob("*.md"))] if (found := missing(page))}
