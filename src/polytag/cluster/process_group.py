"""The training of one network by several processes on the nodes of a Ray cluster.

Each process is a Ray actor that joins a group of torch.distributed, as ``accelerate launch`` would start it. If one dies, all
are started again, and the training goes on from its last checkpoint. So the folder of the run has to be seen by all nodes.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.models.mixture.sent_documents import corpora_of, corpus_state
from polytag.storage.state_json import State
from polytag.work.child_processes import outcome, result_of

log = logging.getLogger(__name__)
_TRIES = 5  # times that processes are started again after one died
_WAIT = 60.0  # seconds in which the processes beside a dead one end, before they are killed


@dataclass(frozen=True)
class Size:
    """The number of processes, and the cores and GPUs of each."""

    processes: int
    threads: int
    gpus: float = 0.0

    @classmethod
    def of(cls, ray: Any, processes: int, gpus: float) -> Size:
        """By default one process per GPU, or one per node with all its cores."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        total = ray.cluster_resources()
        processes = processes or (int(total.get("GPU", 0) / gpus) if gpus else len(nodes))
        if processes < 1:
            raise ConfigError(f"the cluster has no GPU for --gpus {gpus:g}; leave --gpus out, or name another cluster")
        largest = max(int(node["CPU"]) for node in nodes)
        return cls(processes, max(1, min(largest, int(total["CPU"]) // processes)), gpus)


class TrainingProcess:
    """An actor: one process of a group."""

    def address(self) -> tuple[str, int]:
        """The address of this node, and a port that is free."""
        import ray

        with socket.socket() as chosen:
            chosen.bind(("", 0))
            return ray.util.get_node_ip_address(), int(chosen.getsockname()[1])

    def train(self, place: dict[str, str], job: State, *documents: State) -> State:
        """Take part in a training; the first process returns the classifier."""
        os.environ.update(place)
        return outcome(_train, job, *documents)


def _train(job: State, *documents: State) -> State:
    from polytag.verbs.training import first_process, train_corpora

    train, valid = corpora_of(*documents)
    earlier = None if job["earlier"] is None else Classifier.from_state(job["earlier"])
    recipe = Recipe(**job["recipe"]).checked()
    trained = train_corpora(recipe, train, valid, job["out"], resume=job["resume"], earlier=earlier)
    return {"classifier": trained.state() if first_process() else None}


def train_in_processes(
    ray: Any,
    size: Size,
    recipe: Recipe,
    corpora: tuple[Corpus, Corpus | None],
    out: Path,
    *,
    resume: bool,
    earlier: Classifier | None,
) -> Classifier:
    """Train with a group of processes, which is started again if one of them dies."""
    documents = [ray.put(corpus_state(corpus)) for corpus in corpora if corpus is not None]
    job = {"recipe": asdict(recipe), "out": str(out.resolve()), "earlier": None if earlier is None else earlier.state()}
    for again in range(_TRIES + 1):
        found = _attempt(ray, size, {**job, "resume": resume or again > 0}, documents)
        if found is not None:
            classifier = Classifier.from_state(found["classifier"])
            if not (out / "model").exists():  # the first process has another disk
                classifier.save(out)
            return classifier
        log.warning("a process of the training died; all are started again from the last checkpoint")
    raise ConfigError(f"processes of the training died {_TRIES + 1} times; see Ray's logs, and repeat it with --resume")


def _attempt(ray: Any, size: Size, job: State, documents: list[Any]) -> State | None:
    """One training by new actors; None if one of them died."""
    group = ray.util.placement_group([{"CPU": size.threads, **({"GPU": size.gpus} if size.gpus else {})}] * size.processes)
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
    told = {"num_cpus": size.threads, "num_gpus": size.gpus, "scheduling_strategy": strategy}
    actors = [ray.remote(TrainingProcess).options(**told).remote() for _ in range(size.processes)]
    try:
        host, port = ray.get(actors[0].address.remote())
        places = [_place(size, rank, host, port) for rank in range(size.processes)]
        left = [actor.train.remote(place, job, *documents) for actor, place in zip(actors, places, strict=True)]
        return _first_result(ray, left)
    except ray.exceptions.RayActorError:
        return None
    finally:
        for actor in actors:
            ray.kill(actor)
        ray.util.remove_placement_group(group)


def _first_result(ray: Any, tasks: list[Any]) -> State:
    """The result of the first process, when all are done; an error that follows the death of another is not told."""
    left, failed = list(tasks), None
    while left:
        done, left = ray.wait(left, num_returns=1, timeout=_WAIT if failed else None)
        if not done:
            break
        found = ray.get(done[0])
        failed = failed or (found if "error" in found else None)
        if failed and failed["kind"]:  # what a user did wrong, all processes tell
            break
    return result_of(failed or ray.get(tasks[0]))


def _place(size: Size, rank: int, host: str, port: int) -> dict[str, str]:
    """The variables by which torch.distributed and accelerate find the group."""
    threads = str(size.threads)
    found = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(size.processes), "LOCAL_WORLD_SIZE": "1"}
    found |= {"MASTER_ADDR": host, "MASTER_PORT": str(port), "OMP_NUM_THREADS": threads, "POLYTAG_THREADS": threads}
    return found if size.gpus else {**found, "ACCELERATE_USE_CPU": "1"}
