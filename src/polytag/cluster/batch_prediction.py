"""``polytag predict --cluster`` as a function: label files of any size into a folder, each document exactly once."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from polytag.classifier import Classifier
from polytag.cluster.ray_engine import connected, label_with_ray, ray_module
from polytag.cluster.storage_paths import file_system, names_in, publish
from polytag.cluster.work_parts import PLAN, pieces_of, plan_text
from polytag.errors import ConfigError
from polytag.formats.document import ReadOptions
from polytag.run import Run
from polytag.storage.artefact import artefact_folder, manifest_digest

log = logging.getLogger(__name__)


class Labelled(NamedTuple):
    """Documents and bad lines of the pieces that were labelled now, and the number of pieces: now, and before."""

    read: int
    bad: int
    pieces: int
    before: int


def predict_folder(
    run: str | Path,
    inputs: Sequence[str],
    out: str,
    *,
    cluster: str = "local",
    top: int | None = None,
    ask: float | str | None = None,
    options: ReadOptions | None = None,
    workers: int = 0,
    gpus: float = 0.0,
) -> Labelled:
    """Label files, folders or patterns on a cluster; one output file per piece of the input.

    Pieces whose output is there already are not labelled again. A folder with the output of another job is refused.
    """
    ray_module()
    classifier = Classifier.load(run)
    reading = {key: value for key, value in dataclasses.asdict(options or ReadOptions()).items() if value}
    told = {"top": top, "ask": None if ask is None else classifier.asking(ask), "reading": reading}
    pieces = pieces_of(inputs)
    _agree_on_plan(out, plan_text(pieces, manifest_digest(artefact_folder(run)), told))
    done = names_in(out)
    left = [piece for piece in pieces if piece.output not in done]
    if not left:
        return Labelled(0, 0, 0, len(pieces))
    read = bad = 0
    with connected(cluster) as ray:
        rows = label_with_ray(ray, run, left, out, told, workers, gpus)
        for row in Run().track(rows, "pieces", len(left)):
            read, bad = read + int(row["read"]), bad + int(row["bad"])
    return Labelled(read, bad, len(left), len(pieces) - len(left))


def _agree_on_plan(out: str, text: str) -> None:
    """Write the plan of a job to its folder, or compare it with the one that is there."""
    path = f"{out.rstrip('/')}/{PLAN}"
    system, inner = file_system(path)
    if system.exists(inner):
        if system.cat_file(inner).decode("utf-8", "replace") != text:
            raise ConfigError(f"{out} has the output of another job; use the same model, files and options, or another folder")
        return
    if any(not name.startswith(".") for name in names_in(out)):
        raise ConfigError(f"{out} has other files; name a new folder for the output")
    _publish_text(text, path)


def _publish_text(text: str, path: str) -> None:
    with tempfile.TemporaryDirectory(prefix="polytag-") as folder:
        made = Path(folder) / "plan"
        made.write_text(text, encoding="utf-8")
        publish(made, path)
