"""Documents from and to files: JSON lines, CSV, TSV, Parquet, fastText, LibMultiLabel, libsvm, annotation tools, plain text."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import difflib
import io
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from polytag.errors import ConfigError, DataError, brief
from polytag.formats.annotation_tools import LABELS, doccano_of, doccano_records, task_of, task_records
from polytag.formats.document import (
    FEATURE,
    ID_NAMES,
    LABEL_NAMES,
    SEPARATORS,
    TEXT_NAMES,
    UNKNOWN,
    WEIGHT,
    Columns,
    Document,
    ReadOptions,
)
from polytag.formats.inputs import checked_path
from polytag.formats.parsers import (
    BLANK,
    FASTTEXT_LABEL,
    PREFIX,
    Parsed,
    documents_of,
    fasttext_line,
    feature_documents,
    json_records,
    line_documents,
    opened,
    parquet_records,
    plain_line,
    table_records,
    three_columns,
    two_columns,
)
from polytag.formats.streams import open_bytes, stem_and_suffix, writing, written

__all__ = ["FORMATS", "Document", "ReadOptions", "Reader", "detect_format", "format_name", "read_documents", "write_documents"]

log = logging.getLogger(__name__)

FORMATS = ("jsonl", "csv", "tsv", "parquet", "fasttext", "libmultilabel", "libsvm", "label-studio", "doccano", "text")
ALIASES = {"json": "jsonl", "ndjson": "jsonl", "pq": "parquet", "ft": "fasttext", "lml": "libmultilabel", "txt": "text"}
ALIASES |= {"svm": "libsvm", "svmlight": "libsvm", "labelstudio": "label-studio"}
DOUBLE = {".label-studio.json": "label-studio", ".doccano.jsonl": "doccano"}
# how an export of Label Studio begins
TASKS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*\{.*?"(?:data|annotations)"\s*:', re.DOTALL)
SUFFIXES = {f".{name}": name for name in FORMATS if name != "text"} | {f".{a}": f for a, f in ALIASES.items() if f != "text"}
# a line of features, possibly truncated: labels, or a space if there are none, then only features
FEATURES = re.compile(rf"(?:\d+ \d+ \d+\s*?\n)?(?:\d+(?:,\d+)*)?(?: {FEATURE})+(?: [\d:.eE+-]*)?\s*?(?:\n|\Z)".encode())

CONTROL = re.compile(r"[\t\n\v\f\r\0]+")
EXAMPLES = 10  # maximum number of bad lines that are stored and logged
_EXTRA = ("group", WEIGHT, UNKNOWN)
BATCH = 10_000  # documents per row group of a Parquet file


def format_name(name: str) -> str:
    """The canonical name of a format."""
    if not isinstance(name, str):
        raise ConfigError(f"the format is {brief(name)}; known: {', '.join(FORMATS)}")
    name = ALIASES.get(name.lower(), name.lower())
    if name not in FORMATS:
        close = difflib.get_close_matches(name, FORMATS, n=1)
        raise ConfigError(
            f"there is no format {name!r}; " + (f"did you mean {close[0]!r}?" if close else f"known: {', '.join(FORMATS)}")
        )
    return name


class Reader:
    """Iterator over the documents of one file, in constant memory.

    During and after the iteration, ``read`` is the number of documents and ``bad`` that of skipped lines. ``examples`` has the
    first skipped lines as (line, reason). Without ``need_labels`` labels are optional, and only a named column is read.
    """

    def __init__(self, path: str | Path, options: ReadOptions | None = None, *, need_labels: bool = True) -> None:
        """Store path and options; iteration opens the file."""
        self.path = str(checked_path(path))
        self.options = ReadOptions() if options is None else options
        if not isinstance(self.options, ReadOptions):
            raise ConfigError(f"the options are {brief(options)}; pass ReadOptions, as in ReadOptions(text='body')")
        self.need_labels = need_labels
        self.format = format_name(self.options.format) if self.options.format else None
        self.read = 0
        self.bad = 0
        self.examples: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[Document]:
        """Open the file and yield its documents in order."""
        self.read, self.bad, self.examples = 0, 0, []
        with opened(self.path) as stream:
            for line, found in self._parsed(stream):
                if isinstance(found, Document):
                    self.read += 1
                    yield found
                else:
                    self._note(line, str(found))
        if self.bad:
            log.warning("%s: skipped %d bad lines of %d", self.path, self.bad, self.bad + self.read)

    def _parsed(self, stream: io.BufferedReader) -> Parsed:
        head = stream.peek(1 << 13)
        if self.format is None:
            self.format = detect_format(self.path, head, self.options, need_labels=self.need_labels)
            log.debug("%s: read as %s", self.path, self.format)
        if self.format == "text" and self.need_labels:
            raise DataError(
                f"{self.path}: plain text has no labels; if it has another format, name it (--format {'|'.join(FORMATS)})"
            )
        if self.format in ("fasttext", "libmultilabel", "text"):
            return self._lines(stream, head)
        if self.format == "libsvm":
            return feature_documents(stream, self.path)
        if self.format in ("label-studio", "doccano"):
            return self._tool(stream)
        columns = Columns(self.options, self.need_labels, self.path)
        if self.format == "parquet":
            return documents_of(parquet_records(stream, columns), columns)
        if self.format == "jsonl":
            return documents_of(json_records(stream), columns)
        mark = "\t" if self.format == "tsv" else _delimiter(head, self.options, self.need_labels)
        return documents_of(table_records(stream, mark, self.path), columns)

    def _tool(self, stream: io.BufferedReader) -> Parsed:
        """The documents of an annotation tool's export, whose labels are in a place of their own."""
        options = dataclasses.replace(self.options, labels=LABELS if self.need_labels else None)
        columns = Columns(options, self.need_labels, self.path)
        if self.format == "doccano":
            return documents_of(doccano_records(stream), columns)
        return documents_of(task_records(stream, self.options.labels, self.path, self.need_labels), columns)

    def _lines(self, stream: io.BufferedReader, head: bytes) -> Parsed:
        parse: dict[str, Callable[[str, int], Document]] = {"text": plain_line, "fasttext": fasttext_line}
        parse["libmultilabel"] = three_columns if all(line.count("\t") > 1 for line in _first_lines(head)) else two_columns
        keep_blank = self.format == "text" or (self.format == "fasttext" and not self.need_labels)
        return line_documents(stream, parse[self.format or "text"], keep_blank)

    def _note(self, line: int, reason: str) -> None:
        unit = {"parquet": "row", "label-studio": "task"}.get(self.format or "", "line")
        place = f"{self.path}, {unit} {line}: {reason}"
        if self.options.on_bad == "fail":
            raise DataError(place)
        self.bad += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((line, reason))
            log.warning("skipped %s", place)


