"""Labelling a file of any length: what ``polytag predict`` does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from polytag.classifier import Classifier
from polytag.documents import Document
from polytag.files import writing
from polytag.formats import Reader, ReadOptions


def predict_file(
    run: str | Path, documents: str | Path, out: str | Path, *, top: int | None = None, options: ReadOptions | None = None
) -> Reader:
    """Label every document of a file, in order and in constant memory; returns the reader with its counts."""
    classifier = Classifier.load(run)
    reader = Reader(documents, options, need_labels=False)

    def texts() -> Iterator[tuple[Document, str]]:
        for document in reader:
            yield document, document.text

    with writing(out) as file:
        for document, (labels, scores) in classifier.stream(texts(), top):
            record = {"id": document.id, "labels": labels, "scores": [round(value, 6) for value in scores]}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return reader
