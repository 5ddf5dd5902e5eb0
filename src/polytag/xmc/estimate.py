"""What a training over a label tree will need, told before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.sparse import csr_array

from polytag.errors import ConfigError
from polytag.linear.parallel import thread_count
from polytag.linear.simd import WIDTH
from polytag.xmc.index import tree_shape

_KEPT = 1.3  # weights that pruning leaves, per word of every (document, label) pair: 0.3 to 1.3 measured at prune 0.1
_KEPT_UNPRUNED = 6.0
_SECONDS = 1.8e-7  # of one processor per word, document and block of 16 children: 183 s measured where 9e-8 told 95
_GIB = float(1 << 30)


@dataclass(frozen=True)
class Estimate:
    """Bytes at the peak, bytes of the trained weights, and seconds."""

    memory: float
    model: float
    seconds: float

    def told(self) -> dict[str, float]:
        """For the log."""
        return {
            "memory_gib": round(self.memory / _GIB, 3),
            "model_gib": round(self.model / _GIB, 3),
            "seconds": round(self.seconds, 1),
        }


def estimate(
    features: csr_array, truth: csr_array, *, branching: int, max_leaf: int, max_terms: int, trees: int, prune: float,
    matcher: int, half: bool, dense: int = 0,
) -> Estimate:  # fmt: skip
    """Estimate a training from the sizes of the data; ``matcher`` is the beam if it adds negatives, else 0.

    ``dense`` numbers stand beside the words of every document: small weights, of which pruning may leave all.
    """
    n, n_features = (int(size) for size in features.shape)
    n_labels, pairs = int(truth.shape[1]), int(truth.nnz)
    words = features.nnz / max(n, 1)
    levels = tree_shape(n_labels, branching, max_leaf)
    threads = thread_count()
    kept = (_KEPT if prune >= 0.05 else _KEPT_UNPRUNED) * pairs * words + float(n_labels) * dense
    model = kept * ((2 if half else 4) + 2 + 5.5) + 8.0 * n_labels
    vectors = min(pairs * words, float(n_labels) * (max_terms or n_features)) * 8
    rows = features.nnz * 8.0 + n * (12.0 + 20.0 * dense)  # with the vectors, before and after they are joined
    sent = (pairs + n * matcher) * 24.0
    work = threads * (n * WIDTH * 8.0 + n_features * (WIDTH * 4.0 + 16) + (rows if levels else 0.0))
    memory = rows + trees * model + max(2 * vectors, model + sent * (len(levels) + 1) + work)
    blocks = sum(-(-branching // WIDTH) for _ in levels) + -(-min(max_leaf, n_labels) // WIDTH)
    units = (words + dense) * (2.0 * n + (pairs + n * matcher) * blocks)
    seconds = trees * (_SECONDS * units + 2e-8 * vectors) / threads
    return Estimate(memory, model * trees, seconds)


def available_memory() -> float | None:
    """Bytes that this process may still take, or None where the system does not say."""
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


def require_memory(needed: Estimate, limit: float | None) -> None:
    """Refuse a training that does not fit into ``limit`` bytes, with advice."""
    if limit is not None and needed.memory > limit:
        raise ConfigError(
            f"training would take about {needed.memory / _GIB:.1f} GiB of memory, and {limit / _GIB:.1f} GiB may be used: set a "
            "larger 'prune' or 'min_df', a smaller 'max_features' or 'max_terms', fewer 'trees', or allow more with 'memory'"
        )


def limit_of(setting: Any) -> float | None:
    """The bytes that may be used: what the setting says in GiB, or what the machine has free where that is 0."""
    return float(setting) * _GIB if setting else available_memory()
