"""Label one piece of the input and publish its output; the same on every engine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from polytag.classifier import Classifier
from polytag.cluster.storage_paths import publish
from polytag.cluster.work_parts import Piece, materialised
from polytag.decision.predicted_sets import Prediction
from polytag.formats.document import Document, ReadOptions
from polytag.formats.document_files import Reader
from polytag.verbs.prediction import prediction_record

SCHEMA = pa.schema([("id", pa.string()), ("labels", pa.list_(pa.string())), ("scores", pa.list_(pa.float32()))])
_ROWS = 10_000  # rows of a row group of the output


def label_piece(classifier: Classifier, piece: Piece, out: str, options: Mapping[str, Any]) -> dict[str, int]:
    """Label all documents of a piece; returns how many there are, and how many lines were bad."""
    reading = classifier.reading(ReadOptions(**options["reading"]))
    with tempfile.TemporaryDirectory(prefix="polytag-") as folder:
        reader = Reader(materialised(piece, Path(folder)), reading, need_labels=False)
        found = classifier.stream(((one, one.text) for one in reader), options["top"], options["ask"])
        made = Path(folder) / "output"
        if piece.columnar:
            _write_table(made, found, with_ask=options["ask"] is not None)
        else:
            with made.open("w", encoding="utf-8") as file:
                for document, prediction in found:
                    file.write(json.dumps(prediction_record(document.id, prediction), ensure_ascii=False) + "\n")
        publish(made, f"{out.rstrip('/')}/{piece.output}")
        return {"read": reader.read, "bad": reader.bad}


def _write_table(path: Path, found: Iterator[tuple[Document, Prediction]], *, with_ask: bool) -> None:
    schema = SCHEMA.append(pa.field("ask", pa.bool_())) if with_ask else SCHEMA
    with pq.ParquetWriter(path, schema) as writer:
        rows: list[dict[str, Any]] = []
        for document, prediction in found:
            rows.append(prediction_record(document.id, prediction))
            if len(rows) == _ROWS:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows = []
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
