"""File formats: round trips, detection, streaming, and bad lines that are named or skipped."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polytag.errors import ConfigError, DataError
from polytag.formats.document_files import Document, Reader, ReadOptions, read_documents, write_documents

LINE_BREAKERS = "\t\n\v\f\r\0"
CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS | st.sampled_from(" \",;|\t\n\r[]'\\"), max_size=30)
LABELS = st.text(CHARACTERS | st.sampled_from(' ",;|[]'), min_size=1, max_size=8).filter(
    lambda name: not name.isspace()
)  # blank names are no labels
IDS = st.text(CHARACTERS, min_size=1, max_size=8)
WORDS = st.text(CHARACTERS.filter(lambda c: c not in LINE_BREAKERS + " "), min_size=1, max_size=8)
ENDINGS = [".jsonl", ".csv", ".tsv", ".parquet"]


def documents(labels: st.SearchStrategy[str], group: st.SearchStrategy[str | None]) -> st.SearchStrategy[list[Document]]:
    one = st.builds(Document, id=IDS, text=TEXTS, labels=st.lists(labels, max_size=4).map(tuple), group=group)
    return st.lists(one, min_size=1, max_size=6)


def one_line(text: str) -> str:
    return re.sub("[\t\n\v\f\r\0]+", " ", text).strip(" ")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("formats")


# -- round trips -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
@given(found=documents(LABELS, st.none()) | documents(LABELS, IDS))
@settings(max_examples=60, deadline=None)
def test_formats_with_columns_keep_every_document_exactly(folder: Path, ending: str, found: list[Document]) -> None:
    path = folder / f"round{ending}"
    assert write_documents(path, found) == len(found)
    assert list(read_documents(path)) == found


@given(found=documents(WORDS, st.none()))
@settings(max_examples=60, deadline=None)
def test_libmultilabel_keeps_all_but_line_ends(folder: Path, found: list[Document]) -> None:
    path = folder / "round.txt"
    write_documents(path, found, "libmultilabel")
    again = list(read_documents(path, ReadOptions(format="libmultilabel")))
    expected = [(one_line(d.id) or str(i), one_line(d.text), d.labels) for i, d in enumerate(found, start=1)]
    assert [(d.id, d.text, d.labels) for d in again] == expected


@given(found=documents(WORDS, st.none()))
@settings(max_examples=60, deadline=None)
def test_fasttext_keeps_all_but_ids_and_line_ends(folder: Path, found: list[Document]) -> None:
    path = folder / "round.ft"
    found = [d for d in found if d.labels or one_line(d.text)]  # a blank line is no document when labels are needed
    write_documents(path, found)
    again = list(read_documents(path))
    assert again == [Document(str(i), one_line(d.text), d.labels) for i, d in enumerate(found, start=1)]


@pytest.mark.parametrize(
    "ending", [".jsonl", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst", ".csv.gz", ".tsv.xz", ".ft.zst", ".parquet.gz"]
)
def test_compression_follows_the_name(tmp_path: Path, ending: str) -> None:
    found = [Document(str(i), f"text {i} ä", ("a", "b")) for i in range(1, 2001)]
    write_documents(tmp_path / f"deep/er/x{ending}", found)
    assert list(read_documents(tmp_path / f"deep/er/x{ending}")) == found
    magic = {"gz": b"\x1f\x8b", "xz": b"\xfd7zXZ", "zst": b"\x28\xb5\x2f\xfd", "jsonl": b"{"}[ending.split(".")[-1]]
    assert (tmp_path / f"deep/er/x{ending}").read_bytes().startswith(magic)


@pytest.mark.parametrize("format", ["fasttext", "libmultilabel"])
def test_what_a_format_cannot_hold_is_refused_not_changed(tmp_path: Path, format: str) -> None:
    with pytest.raises(DataError, match=f"{format} cannot hold the label 'two words'"):
        write_documents(tmp_path / "x.txt", [Document("1", "t", ("two words",))], format)


def test_text_that_would_become_a_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="would be read as a label"):
        write_documents(tmp_path / "x.ft", [Document("1", "say __label__x", ("a",))])


def test_a_group_that_the_table_has_no_column_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has a group"):
        write_documents(tmp_path / "x.csv", [Document("1", "t", ()), Document("2", "t", (), "g")])


def test_half_a_character_is_named_when_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="document 2 cannot be written as UTF-8"):
        write_documents(tmp_path / "x.jsonl", [Document("1", "t"), Document("2", "\ud800")])


def test_the_format_to_write_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot tell the format"):
        write_documents(tmp_path / "x.txt", [])
    with pytest.raises(ConfigError, match="did you mean 'parquet'"):
        write_documents(tmp_path / "x.txt", [], "parket")


# -- detection ---------------------------------------------------------------------------------------------------------

SAME = [Document("1", "fish quotas", ("fish", "trade")), Document("2", "rain", ("weather",))]
DETECTED = {
    "jsonl": '{"id": 1, "text": "fish quotas", "labels": ["fish", "trade"]}\n{"id": "2", "text": "rain", "labels": "weather"}\n',
    "fasttext": "__label__fish __label__trade fish quotas\n__label__weather rain\n",
    "libmultilabel": "1\tfish trade\tfish quotas\n2\tweather\train\n",
    "csv": 'id,text,labels\n1,fish quotas,"fish,trade"\n2,rain,weather\n',
    "tsv": "id\ttext\tlabels\n1\tfish quotas\tfish|trade\n2\train\tweather\n",
}


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("format", DETECTED)
def test_the_format_is_found_in_the_first_lines(tmp_path: Path, format: str, line_end: str, bom: bytes) -> None:
    path = write(tmp_path / "data.txt", bom + DETECTED[format].replace("\n", line_end).encode())
    reader = Reader(path)
    assert list(reader) == SAME
    assert (reader.format, reader.read, reader.bad) == (format, 2, 0)


@pytest.mark.parametrize("format", DETECTED)
def test_standard_input(monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(DETECTED[format].encode())))
    assert list(read_documents("-")) == SAME
    assert not sys.stdin.buffer.closed


def test_parquet_from_standard_input_and_to_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    write_documents("-", SAME, "parquet")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out.getvalue())))
    assert list(read_documents("-")) == SAME


def test_libmultilabel_with_two_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "fish trade\tfish quotas\nweather\train\n")
    assert list(read_documents(path)) == SAME


def test_a_tsv_without_a_header_is_libmultilabels_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "x.tsv", DETECTED["libmultilabel"])
    assert list(read_documents(path)) == SAME
    assert "read as libmultilabel" in caplog.text
    with pytest.raises(DataError, match="no text column 'txt'"):  # a column was named, so there must be a header
        list(read_documents(path, ReadOptions(text="txt")))


def test_fasttext_labels_count_wherever_they_stand(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ft", "__label__a  one __label__b two x__label__c __label__d\n")
    assert list(read_documents(path)) == [Document("1", "one two x__label__c", ("a", "b", "d"))]


def test_plain_text_is_for_prediction_and_keeps_blank_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "Hello, world; a\n\nlast, line")
    with pytest.raises(DataError, match="plain text has no labels"):
        list(read_documents(path))
    found = list(read_documents(path, need_labels=False))
    assert [(d.id, d.text) for d in found] == [("1", "Hello, world; a"), ("2", ""), ("3", "last, line")]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_separator_of_columns_is_found(tmp_path: Path, mark: str) -> None:
    path = write(tmp_path / "x.csv", f'id{mark}text{mark}labels\n1{mark}"a {mark} b"{mark}x\n')
    assert list(read_documents(path)) == [Document("1", f"a {mark} b", ("x",))]


# -- columns and cells -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_several_text_columns_are_joined_and_missing_ones_are_empty(tmp_path: Path, ending: str) -> None:
    rows = [{"title": "Fish", "body": "quotas", "labels": ["a"]}, {"title": None, "body": "rain", "labels": None}]
    path = tmp_path / f"x{ending}"
    if ending == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    elif ending == ".csv":
        write(path, "title,body,labels\nFish,quotas,a\n,rain,\n")
    else:
        write(path, "\n".join(json.dumps(row) for row in rows))
    for text in ("title,body", ("title", "body")):
        found = list(read_documents(path, ReadOptions(text=text)))
        assert [(d.text, d.labels) for d in found] == [("Fish quotas", ("a",)), ("rain", ())]


def test_usual_column_names_are_found_whatever_their_case(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "Doc_ID,Group,Abstract,Topics\n7,g,words,a;b\n")
    assert list(read_documents(path)) == [Document("7", "words", ("a", "b"), "g")]


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "key,text,what,marks,src\n7,no,yes,a b,s\n")
    options = ReadOptions(text="what", labels="marks", id="key", group="src", separator=" ")
    assert list(read_documents(path, options)) == [Document("7", "yes", ("a", "b"), "s")]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["a;b", "c"], [("a", "b"), ("c",)]),
        (["a | b", "c"], [("a", "b"), ("c",)]),
        (["a, b", "c d"], [("a", "b"), ("c d",)]),
        (["Smith, John", "x;Smith, John"], [("Smith, John",), ("x", "Smith, John")]),
        (["one label", "two words"], [("one label",), ("two words",)]),
        (['["a;x", "b"]', "['c', 'd']"], [("a;x", "b"), ("c", "d")]),
        (["", "  "], [(), ()]),
        (["[x]", "[y];z"], [("[x]",), ("[y]", "z")]),
    ],
)
def test_the_separator_of_labels_is_found(tmp_path: Path, cells: list[str], expected: list[tuple[str, ...]]) -> None:
    table = "text\tlabels\n" + "".join('t\t"' + cell.replace('"', '""') + '"\n' for cell in cells)
    assert [d.labels for d in read_documents(write(tmp_path / "x.tsv", table))] == expected
    lines = "\n".join(json.dumps({"text": "t", "labels": cell}) for cell in cells)
    assert [d.labels for d in read_documents(write(tmp_path / "x.jsonl", lines))] == expected


def test_a_separator_that_first_comes_late_is_still_found(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "text,labels\n" + "t,a\n" * 3000 + "t,a;b\n")
    assert [d.labels for d in read_documents(path)][-1] == ("a", "b")


def test_the_empty_separator_keeps_cells_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"text": "t", "label": "a;b"}')
    assert next(read_documents(path, ReadOptions(separator=""))).labels == ("a;b",)


def test_numbers_are_labels_and_ids_too(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"id": 3, "text": 2024, "labels": [4, "x", ""]}\n{"text": "t", "labels": 5}')
    assert list(read_documents(path)) == [Document("3", "2024", ("4", "x")), Document("2", "t", ("5",))]


def test_prediction_needs_no_labels_and_ignores_strange_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"text": "a"}\n{"text": "b", "labels": {"x": 1}}\n')
    assert [d.text for d in read_documents(path, need_labels=False)] == ["a", "b"]
    assert next(read_documents(write(tmp_path / "x.csv", "text\nhello\n"), need_labels=False)).text == "hello"


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"text": "a\\ud83d b\\uD83D\\uDE00", "labels": []}')
    assert next(read_documents(path)).text == "a\ufffd b\U0001f600"


def test_cells_longer_than_the_csv_modules_limit(tmp_path: Path) -> None:
    found = [Document("1", "word " * 100_000, ("a",))]
    write_documents(tmp_path / "x.csv", found)
    assert list(read_documents(tmp_path / "x.csv")) == found


# -- bad input ---------------------------------------------------------------------------------------------------------

GOOD = '{"text": "t", "labels": ["a"]}'
BAD_JSON = [
    ("{nonsense", "not JSON"),
    ('{"text": "cut', "not JSON"),
    ("[1, 2]", "not an object"),
    ('{"text": "t"}', "no 'labels' here, only .text."),
    ('{"labels": []}', "no 'text' here"),
    ('{"text": "t", "labels": {"a": 1}}', "the labels are an object"),
    ('{"text": "t", "labels": [["a"]]}', "a label is a list"),
    ('{"text": "t", "labels": [null]}', "a label is null"),
    ('{"text": "t", "labels": true}', "the labels are true or false"),
    ('{"text": ["t"], "labels": []}', "'text' is a list, not text"),
    ("[" * 100_000, "not JSON"),
    (b'{"text": "caf\xe9", "labels": []}', "not UTF-8 .byte 0xe9 at position 14"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_JSON)
def test_a_bad_line_is_named_or_skipped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str | bytes, reason: str
) -> None:
    raw = line.encode() if isinstance(line, str) else line
    path = write(tmp_path / "x.jsonl", GOOD.encode() + b"\n\n" + raw + b"\n" + GOOD.encode())
    with pytest.raises(DataError, match=f"{re.escape(str(path))}, line 3: .*{reason}") as error:
        list(read_documents(path))
    assert "\n" not in str(error.value)
    reader = Reader(path, ReadOptions(on_bad="skip"))
    with caplog.at_level(logging.WARNING):
        assert [d.id for d in reader] == ["1", "4"]
    assert (reader.read, reader.bad, reader.examples[0][0]) == (2, 1, 3)
    assert re.search(reason, reader.examples[0][1])
    assert "skipped 1 bad lines of 3" in caplog.text


BAD_TABLES = [
    (b"1,t\n", 3, "2 columns, but the header has 3"),
    (b"1,t,a,b\n", 3, "4 columns"),
    (b"1,caf\xe9,a\n", 3, "not UTF-8"),
    (b'1,"a" b,a\n', 3, "check the quotes"),
]


@pytest.mark.parametrize(("row", "line", "reason"), BAD_TABLES)
def test_a_bad_row_is_named_or_skipped(tmp_path: Path, row: bytes, line: int, reason: str) -> None:
    path = write(tmp_path / "x.csv", b"id,text,labels\n1,t,a\n" + row + b'4,"two\nlines",a\n5,t,a\n')
    with pytest.raises(DataError, match=f"line {line}: .*{reason}"):
        list(read_documents(path))
    reader = Reader(path, ReadOptions(on_bad="skip"))
    assert [(d.id, d.text) for d in reader] == [("1", "t"), ("4", "two\nlines"), ("5", "t")]
    assert reader.bad == 1


def test_a_quote_left_open_does_not_swallow_the_rest_in_silence(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'text,labels\na,x\n"b,x\nc,x\nd,x\n')
    with pytest.raises(DataError, match=r"line 3: .*check the quotes"):
        list(read_documents(path))


@pytest.mark.parametrize(
    ("format", "line"), [("libmultilabel", "only one column"), ("libmultilabel", b"1\ta\tcaf\xe9"), ("fasttext", b"\xff")]
)
def test_bad_lines_of_line_formats(tmp_path: Path, format: str, line: str | bytes) -> None:
    good = b"1\ta\ttext\n"
    path = write(tmp_path / "x.dat", good + (line.encode() if isinstance(line, str) else line) + b"\n" + good)
    with pytest.raises(DataError, match="line 2: "):
        list(read_documents(path, ReadOptions(format=format)))
    assert len(list(read_documents(path, ReadOptions(format=format, on_bad="skip")))) == 2


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("on_bad", ["fail", "skip"])
def test_a_missing_column_lists_those_that_exist_and_the_closest(tmp_path: Path, ending: str, on_bad: str) -> None:
    path = tmp_path / f"x{ending}"
    write_documents(path, SAME)
    options = {"on_bad": on_bad}
    with pytest.raises(DataError, match=r"no text column 'txt' among \(id, text, labels.*\); did you mean 'text'\?"):
        list(read_documents(path, ReadOptions(text="txt", **options)))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"no label column 'lables' .* did you mean 'labels'"):
        list(read_documents(path, ReadOptions(labels="lables", **options)))  # type: ignore[arg-type]


def test_columns_that_cannot_be_guessed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column looks like the text among \(foo, labels\); name it with --text"):
        list(read_documents(write(tmp_path / "x.csv", "foo,labels\n1,2\n")))
    with pytest.raises(DataError, match=r"no column looks like labels among \(text, foo\)"):
        list(read_documents(write(tmp_path / "x.csv", "text,foo\n1,2\n")))
    with pytest.raises(DataError, match="'text' occurs more than once"):
        list(read_documents(write(tmp_path / "x.csv", "text,text,labels\n1,2,3\n")))


@pytest.mark.parametrize(
    ("ending", "how"), [(".gz", "cut"), (".xz", "cut"), (".gz", "other"), (".xz", "other"), (".zst", "other")]
)
def test_damaged_compression_is_named(tmp_path: Path, ending: str, how: str) -> None:
    path = tmp_path / f"x.jsonl{ending}"
    write_documents(path, [Document(str(i), f"some text {i * 7919}", ("a",)) for i in range(3000)])
    whole = path.read_bytes()
    write(path, whole[: len(whole) // 2] if how == "cut" else b"no compressed file at all, whatever its name says")
    with pytest.raises(DataError, match=f"{re.escape(str(path))}: damaged or cut-short compressed file") as error:
        list(read_documents(path))
    assert "\n" not in str(error.value)


def test_files_that_are_not_what_they_seem(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a readable Parquet file"):
        list(read_documents(write(tmp_path / "x.parquet", "PAR1 nothing")))
    with pytest.raises(DataError, match="no such file"):
        list(read_documents(tmp_path / "nowhere.jsonl"))
    with pytest.raises(DataError, match="a JSON array is not JSON lines"):
        list(read_documents(write(tmp_path / "x.json", "[\n" + GOOD + "\n]")))


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="on_bad"):
        ReadOptions(on_bad="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="did you mean 'fasttext'"):
        Reader("x", ReadOptions(format="fastext"))


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".ft", ".parquet"])
def test_reading_streams_in_constant_memory(tmp_path: Path, ending: str) -> None:
    size, text = 6000, "word " * 1000
    write_documents(tmp_path / f"x{ending}", (Document(str(i), f"{i} {text}".strip(), ("a", "b")) for i in range(1, size + 1)))
    next(read_documents(tmp_path / f"x{ending}"))  # what is imported on first use is not counted
    tracemalloc.start()
    count = sum(1 for _ in read_documents(tmp_path / f"x{ending}"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == size
    assert peak < 15_000_000  # the texts alone are 30 MB
