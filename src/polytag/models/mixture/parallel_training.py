"""Training of the ensemble members: one after another, in child processes, or on a cluster.

One small network leaves most of a GPU idle; several in parallel do not.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import Future, as_completed
from functools import partial
from pathlib import Path
from typing import NamedTuple

from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.models.mixture.part import Part, train_part
from polytag.models.mixture.sent_documents import SentDocuments, corpora_of
from polytag.models.model import State, model_class, model_name
from polytag.run import LOG, Run
from polytag.scores import Scores
from polytag.work.child_processes import ChildProcesses
from polytag.work.workplace import HERE, Workplace


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
    elif run.workplace is not HERE:
        states = _elsewhere(trainings, run, run.workplace, "parts")
    elif at_once == 1:
        states = [run.stage(one.stage, partial(_in_this_process, one, run)) for one in trainings]
    else:
        with ChildProcesses(at_once) as processes:
            states = _elsewhere(trainings, run, processes, f"parts, {at_once} at once")
    return [_trained(one, state) for one, state in zip(trainings, states, strict=True)]


def _trained(one: Training, state: State) -> Trained:
    labels = one.train.labels
    held = None if state["held"] is None else Scores.from_state(state["held"], labels.names)
    return Trained(Part.from_state(state["part"], labels), held)


def _in_this_process(one: Training, run: Run) -> State:
    """Train a member in this process."""
    with run.part(one.place) as inner:
        return train_part(one.part, one.train, one.valid, inner)


# -- this process ------------------------------------------------------------------------------------------------------


def _elsewhere(trainings: Sequence[Training], run: Run, place: Workplace, description: str) -> list[State]:
    """Train members in other processes; each result is written as a checkpoint as soon as it is available."""
    states: dict[str, State] = {}
    left = []
    for one in trainings:
        if run.load_stage(one.stage) is None:
            left.append(one)
        else:
            states[one.place] = run.stage(one.stage, dict)
    sent, threads = SentDocuments(place), place.threads(len(left))
    futures: dict[Future[State], Training] = {}
    for one in left:
        job = _job(one, run)
        futures[place.submit(train_job, job, *sent(one.train, one.valid), threads=threads)] = one
    try:
        for future in run.track(as_completed(futures), description, len(futures)):
            one = futures[future]
            states[one.place] = run.stage(one.stage, future.result)
    finally:
        for future in futures:
            if not future.done():
                place.stop(future)
    return [states[one.place] for one in trainings]


def _job(one: Training, run: Run) -> State:
    """The job of another process. It resumes, because it may be repeated there; what must not be resumed is removed here."""
    folder = run.part_folder(one.place)
    if folder is not None and not run.resume and (folder / LOG).exists():
        shutil.rmtree(folder / "stages", ignore_errors=True)
        (folder / LOG).unlink()
    return {
        "name": one.part.name,
        "model": model_name(one.part.model),
        "options": one.part.model.options(),
        "place": one.place,
        "folder": None if folder is None else str(folder.resolve()),
        "fingerprint": run.fingerprint,
        "level": logging.getLogger("polytag").getEffectiveLevel(),
    }


# -- another process ---------------------------------------------------------------------------------------------------


def train_job(job: State, *documents: State) -> State:
    """Train a member; its log and checkpoints are in its folder of the run, if this machine sees that."""
    logging.basicConfig(level=job["level"], format=f"{job['place']}: %(message)s")
    part = Part(job["name"], model_class(job["model"]).build(job["options"]))
    seen = job["folder"] is not None and Path(job["folder"]).parent.parent.exists()
    with Run(job["folder"], progress=False, resume=True) if seen else Run(None, progress=False) as run:
        run.fingerprint = job["fingerprint"]
        return train_part(part, *corpora_of(*documents), run)
