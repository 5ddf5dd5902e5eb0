"""Training of the ensemble members: sequential, or in parallel processes.

One small network leaves most of a GPU idle; several in parallel do not. A process gets its member and documents as an artefact in
a folder and writes its result or error there; nothing is pickled.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from scipy.sparse import csr_array

from polytag import errors
from polytag.corpus import Corpus
from polytag.errors import ConfigError, PolytagError
from polytag.kernels.threads import thread_count
from polytag.labels import LabelSet
from polytag.models.mixture.part import Part, train_part
from polytag.models.model import State, model_class, model_name
from polytag.run import Run
from polytag.scores import Scores
from polytag.storage.artefact import read_artefact, write_artefact

_ALONE_SECONDS = 1.0


class Training(NamedTuple):
    """A member to train, its documents, and its name within the run."""

    place: str
    part: Part
    train: Corpus
    valid: Corpus | None

    @property
    def stage(self) -> str:
        """The name of its checkpoint."""
        return f"part-{self.place}"


class Trained(NamedTuple):
    """A trained member, and its probabilities for the validation documents if it has any."""

    part: Part
    held: Scores | None


def train_parts(trainings: Sequence[Training], run: Run, at_once: int) -> list[Trained]:
    """Train all members, ``at_once`` in parallel; members that an interrupted run finished come from checkpoints."""
    together = int(os.environ.get("WORLD_SIZE") or 1) > 1
    if together and at_once > 1:
        raise ConfigError("in a distributed training all processes train each part together; leave parts_at_once at 1")
    if together:  # only one process has checkpoints of stages; each part resumes from the checkpoint of its own training
        states = [_in_this_process(one, run) for one in trainings]
    elif at_once == 1:
        states = [run.stage(one.stage, partial(_in_this_process, one, run)) for one in trainings]
    else:
        states = _in_processes(trainings, run, at_once)
    return [_trained(one, state) for one, state in zip(trainings, states, strict=True)]


def _trained(one: Training, state: State) -> Trained:
    labels = one.train.labels
    held = None if state["held"] is None else Scores.from_state(state["held"], labels.names)
    return Trained(Part.from_state(state["part"], labels), held)


def _in_this_process(one: Training, run: Run) -> State:
    """Train a member in this process."""
    with run.part(one.place) as inner:
        return train_part(one.part, one.train, one.valid, inner)


# -- parent process ----------------------------------------------------------------------------------------------------


def _in_processes(trainings: Sequence[Training], run: Run, at_once: int) -> list[State]:
    """Train members in child processes; each result is written as a checkpoint as soon as it is available."""
    states: dict[str, State] = {}
    left = []
    for one in trainings:
        if run.load_stage(one.stage) is None:
            left.append(one)
        else:
            states[one.place] = run.stage(one.stage, dict)
    with tempfile.TemporaryDirectory(prefix="polytag-", ignore_cleanup_errors=True) as folder, _Processes(at_once) as processes:
        kept: dict[int, str] = {}
        futures: dict[Future[State], Training] = {}
        for number, one in enumerate(left):
            job = Path(folder) / str(number)
            write_artefact(job / "job", _job(one, run, Path(folder), kept))
            futures[processes.submit(job)] = one
        for future in run.track(as_completed(futures), f"parts, {at_once} at once", len(futures)):
            one = futures[future]
            states[one.place] = run.stage(one.stage, future.result)
    return [states[one.place] for one in trainings]


def _job(one: Training, run: Run, folder: Path, kept: dict[int, str]) -> State:
    """The job of a child process; documents that several members share are written once."""
    return {
        "name": one.part.name,
        "model": model_name(one.part.model),
        "options": one.part.model.options(),
        "train": _written(one.train, folder, kept),
        "valid": None if one.valid is None else _written(one.valid, folder, kept),
        "place": one.place,
        "folder": None if (inner := run.part_folder(one.place)) is None else str(inner),
        "resume": run.resume,
        "fingerprint": run.fingerprint,
        "level": logging.getLogger("polytag").getEffectiveLevel(),
    }


def _written(corpus: Corpus, folder: Path, kept: dict[int, str]) -> str:
    if id(corpus) not in kept:
        kept[id(corpus)] = str(folder / f"documents-{len(kept)}")
        truth = {"indptr": corpus.truth.indptr, "indices": corpus.truth.indices, "data": corpus.truth.data}
        own = {"ids": list(corpus.ids), "texts": list(corpus.texts), "groups": corpus.groups and list(corpus.groups)}
        write_artefact(kept[id(corpus)], {**own, "labels": corpus.labels.to_records(), "truth": truth})
    return kept[id(corpus)]


class _Processes:
    """A pool of at most ``at_once`` child processes; all end with this context."""

    def __init__(self, at_once: int) -> None:
        self._pool = ThreadPoolExecutor(at_once)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        share = str(max(1, thread_count() // at_once))
        path = os.pathsep.join(part for part in sys.path if part)
        self._environment = {"OMP_NUM_THREADS": share, **os.environ, "POLYTAG_THREADS": share, "PYTHONPATH": path}

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *failure: object) -> None:
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
        command = [sys.executable, "-m", __name__, str(job)]
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


# -- child process -----------------------------------------------------------------------------------------------------


def main(folder: str) -> None:
    """Train the member that a folder describes, and write the result to it."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    path = Path(folder)
    try:
        result: State = {"state": _train(read_artefact(path / "job"))}
    except PolytagError as error:
        result = {"error": str(error), "kind": type(error).__name__}
    except Exception as error:  # the parent process raises it again
        result = {"error": str(error), "kind": "", "trace": traceback.format_exc()}
    write_artefact(path / "result", result)


def _train(job: State) -> State:
    logging.basicConfig(level=job["level"], format=f"{job['place']}: %(message)s")
    kind = model_class(job["model"])
    part = Part(job["name"], kind.build(job["options"]))
    train = _read(job["train"], None)
    valid = None if job["valid"] is None else _read(job["valid"], train.labels)
    with Run(job["folder"], progress=False, resume=job["resume"]) as run:
        run.fingerprint = job["fingerprint"]
        return train_part(part, train, valid, run)


def _read(folder: str, labels: LabelSet | None) -> Corpus:
    state: dict[str, Any] = read_artefact(folder)
    labels = labels or LabelSet.from_records(state["labels"])
    truth = state["truth"]
    shape = len(state["texts"]), len(labels)
    return Corpus(
        state["ids"],
        state["texts"],
        labels,
        csr_array((truth["data"], truth["indices"], truth["indptr"]), shape=shape),
        state["groups"],
    )


def _watch(parent: int) -> None:
    """Exit when the parent process ends, for whatever reason."""
    while os.getppid() == parent:
        time.sleep(_ALONE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
