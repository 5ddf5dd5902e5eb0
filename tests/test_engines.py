"""A real Ray with two nodes, a real Spark and an object store: a worker dies, and no document is lost or labelled twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import Toy
from polytag.classifier import Classifier
from polytag.cluster.batch_prediction import predict_folder
from polytag.errors import DataError
from ray_nodes import Nodes, kill_a_worker

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("same_modules")]
PIECES, EACH = 12, 400


@pytest.fixture(scope="module")
def files(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in")
    texts = toy.test.texts
    for number in range(PIECES):
        rows = {"id": [f"{number}-{row}" for row in range(EACH)], "text": [texts[row % len(texts)] for row in range(EACH)]}
        pq.write_table(pa.table(rows), folder / f"{number:02}.parquet")
    return folder


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def expected(br: Classifier, files: Path) -> list[tuple[str, list[str]]]:
    rows = [(row["id"], row["text"]) for path in sorted(files.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    return [(key, prediction.labels) for key, prediction in br.stream(rows)]


def test_ray_labels_every_document_once_although_a_worker_dies(
    ray_cluster: Nodes, files: Path, br: Classifier, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, stop = list[int](), threading.Event()
    killer = threading.Thread(target=kill_a_worker, args=(r"ray::MapWorker", killed, stop))
    killer.start()
    done = predict_folder(run_folder, [str(files / "*.parquet")], str(tmp_path / "out"), cluster=ray_cluster.address, workers=2)
    stop.set()
    killer.join()
    assert killed, "no worker was killed"
    assert done.read == PIECES * EACH
    assert [(row["id"], row["labels"]) for row in rows_of(tmp_path / "out")] == expected(br, files)


def test_a_job_that_was_interrupted_goes_on(
    ray_cluster: Nodes, files: Path, br: Classifier, run_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    predict_folder(run_folder, [str(files)], str(out), cluster=ray_cluster.address, workers=2)
    whole = {path.name: path.read_bytes() for path in out.glob("*.parquet")}
    for name in ("part-000003.parquet", "part-000007.parquet"):
        (out / name).unlink()
    again = predict_folder(run_folder, [str(files)], str(out), cluster=ray_cluster.address, workers=1)
    assert (again.pieces, again.read) == (2, 2 * EACH)
    assert {path.name: path.read_bytes() for path in out.glob("*.parquet")} == whole


def test_an_error_of_a_worker_is_one_line(ray_cluster: Nodes, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "1", "text": "cod"}\n{"id": "2", "tex\n')
    with pytest.raises(DataError, match=r"line 2") as found:
        predict_folder(run_folder, [str(tmp_path / "bad.jsonl")], str(tmp_path / "out"), cluster=ray_cluster.address, workers=1)
    assert len(str(found.value).splitlines()) == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["plan.json"]


def test_an_object_store_holds_input_and_output(
    ray_cluster: Nodes, files: Path, br: Classifier, run_folder: Path, tmp_path: Path
) -> None:
    server = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    moto = server.ThreadedMotoServer(port=0)
    moto.start()
    host, port = moto.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    environment = {**os.environ, **keys, "AWS_DEFAULT_REGION": "us-east-1"}
    try:
        store = s3fs.S3FileSystem(key="x", secret="x", endpoint_url=keys["AWS_ENDPOINT_URL"])
        store.mkdir("documents")
        for path in sorted(files.glob("0[0-2].parquet")):
            store.put_file(str(path), f"documents/in/{path.name}")
        command = [sys.executable, "-m", "polytag", "predict", str(run_folder), "s3://documents/in/*.parquet"]
        command += ["--cluster", "local", "--workers", "1", "--out", "s3://documents/out"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        store.invalidate_cache()
        names = sorted(Path(name).name for name in store.ls("documents/out", detail=False))
        assert names == ["part-000000.parquet", "part-000001.parquet", "part-000002.parquet", "plan.json"]
        store.get("documents/out/part-000002.parquet", str(tmp_path / "part.parquet"))
        found = [(row["id"], row["labels"]) for row in rows_of(tmp_path)]
        assert found == expected(br, files)[2 * EACH : 3 * EACH]
    finally:
        moto.stop()


def test_spark_labels_every_row_once_although_a_worker_dies(files: Path, br: Classifier, run_folder: Path) -> None:
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    from polytag.spark import predict

    builder = sql.SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 100).config("spark.driver.host", "127.0.0.1")
    session = builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        frame = session.read.parquet(str(files)).repartition(8)
        killed, stop = list[int](), threading.Event()
        killer = threading.Thread(target=kill_a_worker, args=("pyspark.daemon", killed, stop))
        killer.start()
        found = {row["id"]: list(row["labels"]) for row in predict(frame, run_folder).collect()}
        stop.set()
        killer.join()
        assert killed, "no worker was killed"
        assert found == dict(expected(br, files))
        asked = predict(frame.limit(50), run_folder, top=2, ask=0.3).toPandas()
        assert set(asked.columns) == {"id", "text", "labels", "scores", "ask"}
        assert asked["labels"].map(len).max() == 2
        with pytest.raises(Exception, match="no column 'body'"):
            predict(frame, run_folder, text="body")
    finally:
        session.stop()


def test_the_records_are_json(files: Path, run_folder: Path, tmp_path: Path, ray_cluster: Nodes, toy: Toy) -> None:
    toy.test.write(tmp_path / "in.jsonl")
    predict_folder(run_folder, [str(tmp_path / "in.jsonl")], str(tmp_path / "out"), cluster=ray_cluster.address, workers=1)
    lines = (tmp_path / "out" / "part-000000.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == list(toy.test.ids)
