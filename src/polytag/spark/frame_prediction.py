"""Prediction over a Spark data frame, partition by partition."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polytag.classifier import Classifier
from polytag.cluster.sent_artefact import artefact_files, loaded
from polytag.errors import ConfigError, DataError


def predict(frame: Any, run: str | Path, text: str = "text", top: int | None = None, ask: float | str | None = None) -> Any:
    """The data frame with the columns ``labels`` and ``scores``, and ``ask`` if that is given; every row once.

    The files of the artefact are broadcast, so workers need not see its folder. A worker process loads the model once.
    """
    _pyspark()
    classifier = Classifier.load(run)
    share = None if ask is None else classifier.asking(ask)
    if text not in frame.columns:
        raise DataError(f"the frame has no column {text!r}; name one of {', '.join(frame.columns)}")
    added = ("labels", "scores", *(("ask",) if ask is not None else ()))
    if taken := [name for name in added if name in frame.columns]:
        raise DataError(f"the frame has a column {taken[0]!r} already; rename or drop it first")
    types = importlib.import_module("pyspark.sql.types")
    fields = [types.StructField("labels", types.ArrayType(types.StringType()))]
    fields.append(types.StructField("scores", types.ArrayType(types.DoubleType())))
    if ask is not None:
        fields.append(types.StructField("ask", types.BooleanType()))
    sent = frame.sparkSession.sparkContext.broadcast(artefact_files(run))
    schema = types.StructType([*frame.schema.fields, *fields])
    return frame.mapInPandas(functools.partial(_labelled, sent=sent, text=text, top=top, ask=share), schema)


def _labelled(frames: Iterator[Any], *, sent: Any, text: str, top: int | None, ask: float | None) -> Iterator[Any]:
    """Label the rows of a partition, in batches; a missing text counts as empty."""
    classifier = _loaded(sent)
    for frame in frames:
        texts = ["" if value is None or value != value else str(value) for value in frame[text]]
        found = [prediction for _, prediction in classifier.stream(enumerate(texts), top, ask)]
        frame = frame.assign(
            labels=[one.labels for one in found], scores=[[float(value) for value in one.scores] for one in found]
        )
        yield frame if ask is None else frame.assign(ask=[one.ask for one in found])


_LOADED: dict[int, Classifier] = {}


def _loaded(sent: Any) -> Classifier:
    """The classifier of this process; loaded once, with one thread, as Spark runs a process per core."""
    key = int(sent.id) if hasattr(sent, "id") else id(sent)
    if key not in _LOADED:
        os.environ.setdefault("POLYTAG_THREADS", "1")
        _LOADED[key] = loaded(sent.value)
    return _LOADED[key]


def _pyspark() -> Any:
    try:
        return importlib.import_module("pyspark")
    except ModuleNotFoundError:
        raise ConfigError("a Spark data frame needs the package 'pyspark'; install polytag[spark]") from None
