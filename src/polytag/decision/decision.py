"""Decision: the rule from scores to label sets, fitted on held-out documents for one metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.common_settings import METRIC_NAMES
from polytag.config.promise import Promise
from polytag.decision.calibration import blended
from polytag.decision.risk_control import Sets, keep
from polytag.decision.thresholds import Evidence, apply, common, evidence, select
from polytag.errors import ConfigError
from polytag.kernels.sparse_rows import places_of, stack_rows
from polytag.kernels.threads import in_threads
from polytag.labels import LabelSet
from polytag.metrics.of_sets import macro_f1, micro_f1, per_label, subset_accuracy
from polytag.relabelling.origins import Origins
from polytag.scores import Kind, Scores
from polytag.storage.schema import Anything, Array, Number, Sizes, Switch, Table, Text
from polytag.storage.state_json import State

METRICS: dict[str, Callable[[csr_array, csr_array], float]] = {
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "subset_accuracy": subset_accuracy,
}
RULES = ("auto", "threshold", "per_label", "top_k", "decoded", "promise")
_SHRINKAGE = (80.0, 20.0, 5.0)  # pseudo-counts that shrink a label's threshold towards the global one
_PARTS = 5
_ENOUGH = 5_000  # decisions wanted in cross-fitting; fewer documents are divided several times
_MOST_TIMES = 10  # maximum number of divisions
NOISE = 0.002  # smaller differences of the metric are not significant


def _thresholds_fit(state: State, sizes: Sizes) -> None:
    if len(state["thresholds"]) not in (1, sizes["labels"]):
        raise ValueError("its decision has another number of thresholds than of labels")


DECISION = Table(
    {
        "rule": Text(RULES),
        "optimise": Text(METRIC_NAMES),
        "min_labels": Number(0, 2**31 - 1),
        "closed": Switch(),
        "k": Number(0, 2**31 - 1),
        "thresholds": Array(("float32",), ("thresholds",)),
        "report": Anything(),
        "promise": Text(),
    },
    optional=frozenset({"promise"}),
    own=frozenset({"thresholds"}),
    rules=(_thresholds_fit,),
)
"""What a decision looks like when it is saved."""


@dataclass
class Decision:
    """The rule that turns scores into label sets.

    ``rule`` is ``threshold`` (one for all labels), ``per_label`` (shrunk towards the global one for rare labels), ``top_k`` or
    ``decoded`` (the set that the model generates). ``auto`` selects the best one but ``top_k`` by cross-fitting.
    ``promise`` is one threshold that keeps a promise such as ``recall=.9``, whatever the metric.
    Every document gets at least ``min_labels``; ``closed`` adds the ancestors of every label.
    """

    rule: str = "auto"
    optimise: str = "micro_f1"
    min_labels: int = 0
    closed: bool = False
    k: int = 0
    thresholds: NDArray[np.float32] = field(default_factory=lambda: np.zeros(1, dtype=np.float32))
    report: dict[str, Any] = field(default_factory=dict)
    promise: str = ""
    _crossed: csr_array | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        """Check the names of rule and metric, and the promise."""
        if self.promise:
            self.promise = str(Promise.parse(self.promise))
            self.rule = "promise"
        if self.rule not in RULES:
            raise ConfigError(f"there is no decision rule {self.rule!r}; known: {', '.join(RULES)}")
        if self.rule == "promise" and not self.promise:
            raise ConfigError("the rule 'promise' needs a promise, as in recall=.9")
        if self.optimise not in METRICS:
            raise ConfigError(f"cannot optimise {self.optimise!r}; known: {', '.join(METRICS)}")

    def decide(self, scores: Scores, labels: LabelSet) -> csr_array:
        """The predicted labels of every document, as a sparse matrix of ones."""
        if self.rule == "decoded" and scores.decoded is not None:
            predicted = self._filled(scores, scores.decoded)
        elif self.rule == "top_k":
            predicted = apply(scores, np.full(1, np.inf, dtype=np.float32), max(self.k, self.min_labels))
        elif self.rule == "auto":  # not fitted
            predicted = apply(scores, _even(scores.kind), self.min_labels)
        else:
            predicted = apply(scores, self.thresholds, self.min_labels)
        return labels.close(predicted) if self.closed else predicted

    def _filled(self, scores: Scores, decoded: csr_array) -> csr_array:
        """The decoded sets; a set with fewer than ``min_labels`` gets the best other labels until it has as many."""
        short = np.flatnonzero(np.diff(decoded.indptr) < self.min_labels)
        if not len(short):
            return decoded
        first = _decoded_first(scores, decoded, short)
        best = apply(first, np.full(1, np.inf, dtype=np.float32), self.min_labels)
        order = np.arange(len(scores))
        order[short] = len(scores) + np.arange(len(short))
        filled = csr_array(stack_rows([decoded, best])[order])
        filled.sort_indices()
        return filled

    def limits(self, kind: Kind, n_labels: int) -> NDArray[np.float32] | None:
        """The threshold of every label, for scores of this kind; None if the rule has none."""
        if self.rule in ("top_k", "decoded"):
            return None
        return np.broadcast_to(_even(kind) if self.rule == "auto" else self.thresholds, (n_labels,))

    def fit(self, scores: Scores, truth: csr_array, labels: LabelSet) -> Decision:
        """Choose the rule and its thresholds on scores of held-out documents."""
        if self.promise:
            return self._keep_promise(scores, truth, labels)
        candidates = self._candidates(scores)
        tried, sets = self._cross_fitted(candidates, scores, truth, labels) if len(candidates) > 1 else ({}, {})
        best = self._preferred(candidates, tried)
        self._crossed = sets.get(best)
        self._set(best, scores, truth, None)
        value = METRICS[self.optimise](truth, self.decide(scores, labels))
        crossed = {name: values[0] for name, values in tried.items()}
        self.report = {"rule": best, "metric": self.optimise, "fitted": value, "cross_fitted": crossed}
        return self

    def _keep_promise(self, scores: Scores, truth: csr_array, labels: LabelSet) -> Decision:
        promise = Promise.parse(self.promise)
        if promise.goal == "precision":
            self.min_labels = 0  # a document gets no label rather than a doubtful one
        kept = keep(promise, Sets.of(scores, truth, labels, self.min_labels, self.closed))
        self.thresholds = np.full(1, kept.threshold, dtype=np.float32)
        value = METRICS[self.optimise](truth, self.decide(scores, labels))
        self.report = {"rule": "promise", "promise": self.promise, "labels_per_document": kept.labels_per_document}
        self.report |= {"documents": len(scores), "metric": self.optimise, "fitted": value, "cross_fitted": {}}
        return self

    def fit_costs(self, scores: Scores, truth: csr_array, labels: LabelSet, costs: NDArray[np.float64]) -> Decision:
        """Predict a label if that is expected to cost less; ``costs`` (labels, 2) are of a false positive and a false negative.

        Predicting costs (1 - p) · false positive on average, leaving out p · false negative: equal at fp / (fp + fn).
        """
        if scores.kind != "probability":
            raise ConfigError("costs need probabilities, and this model has margins; let them be calibrated")
        self.rule, self.thresholds = "per_label", (costs[:, 0] / costs.sum(axis=1)).astype(np.float32)
        decided = self.decide(scores, labels)
        value = METRICS[self.optimise](truth, decided)
        spent = mean_cost(truth, decided, costs)
        self.report = {"rule": "cost", "metric": self.optimise, "fitted": value, "cross_fitted": {}, "cost_per_document": spent}
        return self

    def held_out_sets(self, scores: Scores, truth: csr_array, labels: LabelSet) -> csr_array:
        """The sets of held-out documents, each fifth decided with thresholds from the others: as new documents would be."""
        if self._crossed is not None and self._crossed.shape[0] == len(scores):
            return self._crossed  # of these scores, when the rules were compared
        if self.rule in ("promise", "decoded", "top_k") or len(scores) < _PARTS:
            return self.decide(scores, labels)
        part = np.arange(len(scores)) % _PARTS
        sets, rows = [], []
        for number in range(_PARTS):
            held = part == number
            trial = replace(self, report={})
            trial._set(self.report.get("rule", self.rule), select(scores, ~held), truth[~held], None)
            sets.append(trial.decide(select(scores, held), labels))
            rows.append(np.flatnonzero(held))
        return csr_array(stack_rows(sets)[np.argsort(np.concatenate(rows))])

    def blend(self, earlier: Decision, share: NDArray[np.float64], scores: Scores, truth: csr_array, labels: LabelSet) -> None:
        """Let thresholds of labels differ as those of an earlier decision did, as far as these scores say less about them.

        ``share`` is the weight of these scores, for every label.
        """
        if {self.rule, earlier.rule} - {"threshold", "per_label"}:
            return
        known = len(labels) if len(earlier.thresholds) == 1 else len(earlier.thresholds)
        own, old = np.broadcast_to(self.thresholds, (len(labels),)), np.broadcast_to(earlier.thresholds, (known,))
        if scores.kind == "probability":  # a threshold above 1 stands for never
            own, old = np.minimum(own, 1), np.minimum(old, 1)
        self.thresholds, self.rule = blended(own, old, share), "per_label"
        self.report = {**self.report, "fitted": METRICS[self.optimise](truth, self.decide(scores, labels))}

    def extend(self, known: int, new: int, threshold: float | NDArray[np.float64] | None) -> None:
        """Add ``new`` labels with this threshold, or one for each, or with the median threshold of the known labels."""
        if self.rule not in ("threshold", "per_label", "promise"):
            return
        value = np.median(self.thresholds) if threshold is None else threshold
        own = np.broadcast_to(self.thresholds, (known,))
        self.thresholds = np.concatenate([own, np.broadcast_to(value, (new,)).astype(np.float32)])
        self.rule, self.promise = "per_label", ""  # nothing is promised about new labels

    def relabelled(self, origins: Origins) -> Decision:
        """The decision about labels that come from these ones.

        A label keeps the threshold of its source. A merged one has the lowest of its sources, so that it is decided at least
        wherever one of them was. Nothing is promised about other labels, and what was measured on held-out documents is gone.
        """
        thresholds = self.thresholds
        if len(thresholds) > 1:
            thresholds = np.minimum.reduceat(thresholds[origins.sources], origins.starts[:-1])
        rule, count = "threshold" if self.rule == "promise" else self.rule, len(origins)
        least, most = min(self.min_labels, count), min(self.k, count)
        return replace(self, rule=rule, thresholds=thresholds, promise="", min_labels=least, k=most, report={})

    def refit(self, scores: Scores, truth: csr_array, labels: LabelSet, touched: NDArray[np.bool_]) -> Decision:
        """The decision with thresholds of some labels fitted on these documents; others keep theirs."""
        found = replace(self, report={})
        if self.rule in ("auto", "promise"):
            found = found.fit(scores, truth, labels)
        elif self.rule in ("threshold", "per_label"):
            own = evidence(scores, truth, self.optimise, self.min_labels).limits(_SHRINKAGE[1])
            found.thresholds = np.where(touched, own, self.thresholds).astype(np.float32)
            found.rule, found.report = "per_label", {"rule": f"per_label:{_SHRINKAGE[1]:g}"}
        value = METRICS[self.optimise](truth, found.decide(scores, labels))
        found.report = {"rule": found.rule, **found.report, "metric": self.optimise, "fitted": value}
        return found

    def _preferred(self, candidates: list[str], tried: dict[str, tuple[float, float]]) -> str:
        """The best rule; of those within the noise, the one with the highest macro-F1."""
        if not tried:
            return candidates[0]
        bar = max(values[0] for values in tried.values()) - NOISE
        close = [name for name in candidates if tried[name][0] >= bar]
        return max(close, key=lambda name: tried[name][1])  # a tie goes to the first, simplest rule

    def _candidates(self, scores: Scores) -> list[str]:
        """Names of the rules to compare, simplest first: ``threshold``, ``per_label:20``, ``top_k``, ``decoded``."""
        per_label = [f"per_label:{s:g}" for s in _SHRINKAGE]
        if self.rule == "per_label":
            return per_label
        if self.rule == "auto":
            return ["threshold", *per_label, *(["decoded"] if scores.decoded is not None else [])]
        return [self.rule]

    def _set(self, name: str, scores: Scores, truth: csr_array, found: Evidence | None) -> None:
        """Set a rule, with thresholds from these scores or from the evidence found in them."""
        rule, _, pseudo = name.partition(":")
        self.rule = rule
        if rule == "threshold":
            self.thresholds = found.common if found else common(scores, truth, self.optimise, self.min_labels)
        elif rule == "per_label":
            found = found or evidence(scores, truth, self.optimise, self.min_labels)
            self.thresholds = found.limits(float(pseudo))
        elif rule == "top_k" and not self.k:
            self.k = max(1, round(truth.nnz / max(1, truth.shape[0])))

    def _cross_fitted(
        self, names: list[str], scores: Scores, truth: csr_array, labels: LabelSet
    ) -> tuple[dict[str, tuple[float, float]], dict[str, csr_array]]:
        """The metric and the macro-F1 of each rule, each fifth of the documents decided with thresholds from the others.

        With few documents the values are means over several divisions into fifths. The sets are those of the first division.
        """
        n = len(scores)
        times = max(1, min(_MOST_TIMES, _ENOUGH // max(1, n)))
        divisions = [np.arange(n) % _PARTS, *(np.random.default_rng(time).permutation(n) % _PARTS for time in range(1, times))]

        def decided_part(piece: tuple[int, int]) -> tuple[csr_array, list[csr_array]]:
            held = divisions[piece[0]] == piece[1]
            seen, hidden = select(scores, ~held), select(scores, held)
            found = evidence(seen, truth[~held], self.optimise, self.min_labels)
            sets = []
            for name in names:
                trial = Decision(optimise=self.optimise, min_labels=self.min_labels, closed=self.closed, k=self.k)
                trial._set(name, seen, truth[~held], found)
                sets.append(trial.decide(hidden, labels))
            return truth[held], sets

        pieces = [(time, part) for time in range(times) for part in range(min(_PARTS, n))]
        results = list(in_threads(decided_part, pieces))
        values: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        decided: dict[str, csr_array] = {}
        back = np.argsort(np.argsort(divisions[0], kind="stable"), kind="stable")  # documents are stacked part by part
        for time in range(times):
            mine = [result for piece, result in zip(pieces, results, strict=True) if piece[0] == time]
            whole = stack_rows([known for known, _ in mine])
            for number, name in enumerate(names):
                sets = stack_rows([sets[number] for _, sets in mine])
                values[name].append((METRICS[self.optimise](whole, sets), macro_f1(whole, sets)))
                if time == 0:
                    decided[name] = csr_array(sets[back])
        means = {
            name: (float(np.mean([v[0] for v in found])), float(np.mean([v[1] for v in found]))) for name, found in values.items()
        }
        return means, decided

    def state(self) -> dict[str, Any]:
        """The settings and the thresholds."""
        names = ("rule", "optimise", "min_labels", "closed", "k", "thresholds", "report")
        return {name: getattr(self, name) for name in names} | ({"promise": self.promise} if self.promise else {})

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Decision:
        """Restore what ``state`` returned."""
        return cls(**{**state, "thresholds": np.asarray(state["thresholds"])})


def mean_cost(truth: csr_array, decided: csr_array, costs: NDArray[np.float64]) -> float:
    """The cost of all mistakes per document; ``costs`` (labels, 2) are of a false positive and a false negative."""
    counts = per_label(truth, decided)
    wrong = (counts.predicted - counts.hits) @ costs[:, 0] + (counts.true - counts.hits) @ costs[:, 1]
    return float(wrong) / max(1, truth.shape[0])


def _decoded_first(scores: Scores, decoded: csr_array, rows: NDArray[np.int64]) -> Scores:
    """The scores of some documents, where the labels of the decoded sets come before all others."""
    some, sets = scores.matrix[rows], decoded[rows]
    at, known = places_of(sets, some)
    other = np.ones(len(some.indices), dtype=np.bool_)
    other[at[known]] = False
    row = [np.repeat(np.arange(len(rows)), np.diff(part.indptr)) for part in (some, sets)]
    values = np.concatenate([some.data[other], np.full(len(sets.indices), np.inf, dtype=some.data.dtype)])
    places = np.concatenate([row[0][other], row[1]]), np.concatenate([some.indices[other], sets.indices])
    return replace(scores, matrix=csr_array((values, places), shape=some.shape), decoded=None, log_probability=None)


def _even(kind: Kind) -> NDArray[np.float32]:
    """The threshold of a decision that was not fitted."""
    return np.full(1, 0.5 if kind == "probability" else 0.0, dtype=np.float32)


def reached(scores: Scores, truth: csr_array, labels: LabelSet, metric: str, least: int) -> float:
    """The metric of held-out scores with one threshold for all labels, or of decoded sets, as they are, if there are any."""
    if scores.decoded is not None:
        return METRICS[metric](truth, Decision("decoded", metric).decide(scores, labels))
    return float(Decision("threshold", metric, min_labels=least).fit(scores, truth, labels).report["fitted"])
