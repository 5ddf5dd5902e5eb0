"""What a report is made of: runs with their logs, what they predict for test documents, and the training labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.labels import LabelSet
from polytag.metrics.outcome import Outcome


@dataclass(frozen=True)
class RunEvidence:
    """One run: its name in the report, what ``polytag info`` says, its log, and its view of the test documents.

    ``plain`` has the sets at probability 0.5, or margin 0: the decision that nothing was fitted for. ``metrics`` and
    ``plain_metrics`` are all metrics with both decisions. ``vectors`` has one row per label, where the model has them.
    """

    name: str
    facts: Mapping[str, Any]
    labels: LabelSet
    train_counts: NDArray[np.int64]
    log: Sequence[Mapping[str, Any]] = ()
    train_seconds: float | None = None
    outcome: Outcome | None = None
    plain: csr_array | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    plain_metrics: Mapping[str, float] = field(default_factory=dict)
    vectors: NDArray[Any] | csr_array | None = None


@dataclass(frozen=True)
class Evidence:
    """Several runs on the same documents; the first is the baseline, the last one is looked at in detail.

    All outcomes have the same columns. ``train`` has the training labels in these columns, or is None where the training
    documents are not there any more.
    """

    runs: Sequence[RunEvidence]
    documents: str = ""
    ids: Sequence[str] = ()
    texts: Sequence[str] = ()
    train: csr_array | None = None
    audit: Sequence[Mapping[str, Any]] = ()  # lines of an audit that have suspects
    seed: int = 0

    @property
    def last(self) -> RunEvidence:
        """The run in question."""
        return self.runs[-1]

    @cached_property
    def tested(self) -> list[tuple[RunEvidence, Outcome]]:
        """The runs with their outcomes; empty without test documents."""
        return [(run, run.outcome) for run in self.runs if run.outcome is not None]
