"""Predicting a file of any length: in order, in constant memory, from and to anything that can be read and written."""

from __future__ import annotations

import gzip
import json
import lzma
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import WORDS, Command, Toy
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError, DataError
from polytag.formats.document import ReadOptions
from polytag.labels import LabelSet
from polytag.verbs.prediction import predict_file

VOCABULARY = " ".join(WORDS.values()).split()


def many(path: Path, count: int) -> None:
    """A file of short documents; the third word of each tells its number."""
    chosen = np.random.default_rng(0).choice(VOCABULARY, (count, 4))
    with path.open("w") as file:
        for number, words in enumerate(chosen):
            file.write(f'{{"id": "d{number}", "text": "{" ".join(words)} filler"}}\n')


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


MEASURE = """
import re, sys
from polytag.verbs.prediction import predict_file

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

run, few, many, out = sys.argv[1:]
predict_file(run, few, out)
before = peak()
predict_file(run, many, out)
print(before, peak())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process's memory is read from /proc")
def test_memory_does_not_grow_with_the_file_and_the_order_is_kept(run_folder: Path, tmp_path: Path) -> None:
    few, whole, out = tmp_path / "few.jsonl", tmp_path / "many.jsonl", tmp_path / "out.jsonl"
    many(few, 5_000)
    many(whole, 50_000)
    command = [sys.executable, "-c", MEASURE, *map(str, (run_folder, few, whole, out))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    before, after = (int(size) / 1024 for size in done.stdout.split())
    print(f"{before:.1f} MiB for 5,000 documents, {after:.1f} MiB for 50,000")
    assert after - before < 10, "holding 50,000 documents with their predictions takes several times as much"
    number = -1
    with out.open() as file:
        for number, line in enumerate(file):
            assert line.startswith(f'{{"id": "d{number}", "labels": ["')
    assert number == 49_999


def test_each_document_is_predicted_as_if_alone(run_folder: Path, br: Classifier, tmp_path: Path) -> None:
    many(tmp_path / "in.jsonl", 2_500)  # more than one batch
    predict_file(run_folder, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    texts = [record["text"] for record in lines(tmp_path / "in.jsonl")]
    rows = lines(tmp_path / "out.jsonl")
    for place in (0, 1_999, 2_000, 2_499):
        ((_, alone),) = br.stream([(None, texts[place])])
        assert rows[place]["labels"] == alone.labels
        assert rows[place]["scores"] == pytest.approx(alone.scores, abs=1e-6)


# -- bad lines ---------------------------------------------------------------------------------------------------------

BROKEN = '{"text": "trawler"}\n{"text": \n\n{"text": "violin"}\n{"words": "x"}\n{"text": "rocket orbit"}\n'


def test_a_bad_line_is_fatal_with_its_number(polytag: Command, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(BROKEN)
    told = polytag("predict", run_folder, tmp_path / "in.jsonl", "--out", tmp_path / "out.jsonl")
    assert "in.jsonl, line 2: not JSON" in told.complaint


def test_a_bad_line_is_skipped_and_counted_if_asked(
    polytag: Command, run_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in.jsonl").write_text(BROKEN)
    told = polytag("predict", run_folder, tmp_path / "in.jsonl", "--on-bad", "skip", "--out", tmp_path / "out.jsonl")
    assert told.code == 0 and "labelled 3 documents, 2 bad lines skipped" in told.err
    assert "line 2" in caplog.text and "line 5" in caplog.text
    assert [row["id"] for row in lines(tmp_path / "out.jsonl")] == ["1", "4", "6"], "a document without an id has its line's"
    reader = predict_file(run_folder, tmp_path / "in.jsonl", tmp_path / "out.jsonl", options=ReadOptions(on_bad="skip"))
    assert (reader.read, reader.bad, [line for line, _ in reader.examples]) == (3, 2, [2, 5])


def test_a_bad_line_far_down_is_found_too(run_folder: Path, tmp_path: Path) -> None:
    many(tmp_path / "in.jsonl", 3_000)
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write("{\n")
    with pytest.raises(DataError, match="line 3001: not JSON"):
        predict_file(run_folder, tmp_path / "in.jsonl", tmp_path / "out.jsonl")


def test_wrong_encoding_and_missing_columns(polytag: Command, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes('{"text": "a"}\n{"text": "caf\xe9"}\n'.encode("latin-1"))
    assert "line 2: not UTF-8" in polytag("predict", run_folder, tmp_path / "in.jsonl").complaint
    (tmp_path / "in.csv").write_text("id,words\n1,a\n")
    assert "words" in polytag("predict", run_folder, tmp_path / "in.csv").complaint


# -- from and to -------------------------------------------------------------------------------------------------------


def test_labels_need_not_be_there_and_are_not_looked_at(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "trawler cod", "labels": ["space"]}\n{"text": "violin chord melody"}\n')
    predict_file(run_folder, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert [row["labels"] for row in lines(tmp_path / "out.jsonl")] == [["fishing"], ["music"]]


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_compressed_in_and_out(run_folder: Path, files: Path, tmp_path: Path, ending: str, toy: Toy) -> None:
    toy.test.write(tmp_path / f"in.jsonl{ending}")
    out = tmp_path / f"out.jsonl{ending}"
    predict_file(run_folder, tmp_path / f"in.jsonl{ending}", out)
    raw = out.read_bytes()
    if ending == ".zst":
        import io

        import zstandard

        raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw)).read()
    raw = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(ending, bytes)(raw)
    predict_file(run_folder, files / "test.jsonl", tmp_path / "plain.jsonl")
    assert raw == (tmp_path / "plain.jsonl").read_bytes() and len(raw.splitlines()) == 60


def test_plain_text_and_tables(polytag: Command, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("trawler cod net\n\nviolin chord melody\n")
    rows = [json.loads(line) for line in polytag("predict", run_folder, tmp_path / "in.txt").out.splitlines()]
    assert [row["id"] for row in rows] == ["1", "2", "3"] and rows[0]["labels"] == ["fishing"] and rows[2]["labels"] == ["music"]
    (tmp_path / "in.csv").write_text("nr,head,body\na,trawler,cod net\nb,violin,chord melody\n")
    rows = [
        json.loads(line) for line in polytag("predict", run_folder, tmp_path / "in.csv", "--text", "head,body").out.splitlines()
    ]
    assert [row["labels"] for row in rows] == [["fishing"], ["music"]]


def test_standard_input_and_output(run_folder: Path, files: Path) -> None:
    source = (files / "test.jsonl").read_text()
    command = [sys.executable, "-m", "polytag", "predict", str(run_folder), "-", "--out", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 60
    assert "labelled 60 documents" in done.stderr and all(json.loads(line)["labels"] for line in done.stdout.splitlines())


def test_a_reader_that_goes_away_is_no_error(run_folder: Path, tmp_path: Path) -> None:
    many(tmp_path / "in.jsonl", 20_000)
    command = [sys.executable, "-m", "polytag", "predict", str(run_folder), str(tmp_path / "in.jsonl")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    first = process.stdout.readline()
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 0 and json.loads(first)["id"] == "d0"
    assert "Traceback" not in complaint and "Error" not in complaint


def test_the_input_is_never_overwritten(run_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    many(path, 10)
    before = path.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(path)
    for out in (path, tmp_path / "link.jsonl", tmp_path / "." / "in.jsonl"):
        with pytest.raises(ConfigError, match="same file"):
            predict_file(run_folder, path, out)
    assert path.read_bytes() == before


def test_an_output_that_cannot_be_made_is_one_line(polytag: Command, run_folder: Path, files: Path) -> None:
    told = polytag("predict", run_folder, files / "test.jsonl", "--out", files / "test.jsonl" / "out.jsonl")
    assert "test.jsonl" in told.complaint


def test_earlier_output_survives_a_missing_input(polytag: Command, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("earlier\n")
    assert polytag("predict", run_folder, tmp_path / "nowhere.jsonl", "--out", tmp_path / "out.jsonl").code == 2
    assert (tmp_path / "out.jsonl").read_text() == "earlier\n"


def test_what_is_written_is_json_even_where_a_label_has_no_score(tmp_path: Path) -> None:
    """Closing under the tree adds ancestors that a powerset never scored: their score is null, as JSON has no infinity."""
    labels = LabelSet(["root", "a", "b"], parents={"a": "root", "b": "root"})
    corpus = Corpus.of(["red apple", "blue sky"] * 6, [["a"], ["b"]] * 6, label_set=labels)
    Classifier("lp", {"closed": True, "calibrate": False, "c": [1.0]}).fit(corpus).save(tmp_path)
    (tmp_path / "in.txt").write_text("red apple\nblue sky\n")
    predict_file(tmp_path, tmp_path / "in.txt", tmp_path / "out.jsonl")
    text = (tmp_path / "out.jsonl").read_text()
    assert "Infinity" not in text and "NaN" not in text
    assert [row["labels"] for row in lines(tmp_path / "out.jsonl")] == [["a", "root"], ["b", "root"]]
    assert all(math.isfinite(row["scores"][0]) and row["scores"][1] is None for row in lines(tmp_path / "out.jsonl"))
