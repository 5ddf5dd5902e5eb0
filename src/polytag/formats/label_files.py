"""Label files: JSON lines, tables, plain names, SKOS, and Annif's table; from a file to records and back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polytag.errors import DataError
from polytag.formats.document import BadLine
from polytag.formats.label_uris import id_of, unique_names, uri_of
from polytag.formats.parsers import Records, json_records, opened, plain_lines, table_records
from polytag.formats.streams import stem_and_suffix, writing

_JSON = (".jsonl", ".json", ".ndjson")
SKOS = {".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".nt": "nt"}
"""The formats of SKOS files by their endings, as rdflib names them."""


def read_labels(path: str, language: str | None = None) -> tuple[Records, list[str]]:
    """The labels of a file as records with line numbers, and the statements that are about no label."""
    suffix = stem_and_suffix(path)[1]
    with opened(path) as stream:
        if suffix in SKOS:
            from polytag.formats.skos import read_skos

            records, rest = read_skos(stream.read(), SKOS[suffix], path, language)
            return iter(enumerate(records, start=1)), rest
        if suffix in _JSON:
            found = _named(json_records(stream, '{"name": "..."}'))
        elif suffix == ".tsv" and stream.peek(1)[:1] == b"<":
            found = _subjects(plain_lines(stream))
        elif suffix in (".csv", ".tsv"):
            found = _cells(table_records(stream, "," if suffix == ".csv" else "\t", path))
        else:
            found = plain_lines(stream)
        return iter(list(found)), []


def write_labels(path: str, records: Sequence[Mapping[str, Any]], vocabulary: Sequence[str]) -> None:
    """Write records in the format of the file's ending: SKOS, Annif's table, or JSON lines."""
    suffix = stem_and_suffix(path)[1]
    if suffix in SKOS:
        from polytag.formats.skos import skos_text

        text = skos_text(records, vocabulary, SKOS[suffix])
        with writing(path) as file:
            file.write(text)
        return
    with writing(path) as file:
        if suffix == ".tsv":
            file.writelines(f"{line}\n" for line in _rows(records))
            return
        for number, record in enumerate(records):
            whole = {**record, "vocabulary": list(vocabulary)} if vocabulary and not number else record
            file.write(json.dumps(whole, ensure_ascii=False) + "\n")


def _cells(rows: Records) -> Records:
    """The rows of a table; several parents are separated by a vertical bar, and a cell has no list or table of titles."""
    for line, row in rows:
        if not isinstance(row, BadLine):
            several = [name.strip() for name in row.get("parents", "").split("|")]
            row = {key: text for key, text in row.items() if key not in ("titles", "statements", "vocabulary")}
            row |= {"parents": [name for name in several if name]} if "parents" in row else {}
        yield line, row


def _subjects(lines: Records) -> Records:
    """The rows of Annif's table: a URI in angle brackets, a name and, if there is one, a notation, separated by tabs."""
    found: list[tuple[int, Any]] = list(lines)
    rows = [[] if isinstance(record, BadLine) else [cell.strip() for cell in record["name"].split("\t")] for _, record in found]
    names = unique_names(
        [row[1] if len(row) > 1 else "" for row in rows],
        [row[2] if len(row) > 2 else "" for row in rows],
        [row[0].strip("<>") if row else "" for row in rows],
    )
    for (line, record), row, name in zip(found, rows, names, strict=True):
        if isinstance(record, BadLine):
            yield line, record
        elif len(row) not in (2, 3) or not (row[0].startswith("<") and row[0].endswith(">")) or not row[1]:
            yield line, BadLine("not <URI>, tab, name; a notation may follow after another tab")
        else:
            keys = {"name": name, "id": id_of(row[0][1:-1]), "notation": row[2] if len(row) > 2 else ""}
            yield line, {key: text for key, text in keys.items() if text}


def _rows(records: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for record in records:
        cells = [f"<{uri_of(record)}>", record["name"], *([record["notation"]] if record.get("notation") else [])]
        if any(mark in cell for cell in cells for mark in "\t\r\n"):
            raise DataError(f"the label {record['name']!r} has a tab or a line break; write JSON lines or SKOS instead")
        yield "\t".join(cells)


def _named(records: Records) -> Records:
    """Labels with a title instead of a name: titles are made unique, and the number of the label becomes the id."""
    lines: list[tuple[int, Any]] = list(records)
    good = [record for _, record in lines if not isinstance(record, BadLine)]
    if any("name" in record for record in good) or not any({"uid", "title"} <= record.keys() for record in good):
        yield from lines
        return
    titles = [_title(record) for _, record in lines]
    counts = Counter(titles)
    for number, ((line, record), title) in enumerate(zip(lines, titles, strict=True)):
        # a title that is a number must not be confused with the id of another label
        plain = counts[title] == 1 and not title.isdigit()
        name = title if title and plain else f"{title} #{number}" if title else str(number)
        yield line, record if isinstance(record, BadLine) else {"name": name, "id": str(number)}


def _title(record: Any) -> str:
    return "" if isinstance(record, BadLine) else str(record.get("title") or "").strip()
