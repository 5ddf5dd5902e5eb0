"""Labelling a file of any length: what ``polytag predict`` does."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path

from polytag.classifier import Classifier
from polytag.documents import Document
from polytag.errors import ConfigError
from polytag.files import writing
from polytag.formats import Reader, ReadOptions


def predict_file(
    run: str | Path, documents: str | Path, out: str | Path, *, top: int | None = None, options: ReadOptions | None = None
) -> Reader:
    """Label every document of a file, in order and in constant memory; returns the reader with its counts."""
    if str(documents) != "-" and Path(documents).resolve() == Path(out).resolve():
        raise ConfigError(f"{documents} and {out} are the same file; name another one for the output")
    classifier = Classifier.load(run)
    reader = Reader(documents, classifier.reading(options), need_labels=False)

    def texts() -> Iterator[tuple[Document, str]]:
        for document in reader:
            yield document, document.text

    found = classifier.stream(texts(), top)
    first = list(itertools.islice(found, 1))  # an input that cannot be read leaves the output as it was
    with writing(out) as file:
        for document, (labels, scores) in itertools.chain(first, found):
            known = [round(value, 6) if math.isfinite(value) else None for value in scores]  # an ancestor may have no score
            record = {"id": document.id, "labels": labels, "scores": known}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return reader
