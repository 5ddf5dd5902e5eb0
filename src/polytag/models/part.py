"""A part of a mixture: a trained model, and what makes its scores probabilities of the mixture's labels.

What parts say about documents is brought together here, in the same way when weights are chosen and when documents are scored:
every part names its candidates, then every part is asked about those of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.calibration import Platt
from polytag.labels import LabelSet
from polytag.models.mixing import aligned, candidates_of, columns_of, mix, on_valid, with_entries
from polytag.models.model import HeldOut, Model, Read, State, model_class, model_name
from polytag.options import validate_options
from polytag.scores import Scores

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run


@dataclass
class Part:
    """A trained model of a mixture, and what makes its scores probabilities of the mixture's labels."""

    name: str
    model: Model
    columns: NDArray[np.int32] | None = None
    calibration: Platt | None = None

    def given(self, read: Read, labels: csr_array, names: Sequence[str]) -> Scores:
        """Probabilities of just these labels of the mixture, of texts that the model has read."""
        if self.columns is not None:
            own = np.argsort(self.columns).astype(np.int32)
            labels = csr_array((labels.data, own[labels.indices], labels.indptr), shape=labels.shape)
            labels.sort_indices()
        return self.probabilities(read.given(labels), names)

    def probabilities(self, scores: Scores, names: Sequence[str]) -> Scores:
        """The model's scores as probabilities, in the mixture's order; margins that nothing could be fitted on, by a sigmoid."""
        calibration = self.calibration
        if calibration is None and scores.kind == "margin":
            n = len(names)
            calibration = Platt(np.ones(n, dtype=np.float32), np.zeros(n, dtype=np.float32))
        return aligned(scores if calibration is None else calibration.apply(scores), self.columns, names)

    def calibrate(self, held: HeldOut) -> None:
        """Fit what makes probabilities of margins, on scores of documents that the model was not trained on."""
        if self.calibration is None and held.scores.kind == "margin":
            self.calibration = Platt.fit(held.scores, held.truth)

    def state(self, labels: LabelSet) -> State:
        """Everything that was learned, under the registered name of the model."""
        return {
            "name": self.name,
            "model": model_name(self.model),
            "options": self.model.options(),
            "labels": None if self.model.labels == labels else self.model.labels.to_records(),
            "state": self.model.state(),
            "calibration": None if self.calibration is None else self.calibration.state(),
        }

    @classmethod
    def from_state(cls, state: State, labels: LabelSet) -> Part:
        """Take back what ``state`` returned."""
        kind = model_class(state["model"])
        own = labels if state["labels"] is None else LabelSet.from_records(state["labels"])
        model = kind.from_state(validate_options(kind, state["options"]), own, state["state"])
        calibration = None if state["calibration"] is None else Platt.from_state(state["calibration"])
        if calibration is not None and not len(calibration.slopes) == len(calibration.offsets) == len(labels):
            raise ValueError(f"the part {state['name']!r} is calibrated for another number of labels")
        return cls(str(state["name"]), model, columns_of(own, labels, state["name"]), calibration)


def names_some(model: Model) -> bool:
    """Whether a model scores candidates only: probabilities, which need no calibration."""
    return model.scored_labels() < len(model.labels)


class Asked(Protocol):
    """Something that names labels of documents, and can then be asked about others; all in probabilities."""

    def best(self, k: int | None) -> Scores:
        """Probabilities of every label, or of the k best ones, or of the candidates if that is all there is."""

    def given(self, labels: csr_array) -> Scores:
        """Probabilities of just these labels."""


@dataclass
class Reader:
    """A part that has read some texts."""

    part: Part
    read: Read
    names: Sequence[str]

    def best(self, k: int | None) -> Scores:
        """What the part's model names."""
        return self.part.probabilities(self.read.best(k), self.names)

    def given(self, labels: csr_array) -> Scores:
        """What the part's model says of these labels."""
        return self.part.given(self.read, labels, self.names)


@dataclass
class Said:
    """Scores that were given once, by a model that is not there any more: labels that it did not name count as 0."""

    scores: Scores

    def best(self, k: int | None) -> Scores:
        """The scores."""
        return self.scores

    def given(self, labels: csr_array) -> Scores:
        """What is known of these labels."""
        return with_entries(self.scores, labels)


class Together(NamedTuple):
    """What each part named by itself, and what each says about the candidates of all; full scores stay full."""

    named: list[Scores]
    scores: list[Scores]

    @classmethod
    def of(cls, asked: Sequence[Asked], k: int | None) -> Together:
        """Let everyone name labels, then ask everyone who named only some about those of all."""
        named = [one.best(k) for one in asked]
        some = [scores for scores in named if not scores.is_full]
        if not some:
            return cls(named, named)
        wanted = candidates_of(some)
        return cls(named, [n if n.is_full else one.given(wanted) for one, n in zip(asked, named, strict=True)])

    @classmethod
    def stack(cls, parts: Sequence[Together]) -> Together:
        """Documents after documents."""
        named, scores = ([Scores.stack(rows) for rows in zip(*side, strict=True)] for side in zip(*parts, strict=True))
        return cls(named, scores)

    def mixed(self, shares: Sequence[float]) -> Scores:
        """The weighted sum, of the labels that a part with a weight has named."""
        used = [at for at, share in enumerate(shares) if share > 0]
        some = [self.named[at] for at in used if not self.named[at].is_full]
        parts, weights = [self.scores[at] for at in used], [shares[at] for at in used]
        if some and len(used) < len(shares):
            wanted = candidates_of(some)
            parts = [part if part.is_full else part.only(wanted) for part in parts]
        return mix(parts, weights)


def train_part(part: Part, train: Corpus, valid: Corpus | None, run: Run) -> State:
    """Train a part; the result and its scores on validation documents, as a checkpoint has them."""
    held = part.model.fit(train, valid, run)
    scores = None
    if held is not None:
        part.calibrate(held)
        if valid is not None:
            scores = part.probabilities(on_valid(part.model, held, train, valid), train.labels.names)
    return {"part": part.state(train.labels), "held": None if scores is None else scores.state()}


def out_of_fold(part: Part, train: Corpus, valid: Corpus, run: Run, place: str) -> State:
    """Scores of the validation documents by models with the part's settings that did not see them."""
    again = type(part.model)(**part.model.options())
    with run.part(place) as inner:
        held = again.fit(train, valid, inner)
    if held is not None:
        part.calibrate(held)
    scores = None if held is None else on_valid(again, held, train, valid).state()
    return {"held": scores, "calibration": None if part.calibration is None else part.calibration.state()}
