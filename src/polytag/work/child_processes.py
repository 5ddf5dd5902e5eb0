"""Jobs in processes of their own: a process reads its job from a folder and writes its result or error there.

Jobs, shared states and results are artefacts; nothing is pickled. A process ends with its parent.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from polytag import errors
from polytag.errors import PolytagError
from polytag.kernels.threads import thread_count
from polytag.storage.artefact import read_artefact, write_artefact
from polytag.storage.state_json import State
from polytag.work.workplace import Work

_ALONE_SECONDS = 1.0


class ChildProcesses:
    """A pool of at most ``at_once`` child processes; all end with this context."""

    def __init__(self, at_once: int) -> None:
        """Jobs and shared states are written to a folder that is removed at the end."""
        self.pieces = at_once
        self._pool = ThreadPoolExecutor(at_once)
        self._running: dict[Path, subprocess.Popen[bytes]] = {}
        self._jobs: dict[Future[State], Path] = {}
        self._closed = False
        self._written = 0
        self._folder = tempfile.TemporaryDirectory(prefix="polytag-", ignore_cleanup_errors=True)
        path = os.pathsep.join(part for part in sys.path if part)
        self._environment = {**os.environ, "PYTHONPATH": path}

    def __enter__(self) -> ChildProcesses:
        """Return the pool itself."""
        return self

    def __exit__(self, *failure: object) -> None:
        """End all processes."""
        self._closed = True
        for process in list(self._running.values()):
            process.terminate()
        self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def threads(self, jobs: int) -> int:
        """The cores, divided among the processes."""
        return max(1, thread_count() // self.pieces)

    def share(self, state: State) -> str:
        """Write a state once; return its folder."""
        self._written += 1
        folder = Path(self._folder.name) / f"shared-{self._written}"
        write_artefact(folder, state)
        return str(folder)

    def submit(self, work: Work, job: State, *shared: Any, threads: int = 0) -> Future[State]:
        """Queue a job."""
        folder = Path(self._folder.name) / str(len(self._jobs))
        told = {"work": f"{work.__module__}:{work.__qualname__}", "job": job, "shared": list(shared)}
        write_artefact(folder / "job", {**told, "threads": threads or self.threads(1)})
        future = self._pool.submit(self._run, folder)
        self._jobs[future] = folder
        return future

    def stop(self, future: Future[State]) -> None:
        """End the process of a job."""
        future.cancel()
        process = self._running.get(self._jobs[future])
        if process is not None:
            process.terminate()

    def _run(self, job: Path) -> State:
        if self._closed:
            raise RuntimeError("another job failed")
        command = [sys.executable, "-m", __name__, str(job)]
        share = str(read_artefact(job / "job")["threads"])
        environment = {"OMP_NUM_THREADS": share, **self._environment, "POLYTAG_THREADS": share}
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0)
        self._running[job] = process
        if self._closed:
            process.terminate()
        code = process.wait()
        del self._running[job]
        if not (job / "result").exists():
            raise RuntimeError(f"the process of a job ended without a result (exit code {code})")
        return result_of(read_artefact(job / "result"))


def outcome(work: Work, job: State, *shared: Any) -> State:
    """In another process: the result of a job, or its error, as a state."""
    try:
        return {"state": work(job, *shared)}
    except PolytagError as error:
        return {"error": str(error), "kind": type(error).__name__}
    except Exception as error:  # the parent process raises it again
        return {"error": str(error), "kind": "", "trace": traceback.format_exc()}


def result_of(found: State) -> State:
    """The result of a job, from its outcome; an error is raised here as it was there."""
    if "error" in found:
        kind = getattr(errors, str(found["kind"]), None)
        raise RuntimeError(found["trace"]) if kind is None else kind(found["error"])
    state: State = found["state"]
    return state


def work_named(name: str) -> Work:
    """A function of this package by the name of its module and its own."""
    module, _, function = name.partition(":")
    if not module.startswith("polytag."):
        raise ValueError(f"{name} is no function of polytag")
    work: Work = getattr(importlib.import_module(module), function)
    return work


def work_on(folder: str) -> None:
    """In a child process: do the job in a folder, and write the result or the error to it."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    path = Path(folder)
    told = read_artefact(path / "job")
    work = work_named(told["work"])
    write_artefact(path / "result", outcome(work, told["job"], *(read_artefact(shared) for shared in told["shared"])))


def _watch(parent: int) -> None:
    """Exit when the parent process ends, for whatever reason."""
    while os.getppid() == parent:
        time.sleep(_ALONE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    work_on(sys.argv[1])
