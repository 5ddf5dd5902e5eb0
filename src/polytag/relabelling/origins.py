"""Which labels of training each label comes from, after merges, drops and splits; and the scores that follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.labels import indicator_of_pairs
from polytag.scores import Kind, Scores
from polytag.storage.schema import Array, Sizes, Table
from polytag.storage.state_json import State


def _some_each(state: State, sizes: Sizes) -> None:
    starts, sources = np.asarray(state["starts"]), np.asarray(state["sources"])
    if (starts[1:] <= starts[:-1]).any():
        raise ValueError("one of its labels comes from no label of training")
    falls = np.flatnonzero(sources[1:] <= sources[:-1]) + 1
    if not np.isin(falls, starts).all():
        raise ValueError("the origins of its labels are not in order")


ORIGINS = Table(
    {
        "starts": Array(("int64",), ("labels+1",), order="offsets", total="sources"),
        "sources": Array(("int32",), ("sources",), low=0, below="trained"),
    },
    own=frozenset({"sources"}),
    rules=(_some_each,),
)
"""What origins look like when they are saved; ``trained`` is the number of labels of training."""


@dataclass(frozen=True)
class Origins:
    """Label j comes from the labels ``sources[starts[j]:starts[j + 1]]`` of ``trained`` labels, in ascending order.

    Its score is theirs. Of several, it is the probability that at least one applies, as if they were independent (noisy-or).
    """

    starts: NDArray[np.int64]
    sources: NDArray[np.int32]
    trained: int

    @classmethod
    def of(cls, sources: Sequence[Iterable[int]], trained: int) -> Origins:
        """From the sources of every label."""
        rows = [sorted(set(row)) for row in sources]
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return cls(starts, np.array([label for row in rows for label in row], dtype=np.int32), trained)

    @classmethod
    def identity(cls, count: int) -> Origins:
        """Every label comes from itself."""
        return cls(np.arange(count + 1, dtype=np.int64), np.arange(count, dtype=np.int32), count)

    def __len__(self) -> int:
        """The number of labels."""
        return len(self.starts) - 1

    def row(self, label: int) -> list[int]:
        """The labels of training that a label comes from."""
        return [int(source) for source in self.sources[self.starts[label] : self.starts[label + 1]]]

    def then(self, later: Origins) -> Origins:
        """The origins after a further edit, whose labels come from these."""
        rows = [[source for label in later.row(j) for source in self.row(label)] for j in range(len(later))]
        return Origins.of(rows, self.trained)

    def extended(self, count: int) -> Origins:
        """With further labels at the end, each with a new label of training."""
        starts = np.concatenate([self.starts, self.starts[-1] + 1 + np.arange(count)])
        new = np.arange(self.trained, self.trained + count, dtype=np.int32)
        return Origins(starts, np.concatenate([self.sources, new]), self.trained + count)

    @cached_property
    def single(self) -> NDArray[np.bool_]:
        """Whether a label comes from one label of training alone."""
        return np.asarray(np.diff(self.starts) == 1)

    @cached_property
    def first(self) -> NDArray[np.int32]:
        """The first label of training that each label comes from."""
        return self.sources[self.starts[:-1]]

    @cached_property
    def matrix(self) -> csr_array:
        """Labels × labels of training, with a one for every source."""
        ones = np.ones(len(self.sources), dtype=np.float32)
        return csr_array((ones, self.sources, self.starts), shape=(len(self), self.trained))

    @cached_property
    def targets(self) -> csr_array:
        """Labels of training × labels, the transpose."""
        found = csr_array(self.matrix.T)
        found.sort_indices()
        return found

    # -- scores ----------------------------------------------------------------------------------------------------

    def scores(self, found: Scores, names: Sequence[str]) -> Scores:
        """The scores of the labels, from those of the labels of training; entries, sets and log-probabilities follow."""
        sets = None if found.decoded is None else self.sets(found.decoded)
        if found.is_full:
            moved = Scores.full(self._columns(found), names, found.kind)
        else:
            moved = Scores(self._entries(found), names, found.kind, found.absent)
        return Scores(moved.matrix, names, moved.kind, moved.absent, sets, found.log_probability)

    def sets(self, sets: csr_array) -> csr_array:
        """Sets of labels: a label is in it if one of its sources is."""
        rows = np.repeat(np.arange(sets.shape[0]), np.diff(sets.indptr))
        entry, labels = self._expanded(sets.indices)
        return indicator_of_pairs(rows[entry], labels, (int(sets.shape[0]), len(self)))

    def asked(self, labels: csr_array) -> csr_array:
        """The labels of training (documents × labels of training) that the scores of these labels need."""
        rows = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))
        counts = np.diff(self.starts)[labels.indices]
        at = np.repeat(self.starts[labels.indices] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return indicator_of_pairs(np.repeat(rows, counts), self.sources[at], (int(labels.shape[0]), self.trained))

    def _columns(self, found: Scores) -> NDArray[np.float32]:
        """Full scores (documents, labels)."""
        table = found.matrix.data.reshape(len(found), self.trained)
        moved = table[:, self.first]
        joined = np.flatnonzero(~self.single)
        if len(joined) and len(found):
            counts = np.diff(self.starts)[joined]
            columns = np.concatenate([self.row(label) for label in joined.tolist()])
            groups = np.repeat(np.arange(len(joined)), counts) + len(joined) * np.arange(len(found))[:, None]
            values = _one_of(table[:, columns].reshape(-1), groups.reshape(-1), len(found) * len(joined), found.kind)
            moved[:, joined] = values.reshape(len(found), -1)
        return moved

    def _entries(self, found: Scores) -> csr_array:
        """Scores of candidates: a source that is no candidate adds nothing."""
        m = found.matrix
        entry, labels = self._expanded(m.indices)
        rows = np.repeat(np.arange(len(found)), np.diff(m.indptr))[entry]
        keys, first, group, counts = np.unique(
            rows * len(self) + labels, return_index=True, return_inverse=True, return_counts=True
        )
        values = m.data[entry][first]
        several = counts > 1
        if several.any():
            part = several[group]
            place = np.cumsum(several) - 1
            values[several] = _one_of(m.data[entry][part], place[group[part]], int(several.sum()), found.kind)
        indptr = np.searchsorted(keys, np.arange(len(found) + 1) * len(self))
        return csr_array((values, (keys % len(self)).astype(np.int32), indptr), shape=(len(found), len(self)))

    def _expanded(self, labels: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """For labels of training: which of them, and which label it is a source of; one pair for every such label."""
        starts, targets = self.targets.indptr, self.targets.indices
        counts = (starts[1:] - starts[:-1])[labels]
        entry = np.repeat(np.arange(len(labels)), counts)
        within = np.arange(len(entry)) - np.repeat(np.cumsum(counts) - counts, counts)
        return entry, targets[starts[labels][entry] + within]

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The arrays."""
        return {"starts": self.starts, "sources": self.sources}


def _one_of(values: NDArray[Any], groups: NDArray[Any], count: int, kind: Kind) -> NDArray[np.float32]:
    """The probability that one of a group applies, ``1 - prod(1 - p)``; of margins, the margin of that probability."""
    x = values.astype(np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        if kind == "probability":
            none = np.bincount(groups, weights=np.log1p(-np.clip(x, 0, 1)), minlength=count)
            return np.asarray(-np.expm1(none), dtype=np.float32)
        none = np.bincount(groups, weights=np.logaddexp(0, np.maximum(x, -700)), minlength=count)  # -log P(none)
        return np.asarray(none + np.log(-np.expm1(-none)), dtype=np.float32)
