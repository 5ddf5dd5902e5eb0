"""Inference with an exported network, which is fastest on a CPU.

An export is the folder ``onnx`` next to the artefact's folder ``model``. It contains ``model.onnx``, and ``export.json`` with the
checksums of that file and of its artefact. An export of another artefact is not used. Like the artefact, it may come from a
stranger: its description has a schema, and its inputs and outputs must be those of the network that it stands for.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.errors import ArtefactError
from polytag.storage.artefact import file_digest, manifest_digest
from polytag.storage.schema import Number, Switch, Table, Text, check

log = logging.getLogger(__name__)
FORMAT = 2
NETWORK, ABOUT = "model.onnx", "export.json"
DESCRIPTION = Table({"format": Number(FORMAT, FORMAT), "polytag": Text(), "int8": Switch(), "artefact": Text(), "sha256": Text()})
"""What ``export.json`` looks like."""
SWITCH = "POLYTAG_ONNX"  # environment variable; 0 disables exports
BATCH = 8_192  # tokens of a batch, which is computed in parts
_PLACES = 512  # tokens that are encoded at once; more do not fit into a processor's caches
_REMEDY = "export again, or remove the folder"


class OnnxNetwork(nn.Module):
    """A network that runs in ONNX Runtime, with torch's number of threads."""

    def __init__(self, path: Path, outputs: int, digest: str = "") -> None:
        """Open the file of a network with this many outputs; if it must have a checksum, ``digest`` is that."""
        super().__init__()
        self.path, self.outputs, self.digest = path, outputs, digest
        self.opened: dict[tuple[int, int], Any] = {}
        self.session(torch.get_num_threads())

    def session(self, threads: int) -> Any:
        """The open file, for computations with this many threads; they belong to one process, so another one opens it again."""
        key = os.getpid(), threads
        if key not in self.opened:
            self.opened[key] = self._open(threads)
        return self.opened[key]

    def _open(self, threads: int) -> Any:
        import onnxruntime

        if self.digest and (not self.path.is_file() or file_digest(self.path) != self.digest):
            raise ArtefactError(f"{self.path} is missing or was changed after it was exported; {_REMEDY}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            session = onnxruntime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library's error types have no common base
            raise ArtefactError(f"{self.path} cannot be opened ({error_line(error)}); {_REMEDY}") from None
        ids, logits = session.get_inputs(), session.get_outputs()
        found = [(part.type, len(part.shape)) for part in (*ids, *logits)]
        if [part.name for part in ids] != ["ids"] or found != [("tensor(int64)", 2), ("tensor(float)", 2)]:
            raise ArtefactError(f"{self.path} does not turn token ids into scores; {_REMEDY}")
        return session

    def __getstate__(self) -> dict[str, Any]:
        """Without what is open, for copies and other processes."""
        return {**self.__dict__, "opened": {}}

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, labels). Documents of the same length are encoded together, so that there is no padding or mask.

        If there are enough lengths, each thread computes its own: threads that share one computation wait for each other.
        """
        lengths = mask.sum(dim=1).numpy()
        order = np.argsort(-lengths, kind="stable")
        ends = np.flatnonzero(np.diff(lengths[order], append=-1)) + 1
        parts: list[NDArray[Any]] = []
        for start, stop in pairwise([0, *ends.tolist()]):
            few = max(1, _PLACES // max(1, int(lengths[order[start]])))
            parts += [order[at : min(at + few, stop)] for at in range(start, stop, few)]
        tokens = [ids.numpy()[rows, : int(lengths[rows[0]])] for rows in parts]
        threads = torch.get_num_threads()
        if 1 < threads <= len(parts):
            session = self.session(1)
            with ThreadPoolExecutor(threads) as pool:
                found = list(pool.map(lambda part: self._run(session, part), tokens))
        else:
            found = [self._run(self.session(threads), part) for part in tokens]
        return torch.from_numpy(np.concatenate(found)[np.argsort(order)])

    def _run(self, session: Any, tokens: NDArray[Any]) -> NDArray[Any]:
        try:
            (logits,) = session.run(None, {"ids": tokens})
        except Exception as error:  # the library's error types have no common base
            raise ArtefactError(f"{self.path} cannot be computed ({error_line(error)}); {_REMEDY}") from None
        if logits.shape != (len(tokens), self.outputs):
            raise ArtefactError(f"{self.path} has not one output for each of {self.outputs} labels; {_REMEDY}")
        return np.asarray(logits)


def export_folder(artefact: Path) -> Path:
    """The folder of an artefact's export: ``onnx`` next to ``model``."""
    place = artefact.resolve()
    return place.with_name("onnx" if place.name == "model" else f"{place.name}-onnx")


def fresh_export(artefact: Path) -> Path | None:
    """The exported file of exactly this artefact, if there is one and exports are enabled."""
    folder = export_folder(artefact)
    if os.environ.get(SWITCH) == "0" or not (folder / ABOUT).is_file():
        return None
    about = _about(folder)
    if about is None:
        log.warning("%s was made by an older version and is not used; export again", folder)
        return None
    if about["artefact"] != manifest_digest(artefact):
        log.warning("%s was made from another model and is not used; export again", folder)
        return None
    if importlib.util.find_spec("onnxruntime") is None:
        log.warning("%s is not used: the package onnxruntime is missing; install polytag[export]", folder)
        return None
    return folder / NETWORK


def open_export(path: Path, outputs: int) -> OnnxNetwork:
    """The network with this many outputs in an exported file, after a check of its checksum."""
    about = _about(path.parent)
    return OnnxNetwork(path, outputs, about["sha256"] if about else "none")


def _about(folder: Path) -> dict[str, Any] | None:
    """What ``export.json`` says; None if an older version wrote it."""
    try:
        about = json.loads((folder / ABOUT).read_bytes())
        if isinstance(about, dict) and type(about.get("format")) is int and 1 <= about["format"] < FORMAT:
            return None
        check(DESCRIPTION, about, {}, "it")
    except (OSError, ValueError, RecursionError):
        raise ArtefactError(f"{folder / ABOUT} does not describe an export; {_REMEDY}") from None
    return dict(about)


def error_line(error: BaseException) -> str:
    """The first line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
