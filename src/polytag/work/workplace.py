"""Where the pieces of a training run: in this process, in child processes, or on a cluster.

A piece of work is a function of a module, a job and shared states, all of which another process can read. Its result depends on
these alone, so that it is the same wherever it runs, and a piece can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from polytag.storage.state_json import State

Work = Callable[..., State]
"""A function at the top of a module: ``work(job, *shared)`` returns a state."""


class Workplace(Protocol):
    """A place for pieces of work."""

    @property
    def pieces(self) -> int:
        """The number of pieces that a large work is divided into."""

    def threads(self, jobs: int) -> int:
        """The number of threads for each of this number of jobs; 0 = all."""

    def share(self, state: State) -> Any:
        """Give a state to all jobs, once; they must not change it. The result stands for it in ``submit``."""

    def submit(self, work: Work, job: State, *shared: Any, threads: int = 0) -> Future[State]:
        """Queue a job."""

    def stop(self, future: Future[State]) -> None:
        """End a job that nobody waits for."""


class ThisProcess:
    """Does each job when it is submitted, with the threads of this process."""

    pieces = 1

    def threads(self, jobs: int) -> int:
        """All threads, because one job runs at a time."""
        return 0

    def share(self, state: State) -> State:
        """Return the state itself."""
        return state

    def submit(self, work: Work, job: State, *shared: Any, threads: int = 0) -> Future[State]:
        """Do the job; an error is raised at once."""
        future: Future[State] = Future()
        future.set_result(work(job, *shared))
        return future

    def stop(self, future: Future[State]) -> None:
        """Do nothing: the job is done."""


HERE = ThisProcess()