def read_documents(path: str | Path, options: ReadOptions | None = None, *, need_labels: bool = True) -> Iterator[Document]:
    """Stream the documents of a file; use ``Reader`` for the number of skipped lines."""
    return iter(Reader(path, options, need_labels=need_labels))


# -- format detection --------------------------------------------------------------------------------------------------


def detect_format(path: str | Path, head: bytes, options: ReadOptions, *, need_labels: bool = True) -> str:
    """Detect the format by the file's name, or else by its first lines."""
    found = format_of_name(path)
    if found in (None, "jsonl") and stem_and_suffix(path)[1] != ".jsonl" and TASKS.match(head):
        return "label-studio"
    if found is not None and found != "tsv":
        return found
    if head.startswith(b"PAR1"):
        return "parquet"
    if found is None and FEATURES.match(head):
        return "libsvm"
    lines = _first_lines(head)
    if found is None and lines and lines[0].lstrip().startswith("{"):
        return "jsonl"
    if found is None and any(line.startswith(PREFIX) for line in lines):
        return "fasttext"
    for mark, name in (("\t", "tsv"), (",", "csv"), (";", "csv")):
        if found in (None, name) and lines and _is_header(_cells(lines[0], mark), options, need_labels):
            return name
    tabs = [line.count("\t") for line in lines]
    named = options.text or options.labels or options.id or options.group
    if tabs and min(tabs) >= 1 and not named and (found is None or max(tabs) <= 2):
        if found is not None:
            log.warning("%s: no known column in the first line; read as libmultilabel, without a header", path)
        return "libmultilabel"
    return found or "text"


