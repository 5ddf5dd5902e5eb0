"""Training of the ensemble members: sequential, or in parallel processes.

One small network leaves most of a GPU idle; several in parallel do not.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, as_completed
from functools import partial
from pathlib import Path
from typing import NamedTuple

from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.models.mixture.child_processes import ChildProcesses, read_documents, work_on, write_documents
from polytag.models.mixture.part import Part, train_part
from polytag.models.model import State, model_class, model_name
from polytag.run import Run
from polytag.scores import Scores
from polytag.storage.artefact import write_artefact


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
    with (
        tempfile.TemporaryDirectory(prefix="polytag-", ignore_cleanup_errors=True) as folder,
        ChildProcesses(__name__, at_once) as processes,
    ):
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
        "train": write_documents(one.train, folder, kept),
        "valid": None if one.valid is None else write_documents(one.valid, folder, kept),
        "place": one.place,
        "folder": None if (inner := run.part_folder(one.place)) is None else str(inner),
        "resume": run.resume,
        "fingerprint": run.fingerprint,
        "level": logging.getLogger("polytag").getEffectiveLevel(),
    }


# -- child process -----------------------------------------------------------------------------------------------------


def _train(job: State) -> State:
    logging.basicConfig(level=job["level"], format=f"{job['place']}: %(message)s")
    kind = model_class(job["model"])
    part = Part(job["name"], kind.build(job["options"]))
    train = read_documents(job["train"], None)
    valid = None if job["valid"] is None else read_documents(job["valid"], train.labels)
    with Run(job["folder"], progress=False, resume=job["resume"]) as run:
        run.fingerprint = job["fingerprint"]
        return train_part(part, train, valid, run)


if __name__ == "__main__":
    work_on(sys.argv[1], _train)
