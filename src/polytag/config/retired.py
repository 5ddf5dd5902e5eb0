"""Settings of version 0.1.0 that were renamed or had no effect on their model; artefacts of that version have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED = {"lsan": {"attention": "attention_size"}, "xttention": {"attention": "attention_size"}}
_SEQUENCE = frozenset({"focus", "loss", "positive_weight", "window_pooling"})
_ONE_INPUT = frozenset({"max_windows", "overlap", "window_pooling"})
RETIRED: dict[str, frozenset[str]] = {
    **dict.fromkeys(("bert-sgm", "cnn-rnn", "seq2seq", "sgm"), _SEQUENCE),
    **dict.fromkeys(("laco", "xbert", "xttention"), _ONE_INPUT),
    "seqtag": _SEQUENCE | _ONE_INPUT | {"smoothing"},
}


def present_names(model: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options under their present names."""
    renamed = RENAMED.get(model or "", {})
    return {renamed.get(name, name): value for name, value in options.items()}


def carried_over(model: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an artefact under their present names, without those that had no effect."""
    retired = RETIRED.get(model or "", frozenset())
    return present_names(model, {name: value for name, value in options.items() if name not in retired})
