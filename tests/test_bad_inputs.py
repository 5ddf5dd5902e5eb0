"""Files that are not what they should be: each is refused with one line that names it, and nothing else is ever raised."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import lzma
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polytag import datasets
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.errors import PolytagError
from polytag.formats.document import Document, ReadOptions
from polytag.formats.document_files import FORMATS, Reader, write_documents
from polytag.labels import LabelSet


class Case(NamedTuple):
    """The name of a file, its content, and the reading options that go with it."""

    name: str
    content: bytes
    options: dict[str, Any] = {}  # noqa: RUF012, never changed


def refused(path: Path, read: Any) -> str:
    """The one line with which reading a file is refused; it names the file."""
    with pytest.raises(PolytagError) as caught:
        read()
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and str(path) in message, message
    assert len(message) < 2_000, "a message is to be read"
    return message


def params(cases: list[Case]) -> list[Any]:
    """The cases with short names, each of which is different."""
    return [pytest.param(case, id=f"{number}-{case.name}") for number, case in enumerate(cases)]


def text_cases(name: str, contents: list[str], **options: Any) -> list[Case]:
    return [Case(name, content.encode(), options) for content in contents]


# -- contents that no format can read ----------------------------------------------------------------------------------

ODD = "caf\xe9 \u6f22\u5b57 \U0001f600"
DEEP = "[" * 100_000
DIGITS = "9" * 5_000
GARBAGE = [
    bytes(range(256)),
    b"\xff\xfe" + "text,labels\na,x\n".encode("utf-16-le"),
    "text\tlabels\n".encode("utf-32"),
    b"\x80" * 50,
]
GOOD_LINE = '{"text": "t", "labels": ["a"]}\n'

JSON_LINES = [
    "{", "}", "[", "]", '"text"', "1", "null", "true", "NaN", "-Infinity", "[1, 2]", "[[]]", "text: a", "<html></html>", "'text'",
    '{"text": "a"', '{"text": "a",', '{"text": "a", "labels": [', '{"text": "a", "labels": ["x"}', '{"text": "a" "labels": []}',
    '{"text": "a", "labels": ["x"],}', "{'text': 'a', 'labels': []}", '{text: "a", labels: []}', '{"text": "a", "labels": []} x',
    '{"text": "a\tb", "labels": []}', '{"text": "\\x", "labels": []}', '{"text": "\\u12", "labels": []}', "// comment",
    "# comment",
    '{"text": "a"}', '{"labels": ["x"]}', "{}", '{"a": 1}', '{"text": ["a"], "labels": []}', '{"text": {"a": 1}, "labels": []}',
    '{"text": true, "labels": []}', '{"text": "a", "labels": {"x": 1}}', '{"text": "a", "labels": true}',
    '{"text": "a", "labels": 1.5}', '{"text": "a", "labels": [["x"]]}', '{"text": "a", "labels": [null]}',
    '{"text": "a", "labels": [{"name": "x"}]}', '{"text": "a", "labels": [true, false]}', '{"text": "a", "labels": [1.5]}',
    '{"text": "a", "labels": [NaN]}', '{"id": ["7"], "text": "a", "labels": []}', '{"id": {}, "text": "a", "labels": []}',
    '{"group": [], "text": "a", "labels": []}', '{"id": false, "text": "a", "labels": []}', DEEP, DEEP + "]" * 100_000,
    '{"a":' * 100_000, f'{{"text": "a", "labels": {DEEP}}}', f'{{"text": {DIGITS}, "labels": []}}',
    f'{{"text": "a", "labels": [{DIGITS}]}}',
    f'{{"id": -{DIGITS}, "text": "a", "labels": []}}', '{"text": "a", "labels": [1e400]}', "\x00", "\x00" * 100,
    '{"text": "\x00", "labels": []}',
]  # fmt: skip
JSONL = [
    *text_cases("x.jsonl", [GOOD_LINE + line + "\n" for line in JSON_LINES]),
    *text_cases("x.jsonl", ["", " ", "\n", "\n \t\n", "\ufeff", "\ufeff\n"]),
    *text_cases("x.json", ["[\n" + GOOD_LINE + "]", "{\n  " + '"text": "a"\n}', '[{"text": "a", "labels": []}]']),
    *(Case("x.jsonl", GOOD_LINE.encode() + raw) for raw in (*GARBAGE, f'{{"text": "{ODD}"}}'.encode("utf-16"), b"\xc3(\n")),
    Case("x.jsonl", GOOD_LINE.encode() + '{"text": "caf\xe9", "labels": []}\n'.encode("latin-1")),
    Case("x.jsonl", GOOD_LINE.encode(), {"text": "body"}),
    Case("x.jsonl", GOOD_LINE.encode(), {"labels": "tags"}),
    Case("x.jsonl", GOOD_LINE.encode(), {"id": "key"}),
    Case("x.jsonl", GOOD_LINE.encode(), {"group": "source"}),
    Case("x.jsonl", b'{"words": "a", "kind": "b"}\n'),
]

TABLES = [
    "", "\n", " \n", "\ufeff", "text,labels\n", "text\n", "labels\n", "a,b\n1,2\n", "text,kind\n1,2\n", "words,labels\n1,2\n",
    "text,text,labels\n1,2,3\n", "text,labels,labels\n1,2,3\n", ",,\n1,2,3\n", '"text,labels\n1,2\n', 'text,"labels\n1,2\n',
    "text,labels\na\n", "text,labels\na,x,y\n", "text,labels\na,x\nb\n", "text,labels\na,x\nb,y,z\n", 'text,labels\n"a,x\nb,y\n',
    'text,labels\n"a"b,x\n', 'text,labels\na,"x\n', "text,labels\n" + '"' * 999 + "\n", "text;labels\na;x;y\n",
    "text\tlabels\na\n",
    "text|labels\na|x|y\n", "text,labels\n,\n,,\n", "\x00", "\x00\x00,\x00\n", "text\x00,labels\x00\na,x\n", "{}",
    "<table></table>",
    ",".join("abcdefghij") + "\n" + ",".join("0123456789") + "\n", "text,labels\r\na\r\n", "," * 10_000, '"' * 10_001,
]  # fmt: skip
CSV = [
    *text_cases("x.csv", TABLES),
    *text_cases("x.tsv", [table.replace(",", "\t") for table in TABLES if "," in table], format="tsv"),
    *(Case("x.csv", raw) for raw in (*GARBAGE, b"text,labels\ncaf\xe9,x\n", b"text\xe9,labels\na,x\n", b"\xff\xfet\x00,\x00")),
    *(Case("x.tsv", raw) for raw in (b"text\tlabels\ncaf\xe9\tx\n", b"text\tlabels\n\xff\t\xff\n")),
    Case("x.csv", b"text,labels\na,x\n", {"text": "body"}),
    Case("x.csv", b"text,labels\na,x\n", {"labels": "tags", "format": "csv"}),
    Case("x.csv", b"text,labels\na,x\n", {"format": "parquet"}),
    Case("x.csv", b"text,labels\na,x\n", {"format": "libsvm"}),
    Case("x.csv", b"text,labels\na,x\n", {"format": "libmultilabel"}),
]

LINES = [
    *(Case("x.ft", raw) for raw in (b"", b"\n\n", b"\xff\n", b"__label__a caf\xe9\n", *GARBAGE)),
    *(
        Case("x.lml", raw)
        for raw in (b"", b"\n", b"one\n", b"1\ta\ttext\none\n", b"a\ttext\nb\n", b"\xff\t\xff\t\xff\n", *GARBAGE)
    ),
    *(Case("x.txt", raw) for raw in (b"", b"plain words\n", b"\xff", *GARBAGE)),
]

ROWS = [
    "", "\n", "words\n", "3,17 words\n", "3,17 5:\n", "3,17 :1\n", "3,17 5:x\n", "3,17 5:0.25,9:1\n", "3, 5:1\n", ",3 5:1\n",
    "3;4 5:1\n",
    "3 5:1 6\n", "3 5:1:2\n", "3 5:nan\n", "3 5:inf\n", "3 -5:1\n", "-3 5:1\n", "3.5 5:1\n", "3 5.5:1\n", "3 5:1e\n", "3 5:--1\n",
    "2 10 18\n3 5:1\n", "1 10 18\n3 5:1\n4 5:1\n", "1 5 18\n3 5:1\n", "1 10 3\n3 5:1\n", "0 0 0\n3 5:1\n", "3 9 9\n\n\n",
    f"3 {10**20}:1\n", f"3 {2**63}:1\n", f"{10**20} 5:1\n", f"3 {DIGITS}:1\n", f"{DIGITS} 5:1\n", "3 5:1e400\n", "3 5:1e39\n",
    f"3 5:{DIGITS}\n", "3 5:-1e99\n", f"{DIGITS} {DIGITS} {DIGITS}\n3 5:1\n", f"1 {10**30} 5\n3 5:1\n", "\x00\n", "3 5:1\x00\n",
    "3 5:1\n" + ODD + "\n",
]  # fmt: skip
SVM = [*text_cases("x.svm", ROWS), *(Case("x.svm", b"3 5:1\n" + raw) for raw in GARBAGE)]


def parquet(*columns: tuple[str, Any], **options: Any) -> bytes:
    """A Parquet file with these columns."""
    stream = io.BytesIO()
    table = pyarrow.Table.from_arrays([pyarrow.array(values) for _, values in columns], [name for name, _ in columns])
    pyarrow.parquet.write_table(table, stream, **options)
    return stream.getvalue()


def damaged(content: bytes, changes: int) -> Iterator[bytes]:
    """The same content, cut and changed at places spread over it."""
    for number in range(1, changes + 1):
        yield content[: len(content) * number // (changes + 1)]
    yield content + b"\0"
    yield content[1:]
    yield content[:4] + content[:-8]


WHOLE = parquet(("text", ["a", "b"] * 50), ("labels", [["x"], ["y"]] * 50))
PARQUET = [
    *(Case("x.parquet", raw) for raw in damaged(WHOLE, 15)),
    *(Case("x.parquet", raw) for raw in (b"", b"PAR1", b"PAR1PAR1", b"PAR1" + struct.pack("<I", 2**31) + b"PAR1", *GARBAGE)),
    *(Case("x.parquet", WHOLE[:-8] + struct.pack("<I", size) + b"PAR1") for size in (0, 1, 7, 2**31 - 1, 2**32 - 1)),
    Case("x.parquet", parquet(("text", ["a"]))),
    Case("x.parquet", parquet(("labels", [["a"]]))),
    Case("x.parquet", parquet(("text", []), ("labels", []))),
    Case("x.parquet", parquet(("words", ["a"]), ("kinds", ["b"]))),
    Case("x.parquet", parquet(("text", [b"bytes"]), ("labels", [["x"]]))),
    Case("x.parquet", parquet(("text", [["a"]]), ("labels", [["x"]]))),
    Case("x.parquet", parquet(("text", [{"a": 1}]), ("labels", [["x"]]))),
    Case("x.parquet", parquet(("text", [True]), ("labels", [["x"]]))),
    Case("x.parquet", parquet(("text", ["a"]), ("labels", [[["x"]]]))),
    Case("x.parquet", parquet(("text", ["a"]), ("labels", [[b"x"]]))),
    Case("x.parquet", parquet(("text", ["a"]), ("labels", [{"x": 1}]))),
    Case("x.parquet", parquet(("text", ["a"]), ("labels", [[True]]))),
    Case("x.parquet", parquet(("text", ["a"]), ("labels", [[1.5]]))),
    Case("x.parquet", parquet(("text", ["a"]), ("labels", [[None]]))),
    Case("x.parquet", parquet(("text", ["a"]), ("labels", [True]))),
    Case("x.parquet", parquet(("text", ["a"]), ("text", ["b"]), ("labels", [["x"]]))),
    Case("x.parquet", parquet(("id", [[1]]), ("text", ["a"]), ("labels", [["x"]]))),
    Case("x.parquet", WHOLE, {"text": "body"}),
    Case("x.parquet", WHOLE, {"labels": "tags"}),
    Case("x.jsonl", WHOLE),
    Case("x.csv", WHOLE),
]  # fmt: skip

DOCUMENTS = "".join(f'{{"text": "some text {i * 7919}", "labels": ["label{i % 7}"]}}\n' for i in range(400)).encode()
COMPRESSED = {".gz": gzip.compress(DOCUMENTS, mtime=0), ".xz": lzma.compress(DOCUMENTS), ".zst": zstandard.compress(DOCUMENTS)}
COMPRESSION = [
    *(
        Case(f"x.jsonl{ending}", raw)
        for ending, whole in COMPRESSED.items()
        for raw in itertools.chain(
            damaged(whole, 8), (b"plain text, whatever its name says", DOCUMENTS, b"", whole[:3], *GARBAGE)
        )
        if not (ending == ".gz" and raw == whole + b"\0")  # gzip allows zeros at the end
    ),
    *(Case(f"x.csv{ending}", other) for ending in COMPRESSED for end, other in COMPRESSED.items() if end != ending),
    *(Case(f"x.parquet{ending}", whole) for ending, whole in COMPRESSED.items()),
]

DOCUMENT_CASES = [*JSONL, *CSV, *LINES, *SVM, *PARQUET, *COMPRESSION]


@pytest.mark.parametrize("case", params(DOCUMENT_CASES))
def test_documents_are_refused_with_one_line(tmp_path: Path, case: Case) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.content)
    refused(path, lambda: Corpus.read(path, options=ReadOptions(**case.options)))
    for need_labels in (True, False):  # lines that are skipped may leave documents, and prediction needs no labels
        reader = Reader(path, ReadOptions(**{**case.options, "on_bad": "skip"}), need_labels=need_labels)
        try:
            found = list(reader)
        except PolytagError as error:
            assert str(path) in str(error) and "\n" not in str(error)
        else:
            assert all(isinstance(document, Document) and isinstance(document.text, str) for document in found)


# -- label files -------------------------------------------------------------------------------------------------------

LABEL_LINES = [
    "{", "[1]", "1", "null", '"name"', "{}", '{"title": "a"}', '{"name": null}', '{"name": ""}', '{"name": "  "}',
    '{"name": ["a"]}',
    '{"name": {"a": 1}}', '{"name": true}', '{"name": 1.5}', '{"name": "a"}\n{"name": "a"}', '{"name": "a", "parent": "b"}',
    '{"name": "a", "parent": ["b"]}', '{"name": "a", "parent": 7}', '{"name": "a"} x', DEEP, f'{{"name": {DIGITS}}}',
    '{"x":' * 100_000,
    '{"name": "a", "parent": ' + DEEP, "name", '{"uid": "x"}', '{"name": "a"}\n{"title": "b"}', "\x00", '{"name": NaN}',
]  # fmt: skip
LABEL_TABLES = [
    "", "\n", "title\na\n", "name,name\na,b\n", "name,parent\na,b\n", "name\n\na,b\n", "name,id\na\n", "name,id\na,1,2\n",
    'name\n"a\n',
    "name\na\na\n", "name,description\n,x\n", "name,description\n  ,x\n", "Name\na\n", "name\n", "\x00\n", '"name\n',
]  # fmt: skip
LABEL_CASES = [
    *text_cases("l.jsonl", [*LABEL_LINES, "", "\n", "\ufeff"]),
    *text_cases("l.csv", LABEL_TABLES),
    *text_cases("l.tsv", [table.replace(",", "\t") for table in LABEL_TABLES]),
    *text_cases("l.txt", ["", "\n\n", "  \n\t\n", "a\nb\na\n"]),
    *(Case(f"l{ending}", raw) for ending in (".jsonl", ".csv", ".txt") for raw in (b"\xff\n", b"caf\xe9\n", *GARBAGE[1:])),
    *(Case(f"l.jsonl{ending}", raw) for ending, whole in COMPRESSED.items() for raw in (whole, whole[:-9], b"x")),
]


@pytest.mark.parametrize("case", params(LABEL_CASES))
def test_label_files_are_refused_with_one_line(tmp_path: Path, case: Case) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.content)
    refused(path, lambda: LabelSet.read(path))


# -- recipes -----------------------------------------------------------------------------------------------------------

TOML = [
    "model", "model =", 'model = "br', "model = br", "= 1", "[options", "[options]\nc", "a = 1\na = 2", "[data]\n[data]",
    "\x00", "{}",
    "model = 1", "model = []", "model = {}", 'model = "none such"', 'model = "br "', "seed = -1", "seed = 1.5", 'seed = "1"',
    "seed = true",
    f"seed = {10**30}", f"seed = {10**400}", f"seed = {DIGITS}", "seed = inf", "seed = []", 'optimise = "f1"', "optimise = 1",
    'calibrate = "yes"', "calibrate = 1", "closed = 0", "min_labels = -1", "min_labels = 0.5", f"min_labels = {10**30}",
    "sed = 1",
    "c = 1.0", "options = 1", "options = []", 'options = "c=1"', "[options]\nd = 1", "[options]\nc = inf", "[options]\nc = nan",
    '[options]\nc = "one"', "[options]\nc = -1", "[options]\nc = [[1]]", "[options]\nc = {a = 1}", "[options]\nc = 1979-05-27",
    "[options]\nngrams = 9", f"[options]\nngrams = {10**30}", f"[options]\nmax_features = {10**30}", "[options]\nngrams = true",
    "[options]\nfolds = 1", f"[options]\nfolds = {10**400}", "[options]\nbalance = 2", '[options]\npreprocess = "all"',
    "[options]\nseed = 7",
    f'model = "cnn"\n[options]\nfilters = {10**30}', f'model = "bert"\n[options]\nepochs = {10**400}', "data = 1", "data = []",
    "data = 'a'",
    "[data]\ntrain = 1", "[data]\ntrain = []", "[data]\ntrain = true", "[data]\ntrain = 1979-05-27", "[data]\nvalid = {}",
    "[data]\nlabels = 0.5",
    "[data]\nfrom = 1", "[data]\nfingerprint = 1", "[data]\ntrian = 'a'", "[data]\nreading = 1", "[data]\nreading = []",
    "[data.reading]\ntext = 1", "[data.reading]\ntext = [1]", "[data.reading]\ntext = [['a']]", "[data.reading]\nlabels = 1",
    "[data.reading]\nformat = 1", "[data.reading]\nseparator = []", "[data.reading]\non_bad = true",
    "[data.reading]\ntxt = 'a'", "tune = 1",
    "[tune]\ntrials = 0", "[tune]\ntrials = 1.5", f"[tune]\ntrials = {10**30}", "[tune]\nx = 1", "[tune]\nranges = 1",
    "[tune.ranges]\nc = 1",
    "[tune.ranges]\nc = []", "[tune.ranges]\nc = [1]", "[tune.ranges]\nc = {low = 1}", "[tune.ranges]\nc = {low = 2, high = 1}",
    "[tune.ranges]\nc = {low = 1, high = inf}", f"[tune.ranges]\nngrams = {{low = 1, high = {10**30}}}",
    "[tune.ranges]\nd = [1, 2]",
    "[tune.ranges]\nc = {low = 0.1, high = 1, log = 1}", "[tune.ranges]\nc = {low = [], high = 1}",
    "[tune.ranges]\nc = ['a', 'b']",
    "x = " + DEEP, "x = " + "{a = " * 5_000, f"x = {DIGITS}", "x = " + "[" * 500 + "]" * 500, "a.b.c = 1",
]  # fmt: skip
RECIPES = [
    *text_cases("r.toml", TOML),
    *(Case("r.toml", raw) for raw in (b"\xff", b"\xff\xfem\x00", 'model = "caf\xe9"'.encode("latin-1"), *GARBAGE[1:])),
]


@pytest.mark.parametrize("case", params(RECIPES))
def test_recipes_are_refused_with_one_line(tmp_path: Path, case: Case) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.content)
    refused(path, lambda: Recipe.read(path))


# -- what is no file ---------------------------------------------------------------------------------------------------

ENDINGS = [".jsonl", ".csv", ".parquet", ".svm", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst", ""]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("what", ["folder", "missing", "under a file", "long name", "loop"])
@pytest.mark.parametrize("read", [Corpus.read, LabelSet.read, Recipe.read], ids=["documents", "labels", "recipe"])
def test_folders_missing_files_and_broken_links(tmp_path: Path, ending: str, what: str, read: Any) -> None:
    path = tmp_path / f"x{ending}"
    if what == "folder":
        path.mkdir()
    elif what == "under a file":
        (tmp_path / "file").write_text("x")
        path = tmp_path / "file" / path.name
    elif what == "long name":
        path = tmp_path / ("x" * 300 + ending)
    elif what == "loop":
        path.symlink_to(path)
    refused(path, lambda: read(path))


@pytest.mark.parametrize("ending", ENDINGS[:-1])
def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path: Path, ending: str) -> None:
    if ending == ".svm":
        return
    documents = [Document("1", "text", ("a",))]
    folder, file = tmp_path / f"folder{ending}", tmp_path / "file"
    folder.mkdir()
    file.write_text("x")
    refused(folder, lambda: write_documents(folder, documents))
    for path in (file / f"x{ending}", file / "deeper" / f"x{ending}"):
        refused(path.parent if path.parent != file else file, lambda path=path: write_documents(path, documents))
    refused(tmp_path / ("y" * 300 + ending), lambda: write_documents(tmp_path / ("y" * 300 + ending), documents))
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(["file", folder.name])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("format", ["jsonl", "csv", "fasttext", "libmultilabel", "parquet"])
def test_a_full_device_is_named(format: str) -> None:
    documents = [Document(str(number), "text " * 100, ("a",)) for number in range(2_000)]
    refused(Path("/dev/full"), lambda: write_documents("/dev/full", documents, format))


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst", ".parquet"])
def test_what_stops_in_the_middle_leaves_the_earlier_file_and_nothing_else(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    write_documents(path, [Document("1", "earlier", ("a",))])
    before = path.read_bytes()

    def stops() -> Iterator[Document]:
        yield from (Document(str(number), "new " * 1000, ("b",)) for number in range(500))
        raise PolytagError("the input is bad")

    with pytest.raises(PolytagError, match="the input is bad"):
        write_documents(path, stops())
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == [path.name]


def test_links_and_permissions_of_an_output_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    real.write_text("earlier")
    real.chmod(0o640)
    link.symlink_to(real)
    write_documents(link, [Document("1", "new", ())])
    assert link.is_symlink() and "new" in real.read_text() and real.stat().st_mode & 0o777 == 0o640


# -- sources of corpora ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw", [b"", b"no archive", gzip.compress(b"no archive", mtime=0), *GARBAGE, *damaged(COMPRESSED[".gz"], 2)]
)
def test_packages_of_corpora_are_refused_with_one_line(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "package.tgz"
    path.write_bytes(raw)
    refused(path, lambda: datasets.get("reuters", tmp_path / "out", package=path))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "raw"),
    [("Packages", b"no field\n"), ("Packages", b"\xff\n"), ("Packages.gz", b"x"), ("Packages.xz", b"x"), ("Packages.zst", b"x")],
)
def test_indexes_of_packages_are_refused_with_one_line(tmp_path: Path, name: str, raw: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    refused(path, lambda: datasets.build("debdeps", tmp_path / "out", packages=[path]))
    assert not (tmp_path / "out").exists()


# -- any bytes ---------------------------------------------------------------------------------------------------------

SEEDS = {
    "jsonl": GOOD_LINE.encode() * 3,
    "csv": b'id,text,labels\n1,"a, b",x;y\n2,c,z\n',
    "tsv": b"id\ttext\tlabels\n1\ta\tx;y\n",
    "parquet": parquet(("text", ["a", "b"]), ("labels", [["x"], ["y"]]), compression="none"),
    "fasttext": b"__label__a __label__b some words\n",
    "libmultilabel": b"1\ta b\tsome words\n",
    "libsvm": b"2 10 18\n3,17 5:0.25 9:1\n4 2:0.5\n",
    "label-studio": b'[{"id": 1, "data": {"text": "a"}, "annotations": [{"result": ['
    b'{"from_name": "t", "value": {"choices": ["x"]}}]}]}]',
    "doccano": b'{"id": 1, "text": "a", "label": ["x", "y"]}\n{"id": 2, "data": "b", "label": []}\n',
    "text": b"some words\n",
}
assert set(SEEDS) == set(FORMATS)
TOKENS = [
    b"\n",
    b"\r",
    b"\t",
    b",",
    b";",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"\\",
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"9" * 30,
    b"e99",
]
TOKENS += [
    b"__label__",
    b"\\ud800",
    b"null",
    b"NaN",
    b"true",
    b"1e400",
    "\u2028".encode(),
    "\x85".encode(),
    b"text",
    b"labels",
    b" ",
]


@st.composite
def edited(draw: st.DrawFn, seed: bytes) -> bytes:
    """A valid file with bytes inserted, removed and replaced."""
    raw = seed
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(raw)))
        stop = min(len(raw), start + draw(st.integers(0, 6)))
        raw = raw[:start] + draw(st.sampled_from(TOKENS) | st.binary(max_size=4)) + raw[stop:]
    return raw


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("need_labels", [True, False])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_bytes_give_documents_or_one_line(format: str, need_labels: bool, data: st.DataObject) -> None:
    raw = data.draw(st.binary(max_size=200) | edited(SEEDS[format]))
    ending = data.draw(st.sampled_from(["", "", ".gz", ".xz", ".zst"]))
    given_format = data.draw(st.sampled_from([format, None]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x.{format}{ending}"
        path.write_bytes(raw)
        for on_bad in ("fail", "skip"):
            options = ReadOptions(format=given_format, on_bad=on_bad)  # type: ignore[arg-type]
            try:
                found = list(Reader(path, options, need_labels=need_labels))
            except PolytagError as error:
                assert str(path) in str(error) and len(str(error).splitlines()) == 1
            else:
                for document in found:
                    assert isinstance(document.text, str) and all(type(name) is str and name for name in document.labels)


@settings(max_examples=150, deadline=None)
@given(raw=st.binary(max_size=120) | edited(b'{"name": "a", "parent": "b"}\n{"name": "b"}\n') | edited(b"name,parent\na,b\nb,\n"))
@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv", ".txt"])
def test_any_bytes_give_labels_or_one_line(ending: str, raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"l{ending}"
        path.write_bytes(raw)
        try:
            found = LabelSet.read(path)
        except PolytagError as error:
            assert str(path) in str(error) and len(str(error).splitlines()) == 1
        else:
            assert len(found) and LabelSet.from_state(json.loads(json.dumps(found.state()))) == found


@settings(max_examples=150, deadline=None)
@given(raw=st.binary(max_size=120) | edited(b'model = "br"\nseed = 1\n[options]\nc = [1.0]\n[data]\ntrain = "a"\n'))
def test_any_bytes_give_a_recipe_or_one_line(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.toml"
        path.write_bytes(raw)
        try:
            assert Recipe.read(path).checked()
        except PolytagError as error:
            assert str(path) in str(error) and len(str(error).splitlines()) == 1


def test_there_are_hundreds_of_bad_files() -> None:
    assert len(DOCUMENT_CASES) + len(LABEL_CASES) + len(RECIPES) >= 300
