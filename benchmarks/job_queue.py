"""A queue of trainings, one for each job and seed: it goes on where an earlier call ended, and stops before its time is over.

``neural.py`` uses it. Files of jobs come in the order in which they are given; within a file, every job gets its first seed
before any gets its second. A job's ``gpu_seconds`` is an estimate for one seed; ``needs`` names jobs whose runs of the same seed
it takes members from, or of the seed of a pair ``[name, seed]``. Results are written after every training, so that an interrupted
call loses only what was under way.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

Job = dict[str, Any]
Row = dict[str, Any]
_LEAST = 30.0  # seconds of a training whose job has no estimate


def in_order(files: list[list[Job]]) -> Iterator[tuple[Job, int]]:
    """Jobs and seeds, in the order in which they are run."""
    for jobs in files:
        for turn in range(max((len(job.get("seeds", [0])) for job in jobs), default=0)):
            yield from ((job, job.get("seeds", [0])[turn]) for job in jobs if turn < len(job.get("seeds", [0])))


class Ledger:
    """What was measured, as neural.py writes it: jobs with one row for each seed."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        """Read what an earlier call wrote, if it is resumed."""
        self.path = path
        self.jobs: list[Job] = json.loads(path.read_text(encoding="utf-8")) if resume and path.exists() else []
        self.lock = threading.Lock()

    def done(self, job: Job, seed: int) -> bool:
        """Whether this seed was trained with these options; a failure does not count."""
        found = next((one for one in self.jobs if one["name"] == job["name"]), None)
        same = found is not None and all(found.get(key) == job.get(key) for key in ("corpus", "model", "options", "extra"))
        return same and any(row["seed"] == seed and "error" not in row for row in (found or {})["rows"])

    def add(self, job: Job, row: Row, summarise: Callable[[list[Row]], Any]) -> Job:
        """Write a row; rows of the same name with other options are dropped."""
        with self.lock:
            found = next((one for one in self.jobs if one["name"] == job["name"]), None)
            same = found is not None and found.get("options") == job.get("options")
            rows = [one for one in (found or {}).get("rows", []) if same and one["seed"] != row["seed"]]
            made = {**job, "rows": sorted([*rows, row], key=lambda one: int(one["seed"]))}
            made["summary"] = summarise(made["rows"])
            if found is None:
                self.jobs.append(made)
            else:
                self.jobs[self.jobs.index(found)] = made
            new = self.path.with_suffix(".part")
            new.write_text(json.dumps(self.jobs, indent=1) + "\n", encoding="utf-8")
            new.replace(self.path)
            return made


class Clock:
    """The time that is left, and how far trainings differ from their estimates."""

    def __init__(self, seconds: float) -> None:
        """Start; 0 seconds are no limit."""
        self.seconds, self.start = seconds, time.monotonic()
        self.told = self.taken = 0.0

    def enough(self, estimate: float) -> bool:
        """Whether a training with this estimate would end in time; trainings that ended correct the estimate."""
        ratio = max(1.0, self.taken / self.told) if self.told else 1.0
        return not self.seconds or time.monotonic() - self.start + ratio * estimate <= self.seconds

    def learn(self, estimate: float, taken: float) -> None:
        """Remember what a training took."""
        self.told, self.taken = self.told + estimate, self.taken + taken


def run_queue(
    files: list[list[Job]],
    ledger: Ledger,
    train: Callable[[Job, int], Row],
    summarise: Callable[[list[Row]], Any],
    show: Callable[[Job], None],
    *,
    parallel: int = 1,
    seconds: float = 0.0,
    run_of: Callable[[Job, int], Path | None] = lambda job, seed: None,
) -> list[tuple[str, int]]:
    """Train what is pending; return the jobs and seeds for which no time was left."""
    by_name = {job["name"]: job for jobs in files for job in jobs}
    units = [(job, seed) for job, seed in in_order(files) if not ledger.done(job, seed)]
    futures: dict[tuple[str, int], Future[bool]] = {}
    clock = Clock(seconds)

    def members(job: Job, seed: int) -> list[tuple[Job, int]]:
        """The needed jobs and seeds whose runs are missing, after those of this call have ended."""
        needed = [(need, seed) if isinstance(need, str) else tuple(need) for need in job.get("needs", [])]
        for key in needed:
            if key[0] not in by_name:
                raise SystemExit(f"{job['name']} needs {key[0]}, which is in none of the files; give its file too")
            if key in futures:
                futures[key].result()
        found = [(by_name[name], number) for name, number in needed]
        return [one for one in found if (place := run_of(*one)) is not None and not place.exists()]

    def one(job: Job, seed: int) -> bool:
        missing = members(job, seed)
        estimate = sum(float(other.get("gpu_seconds", _LEAST)) for other in (job, *(one for one, _ in missing)))
        if not clock.enough(estimate):
            return False
        start = time.monotonic()
        for other, number in missing:
            train(other, number)
        row = train(job, seed)
        clock.learn(estimate, time.monotonic() - start)
        show(ledger.add(job, row, summarise))
        return True

    with ThreadPoolExecutor(parallel) as pool:
        for job, seed in units:
            futures[job["name"], seed] = pool.submit(one, job, seed)
        return [key for key, future in futures.items() if not future.result()]
