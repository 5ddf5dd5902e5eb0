"""The parts of a batch prediction: pieces of the input, each with one output file that only its number decides.

A part that is finished has its file, whole. So a part can be done twice without harm, and a repeated job does the others only.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from polytag.cluster.storage_paths import file_system, local_copy, matching
from polytag.errors import DataError
from polytag.formats.streams import stem_and_suffix

PLAN = "plan.json"
_ROWS = 20_000  # rows of a Parquet file per part, at least one row group
_BYTES = 32 << 20  # bytes of a plain file of JSON lines per part


@dataclass(frozen=True)
class Piece:
    """A file, or some row groups or bytes of it; ``number`` names the output."""

    number: int
    path: str
    kind: str = "file"
    first: int = 0
    last: int = 0

    @property
    def columnar(self) -> bool:
        """Whether the input is Parquet; then the output is too."""
        return stem_and_suffix(self.path)[1] in (".parquet", ".pq")

    @property
    def output(self) -> str:
        """The name of the output file."""
        return f"part-{self.number:06}.{'parquet' if self.columnar else 'jsonl'}"


def pieces_of(inputs: Sequence[str]) -> list[Piece]:
    """All pieces of files, folders or patterns, in order; a file that is named twice counts once."""
    found: list[Piece] = []
    for path in dict.fromkeys(path for pattern in inputs for path in matching(pattern)):
        bounds = _row_groups(path) if stem_and_suffix(path)[1] in (".parquet", ".pq") else _byte_ranges(path)
        for kind, first, last in bounds:
            found.append(Piece(len(found), path, kind, first, last))
    return found


def _row_groups(path: str) -> list[tuple[str, int, int]]:
    """Ranges of row groups with about the same number of rows."""
    system, inner = file_system(path)
    try:
        with system.open(inner, "rb") as file:
            about = pq.read_metadata(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a Parquet file ({str(error).splitlines()[0][:100]})") from None
    ranges, first, rows = [], 0, 0
    for group in range(about.num_row_groups):
        rows += about.row_group(group).num_rows
        if rows >= _ROWS or group + 1 == about.num_row_groups:
            ranges.append(("groups", first, group + 1))
            first, rows = group + 1, 0
    return ranges or [("groups", 0, 0)]


def _byte_ranges(path: str) -> list[tuple[str, int, int]]:
    """Ranges of bytes of a plain file of JSON lines; any other file is one piece."""
    system, inner = file_system(path)
    size = int(system.size(inner) or 0)
    if not inner.endswith((".jsonl", ".ndjson")) or size <= _BYTES:
        return [("file", 0, 0)]
    return [("bytes", at, min(at + _BYTES, size)) for at in range(0, size, _BYTES)]


def materialised(piece: Piece, folder: Path) -> Path:
    """The piece as a local file."""
    if piece.kind == "file":
        return local_copy(piece.path, folder)
    system, inner = file_system(piece.path)
    made = folder / f"input{stem_and_suffix(piece.path)[1]}"
    with system.open(inner, "rb") as file:
        if piece.kind == "groups":
            source = pq.ParquetFile(file)
            pq.write_table(source.read_row_groups(list(range(piece.first, piece.last))), made)
        else:
            made.write_bytes(_lines(file, piece.first, piece.last))
    return made


def _lines(file: Any, first: int, last: int) -> bytes:
    """The lines that begin within a range of bytes."""
    file.seek(first)
    if first:
        file.seek(first - 1)
        file.readline()  # the line that began before, or the end of the line before
    start = file.tell()
    if start >= last:
        return b""
    found: bytes = file.read(last - start)
    return found if found.endswith(b"\n") else found + file.readline()


def plan_text(pieces: Sequence[Piece], run_digest: str, options: dict[str, Any]) -> str:
    """What a job does, for a repeated job to compare."""
    rows = [dataclasses.asdict(piece) for piece in pieces]
    return json.dumps({"model": run_digest, "options": options, "pieces": rows}, indent=1) + "\n"
