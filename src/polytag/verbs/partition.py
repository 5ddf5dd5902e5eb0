"""``polytag data split`` as a function: one file of documents becomes train, valid and test."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_args

from polytag.corpus import Corpus
from polytag.errors import ConfigError, brief
from polytag.formats.document import ReadOptions
from polytag.formats.splits import By
from polytag.formats.streams import make_folder

_NAMES = {2: ("train", "test"), 3: ("train", "valid", "test")}


def split_file(
    documents: str | Path,
    out: str | Path,
    *,
    by: str | None = None,
    parts: str = ".8,.1,.1",
    group: str | None = None,
    time: str | None = None,
    labels: str | Path | None = None,
    seed: int = 0,
    options: ReadOptions | None = None,
) -> dict[str, int]:
    """Write train, valid and test as JSON lines, and the label file if there is one; returns the number of documents of each."""
    how = _how(by, group, time)
    shares = _shares(parts)
    options = ReadOptions() if options is None else options
    if how in ("group", "time"):
        options = dataclasses.replace(options, group=group or time or how)
    corpus = Corpus.read(documents, labels=labels, options=options)
    found = dict(zip(_NAMES[len(shares)], corpus.split(*shares, seed=seed, by=how), strict=True))
    make_folder(Path(out))
    for name, part in found.items():
        part.write(Path(out) / f"{name}.jsonl")
    if labels is not None:
        corpus.labels.write(Path(out) / "labels.jsonl")
    return {name: len(part) for name, part in found.items()}


def _how(by: str | None, group: str | None, time: str | None) -> By:
    """The way to split: the one named, or the one that a named column belongs to."""
    columns = [name for name, column in (("group", group), ("time", time)) if column is not None]
    known: tuple[By, ...] = get_args(By)
    asked = by or (columns[0] if columns else "random")
    for how in known:
        if how == asked:
            if columns not in ([], [how]):
                raise ConfigError(f"--{columns[-1]} names a column that a split by {how} does not use; leave it out")
            return how
    raise ConfigError(f"cannot split by {brief(asked)}; known: {', '.join(known)}")


def _shares(parts: str) -> list[float]:
    try:
        shares = [float(part) for part in parts.split(",")]
    except ValueError:
        shares = []
    if len(shares) not in _NAMES:
        raise ConfigError(f"--parts is {brief(parts)}; write two or three shares that sum to 1, as in .8,.1,.1")
    return shares
