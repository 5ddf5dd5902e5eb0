"""Which columns are read, and what is said about the others."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from polytag.corpus import Corpus
from polytag.formats.column_choice import looks_like_text
from polytag.formats.document import ReadOptions
from polytag.formats.document_files import read_documents

HEADER = "Id,Subject,Body,Tags,Sent,Customer,Queue\n"
ROWS = [
    f"{n},Printer in room {name} is broken,Please send somebody who can repair it. {name} has no paper,it;print,2026-11-{n:02d} "
    f"10:00,C{n},second level support team"
    for n, name in enumerate(["blue", "green", "red", "black", "white", "grey"], start=1)
]


@pytest.fixture
def mail(tmp_path: Path) -> Path:
    path = tmp_path / "mail.csv"
    path.write_text(HEADER + "\n".join(ROWS) + "\n")
    return path


def said(path: Path, caplog: pytest.LogCaptureFixture, options: ReadOptions | None = None) -> list[tuple[int, str]]:
    caplog.clear()
    with caplog.at_level(logging.INFO):
        list(read_documents(path, options))
    wanted = [record for record in caplog.records if record.name.endswith("column_choice")]
    return [(record.levelno, record.getMessage()) for record in wanted]


def test_a_column_that_looks_like_text_is_named_with_the_option_that_takes_both(
    mail: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Dates, codes and a category that repeats look like no text."""
    (level, message), *more = said(mail, caplog)
    assert level == logging.WARNING and not more
    assert message == f"{mail}: labels from Tags, text from Body; Subject looks like text too: --text Subject,Body"
    advised = message.rpartition("--text ")[2]
    assert not said(mail, caplog, ReadOptions(text=advised))
    first = next(iter(read_documents(mail, ReadOptions(text=advised))))
    assert first.text == "Printer in room blue is broken Please send somebody who can repair it. blue has no paper"


def test_parquet_and_frames_say_the_same(mail: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(mail)
    frame.to_parquet(tmp_path / "mail.parquet")
    assert [text.partition(": ")[2] for _, text in said(tmp_path / "mail.parquet", caplog)] == [
        "labels from Tags, text from Body; Subject looks like text too: --text Subject,Body"
    ]
    caplog.clear()
    with caplog.at_level(logging.INFO):
        Corpus.from_frame(frame)
    assert "Subject looks like text too: text='Subject,Body'" in caplog.text
    assert Corpus.from_frame(frame, text="Subject,Body").texts[0].startswith("Printer in room blue is broken Please")


def test_nothing_is_said_where_there_is_nothing_to_say(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    usual, other = tmp_path / "usual.jsonl", tmp_path / "other.jsonl"
    rows = [{"id": n, "text": f"the parcel is late {n}", "labels": ["a"], "group": f"one two three {n}"} for n in range(9)]
    usual.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert said(usual, caplog) == []
    other.write_text("".join(json.dumps({"body": row["text"], "topics": ["a"]}) + "\n" for row in rows))
    assert said(other, caplog) == [(logging.INFO, f"{other}: labels from topics, text from body")]


@pytest.mark.parametrize(
    ("cells", "name", "expected"),
    [
        (["Fish quotas agreed", "New tariff on steel"], "extra", True),
        (["Fish quotas", "New tariff"], "extra", False),
        (["Fish quotas", "New tariff"], "Title", True),
        (["Mon Nov 16 13:52:02 2026", "Tue Nov 17 13:52:02 2026"], "when", False),
        (["https://example.org/a/b/c1", "https://example.org/a/b/c2"], "link", False),
        (["in the second team", "in the second team"], "team", False),
        ([None, None, None, "Fish quotas agreed today"], "extra", False),
        ([3, 4], "text", False),
    ],
)
def test_text_is_words_that_differ_from_row_to_row(cells: list[object], name: str, expected: bool) -> None:
    assert looks_like_text(cells, name) is expected
