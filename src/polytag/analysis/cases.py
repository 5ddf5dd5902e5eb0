"""Case studies: documents with the true labels and those of several systems (SGM, table 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.analysis.label_pairs import correlations
from polytag.analysis.result import Result, label_names
from polytag.errors import ConfigError, DataError
from polytag.metrics.of_sets import per_document

Choose = Literal["gain", "loss", "worst", "random"]
CHOICES = ("gain", "loss", "worst", "random")
CORRELATED = 0.5  # phi coefficient from which two labels are called highly correlated


@dataclass(frozen=True)
class SystemSet(Result):
    """The labels that a system gave a document: right ones, wrong ones, and those it missed."""

    system: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    missed: tuple[str, ...]
    f1: float


@dataclass(frozen=True)
class Case(Result):
    """A document: true labels, those of them that are highly correlated with another true one, and every system's set."""

    id: str
    text: str
    true: tuple[str, ...]
    correlated: tuple[str, ...]
    systems: tuple[SystemSet, ...]


@dataclass(frozen=True)
class CaseStudies(Result):
    """Some documents, how they were chosen, and how many documents the choice could pick from."""

    choose: str
    candidates: int
    rows: tuple[Case, ...]


def case_studies(
    truth: csr_array,
    predictions: Mapping[str, csr_array],
    names: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
    train: csr_array | None = None,
    choose: Choose = "gain",
    count: int = 5,
    seed: int = 0,
) -> CaseStudies:
    """Show some documents; the first system is the baseline, the last one the system in question.

    ``gain`` takes documents on which the last system beats the first most, ``loss`` those on which it loses most, ``worst``
    those on which the last system is worst, ``random`` any. Correlation is measured in ``train``, or else in the truth.
    """
    if choose not in CHOICES:
        raise ConfigError(f"cannot choose case studies by {choose!r}; known: {', '.join(CHOICES)}")
    if not predictions:
        raise DataError("there is no system for the case studies; give at least one")
    f1 = {system: per_document(truth, sets).f1 for system, sets in predictions.items()}
    order, candidates = _chosen(truth, list(f1.values()), choose, seed)
    partners = _partners(truth if train is None else train, names)
    rows = []
    for row in order[:count].tolist():
        true = label_names(truth, row, names)
        correlated = tuple(name for name in true if partners.get(name, set()) & set(true))
        systems = tuple(_system_set(system, sets, row, true, names, f1[system][row]) for system, sets in predictions.items())
        document = str(row) if ids is None else ids[row]
        rows.append(Case(document, "" if texts is None else texts[row], true, correlated, systems))
    return CaseStudies(choose, candidates, tuple(rows))


def _chosen(truth: csr_array, f1: list[NDArray[np.float64]], choose: Choose, seed: int) -> tuple[NDArray[np.int64], int]:
    """Rows in the order of interest, and how many there are; equal ones by number of true labels, largest first."""
    if choose == "random":
        order = np.random.default_rng(seed).permutation(truth.shape[0])
        return order, len(order)
    interest = 1 - f1[-1] if choose == "worst" else (f1[-1] - f1[0]) * (1 if choose == "gain" else -1)
    order = np.lexsort((np.arange(len(interest)), -np.diff(truth.indptr), -interest))
    order = order[interest[order] > 0]
    return order, len(order)


def _partners(truth: csr_array, names: Sequence[str]) -> dict[str, set[str]]:
    """The labels that are highly correlated with each label."""
    found: dict[str, set[str]] = {}
    for row in correlations(truth, names, most=100_000, least=3, shown=0).rows:
        if row.phi >= CORRELATED:
            found.setdefault(row.first, set()).add(row.second)
            found.setdefault(row.second, set()).add(row.first)
    return found


def _system_set(system: str, sets: csr_array, row: int, true: tuple[str, ...], names: Sequence[str], f1: float) -> SystemSet:
    given = label_names(sets, row, names)
    right, wrong = tuple(n for n in given if n in true), tuple(n for n in given if n not in true)
    return SystemSet(system, right, wrong, tuple(n for n in true if n not in given), float(f1))