def format_of_name(path: str | Path) -> str | None:
    """The format that a file's name says, as in ``a.csv`` or ``a.label-studio.json.gz``; None if it says none."""
    stem, suffix = stem_and_suffix(path)
    return next((name for ending, name in DOUBLE.items() if f"{stem}{suffix}".endswith(ending)), SUFFIXES.get(suffix))


def _first_lines(head: bytes) -> list[str]:
    """The complete, non-blank lines of ``head``; an incomplete line if there is no other."""
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    complete = lines[:-1] or lines
    return [text for text in (line.decode("utf-8", "replace").rstrip("\r") for line in complete) if text.strip()]


def _cells(line: str, mark: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=mark), [])
    except csv.Error:
        return [line]


def _is_header(cells: list[str], options: ReadOptions, need_labels: bool) -> bool:
    """Whether the cells are column names rather than the first document."""
    if any(name in cells for name in options.text):
        return True
    lower = {cell.lower() for cell in cells}
    others = {options.labels, options.id, options.group, *(() if options.labels else LABEL_NAMES), *ID_NAMES}
    return len(cells) > 1 and bool(lower & set(TEXT_NAMES)) and (not need_labels or bool((lower | set(cells)) & others))


def _delimiter(head: bytes, options: ReadOptions, need_labels: bool) -> str:
    """The delimiter of a CSV file: the one that makes its first line a header, else the one with most cells."""
    first = (_first_lines(head) or [""])[0]
    return max(",;\t|", key=lambda mark: (_is_header(cells := _cells(first, mark), options, need_labels), len(cells)))


# -- writing -----------------------------------------------------------------------------------------------------------


def write_documents(path: str | Path, documents: Iterable[Document], format: str | None = None) -> int:
    """Write documents in the given format, or the one of the file's name; returns their number."""
    path = checked_path(path)
    chosen = format_name(format) if format else ("jsonl" if str(path) == "-" else format_of_name(path))
    if chosen in (None, "text", "libsvm"):
        raise ConfigError(f"{path}: {_unwritable(chosen)}; use a suffix such as .jsonl, or give the format")
    assert chosen is not None
    counted = _Counted(documents)
    try:
        if chosen == "parquet":
            _write_parquet(path, counted)
        else:
            with writing(path) as file:
                _write_text(file, counted, chosen)
    except UnicodeEncodeError as error:
        raise DataError(f"{path}: document {counted.count} cannot be written as UTF-8 ({error.reason}); clean it first") from None
    return counted.count


def _unwritable(format: str | None) -> str:
    return f"the format {format} is read, not written" if format else "cannot tell the format to write"


