"""The project speaks the field's language: some phrases appear nowhere, and the glossary has every term once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PHRASES = ("beside it", "so many", "as it came", "told apart", "made-up", "reading with it")
WORDS = ("Corpus", "LabelSet", "Scores", "Model", "Decision", "Classifier", "Run")
AREAS = {
    "pages": ("*.md", "docs/**/*.md", "benchmarks/**/*.md"),
    "recipes": ("recipes/*.toml",),
    "build": ("Makefile", "pyproject.toml"),
    "benchmarks": ("benchmarks/**/*.py",),
    "source": ("src/**/*.py", "src/**/*.md", "src/**/*.html", "src/**/*.js", "src/**/*.css"),
}
FIRST_SCREEN = 25
GLOSSARY = ROOT / "docs" / "glossary.md"


def _pattern(phrase: str) -> re.Pattern[str]:
    """The phrase, also where a line ends inside it: a comment or a quoted string may continue on the next line."""
    gap = r"""(?:[\s#>*"'\\]|(?<=["\s])[fr](?="))"""
    words = [re.escape(word).replace(r"\-", rf"-{gap}*") for word in phrase.split()]
    return re.compile(rf"(?<!\w){rf'{gap}+'.join(words)}(?!\w)", re.IGNORECASE)


PATTERNS = {phrase: _pattern(phrase) for phrase in PHRASES}


def found_in(text: str) -> list[tuple[int, str]]:
    """Line number and phrase of every occurrence."""
    hits = [(match.start(), phrase) for phrase, pattern in PATTERNS.items() for match in pattern.finditer(text)]
    return [(text.count("\n", 0, start) + 1, phrase) for start, phrase in sorted(hits)]


def files_of(area: str) -> list[Path]:
    """The files of an area, each once."""
    return sorted({path for pattern in AREAS[area] for path in ROOT.glob(pattern) if path.is_file()})


def terms() -> Iterator[list[str]]:
    """The rows of the glossary: term, meaning, symbol and source, name in the code."""
    table = GLOSSARY.read_text(encoding="utf-8").split("## Terms", 1)[1]
    for line in table.splitlines():
        if line.startswith("| ") and not line.startswith("| term |"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("area", AREAS)
def test_phrases_that_are_no_terms_of_the_field_appear_nowhere(area: str) -> None:
    files = files_of(area)
    assert files, f"no files in {area}"
    found = [
        f"{path.relative_to(ROOT)}:{line}: {phrase!r}"
        for path in files
        for line, phrase in found_in(path.read_text(encoding="utf-8"))
    ]
    assert not found, "put these in the field's terms (docs/glossary.md):\n" + "\n".join(found)


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("gap", [" ", "\n", "\n    # ", "\n> ", ' "\n    "', ' "\n    f"', "  "])
def test_a_phrase_is_found_whatever_stands_between_its_words(phrase: str, gap: str) -> None:
    broken = phrase.replace(" ", gap) if " " in phrase else phrase.replace("-", "-" + gap.rstrip(" "))
    assert found_in(f"one\ntwo {broken} three") == [(2, phrase)]


@pytest.mark.parametrize("text", ["beside its words", "also many", "made up of parts", "as it cameos", "told\nus apart"])
def test_other_words_are_left_alone(text: str) -> None:
    assert found_in(text) == []


def test_the_glossary_is_sorted_and_has_every_term_once_with_its_meaning() -> None:
    rows = list(terms())
    assert [row for row in rows if len(row) != 4 or not row[1]] == []
    names = [re.sub(r"[^a-z0-9 ]", "", row[0].casefold()) for row in rows]
    assert names == sorted(set(names))
    assert set(WORDS) <= {row[0] for row in rows}


def test_the_names_in_the_glossary_are_names_in_the_code() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in [*files_of("source"), ROOT / "docs" / "metrics.md"])
    names = [name.rsplit(".", 1)[-1] for row in terms() for name in re.findall(r"`([^`]+)`", row[3])]
    assert len(names) > 50
    assert [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", code)] == []


def test_the_first_screen_of_the_readme_shows_the_two_commands_of_the_set_up() -> None:
    screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:FIRST_SCREEN]
    for command in ("make demo", "make test"):
        assert any(line.startswith(f"$ {command}") for line in screen), command
