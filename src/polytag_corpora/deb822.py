"""Debian's control files: paragraphs of ``Field: value`` with indented continuation lines, in any compression of apt."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TextIO

from polytag.errors import DataError
from polytag.formats.streams import reading

# apt's helper decompresses all formats of apt's lists; it is not on the PATH.
APT_HELPER = "/usr/lib/apt/apt-helper"
HELPER_SUFFIXES = (".lz4", ".bz2", ".lzma")


def read_paragraphs(path: str | Path, fields: Collection[str]) -> Iterator[dict[str, str]]:
    """Yield the requested fields of every paragraph of a file that has any of them."""
    with _opened(path) as file:
        yield from paragraphs(file, fields, str(path))


def paragraphs(lines: Iterable[str], fields: Collection[str], where: str = "control file") -> Iterator[dict[str, str]]:
    """Yield the requested fields of every paragraph; continuation lines keep indentation and line breaks."""
    paragraph: dict[str, str] = {}
    wanted = ""
    for number, raw in enumerate(lines, start=1):
        line = raw.rstrip("\r\n")
        if not line.strip():
            if paragraph:
                yield paragraph
            paragraph, wanted = {}, ""
        elif line[0] in " \t":
            if wanted:
                paragraph[wanted] += "\n" + line
        elif line[0] != "#":
            field, colon, value = line.partition(":")
            if not colon:
                raise DataError(
                    f"{where}, line {number}: expected 'Field: value', found {line[:40]!r}; is it a Debian index file?"
                )
            wanted = field if field in fields else ""
            if wanted:
                paragraph[wanted] = value.strip()
    if paragraph:
        yield paragraph


def synopsis_and_body(description: str) -> tuple[str, str]:
    """Split a description into its first line and its long text as one line; `` .`` lines, between paragraphs, are dropped."""
    first, *rest = description.split("\n")
    lines = (line.strip() for line in rest)
    return " ".join(first.split()), " ".join(" ".join(line for line in lines if line != ".").split())


def _opened(path: str | Path) -> contextlib.AbstractContextManager[TextIO]:
    return _decompressed(Path(path)) if str(path).endswith(HELPER_SUFFIXES) else reading(path)


@contextlib.contextmanager
def _decompressed(path: Path) -> Iterator[TextIO]:
    """Read a file through a command that decompresses it."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    with subprocess.Popen(_command(path), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            yield io.TextIOWrapper(process.stdout, encoding="utf-8", newline="")
        except UnicodeDecodeError:
            process.kill()
            raise DataError(f"{path}: not UTF-8; is it a Debian index file?") from None
        message = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        raise DataError(f"{path}: could not be decompressed ({message.splitlines()[-1] if message else 'damaged'})")


def _command(path: Path) -> list[str]:
    if path.suffix == ".lz4" and (lz4 := shutil.which("lz4")):
        return [lz4, "-dc", str(path)]
    if Path(APT_HELPER).is_file():
        return [APT_HELPER, "cat-file", str(path)]
    raise DataError(f"{path}: no program to decompress {path.suffix}; decompress it first, or compress it as .gz, .xz or .zst")
