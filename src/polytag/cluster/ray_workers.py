"""Pieces of a training as Ray tasks: shared states are in the object store of every node, without a copy per worker.

A task whose worker dies is run again by Ray. Its result depends on its job and on shared states alone, so nothing else changes.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import Future
from typing import Any

from polytag.errors import ConfigError
from polytag.storage.state_json import State
from polytag.work.child_processes import outcome, result_of, work_named
from polytag.work.workplace import Work

_EACH = 4  # pieces per core: a worker that dies loses little, and none waits long at the end
_TRIES = 5  # times that a task is run again after its worker died


class RayWorkers:
    """A workplace on the nodes of a Ray cluster."""

    def __init__(self, ray: Any, gpus: float = 0.0) -> None:
        """``gpus`` is the number of GPUs of each job."""
        self._ray, self._gpus = ray, gpus
        self._task = ray.remote(do_job)
        self._references: dict[Future[State], Any] = {}
        self.cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._largest = max(int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["Alive"])
        self.pieces = _EACH * self.cores

    def threads(self, jobs: int) -> int:
        """The cores of the cluster, divided among the jobs; a job runs on one node."""
        return max(1, min(self._largest, self.cores // max(1, jobs)))

    def share(self, state: State) -> Any:
        """Put a state into the object store."""
        return self._ray.put(state)

    def submit(self, work: Work, job: State, *shared: Any, threads: int = 0) -> Future[State]:
        """Queue a job as a task."""
        threads = threads or self._largest
        name = f"{work.__module__}:{work.__qualname__}"
        told = {"num_cpus": threads, "num_gpus": self._gpus, "max_retries": _TRIES, "name": f"polytag {work.__qualname__}"}
        reference = self._task.options(**told).remote(name, threads, job, *shared)
        future: Future[State] = Future()
        future.set_running_or_notify_cancel()
        self._references[future] = reference
        reference.future().add_done_callback(lambda done: self._finish(future, done))
        return future

    def stop(self, future: Future[State]) -> None:
        """End the worker of a job."""
        if future in self._references:
            self._ray.cancel(self._references[future], force=True)

    def _finish(self, future: Future[State], done: Future[State]) -> None:
        self._references.pop(future, None)
        error = done.exception()
        try:
            if error is not None:
                lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
                raise ConfigError(f"the cluster could not finish a piece of work: {lines[-1][:200]}; add --resume to go on")
            future.set_result(result_of(done.result()))
        except Exception as failure:
            future.set_exception(failure)


def do_job(name: str, threads: int, job: State, *shared: State) -> State:
    """In a worker: the outcome of a job."""
    os.environ["POLYTAG_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
    if "torch" in sys.modules:  # this worker did another job before
        sys.modules["torch"].set_num_threads(threads)
    return outcome(work_named(name), job, *shared)
