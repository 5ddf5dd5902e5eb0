"""Ray: a connection, the artefact in its object store, and a streaming map over pieces with one model per worker."""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from polytag import errors
from polytag.cluster.sent_artefact import artefact_files
from polytag.cluster.work_parts import Piece
from polytag.errors import ConfigError, PolytagError

log = logging.getLogger(__name__)
LOCAL = "local"
TRIES = 3  # a head under load may need longer for a client's server than Ray waits for it
PAUSE = 5.0


def ray_module() -> Any:
    """The package; an error in one line without it."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError:
        raise ConfigError("--cluster needs the package 'ray'; install polytag[cluster]") from None


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A connection to a cluster at ``ray://HOST:PORT`` or HOST:PORT, or one that starts and ends here (``local``)."""
    ray = ray_module()
    if address != LOCAL and ":" not in address:
        raise ConfigError(f"--cluster is {address!r}; write local, or ray://HOST:PORT")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    ours = not ray.is_initialized()
    if ours:
        _start(ray, address)
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _start(ray: Any, address: str) -> None:
    """Connect; a cluster that answers but cannot take the client yet is asked again."""
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == LOCAL:
        options["include_dashboard"] = False
    for left in reversed(range(TRIES)):
        try:
            ray.init(address, **options)
            return
        except (ConnectionError, RuntimeError, ValueError) as error:
            said = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            if left and isinstance(error, ConnectionAbortedError):
                log.warning("the Ray cluster at %s did not take the connection (%s); trying again", address, said[-1][:120])
                ray.shutdown()
                time.sleep(PAUSE)
                continue
            reason = said[0] if len(said) == 1 else f"{said[0]} {said[-1]}"
            raise ConfigError(f"no Ray cluster answers at {address} ({reason[:240]})") from None


class Labeller:
    """A worker: loads the model once, then labels pieces."""

    def __init__(self, files: Any, out: str, options: Mapping[str, Any], threads: int) -> None:
        """``files`` is a reference to the files of the artefact."""
        os.environ["POLYTAG_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
        from polytag.cluster.sent_artefact import loaded

        self.out, self.options = out, options
        self.classifier = loaded(ray_module().get(files))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Label a piece; an error comes back as a row, because Ray would wrap it and try again."""
        from polytag.cluster.piece_labelling import label_piece

        piece = Piece(**{name: row[name] for name in ("number", "path", "kind", "first", "last")})
        try:
            counts = label_piece(self.classifier, piece, self.out, self.options)
        except PolytagError as error:
            return {"read": 0, "bad": 0, "error": str(error), "kind": type(error).__name__}
        return {**counts, "error": "", "kind": ""}


def label_with_ray(
    ray: Any, run: str | Path, pieces: Sequence[Piece], out: str, options: Mapping[str, Any], workers: int, gpus: float
) -> Iterator[dict[str, Any]]:
    """Label pieces on the workers of a cluster; yields the counts of every finished piece."""
    total = ray.cluster_resources()
    workers = workers or max(1, int(total.get("GPU" if gpus else "CPU", 1)))
    largest = max(int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["Alive"])
    threads = max(1, min(largest, int(total.get("CPU", 1)) // workers))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.actor_task_retry_on_errors = False  # an error in a document ends the job; a worker that dies is replaced
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    files = ray.put(artefact_files(run))
    found = ray.data.from_items([asdict(piece) for piece in pieces], override_num_blocks=len(pieces)).map(
        Labeller,
        fn_constructor_args=(files, out, dict(options), threads),
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(pieces))),
        num_cpus=threads,
        num_gpus=gpus or None,
    )
    try:
        for row in found.iter_rows():
            if row["error"]:
                raise getattr(errors, str(row["kind"]), PolytagError)(row["error"])
            yield row
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise ConfigError(f"the cluster could not finish the job: {lines[-1][:200]}; repeat the command to go on") from None
