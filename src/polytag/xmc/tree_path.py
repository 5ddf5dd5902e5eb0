"""Why a label tree scores a label: the path to it, the separator at each step, and the shares of the words in the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.xmc.rank import WORTH, TreeRanker


class Turn(NamedTuple):
    """One step of a path: node ``child`` of the node ``parent`` at this depth, and the labels below it, frequent ones first."""

    depth: int
    parent: int
    child: int
    labels: NDArray[np.int32]


@dataclass(frozen=True)
class Step:
    """The separator of one step for one text: the words' contributions, and the margin that they and the rest sum to.

    ``rest`` is what features without a word add, those of a document vector.
    """

    turn: Turn
    values: NDArray[np.float64]
    bias: float
    rest: float = 0.0

    @property
    def margin(self) -> float:
        """The margin of the separator."""
        return self.bias + self.rest + float(self.values.sum())


def path_to(ranker: TreeRanker, label: int) -> list[Turn]:
    """The steps from the root to a label."""
    tree, turns = ranker.tree, list[Turn]()
    first = int(np.flatnonzero(tree.order == label)[0])
    last = first + 1
    below = (first, last)  # the labels below the node, as a range of ``order``
    for depth in range(len(tree.starts) - 1, -1, -1):
        starts = tree.starts[depth]
        parent = int(np.searchsorted(starts, first, side="right")) - 1
        turns.insert(0, Turn(depth, parent, first - int(starts[parent]), tree.order[below[0] : below[1]]))
        if depth:
            first, last = parent, parent + 1
            below = _range_of_labels(tree.starts[depth:], first)
    return turns


def _range_of_labels(starts: Sequence[NDArray[np.int64]], node: int) -> tuple[int, int]:
    first, last = node, node + 1
    for level in starts:
        first, last = int(level[first]), int(level[last])
    return first, last


def step_of(ranker: TreeRanker, turn: Turn, shares: csr_array, row: csr_array) -> Step:
    """The separator of one step, for the words' shares (words, words' features) of the features ``row`` (1, all features)."""
    weights, bias = _separator(ranker, turn)
    values = np.asarray(shares @ weights[: shares.shape[1]])
    inner = row.indices >= shares.shape[1]
    rest = float(row.data[inner].astype(np.float64) @ weights[row.indices[inner]])
    return Step(turn, values, bias, rest)


def _separator(ranker: TreeRanker, turn: Turn) -> tuple[NDArray[np.float64], float]:
    """The weights (features,) and the bias of one child of a node."""
    chunks, node = ranker.chunks[turn.depth], turn.parent
    rows = slice(int(chunks.row_starts[node]), int(chunks.row_starts[node + 1]))
    entries = slice(int(chunks.entry_starts[node]), int(chunks.entry_starts[node + 1]))
    sizes = np.diff(np.append(chunks.starts[rows].astype(np.int64), entries.stop - entries.start))
    own = chunks.children[entries] == turn.child
    weights = np.zeros(ranker.n_features)
    weights[np.repeat(chunks.rows[rows], sizes)[own]] = chunks.weights[entries][own]
    return weights, float(chunks.bias[int(ranker.tree.starts[turn.depth][node]) + turn.child])


def log_worth(margin: Any, worth: str) -> Any:
    """The log-probability of a margin; see ``select.log_score``."""
    kind = WORTH[worth]
    return -np.logaddexp(0.0, -margin) if kind == 0 else -(np.maximum(0.0, 1.0 - margin) ** kind)


class Summed(NamedTuple):
    """A quantity of a text and of an empty one, and the words' shares (words,) in the difference, which they sum to."""

    value: float
    empty: float
    shares: NDArray[np.float64]

    def through(self, value: float, empty: float, slope: float = 0.0) -> Summed:
        """A function of the quantity, by its values for both texts; ``slope`` is its derivative if both are equal.

        The words share the difference in the same proportions, so that nothing is lost where the function is flat.
        """
        apart = self.value - self.empty
        return Summed(value, empty, self.shares * ((value - empty) / apart if abs(apart) > 1e-12 else slope))


def log_probability(steps: Sequence[Step], worth: str) -> Summed:
    """Log P(label | x) as a sum over the steps, with the words' shares."""
    parts = []
    for step in steps:
        empty = step.bias + step.rest
        here = Summed(step.margin, empty, step.values)
        around = (log_worth(empty + 1e-4, worth) - log_worth(empty - 1e-4, worth)) / 2e-4
        parts.append(here.through(float(log_worth(step.margin, worth)), float(log_worth(empty, worth)), float(around)))
    return added(parts)


def added(parts: Sequence[Summed], weight: float = 1.0) -> Summed:
    """The weighted sum of several quantities."""
    shares = np.sum([part.shares for part in parts], axis=0) * weight
    return Summed(weight * sum(part.value for part in parts), weight * sum(part.empty for part in parts), shares)


def mean_probability(logs: Sequence[Summed]) -> Summed:
    """The log of the mean of several trees' probabilities; one tree is its own mean."""
    if len(logs) == 1:
        return logs[0]
    mean = added([one.through(float(np.exp(one.value)), float(np.exp(one.empty))) for one in logs], 1 / len(logs))
    return mean.through(*(float(np.log(max(value, 1e-37))) for value in (mean.value, mean.empty)))


def described(step: Step, spans: NDArray[np.int64], names: Sequence[str], worth: str) -> dict[str, Any]:
    """One level of a path: the labels below its node, its probability, and what the words contribute to its margin.

    The words are those with a contribution, strongest first: start and end in the text, and the contribution.
    """
    below, order = step.turn.labels, np.argsort(-np.abs(step.values), kind="stable")
    return {
        "level": step.turn.depth + 1,
        "labels_below": len(below),
        "such_as": [names[label] for label in below[:3].tolist()],
        "probability": float(np.exp(log_worth(step.margin, worth))),
        "margin": step.margin,
        "bias": step.bias,
        **({"document_vector": step.rest} if step.rest else {}),
        "words": [(*spans[at].tolist(), float(step.values[at])) for at in order.tolist() if step.values[at]],
    }
