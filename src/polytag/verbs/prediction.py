"""``polytag predict`` as a function: label a file of any length."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polytag.classifier import Classifier
from polytag.decision.predicted_sets import Prediction
from polytag.errors import ConfigError
from polytag.formats.document import Document
from polytag.formats.document_files import Reader, ReadOptions
from polytag.formats.streams import writing
from polytag.storage.artefact import saved_model
from polytag.verbs.warming import share


def predict_file(
    run: str | Path,
    documents: str | Path,
    out: str | Path,
    *,
    top: int | None = None,
    ask: float | str | None = None,
    options: ReadOptions | None = None,
) -> Reader:
    """Label every document of a file, in order and in constant memory; returns the reader, which has the counts."""
    if _same_file(documents, out):
        raise ConfigError(f"{documents} and {out} are the same file; name another one for the output")
    share("predict", saved_model(run))
    classifier = Classifier.load(run)
    reader = Reader(documents, classifier.reading(options), need_labels=False)

    def texts() -> Iterator[tuple[Document, str]]:
        for document in reader:
            yield document, document.text

    found = classifier.stream(texts(), top, ask)
    first = list(itertools.islice(found, 1))  # an error in the input must not overwrite the output
    with writing(out) as file:
        for document, prediction in itertools.chain(first, found):
            file.write(json.dumps(prediction_record(document.id, prediction), ensure_ascii=False) + "\n")
    return reader


def prediction_record(identifier: str, prediction: Prediction) -> dict[str, Any]:
    """A prediction as a JSON record; ancestors that were added may have no score."""
    known = [round(value, 6) if math.isfinite(value) else None for value in prediction.scores]
    record: dict[str, Any] = {"id": identifier, "labels": prediction.labels, "scores": known}
    return record if prediction.ask is None else {**record, "ask": prediction.ask}


def _same_file(documents: str | Path, out: str | Path) -> bool:
    """Whether input and output are one file, under one name, two names or as a standard stream."""
    if str(documents) != "-" and str(out) != "-" and Path(documents).resolve() == Path(out).resolve():
        return True
    with contextlib.suppress(OSError, ValueError, AttributeError):  # one does not exist, or is no file
        one = os.fstat(sys.stdin.fileno()) if str(documents) == "-" else os.stat(documents)
        other = os.fstat(sys.stdout.fileno()) if str(out) == "-" else os.stat(out)
        return os.path.samestat(one, other) and stat.S_ISREG(one.st_mode)
    return False
