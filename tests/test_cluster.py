"""Batch prediction without an engine: every document is in exactly one piece, and a piece has one whole output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import Command, Toy
from polytag.classifier import Classifier
from polytag.cluster import batch_prediction, ray_engine, work_parts
from polytag.cluster.batch_prediction import predict_folder
from polytag.cluster.piece_labelling import label_piece
from polytag.cluster.sent_artefact import artefact_files, loaded
from polytag.cluster.work_parts import Piece, materialised, pieces_of
from polytag.errors import ConfigError, DataError

pytest.importorskip("fsspec")
OPTIONS: dict[str, Any] = {"top": None, "ask": None, "reading": {}}


@pytest.mark.parametrize("size", [40, 64, 100, 1000, 10_000])
@pytest.mark.parametrize("ending", ["\n", "", "\n\n"])
def test_every_line_is_in_exactly_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, ending: str) -> None:
    rng = np.random.default_rng(size)
    lines = [json.dumps({"id": str(number), "text": "ä" * int(rng.integers(0, 60))}, ensure_ascii=False) for number in range(200)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + ending, encoding="utf-8")
    monkeypatch.setattr(work_parts, "_BYTES", size)
    pieces = pieces_of([str(tmp_path / "in.jsonl")])
    assert len(pieces) == max(1, -(-(tmp_path / "in.jsonl").stat().st_size // size))
    found: list[str] = []
    for piece in pieces:
        (tmp_path / str(piece.number)).mkdir()
        found += [line for line in materialised(piece, tmp_path / str(piece.number)).read_text("utf-8").split("\n") if line]
    assert found == lines


@pytest.mark.parametrize(("groups", "rows"), [(7, 20), (50, 20), (1000, 20), (10, 1)])
def test_every_row_is_in_exactly_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int, rows: int) -> None:
    table = pa.table({"id": [str(n) for n in range(103)], "text": ["words"] * 103})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=groups)
    monkeypatch.setattr(work_parts, "_ROWS", rows)
    found = []
    for piece in pieces_of([str(tmp_path)]):
        (tmp_path / "x").mkdir(exist_ok=True)
        found += pq.read_table(materialised(piece, tmp_path / "x")).column("id").to_pylist()
    assert found == table.column("id").to_pylist()


def test_files_folders_and_patterns_are_named_in_order(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.csv", ".hidden.jsonl", "_SUCCESS"):
        (tmp_path / name).write_text("x\n")
    names = [Path(piece.path).name for piece in pieces_of([str(tmp_path / "*.jsonl"), str(tmp_path)])]
    assert names == ["a.jsonl", "b.jsonl", "c.csv"]
    assert [piece.number for piece in pieces_of([str(tmp_path)])] == [0, 1, 2]
    with pytest.raises(DataError, match="there is no such file"):
        pieces_of([str(tmp_path / "*.parquet")])


def in_process(ray: Any, run: Any, pieces: Any, out: str, options: Any, workers: int, gpus: float) -> Any:
    classifier = loaded(artefact_files(run))
    for piece in pieces:
        yield label_piece(classifier, piece, out, options)


class NoCluster:
    def __init__(self, address: str) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *failure: object) -> None: ...


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces are labelled in this process."""
    monkeypatch.setattr(batch_prediction, "label_with_ray", in_process)
    monkeypatch.setattr(batch_prediction, "connected", NoCluster)
    monkeypatch.setattr(batch_prediction, "ray_module", lambda: None)


def written(toy: Toy, folder: Path) -> Path:
    folder.mkdir()
    for number in range(3):
        rows = range(number * 20, number * 20 + 20)
        part = toy.test.subset(rows)
        table = pa.table({"id": list(part.ids), "text": list(part.texts)})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=6)
    return folder


def test_the_output_is_that_of_predict(
    polytag: Command, toy: Toy, run_folder: Path, tmp_path: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_parts, "_ROWS", 7)
    folder = written(toy, tmp_path / "in")
    done = polytag("predict", run_folder, f"{folder}/*.parquet", "--cluster", "local", "--out", tmp_path / "out", "--ask", ".3")
    assert done.code == 0, done.err
    assert "labelled 60 documents in 6 pieces" in done.err
    found = [row for part in sorted((tmp_path / "out").glob("*.parquet")) for row in pq.read_table(part).to_pylist()]
    toy.test.write(tmp_path / "all.jsonl")
    plain = polytag("predict", run_folder, tmp_path / "all.jsonl", "--ask", ".3")
    expected = [json.loads(line) for line in plain.out.splitlines()]
    assert [(row["id"], row["labels"], row["ask"]) for row in found] == [
        (row["id"], row["labels"], row["ask"]) for row in expected
    ]
    assert [row["scores"] for row in found] == [pytest.approx(row["scores"], abs=1e-6) for row in expected]


