"""The models that are worth trying on a corpus, from cheap to dear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from polytag.auto.facts import Facts

Kind = Literal["linear", "vectors", "network"]
MANY = 3_000  # labels from which a tree replaces one separator per label
_CHAINED = 250  # labels up to which a chain is tried
_SETS = 5_000  # label sets up to which a label powerset is tried
_TREE = 300  # labels from which a tree is tried too
SMALL = 1_000  # documents up to which all are compared out of fold; a tree holds out a tenth of them, so it is not tried
_TREES = 3  # trees of a forest: more gain less than they cost
_ALL = {"candidates": 10_000, "beam": 100}  # a tree of up to MANY labels scores all of them, so that it can be part of a mixture
_STEPS, _BATCH = 3_500, 32  # of a fine-tuned encoder: with few documents, five epochs are too few of them
_EPOCHS = 5, 20
_RATE = 2e-4  # the better rate on reuters, aapd-even and rcv1-small, by validation documents
_OWN_SCRIPT = 0.5  # share of Latin letters from which the packaged encoder, which is English, is of use


@dataclass(frozen=True)
class Candidate:
    """A model with options; its name is unique.

    Linear models and those over an encoder's vectors return out-of-fold scores of all documents. ``share`` is the share of the
    time that is left which it may take. A ``helper`` is tried even if it is bad alone: it is made for mixtures. ``of`` is the
    name of the candidate of which this is another seed. ``whole`` asks for all documents, after a part of them.
    """

    name: str
    model: str
    kind: Kind
    share: float
    options: Mapping[str, Any] = field(default_factory=dict)
    helper: bool = False
    of: str = ""
    whole: bool = False


def ladder(facts: Facts) -> list[Candidate]:
    """The candidates for these facts, in the order in which they are tried."""
    many, english = facts.labels > MANY, facts.latin >= _OWN_SCRIPT
    found = [_linear("xlinear", 0.5) if many else _linear("br", 0.4)]
    if many:
        labels = {"voters": "labels", "sharpness": 4.0}
        found.append(Candidate("nearest:labels", "nearest", "linear", 0.3, labels, helper=True))
        found += [_linear("nearest", 0.6), Candidate("xlinear:trees", "xlinear", "linear", 0.7, {"trees": _TREES})]
    if not many and facts.labels >= _TREE and facts.documents > SMALL:
        found.append(Candidate("xlinear", "xlinear", "linear", 0.25, _ALL))
    if not many and facts.sets <= _SETS:
        found.append(_linear("lp", 0.2))
    if facts.labels <= _CHAINED:
        found.append(_linear("cc", 0.2))
    return found + (_networks(facts, many, english) if facts.networks else [])


def _linear(model: str, share: float) -> Candidate:
    return Candidate(model, model, "linear", share)


def _networks(facts: Facts, many: bool, english: bool) -> list[Candidate]:
    found = []
    if english:
        forest = {"document_encoder": "minilm", "trees": _TREES}
        name, model, options = ("xlinear:vectors", "xlinear", forest) if many else ("embed", "embed", {})
        found.append(Candidate(name, model, "vectors", 0.8, options))
    if not many and facts.documents >= 1_000:
        found.append(Candidate("cnn", "cnn", "network", 0.35, {"max_length": 256}))
    if not many and english and facts.documents >= 300:
        options = {"epochs": _epochs(facts.documents), "encoder_rate": _RATE, "pooling": "cls"}
        found.append(Candidate("bert", "bert", "network", 0.6 if facts.gpu else 1.0, options))
    if not many and english and facts.gpu and facts.documents >= 2_000:
        found.append(Candidate("laco", "laco", "network", 1.0))
    if many and english and facts.gpu:
        found.append(Candidate("xbert", "xbert", "network", 1.0))
    return found


def _epochs(documents: int) -> int:
    """Epochs of a fine-tuned encoder; the best one is kept, and the limit on the time may end them earlier."""
    return min(max(round(_STEPS * _BATCH / max(1, documents)), _EPOCHS[0]), _EPOCHS[1])
