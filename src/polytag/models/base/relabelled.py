"""A model whose labels were merged, dropped or split after training: the model inside, and where each label comes from."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.decision.calibration import PLATT, Platt
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.models.base.attribution import Attention, Attribution
from polytag.models.model import Encoded, Examples, Extension, Model, State, model_class, model_name
from polytag.relabelling.edit import Edit, edited
from polytag.relabelling.origins import ORIGINS, Origins
from polytag.scores import Scores
from polytag.storage.schema import Anything, Optional, Schema, Table, Text, check

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

_CELLS = 4_000_000  # maximum number of entries (documents x labels) that are scored at once
_MOST = 2_000  # maximum number of documents that are scored at once


class RelabelledTexts(Encoded):
    """Texts that the model inside has encoded."""

    model: Relabelled

    def __init__(self, model: Relabelled, texts: Sequence[str]) -> None:
        """Encode the texts."""
        super().__init__(model, texts)
        self.inner = model.core.encode(texts)

    def best(self, k: int | None = None) -> Scores:
        """Scores of every label, or of the k best ones."""
        found = self.model.relabel(self.inner.best())
        return found if k is None else found.best(k)

    def given(self, labels: csr_array) -> Scores:
        """Scores of exactly these labels."""
        found = self.model.relabel(self.inner.given(self.model.origins.asked(labels)))
        return found if found.is_full else found.only(labels)


@dataclass
class Relabelled(Model):
    """A model whose labels were edited after training.

    It has the model inside, the calibration of that model's scores, and the origins of every label. Further edits change the
    origins; they do not wrap it again.
    """

    inner: Model | None = field(init=False, repr=False, default=None)
    calibration: Platt | None = field(init=False, repr=False, default=None)
    origins: Origins = field(init=False, repr=False, default_factory=lambda: Origins.identity(0))

    @classmethod
    def of(cls, model: Model, calibration: Platt | None, labels: LabelSet, origins: Origins) -> Self:
        """A model whose ``labels`` come from its own labels, or from those of the model inside if it was edited before."""
        found = cls(seed=model.seed, optimise=model.optimise)
        if isinstance(model, Relabelled):
            found.inner, found.calibration, found.origins = model.core, model.calibration, model.origins.then(origins)
        else:
            inner = model.renamed(LabelSet(model.labels.names))  # what else is known of labels is said once, outside
            found.inner, found.calibration, found.origins = inner, calibration, origins
        found.labels = labels
        return found

    @property
    def core(self) -> Model:
        """The model inside."""
        self.require_fitted()
        assert self.inner is not None
        return self.inner

    def renamed(self, labels: LabelSet) -> Self:
        """With other names, of the labels of the model inside too where they are the same labels."""
        found = copy.copy(self)
        table = {old: new for old, new in zip(self.labels, labels, strict=True) if old != new}
        own = self.core.labels
        kept = {name for name in own if name not in table}
        found.inner = self._renamed_inside({old: new for old, new in table.items() if old in own and new not in kept})
        found.labels = labels
        return found

    def _renamed_inside(self, names: dict[str, str]) -> Model:
        """The model inside with other names for some of its labels."""
        if not names:
            return self.core
        return self.core.renamed(edited(self.core.labels, Edit("rename", tuple(names), tuple(names.values()))).labels)

    # -- learning --------------------------------------------------------------------------------------------------

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> NoReturn:
        """Raise: edits make it, not training."""
        raise ConfigError("'relabelled' is a model whose labels were edited and cannot be trained; train the model inside")

    def starting_point(self) -> Model:
        """The model inside, with a row for each of these labels."""
        return self.core.transferred(self.labels, self.origins)

    def extend(self, labels: LabelSet, examples: Examples | None = None) -> Extension:
        """Add labels to the model inside; a label there that was dropped or merged gives up its name."""
        if self.calibration is not None:
            raise ConfigError("labels cannot be added to a calibrated model after merges, drops or splits; add them before")
        inner = copy.copy(self._renamed_inside(_set_aside(self.core.labels, labels)))
        found = inner.extend(labels, examples)
        self.inner, self.origins = inner, self.origins.extended(len(labels))
        self.labels = self.labels.union(labels)
        return found

    # -- scoring ---------------------------------------------------------------------------------------------------

    def relabel(self, found: Scores) -> Scores:
        """The scores of the model inside, calibrated, as scores of these labels."""
        scores = found if self.calibration is None else self.calibration.apply(found)
        return self.origins.scores(scores, self.labels.names)

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Score every label, or the k best ones, of every text."""
        core, k = self.core, self.clipped(k)
        size = max(1, min(_MOST, _CELLS // max(1, self.scored_labels(), core.scored_labels())))
        parts = (self.relabel(core.score(texts[at : at + size])) for at in range(0, max(1, len(texts)), size))
        return Scores.stack([part if k is None else part.best(k) for part in parts])

    def encode(self, texts: Sequence[str]) -> RelabelledTexts:
        """Encode texts once."""
        return RelabelledTexts(self, texts)

    def scored_labels(self) -> int:
        """At most as many as all candidates of the model inside become."""
        core = self.core
        if core.scored_labels() >= len(core.labels):
            return len(self.labels)
        most = int(np.diff(self.origins.targets.indptr).max(initial=1))
        return min(len(self.labels), core.scored_labels() * most)

    def kept_per_text(self) -> int:
        """As the model inside."""
        return self.core.kept_per_text()

    def label_vectors(self) -> NDArray[Any] | csr_array | None:
        """Those of the model inside; the mean for a merged label."""
        found = self.core.label_vectors()
        if found is None:
            return None
        counts = np.diff(self.origins.starts)
        share = self.origins.matrix.copy()
        share.data /= np.repeat(counts, counts)
        return csr_array(share @ found) if isinstance(found, csr_array) else np.asarray(share @ found)

    def part_models(self) -> list[Model]:
        """Those of the model inside."""
        return self.core.part_models()

    def described_parts(self) -> list[dict[str, Any]]:
        """Those of the model inside."""
        return self.core.described_parts()

    # -- explaining ------------------------------------------------------------------------------------------------

    def attribute(self, text: str, labels: NDArray[np.int64], *, exact: bool = False) -> Attribution:
        """As the model inside, unless a label was merged: then by leaving words out."""
        if self.origins.single[labels].all():
            return self.core.attribute(text, self.origins.first[labels].astype(np.int64), exact=exact)
        return super().attribute(text, labels, exact=exact)

    def attention(self, text: str) -> Attention | None:
        """That of the model inside, for labels that were not merged."""
        found = self.core.attention(text)
        if found is None:
            return None
        place = {label: at for at, label in enumerate(found.labels.tolist())}
        pairs = [(j, place[int(s)]) for j, s in enumerate(self.origins.first.tolist()) if self.origins.single[j] and s in place]
        labels = np.array([j for j, _ in pairs], dtype=np.int64)
        return Attention(found.spans, labels, found.weights[:, [at for _, at in pairs]])

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The model inside with its labels and its calibration, and the origins."""
        core = self.core
        return {
            "model": model_name(core),
            "options": core.options(),
            "labels": core.labels.state(),
            "state": core.state(),
            "calibration": None if self.calibration is None else self.calibration.state(),
            "origins": self.origins.state(),
        }

    def schema(self) -> Table:
        """The model inside, whose state has a schema of its own; sizes are checked with its number of labels."""
        inside: dict[str, Schema] = {"model": Text(), "options": Anything(), "labels": Anything(object), "state": Anything()}
        return Table({**inside, "calibration": Optional(Anything()), "origins": Anything()})

    def restore(self, state: State) -> None:
        """Build the model inside again."""
        kind, labels = model_class(state["model"]), LabelSet.from_state(state["labels"])
        if issubclass(kind, Relabelled):
            raise ValueError("a model with edited labels is inside of another one")
        check(Table({"calibration": Optional(PLATT)}), {"calibration": state["calibration"]}, {"labels": len(labels)})
        check(ORIGINS, state["origins"], {"labels": len(self.labels), "trained": len(labels)}, "origins")
        self.inner = kind.from_state(kind.saved_options(state["options"]), labels, state["state"])
        self.calibration = None if state["calibration"] is None else Platt.from_state(state["calibration"])
        own = state["origins"]
        self.origins = Origins(np.asarray(own["starts"]), np.asarray(own["sources"]), len(labels))

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Export the network of the model inside; origins apply to its outputs."""
        return self.core.export(artefact, int8=int8)

    def use_export(self, artefact: Path) -> bool:
        """Let the model inside use its export."""
        return self.core.use_export(artefact)


def _set_aside(labels: LabelSet, names: LabelSet) -> dict[str, str]:
    """Free names for those labels that have one of these names."""
    taken, found = {*labels, *names}, dict[str, str]()
    for name in (name for name in labels if name in names):
        new = name
        while new in taken:
            new += " (earlier)"
        taken.add(new)
        found[name] = new
    return found
