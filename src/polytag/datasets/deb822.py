"""Debian's control files: paragraphs of ``Field: value`` with indented continuation lines, in any compression apt keeps."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TextIO

from polytag.errors import DataError
from polytag.files import reading

# apt decompresses every format it stores; it is on each machine that has such lists, but not on the path.
APT_HELPER = "/usr/lib/apt/apt-helper"
HELPED = (".lz4", ".bz2", ".lzma")


def read_paragraphs(path: str | Path, fields: Collection[str]) -> Iterator[dict[str, str]]:
    """Yield the wanted fields of every paragraph of a file that has any of them."""
    with _opened(path) as file:
        yield from paragraphs(file, fields, str(path))


def paragraphs(lines: Iterable[str], fields: Collection[str], where: str = "control file") -> Iterator[dict[str, str]]:
    """Yield the wanted fields of every paragraph; continuation lines keep their indentation and their line breaks."""
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
    """Split a description into its first line and its long text on one line; `` .`` lines part paragraphs and go."""
    first, *rest = description.split("\n")
    lines = (line.strip() for line in rest)
    return " ".join(first.split()), " ".join(" ".join(line for line in lines if line != ".").split())


def _opened(path: str | Path) -> contextlib.AbstractContextManager[TextIO]:
    return _helped(Path(path)) if str(path).endswith(HELPED) else reading(path)


@contextlib.contextmanager
def _helped(path: Path) -> Iterator[TextIO]:
    """Read a file through the command that knows its compression."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    with subprocess.Popen(_command(path), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            yield io.TextIOWrapper(process.stdout, encoding="utf-8", newline="")
        except UnicodeDecodeError:
            process.kill()
            raise DataError(f"{path}: not UTF-8; is it a Debian index file?") from None
        complaint = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        raise DataError(f"{path}: could not be decompressed ({complaint.splitlines()[-1] if complaint else 'damaged'})")


def _command(path: Path) -> list[str]:
    if path.suffix == ".lz4" and (lz4 := shutil.which("lz4")):
        return [lz4, "-dc", str(path)]
    if Path(APT_HELPER).is_file():
        return [APT_HELPER, "cat-file", str(path)]
    raise DataError(f"{path}: nothing here reads {path.suffix}; decompress it first, or compress it as .gz, .xz or .zst")
