"""Texts of a file that a client sends: plain text, CSV, JSON lines, DOCX and PDF."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from xml.parsers import expat

from polytag.errors import DataError, PolytagError
from polytag.formats.document_files import Reader, ReadOptions
from polytag.server.limits import Limits
from polytag.server.problem import Problem

KINDS = ("txt", "csv", "tsv", "jsonl", "docx", "pdf")
_TABLES = {"csv": "csv", "tsv": "tsv", "jsonl": "jsonl"}
_PARAGRAPH, _TEXT = ("p",), ("t",)  # local names in a DOCX document
_RATIO = 200  # a part of a DOCX file that grows more than this when it is unpacked is refused


def texts_of_file(body: bytes, kind: str, limits: Limits) -> list[dict[str, str]]:
    """Id and text of each document of a file."""
    if kind in _TABLES:
        return _documents(body, kind, limits)
    text = {"txt": _plain, "docx": _docx, "pdf": _pdf}[kind](body, limits)
    if len(text) > limits.text:
        raise Problem(413, f"the file has {len(text):,} characters; a text has at most {limits.text:,}")
    return [{"id": "1", "text": text}]


def _plain(body: bytes, _: Limits) -> str:
    return body.decode("utf-8-sig", "replace")


def _documents(body: bytes, kind: str, limits: Limits) -> list[dict[str, str]]:
    """Documents of a table or of JSON lines, read as all verbs read them; the file's name is not the client's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"sent.{kind}"
        path.write_bytes(body)
        found = []
        try:
            for document in Reader(path, ReadOptions(format=_TABLES[kind]), need_labels=False):
                found.append({"id": document.id, "text": document.text})
                if len(found) > limits.texts:
                    raise Problem(413, f"the file has more than {limits.texts} documents; send it as a job")
        except PolytagError as error:
            raise DataError(str(error).replace(str(path), "the file")) from None
    return found


def _docx(body: bytes, limits: Limits) -> str:
    """The paragraphs of a DOCX file."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            part = archive.getinfo("word/document.xml")
            if part.file_size > _RATIO * max(1, part.compress_size) or part.file_size > 50 * limits.text:
                raise Problem(413, "the document is too large when it is unpacked")
            return _paragraphs(archive.read(part))
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError, expat.ExpatError, EOFError) as error:
        raise DataError(f"the file is not a DOCX document ({type(error).__name__}); save it again as DOCX") from None


def _paragraphs(xml: bytes) -> str:
    """The text of a document; a document type, which could define entities that grow without bound, is refused."""
    lines: list[str] = [""]
    inside: list[str] = []

    def start(name: str, _: Any) -> None:
        inside.append(name.rpartition(":")[2])
        if inside[-1] in ("tab", "br"):
            lines[-1] += " "

    def end(name: str) -> None:
        if inside.pop() in _PARAGRAPH:
            lines.append("")

    def characters(text: str) -> None:
        if inside and inside[-1] in _TEXT:
            lines[-1] += text

    def refused(*_: Any) -> None:
        raise DataError("the document declares a document type, which DOCX does not have")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = characters, refused
    parser.Parse(xml, True)
    return "\n".join(lines).strip()


def _pdf(body: bytes, limits: Limits) -> str:
    """The text of a PDF file, by the package pypdf where it is installed."""
    try:
        import pypdf
    except ModuleNotFoundError:
        raise Problem(415, "PDF files need the package pypdf on the side of the service: pip install pypdf") from None
    pages: list[str] = []
    try:
        for page in pypdf.PdfReader(io.BytesIO(body)).pages:
            pages.append(page.extract_text())
            if sum(map(len, pages)) > limits.text:
                break
    except Exception as error:  # the package raises many kinds for damaged files
        raise DataError(f"the file is not a PDF document that can be read ({type(error).__name__})") from None
    return "\n".join(pages).strip()
