"""A member of an ensemble: a trained model, its calibration, and its mapping to the labels of the ensemble.

Members score documents in two rounds, both for the choice of weights and for prediction: first every member scores its own
candidates, then every member scores the candidates of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision.calibration import PLATT, Platt
from polytag.labels import LabelSet
from polytag.models.mixture.weights import aligned, candidates_of, columns_of, mix, on_valid, with_entries
from polytag.models.model import Encoded, HeldOut, Model, State, model_class, model_name
from polytag.scores import Scores
from polytag.storage.schema import Anything, Optional, Table, Text

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run


PART = Table(
    {
        "name": Text(),
        "model": Text(),
        "options": Anything(),
        "labels": Optional(Anything(object)),
        "state": Anything(),
        "calibration": Optional(PLATT),
    }
)
"""What a member looks like when it is saved; its state has the schema of its model."""


@dataclass
class Part:
    """A trained model of an ensemble, its calibration, and its mapping to the labels of the ensemble."""

    name: str
    model: Model
    columns: NDArray[np.int32] | None = None
    calibration: Platt | None = None

    def given(self, encoded: Encoded, labels: csr_array, names: Sequence[str]) -> Scores:
        """Probabilities of exactly these labels of the ensemble, for encoded texts."""
        if self.columns is not None:
            own = np.argsort(self.columns).astype(np.int32)
            labels = csr_array((labels.data, own[labels.indices], labels.indptr), shape=labels.shape)
            labels.sort_indices()
        return self.probabilities(encoded.given(labels), names)

    def probabilities(self, scores: Scores, names: Sequence[str]) -> Scores:
        """The model's scores as probabilities, in the ensemble's label order; uncalibrated margins by a sigmoid."""
        calibration = self.calibration
        if calibration is None and scores.kind == "margin":
            n = len(names)
            calibration = Platt(np.ones(n, dtype=np.float32), np.zeros(n, dtype=np.float32))
        return aligned(scores if calibration is None else calibration.apply(scores), self.columns, names)

    def calibrate(self, held: HeldOut) -> None:
        """Fit the calibration of margins on held-out scores."""
        if self.calibration is None and held.scores.kind == "margin":
            self.calibration = Platt.fit(held.scores, held.truth)

    def state(self, labels: LabelSet) -> State:
        """The state of the model and its calibration, with the registered name of the model."""
        return {
            "name": self.name,
            "model": model_name(self.model),
            "options": self.model.options(),
            "labels": None if self.model.labels == labels else self.model.labels.state(),
            "state": self.model.state(),
            "calibration": None if self.calibration is None else self.calibration.state(),
        }

    @classmethod
    def from_state(cls, state: State, labels: LabelSet) -> Part:
        """Restore what ``state`` returned."""
        kind = model_class(state["model"])
        own = labels if state["labels"] is None else LabelSet.from_state(state["labels"])
        model = kind.from_state(kind.saved_options(state["options"]), own, state["state"])
        calibration = None if state["calibration"] is None else Platt.from_state(state["calibration"])
        return cls(str(state["name"]), model, columns_of(own, labels, state["name"]), calibration)


def scores_candidates_only(model: Model) -> bool:
    """Whether a model scores candidates only; such models return probabilities, which need no calibration."""
    return model.scored_labels() < len(model.labels)


class LabelScorer(Protocol):
    """Scores the labels of some documents, first its own candidates, then requested labels; all as probabilities."""

    def best(self, k: int | None) -> Scores:
        """Probabilities of every label, of the k best ones, or of the candidates if there are no others."""

    def given(self, labels: csr_array) -> Scores:
        """Probabilities of exactly these labels."""


@dataclass
class EncodedPart:
    """Texts that a member has encoded."""

    part: Part
    encoded: Encoded
    names: Sequence[str]

    def best(self, k: int | None) -> Scores:
        """Probabilities of the model's best labels."""
        return self.part.probabilities(self.encoded.best(k), self.names)

    def given(self, labels: csr_array) -> Scores:
        """Probabilities of these labels by the model."""
        return self.part.given(self.encoded, labels, self.names)


@dataclass
class FixedScores:
    """Scores of a model that cannot be run again; labels without a score have probability 0."""

    scores: Scores

    def best(self, k: int | None) -> Scores:
        """The scores."""
        return self.scores

    def given(self, labels: csr_array) -> Scores:
        """The scores of these labels, 0 if unknown."""
        return with_entries(self.scores, labels)


class MemberScores(NamedTuple):
    """The members' scores of their own candidates (``named``) and of all candidates (``scores``); full scores stay full."""

    named: list[Scores]
    scores: list[Scores]

    @classmethod
    def of(cls, asked: Sequence[LabelScorer], k: int | None) -> MemberScores:
        """Let every member score its best labels, then let those that score candidates only score the candidates of all."""
        named = [one.best(k) for one in asked]
        some = [scores for scores in named if not scores.is_full]
        if not some:
            return cls(named, named)
        wanted = candidates_of(some)
        return cls(named, [n if n.is_full else one.given(wanted) for one, n in zip(asked, named, strict=True)])

    @classmethod
    def stack(cls, parts: Sequence[MemberScores]) -> MemberScores:
        """Concatenate the documents of several batches."""
        named, scores = ([Scores.stack(rows) for rows in zip(*side, strict=True)] for side in zip(*parts, strict=True))
        return cls(named, scores)

    def mixed(self, shares: Sequence[float]) -> Scores:
        """The weighted sum, for the candidates of the members with a positive weight."""
        used = [at for at, share in enumerate(shares) if share > 0]
        some = [self.named[at] for at in used if not self.named[at].is_full]
        parts, weights = [self.scores[at] for at in used], [shares[at] for at in used]
        if some and len(used) < len(shares):
            wanted = candidates_of(some)
            parts = [part if part.is_full else part.only(wanted) for part in parts]
        return mix(parts, weights)


def train_part(part: Part, train: Corpus, valid: Corpus | None, run: Run) -> State:
    """Train a member; return its state and its scores on validation documents, for a checkpoint."""
    held = part.model.fit(train, valid, run)
    scores = None
    if held is not None:
        part.calibrate(held)
        if valid is not None:
            scores = part.probabilities(on_valid(part.model, held, len(train), valid.truth), train.labels.names)
    return {"part": part.state(train.labels), "held": None if scores is None else scores.state()}


def out_of_fold(part: Part, train: Corpus, valid: Corpus, run: Run, place: str) -> State:
    """Out-of-fold scores of the validation documents, by a new model with the member's settings."""
    again = part.model.core.build(part.model.core.options())
    with run.part(place) as inner:
        held = again.fit(train, valid, inner)
    if part.model.core is not part.model:  # its labels were edited: its scores have their calibration inside
        part = Part(part.name, again)
    if held is not None:
        part.calibrate(held)
    scores = None if held is None else on_valid(again, held, len(train), valid.truth)
    if part.model is again and scores is not None:
        return {"held": part.probabilities(scores, train.labels.names).state(), "calibration": None}
    calibration = None if part.calibration is None else part.calibration.state()
    return {"held": None if scores is None else scores.state(), "calibration": calibration}
