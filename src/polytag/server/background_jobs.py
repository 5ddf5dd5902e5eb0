"""Jobs: a corpus is sent, labelled in the background, and the result is fetched."""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from polytag.errors import PolytagError
from polytag.formats.document import Document
from polytag.formats.document_files import Reader, ReadOptions
from polytag.server.hosting.hosted_model import HostedModel, Want
from polytag.server.problem import Problem

log = logging.getLogger(__name__)
_BATCH = 64
_KEPT = 100  # finished jobs that are kept


@dataclass
class Job:
    """A corpus to label: where it is, how far it is, and what went wrong."""

    id: str
    model: HostedModel
    folder: Path
    format: str
    want: Want
    owner: str
    state: str = "waiting"
    done: int = 0
    bytes: int = 0
    read: int = 0
    detail: str | None = None
    created: float = field(default_factory=time.time)
    stopped: threading.Event = field(default_factory=threading.Event)

    def describe(self) -> dict[str, Any]:
        """What a client may know; progress is the share of the file that was read."""
        share = 1.0 if self.state == "finished" else min(0.99, self.read / self.bytes) if self.bytes else 0.0
        names = ("id", "state", "done", "detail", "created")
        return {**{name: getattr(self, name) for name in names}, "progress": share, **self._versions()}

    def _versions(self) -> dict[str, str]:
        return {"model": self.model.name, "version": self.model.version}


class Jobs:
    """All jobs; one is labelled at a time, so that requests keep their speed."""

    def __init__(self) -> None:
        """A folder of its own, which disappears with the service."""
        self._folder = tempfile.TemporaryDirectory(prefix="polytag-jobs-", ignore_cleanup_errors=True)
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        self._lock = threading.Lock()

    def open(self, model: HostedModel, format: str, want: Want, owner: str) -> Job:
        """A job without its corpus yet; its id, which nobody can guess, is the name of its folder."""
        with self._lock:
            finished = [job for job in self._jobs.values() if job.state in ("finished", "failed", "stopped")]
            if len(self._jobs) - len(finished) >= _KEPT:
                raise Problem(503, "too many jobs are waiting; try again later", {"Retry-After": "60"})
            for job in finished[: max(0, len(self._jobs) - _KEPT + 1)]:
                self._remove(job)
            name = secrets.token_hex(16)
            job = Job(name, model, Path(self._folder.name) / name, format, want, owner)
            job.folder.mkdir()
            self._jobs[name] = job
        return job

    def start(self, job: Job) -> None:
        """Label the corpus as soon as earlier jobs are done."""
        job.bytes = (job.folder / "corpus").stat().st_size
        self._pool.submit(self._run, job)

    def get(self, name: str, owner: str) -> Job:
        """A job by its id; nobody sees the jobs of others."""
        found = self._jobs.get(name)
        if found is None or found.owner != owner:
            raise Problem(404, "there is no such job")
        return found

    def result(self, job: Job) -> Path:
        """The file with the predictions of a finished job."""
        if job.state != "finished":
            raise Problem(409, f"the job is {job.state}; ask again when it is finished")
        return job.folder / "result.jsonl"

    def delete(self, job: Job) -> None:
        """Stop a job and delete its files."""
        job.stopped.set()
        with self._lock:
            self._remove(job)

    def _remove(self, job: Job) -> None:
        self._jobs.pop(job.id, None)
        for path in (job.folder / "corpus", job.folder / "result.jsonl"):
            path.unlink(missing_ok=True)

    def _run(self, job: Job) -> None:
        job.state = "running"
        try:
            self._label(job)
            job.state = "stopped" if job.stopped.is_set() else "finished"
        except PolytagError as error:
            job.state, job.detail = "failed", str(error).replace(str(job.folder / "corpus"), "the corpus")
        except Exception as error:  # a bug must not end the thread that all jobs need
            log.exception("job failed")
            job.state, job.detail = "failed", f"internal error ({type(error).__name__})"

    def _label(self, job: Job) -> None:
        reader = Reader(job.folder / "corpus", ReadOptions(format=job.format), need_labels=False)
        with open(job.folder / "result.jsonl", "wb") as out:
            batch: list[Document] = []
            for document in reader:
                batch.append(document)
                job.read += len(document.text.encode("utf-8", "replace"))
                if len(batch) == _BATCH:
                    out.write(_lines(job, batch))
                    batch = []
                if job.stopped.is_set():
                    return
            out.write(_lines(job, batch))
            out.flush()
            os.fsync(out.fileno())

    def close(self) -> None:
        """Stop all jobs and remove their files."""
        for job in list(self._jobs.values()):
            job.stopped.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._folder.cleanup()


def _lines(job: Job, batch: list[Document]) -> bytes:
    if not batch:
        return b""
    found = job.model.predict([document.text for document in batch], [job.want] * len(batch))
    job.done += len(batch)
    rows = zip(batch, found, strict=True)
    return b"".join(msgspec.json.encode({"id": one.id, **msgspec.to_builtins(row)}) + b"\n" for one, row in rows)
