"""Trainings in processes of their own: a process reads its job from a folder and writes its result or error there.

Jobs, documents and results are artefacts; nothing is pickled. A process ends with its parent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scipy.sparse import csr_array

from polytag import errors
from polytag.corpus import Corpus
from polytag.errors import PolytagError
from polytag.kernels.threads import thread_count
from polytag.labels import LabelSet
from polytag.models.model import State
from polytag.storage.artefact import read_artefact, write_artefact

_ALONE_SECONDS = 1.0


class ChildProcesses:
    """A pool of at most ``at_once`` child processes that run a module; all end with this context."""

    def __init__(self, module: str, at_once: int) -> None:
        """``module`` calls ``work_on`` when it is run."""
        self._module = module
        self._pool = ThreadPoolExecutor(at_once)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        share = str(max(1, thread_count() // at_once))
        path = os.pathsep.join(part for part in sys.path if part)
        self._environment = {"OMP_NUM_THREADS": share, **os.environ, "POLYTAG_THREADS": share, "PYTHONPATH": path}

    def __enter__(self) -> ChildProcesses:
        """Return the pool itself."""
        return self

    def __exit__(self, *failure: object) -> None:
        """End all processes."""
        self._closed = True
        for process in list(self._running):
            process.terminate()
        self._pool.shutdown(cancel_futures=True)

    def submit(self, job: Path) -> Future[State]:
        """Queue the job in a folder."""
        return self._pool.submit(self._run, job)

    def _run(self, job: Path) -> State:
        if self._closed:
            raise RuntimeError("another part failed")
        command = [sys.executable, "-m", self._module, str(job)]
        process = subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL, process_group=0)
        self._running.add(process)
        if self._closed:
            process.terminate()
        code = process.wait()
        self._running.discard(process)
        if not (job / "result").exists():
            raise RuntimeError(f"the training process of a part ended without a result (exit code {code})")
        result = read_artefact(job / "result")
        if "error" in result:
            kind = getattr(errors, str(result["kind"]), None)
            raise RuntimeError(result["trace"]) if kind is None else kind(result["error"])
        state: State = result["state"]
        return state


def write_documents(corpus: Corpus, folder: Path, kept: dict[int, str]) -> str:
    """Write documents for child processes, once each; ``kept`` has the folders of those that are written."""
    if id(corpus) not in kept:
        kept[id(corpus)] = str(folder / f"documents-{len(kept)}")
        truth = {"indptr": corpus.truth.indptr, "indices": corpus.truth.indices, "data": corpus.truth.data}
        own: dict[str, Any] = {"ids": list(corpus.ids), "texts": list(corpus.texts)}
        own |= {"groups": corpus.groups and list(corpus.groups), "weights": corpus.weights, "unknown": corpus.unknown}
        write_artefact(kept[id(corpus)], {**own, "labels": corpus.labels.state(), "truth": truth})
    return kept[id(corpus)]


def read_documents(folder: str, labels: LabelSet | None) -> Corpus:
    """Read what ``write_documents`` wrote; ``labels`` if the label set is known already."""
    state: dict[str, Any] = read_artefact(folder)
    labels = labels or LabelSet.from_state(state["labels"])
    truth = state["truth"]
    shape = len(state["texts"]), len(labels)
    return Corpus(
        state["ids"],
        state["texts"],
        labels,
        csr_array((truth["data"], truth["indices"], truth["indptr"]), shape=shape),
        state["groups"],
        state["weights"],
        state["unknown"],
    )


def work_on(folder: str, work: Callable[[State], State]) -> None:
    """In a child process: do the job in a folder, and write the result or the error to it."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    path = Path(folder)
    try:
        result: State = {"state": work(read_artefact(path / "job"))}
    except PolytagError as error:
        result = {"error": str(error), "kind": type(error).__name__}
    except Exception as error:  # the parent process raises it again
        result = {"error": str(error), "kind": "", "trace": traceback.format_exc()}
    write_artefact(path / "result", result)


def _watch(parent: int) -> None:
    """Exit when the parent process ends, for whatever reason."""
    while os.getppid() == parent:
        time.sleep(_ALONE_SECONDS)
    os._exit(1)
