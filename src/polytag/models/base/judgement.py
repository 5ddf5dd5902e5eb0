"""Weights of documents and pairs that nobody judged: what a model ignores of them, and held-out scores without such pairs."""

from __future__ import annotations

import logging

from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.models.model import HeldOut, Model

log = logging.getLogger(__name__)
_WORDS = {"weights": "the weights of documents", "unknown": "which labels nobody judged"}


def warn_of_ignored(model: Model, name: str, *corpora: Corpus | None) -> None:
    """Warn if the training of this model ignores weights or unjudged labels of documents; raise if it ignores soft targets."""
    if any(corpus is not None and corpus.soft is not None for corpus in corpora) and "soft" not in model.judged:
        others = "br, embed, bert, cnn, hmcn, leam or lsan"
        raise ConfigError(f"the model {name!r} does not learn probabilities of labels; distil into {others}")
    given = [what for what in _WORDS if any(getattr(corpus, what, None) is not None for corpus in corpora)]
    if ignored := [_WORDS[what] for what in given if what not in model.judged]:
        log.warning("the model %r does not use %s; evaluation does", name, " and ".join(ignored))


def judged_only(held: HeldOut | None, train: Corpus, valid: Corpus | None) -> HeldOut | None:
    """The held-out scores without the pairs that nobody judged: thresholds and calibration do not depend on them."""
    if held is None or all(corpus is None or corpus.unknown is None for corpus in (train, valid)):
        return held
    if held.rows is None:
        pairs = None if valid is None else valid.unknown
    else:
        whole = (train if valid is None else train.concat(valid)).unknown
        pairs = None if whole is None else whole[held.rows]
    return held if pairs is None else held._replace(scores=held.scores.without(pairs))
