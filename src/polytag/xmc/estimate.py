"""Estimates of the memory and time of training a label tree, before it starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scipy.sparse import csr_array

from polytag.errors import ConfigError
from polytag.kernels.threads import thread_count
from polytag.kernels.vectors import WIDTH
from polytag.xmc.index import tree_shape

if TYPE_CHECKING:
    from polytag.run import Run

log = logging.getLogger(__name__)
_KEPT = 1.3  # weights after pruning at 0.1, per word of every (document, label) pair; measured: 0.1 to 1.3
_KEPT_MORE = 0.7  # with a smaller threshold, (0.1 / prune)^0.7 times as many; measured: 6 times at 0.01 on a synthetic corpus
_SECONDS = 1.2e-7  # CPU seconds per word, document and block of 16 children; measured: 5e-8 to 1.5e-7
_DENSE_SECONDS = 1.5e-8  # the same per component of a document vector; measured: 1.1e-8 to 2.1e-8
_GIB = float(1 << 30)


class Level(NamedTuple):
    """A level of a tree: its number of nodes, and the number of children per node."""

    nodes: int
    children: int


def tree_levels(n_labels: int, branching: int, max_leaf: int) -> list[Level]:
    """The levels of a label tree, from the root to the leaves."""
    counts = [1, *(int(starts[-1]) for starts in tree_shape(n_labels, branching, max_leaf)), n_labels]
    return [Level(nodes, -(-below // nodes)) for nodes, below in pairwise(counts)]


@dataclass(frozen=True)
class Estimate:
    """Peak memory and size of the trained weights, both in bytes, and training time in seconds."""

    memory: float
    model: float
    seconds: float

    def log(self) -> dict[str, float]:
        """The values for the run's log, in GiB and seconds."""
        return {
            "memory_gib": round(self.memory / _GIB, 3),
            "model_gib": round(self.model / _GIB, 3),
            "seconds": round(self.seconds, 1),
        }


def estimate(
    features: csr_array, truth: csr_array, levels: Sequence[Level], *, max_terms: int, trees: int, prune: float, matcher: int,
    half: bool, dense: int = 0, times: int = 1,
) -> Estimate:  # fmt: skip
    """Estimate the cost of training from the sizes of the data; ``matcher`` is the beam if it adds negatives, else 0.

    ``levels`` are those whose separators are trained, ``times`` times. ``dense`` is the size of the document vector that is
    joined with tf-idf; pruning may keep all of its weights.
    """
    n, n_features = (int(size) for size in features.shape)
    n_labels, pairs = int(truth.shape[1]), int(truth.nnz)
    words = features.nnz / max(n, 1)
    threads = thread_count()
    visits = [min(float(n) * level.nodes, pairs + float(n) * matcher) for level in levels]
    known = [level.nodes * min(n_features, words * seen / level.nodes) for level, seen in zip(levels, visits, strict=True)]
    kept = sum(count * level.children for level, count in zip(levels, known, strict=True))  # without pruning
    kept = min(kept, _KEPT * (0.1 / prune) ** _KEPT_MORE * pairs * words) if prune else kept
    model = (kept + float(n_labels) * dense) * (2 + (2 if half else 4)) + 8.0 * (min(kept, sum(known)) + n_labels)
    vectors = min(pairs * words, float(n_labels) * (max_terms or n_features)) * 8
    rows = features.nnz * 8.0 + n * (12.0 + 20.0 * dense)  # includes the document vectors, before and after they are joined
    sent = (pairs + n * matcher) * 24.0
    work = threads * (n * WIDTH * 8.0 + n_features * (WIDTH * 4.0 + 16) + (rows if levels[-1].nodes > 1 else 0.0))
    memory = rows + trees * model + max(2 * vectors, model + sent * len(levels) + work)
    blocks = sum(seen * -(-level.children // WIDTH) for level, seen in zip(levels, visits, strict=True))
    separators = blocks * (_SECONDS * words + _DENSE_SECONDS * dense)
    return Estimate(memory, model * trees, times * trees * (separators + 2e-8 * vectors) / threads)


def announce(needed: Estimate, limit: float | None, run: Run, what: str = "training") -> None:
    """Log the estimated cost of training, and raise if it exceeds the memory limit."""
    values = needed.log()
    run.log("estimate", values)
    log.info(f"{what} will take about %(memory_gib).2f GiB and %(seconds).0f s; the model about %(model_gib).2f GiB", values)
    _require(needed, limit)


def available_memory() -> float | None:
    """The bytes that this process may still allocate, or None if the system does not report them."""
    found: list[float] = []
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(float(line.split()[1]) * 1024)
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
        if limit.isdigit():
            found.append(float(limit) - float(used))
    except (OSError, ValueError, IndexError):
        pass
    return min(found) if found else None


def _require(needed: Estimate, limit: float | None) -> None:
    """Raise if training does not fit into ``limit`` bytes."""
    if limit is not None and needed.memory > limit:
        raise ConfigError(
            f"training would take about {needed.memory / _GIB:.1f} GiB of memory, and {limit / _GIB:.1f} GiB may be used: set a "
            "larger 'prune' or 'min_df', a smaller 'max_features' or 'max_terms', fewer 'trees', or allow more with 'memory'"
        )


def limit_of(setting: Any) -> float | None:
    """The memory limit in bytes: the setting, in GiB, or the free memory if it is 0."""
    return float(setting) * _GIB if setting else available_memory()