class _Counted:
    """An iterable of documents that counts them."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = documents
        self.count = 0

    def __iter__(self) -> Iterator[Document]:
        for document in self.documents:
            self.count += 1
            yield document


def _write_text(file: TextIO, documents: Iterable[Document], format: str) -> None:
    if format in ("csv", "tsv"):
        _write_table(file, documents, "," if format == "csv" else "\t")
        return
    if format == "label-studio":
        for number, document in enumerate(documents):
            file.write(("[\n" if number == 0 else ",\n") + task_of(document))
        file.write("\n]\n")
        return
    line_of = {"jsonl": _json_of, "doccano": doccano_of, "fasttext": _fasttext_of, "libmultilabel": _libmultilabel_of}[format]
    for document in documents:
        file.write(line_of(document) + "\n")


def _json_of(document: Document) -> str:
    record: dict[str, object] = {"id": document.id, "text": document.text, "labels": document.labels}
    extra = {"group": document.group, WEIGHT: document.weight, UNKNOWN: document.unknown}
    record |= {key: value for key, value in extra.items() if value is not None}
    return json.dumps(record, ensure_ascii=False)


def _fasttext_of(document: Document) -> str:
    text = _one_line(document.text)
    if PREFIX in text and FASTTEXT_LABEL.search(text):
        raise DataError(
            f"document {document.id!r}: its text contains {PREFIX!r}, which would be read as a label; write jsonl instead"
        )
    return " ".join([*(PREFIX + label for label in _single_words(document, "fasttext")), text])


def _libmultilabel_of(document: Document) -> str:
    labels = " ".join(_single_words(document, "libmultilabel"))
    return f"{_one_line(document.id)}\t{labels}\t{_one_line(document.text)}"


def _one_line(text: str) -> str:
    """A text without line breaks and tabs."""
    return CONTROL.sub(" ", text).strip(" ")


def _single_words(document: Document, format: str) -> tuple[str, ...]:
    for label in document.labels:
        if not label or any(mark in label for mark in BLANK):
            raise DataError(
                f"document {document.id!r}: the format {format} cannot hold the label {label!r}; write jsonl, or rename it"
            )
    return document.labels


def _write_table(file: TextIO, documents: Iterable[Document], mark: str) -> None:
    bare = csv.writer(file, delimiter=mark, lineterminator="\n")
    quoted = csv.writer(file, delimiter=mark, lineterminator="\n", quoting=csv.QUOTE_ALL)
    extra: list[str] = []
    for number, document in enumerate(documents):
        if number == 0:
            extra = _extra_of([document])
            bare.writerow(["id", "text", "labels", *extra])
        _refuse_more(document, extra)
        more = {"group": document.group or "", WEIGHT: _number_of(document.weight), UNKNOWN: _cell_of(document.unknown or ())}
        row = [document.id, document.text, _cell_of(document.labels), *(more[name] for name in extra)]
        # before Python 3.13 the csv module quotes only its own line terminator, and a bare carriage return breaks the row
        (quoted if any("\r" in cell for cell in row) else bare).writerow(row)


def _extra_of(documents: Sequence[Document]) -> list[str]:
    """The columns beyond id, text and labels that these documents have."""
    return [name for name in _EXTRA if any(getattr(document, name) is not None for document in documents)]


def _refuse_more(document: Document, columns: Sequence[str]) -> None:
    for name in _EXTRA:
        if getattr(document, name) and name not in columns:
            what = {"group": "a group", WEIGHT: "a weight", UNKNOWN: "unknown labels"}[name]
            raise DataError(f"document {document.id!r} has {what}, but the first one has none: give it one, or write jsonl")


def _number_of(weight: float | None) -> str:
    return "" if weight is None else f"{weight:.9g}"


def _cell_of(labels: Sequence[str]) -> str:
    """Labels separated by semicolons; a JSON list if a label contains a possible separator."""
    plain = all(name == name.strip() and name[:1] != "[" and not any(mark in name for mark in SEPARATORS) for name in labels)
    return ";".join(labels) if plain else json.dumps(list(labels), ensure_ascii=False)


def _write_parquet(path: str | Path, documents: Iterable[Document]) -> None:
    import pyarrow
    import pyarrow.parquet

    text = pyarrow.string()
    kinds = {"group": text, WEIGHT: pyarrow.float64(), UNKNOWN: pyarrow.list_(text)}
    stream = iter(documents)
    batch = list(itertools.islice(stream, BATCH))
    extra = ["group", *(name for name in _extra_of(batch) if name != "group")]
    columns = [("id", text), ("text", text), ("labels", pyarrow.list_(text)), *((name, kinds[name]) for name in extra)]
    schema = pyarrow.schema(columns)
    with contextlib.ExitStack() as stack:
        place = path if str(path) == "-" else stack.enter_context(written(path))
        file = open_bytes(place, "wb")
        if str(path) != "-":
            stack.enter_context(file)
        with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            while batch:
                for document in batch:
                    _refuse_more(document, extra)
                rows = [dataclasses.asdict(document) for document in batch]
                writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
                batch = list(itertools.islice(stream, BATCH))
