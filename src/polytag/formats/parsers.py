"""Parsers from the bytes of a file to records or documents; a line that cannot be parsed becomes a ``BadLine``."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import json
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from polytag.errors import DataError, brief, file_error
from polytag.formats.column_choice import LOOKED_AT, announce
from polytag.formats.document import FEATURE, BadLine, Columns, Document
from polytag.formats.streams import open_bytes

Records: TypeAlias = Iterator[tuple[int, Mapping[str, Any] | BadLine]]
"""Line number and record, or the reason why the line is bad."""
Parsed: TypeAlias = Iterator[tuple[int, Document | BadLine]]
"""Line number and document, or the reason why the line is bad."""

SAMPLE = 1000  # records that are buffered to detect columns and label separator
LONGEST_CELL = 2**31 - 1  # the csv module's own limit is 128 KiB, less than a long document

BLANK = " \t\v\f\r\n\0"  # where fastText splits words; other Unicode spaces may be part of a label
PREFIX = "__label__"
FASTTEXT_LABEL = re.compile(rf"(?<![^{BLANK}]){PREFIX}([^{BLANK}]+)[{BLANK}]*")
SIZES = re.compile(r"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*", re.ASCII)
FEATURE_ROW = re.compile(rf"(?:(\d+(?:,\d+)*)(?=\s|$))?((?:(?:^|\s+){FEATURE})*)\s*", re.ASCII)
LARGE = re.compile(r"(?<![.\d])\d{16}|[eE]\+?\d\d", re.ASCII)  # numbers that may be too large
LARGEST_WEIGHT = 3.4e38  # of float32
FASTTEXT_FRONT = re.compile(rf"[{BLANK}]*(?:{PREFIX}[^{BLANK}]+[{BLANK}]*)+")


# -- opening and decoding ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(path: str) -> Iterator[io.BufferedReader]:
    """The decompressed bytes of a file, buffered for ``peek``."""
    raw = open_bytes(path)
    stream = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", raw), 1 << 16)
    broken: tuple[type[Exception], ...] = (lzma.LZMAError, EOFError, gzip.BadGzipFile, zlib.error)
    if path.endswith(".zst"):
        import zstandard

        broken = (*broken, zstandard.ZstdError)
    try:
        yield stream
    except broken as error:
        raise DataError(f"{path}: damaged or cut-short compressed file ({error})") from None
    except OSError as error:
        raise file_error(path if path != "-" else "standard input", error) from None
    finally:
        if path != "-":
            stream.close()
        elif stream is not raw:
            stream.detach()


def _decode(line: bytes, number: int) -> str:
    if number == 1:
        line = line.removeprefix(b"\xef\xbb\xbf")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadLine(
            f"not UTF-8 (byte {line[error.start]:#04x} at position {error.start + 1}); convert the file first"
        ) from None


# -- formats with named columns ----------------------------------------------------------------------------------------


def documents_of(records: Records, columns: Columns) -> Parsed:
    """Convert records to documents; columns and label separator are detected in the first records."""
    sample = list(itertools.islice(records, SAMPLE))
    good = [record for _, record in sample if not isinstance(record, BadLine)]
    if good and not columns.text:
        columns.resolve(list(dict.fromkeys(name for record in good for name in record)))
        announce(columns, good)
    if columns.label is not None:
        columns.cells.detect(record.get(columns.label) for record in good)
    for line, record in itertools.chain(sample, records):
        if isinstance(record, BadLine):
            yield line, record
            continue
        try:
            yield line, columns.document(record, line)
        except BadLine as bad:
            yield line, bad


def json_records(stream: Iterable[bytes], example: str = '{"text": "...", "labels": ["..."]}') -> Records:
    """One JSON object per line; blank lines are skipped. ``example`` shows one in messages."""
    for number, line in enumerate(stream, start=1):
        if line.isspace():
            continue
        try:
            yield number, _json_record(line, number, example)
        except BadLine as bad:
            yield number, bad


def _json_record(line: bytes, number: int, example: str) -> dict[str, Any]:
    text = _decode(line, number)
    try:
        record = json.loads(text)
        if b"\\ud" in line or b"\\uD" in line:  # a lone surrogate cannot be written again: replace it
            whole = json.dumps(record, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            record = json.loads(whole)
    except json.JSONDecodeError as error:
        hint = "; a JSON array is not JSON lines, write one object per line" if number == 1 and text.startswith("[") else ""
        raise BadLine(f"not JSON ({error.msg}, column {error.colno}){hint}") from None
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON that can be read ({error})") from None
    if not isinstance(record, dict):
        raise BadLine(f"not an object; write one like {example} per line")
    return record


def plain_lines(stream: Iterable[bytes]) -> Records:
    """A record with a ``name`` for each line that is not blank."""
    for number, line in enumerate(stream, start=1):
        try:
            name = _decode(line, number).rstrip("\r\n")
        except BadLine as bad:
            yield number, bad
            continue
        if name and not name.isspace():
            yield number, {"name": name}


class _TextLines:
    """Decoded lines for the csv module, which cannot continue after an error: errors are stored in ``broken``."""

    def __init__(self, stream: Iterable[bytes]) -> None:
        self.lines = enumerate(stream, start=1)
        self.broken: BadLine | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        number, line = next(self.lines)
        try:
            return _decode(line, number)
        except BadLine as bad:
            self.broken = bad
            return line.decode("utf-8", "replace")


def table_records(stream: Iterable[bytes], mark: str, where: str) -> Records:
    """Rows of a table with a header; quoted cells may have line breaks, and a row has the number of its first line."""
    csv.field_size_limit(LONGEST_CELL)
    lines = _TextLines(stream)
    rows = csv.reader(lines, delimiter=mark, strict=True)
    header = _header(rows, lines, where)
    while True:
        number, lines.broken = rows.line_num + 1, None
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, BadLine(f"not readable as a table ({error}); check the quotes")
            continue
        if lines.broken is not None:
            yield number, lines.broken
        elif len(row) == len(header):
            yield number, dict(zip(header, row, strict=True))
        elif row:
            yield number, BadLine(f"{len(row)} columns, but the header has {len(header)}; check separators and quotes")


def _header(rows: Iterator[list[str]], lines: _TextLines, where: str) -> list[str]:
    try:
        header = next(rows, [])
    except csv.Error as error:
        raise DataError(f"{where}, line 1: the header cannot be read ({error}); check the quotes") from None
    if lines.broken is not None:
        raise DataError(f"{where}, line 1: {lines.broken}")
    _refuse_twice(header, f"{where}, line 1")
    return header


def _refuse_twice(names: list[str], where: str) -> None:
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise DataError(f"{where}: the column {brief(name)} occurs more than once; rename one")


def parquet_records(stream: io.BufferedReader, columns: Columns) -> Records:
    """Rows of a Parquet file, in batches, with only the columns that are used."""
    import pyarrow
    import pyarrow.parquet

    try:
        source = stream if stream.seekable() else pyarrow.BufferReader(stream.read())  # the index is at the end of the file
        file = pyarrow.parquet.ParquetFile(source)
        _refuse_twice(file.schema_arrow.names, columns.where)
        columns.resolve(file.schema_arrow.names)
        announce(columns, _first_rows(file))
        number = 0
        for batch in file.iter_batches(batch_size=1024, columns=columns.used):
            for record in batch.to_pylist():
                number += 1
                yield number, record
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{columns.where}: not a readable Parquet file ({reason})") from None


def _first_rows(file: Any) -> list[dict[str, Any]]:
    """Some rows of a Parquet file, with its columns of text alone."""
    text = [field.name for field in file.schema_arrow if str(field.type) in ("string", "large_string")]
    rows: list[dict[str, Any]] = next((batch.to_pylist() for batch in file.iter_batches(LOOKED_AT, columns=text)), [])
    return rows


# -- formats with one document per line --------------------------------------------------------------------------------


def line_documents(stream: Iterable[bytes], parse: Callable[[str, int], Document], keep_blank: bool) -> Parsed:
    """One document per line, parsed by ``parse``."""
    for number, line in enumerate(stream, start=1):
        if not keep_blank and line.isspace() and b"\t" not in line:  # tabs separate columns, which may all be empty
            continue
        try:
            yield number, parse(_decode(line, number).rstrip("\r\n"), number)
        except BadLine as bad:
            yield number, bad


def plain_line(line: str, number: int) -> Document:
    """A line of plain text."""
    return Document(str(number), line)


def fasttext_line(line: str, number: int) -> Document:
    """FastText: every word that starts with ``__label__`` is a label, at any position."""
    front = FASTTEXT_FRONT.match(line)
    end = front.end() if front else 0
    labels, text = FASTTEXT_LABEL.findall(line, 0, end), line[end:]
    if PREFIX in text:  # labels are usually at the front, and a search of the whole text is slow
        labels += FASTTEXT_LABEL.findall(text)
        text = FASTTEXT_LABEL.sub("", text)
    return Document(str(number), text.strip(BLANK), tuple(labels))


def three_columns(line: str, number: int) -> Document:
    """LibMultiLabel: id, labels separated by spaces, text."""
    cells = line.split("\t", 2)
    if len(cells) < 3:
        raise BadLine(f"{len(cells)} of 3 columns; expected id, labels and text separated by tabs")
    return Document(cells[0] or str(number), cells[2], _words(cells[1]))


def two_columns(line: str, number: int) -> Document:
    """LibMultiLabel without ids: labels separated by spaces, text."""
    labels, tab, text = line.partition("\t")
    if not tab:
        raise BadLine("1 of 2 columns; expected labels and text separated by a tab")
    return Document(str(number), text, _words(labels))


def feature_documents(stream: Iterable[bytes], where: str) -> Parsed:
    """Rows of features as ``3,17 5:0.25 9:1``; the first line may have the numbers of documents, features and labels."""
    sizes, count = None, 0
    for number, line in enumerate(stream, start=1):
        text = line.decode("ascii", "replace")
        if number == 1 and (found := SIZES.fullmatch(text)):
            sizes = tuple(int(size) for size in found.groups())
            continue
        if text.isspace() and (sizes is None or count >= sizes[0]):
            continue
        count += 1
        try:
            yield number, _feature_row(text, str(count), sizes)
        except BadLine as bad:
            yield number, bad
    if sizes and count != sizes[0]:
        raise DataError(
            f"{where}, line 1: {sizes[0]} documents are announced, but there are {count}; get the whole file, or correct line 1"
        )


def _feature_row(line: str, name: str, sizes: tuple[int, ...] | None) -> Document:
    row = FEATURE_ROW.fullmatch(line)
    if not row:
        raise BadLine("not a row of features; expected labels and features like '3,17 5:0.25 9:1'")
    labels = tuple(row[1].split(",")) if row[1] else ()
    text = row[2].strip()
    if LARGE.search(line):
        _refuse_large(text, labels)
    if sizes:
        features = (pair.partition(":")[0] for pair in text.split())
        for what, numbers, size in (("feature", features, sizes[1]), ("label", iter(labels), sizes[2])):
            largest = max(map(int, numbers), default=-1)
            if largest >= size:
                raise BadLine(f"{what} {largest}, but line 1 announces {size} of them, counted from 0; correct one of the two")
    return Document(name, text, tuple(str(int(label)) for label in labels))


def _refuse_large(text: str, labels: Iterable[str]) -> None:
    """Raise for numbers that arrays cannot hold: more than 15 digits, or a weight that is infinite as float32."""
    pairs = [pair.partition(":") for pair in text.split()]
    for what, numbers in (("feature", (pair[0] for pair in pairs)), ("label", iter(labels))):
        for number in numbers:
            if len(number.lstrip("0")) > 15:
                raise BadLine(f"the {what} {brief(number)} is too large; it may have at most 15 digits")
    for feature, _, weight in pairs:
        if abs(float(weight)) > LARGEST_WEIGHT:
            raise BadLine(f"the weight {brief(weight)} of feature {feature} is too large; it may be at most {LARGEST_WEIGHT:g}")


def _words(cell: str) -> tuple[str, ...]:
    return tuple(word for word in cell.split(" ") if word)