def test_finished_pieces_are_not_done_again(toy: Toy, run_folder: Path, tmp_path: Path, here: None) -> None:
    folder, out = written(toy, tmp_path / "in"), tmp_path / "out"
    first = predict_folder(run_folder, [str(folder)], str(out))
    assert (first.read, first.pieces, first.before) == (60, 3, 0)
    kept = (out / "part-000000.parquet").stat().st_mtime_ns
    (out / "part-000001.parquet").unlink()
    again = predict_folder(run_folder, [str(folder)], str(out))
    assert (again.read, again.pieces, again.before) == (20, 1, 2)
    assert (out / "part-000000.parquet").stat().st_mtime_ns == kept
    assert predict_folder(run_folder, [str(folder)], str(out)).pieces == 0


def test_a_folder_of_another_job_is_refused(toy: Toy, run_folder: Path, tmp_path: Path, here: None) -> None:
    folder, out = written(toy, tmp_path / "in"), tmp_path / "out"
    predict_folder(run_folder, [str(folder)], str(out))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ConfigError, match="output of another job"):
        predict_folder(run_folder, [str(folder)], str(out), top=2)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="has other files"):
        predict_folder(run_folder, [str(folder)], str(other))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]


def test_an_error_in_a_piece_leaves_no_output_of_it(toy: Toy, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "1", "text": "cod"}\n{"id": "2", "tex\n')
    with pytest.raises(DataError, match="line 2"):
        label_piece(Classifier.load(run_folder), Piece(0, str(tmp_path / "bad.jsonl")), str(tmp_path / "out"), OPTIONS)
    assert not (tmp_path / "out").exists()
    skipping = {**OPTIONS, "reading": {"on_bad": "skip"}}
    counts = label_piece(Classifier.load(run_folder), Piece(0, str(tmp_path / "bad.jsonl")), str(tmp_path / "out"), skipping)
    assert counts == {"read": 1, "bad": 1}
    assert len((tmp_path / "out" / "part-000000.jsonl").read_text().splitlines()) == 1


def test_a_sent_artefact_is_the_same_classifier(br: Classifier, run_folder: Path, toy: Toy) -> None:
    again = loaded(artefact_files(run_folder))
    assert np.array_equal(again.scores(toy.test.texts).matrix.data, br.scores(toy.test.texts).matrix.data)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["-", "--cluster", "local", "--out", "out"], "a cluster reads files and writes a folder"),
        (["a.jsonl", "--cluster", "local"], "a cluster reads files and writes a folder"),
        (["a.jsonl", "b.jsonl"], "need --cluster"),
        (["a.jsonl", "--workers", "2"], "need --cluster"),
        (["none.jsonl", "--cluster", "local", "--out", "out"], "none.jsonl"),
    ],
)
def test_wrong_input_is_one_line(
    polytag: Command,
    run_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: list[str],
    message: str,
    here: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in polytag("predict", run_folder, *given).complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("package", "extra"), [("ray", "cluster"), ("fsspec", "cluster")])
def test_without_the_extra_one_line_names_it(
    polytag: Command, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    import importlib

    real = importlib.import_module

    def missing(name: str, *more: Any) -> Any:
        if name == package:
            raise ModuleNotFoundError(name=name)
        return real(name, *more) if name != "ray" else None

    monkeypatch.setattr(importlib, "import_module", missing)
    (tmp_path / "in.jsonl").write_text('{"text": "cod"}\n')
    done = polytag("predict", run_folder, tmp_path / "in.jsonl", "--cluster", "local", "--out", tmp_path / "out")
    assert done.complaint.endswith(f"install polytag[{extra}]")


def test_spark_without_the_extra(monkeypatch: pytest.MonkeyPatch, run_folder: Path) -> None:
    import sys

    from polytag.spark import predict

    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigError, match=r"install polytag\[spark\]"):
        predict(None, run_folder)


class ShyRay:
    """A cluster that refuses a number of connections with one kind of error."""

    def __init__(self, refusals: int, kind: type[Exception]) -> None:
        self.refusals, self.kind, self.asked, self.ended = refusals, kind, 0, 0

    def is_initialized(self) -> bool:
        return False

    def init(self, address: str, **options: Any) -> None:
        self.asked += 1
        if self.asked <= self.refusals:
            raise self.kind("Initialization failure from server:\nTraceback\nRuntimeError: no backend\n")

    def shutdown(self) -> None:
        self.ended += 1


@pytest.mark.parametrize(
    ("refusals", "kind", "asked"),
    [(0, ValueError, 1), (2, ConnectionAbortedError, 3), (3, ConnectionAbortedError, 3), (1, ConnectionError, 1)],
)
def test_a_cluster_that_cannot_take_a_client_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, refusals: int, kind: type[Exception], asked: int
) -> None:
    shy = ShyRay(refusals, kind)
    monkeypatch.setattr(ray_engine, "ray_module", lambda: shy)
    monkeypatch.setattr(ray_engine, "PAUSE", 0.0)
    if refusals < asked:
        with ray_engine.connected("ray://somewhere:1") as found:
            assert found is shy
    else:
        with (
            pytest.raises(ConfigError, match=r"no Ray cluster answers at ray://somewhere:1 .*no backend"),
            ray_engine.connected("ray://somewhere:1"),
        ):
            pass
    assert shy.asked == asked
