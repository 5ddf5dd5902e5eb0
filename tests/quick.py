"""For every model the settings that make it fast enough for a test; the toy corpus of conftest.py is still learned."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from polytag.errors import ConfigError
from polytag.models.model import MODELS, model_class

LINEAR = ("br", "cc", "lp", "xlinear")  # whose scores are the same to the last bit, whatever stands beside a document
_LINEAR: dict[str, Any] = {"c": [0.5, 1.0], "ngrams": [1]}
_NEURAL: dict[str, Any] = {
    "encoder": "words", "embedding": 32, "epochs": 8, "batch_size": 16, "encoder_rate": 0.02, "head_rate": 0.02,
    "device": "cpu", "precision": "fp32",
}  # fmt: skip
_OVER_ENCODER = {key: value for key, value in _NEURAL.items() if key != "embedding"}  # one that brings its own sizes
_BOLD = {"encoder_rate": 0.04, "head_rate": 0.04}
_CAREFUL = {"encoder_rate": 0.004, "head_rate": 0.01, "dropout": 0.0, "encoder_dropout": 0.0, "decoder_size": 32}
_ENCODER = tempfile.TemporaryDirectory()  # a tiny encoder is put here before the first test
_READER = tempfile.TemporaryDirectory()  # and here one whose tokeniser knows all words of the tests
OPTIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(LINEAR, _LINEAR),
    "bert": _NEURAL,
    "cnn": {**_NEURAL, "filters": 16},
    "cnn-rnn": {**_NEURAL, "filters": 16, "label_embedding": 16, "decoder_size": 32, "epochs": 12},
    "embed": {"c": [0.5, 1.0], "encoder": _ENCODER.name, "device": "cpu", "precision": "fp32"},
    "hmcn": {**_NEURAL, "level_size": 32},
    "laco": {**_NEURAL, **_BOLD, "auxiliary": "both", "shared": True, "shared_size": 16, "epochs": 12},
    "leam": {**_NEURAL, "window": 1},
    "lsan": {**_NEURAL, "attention_size": 16, "dense": 32},
    "xbert": {**_NEURAL, "clusters": 4, "beam": 3},
    "xttention": {**_NEURAL, "clusters": 4, "beam": 3, "heads": 4, "attention_size": 16, "dense": 32, "index": "both"},
    "xlinear": {"branching": 2, "max_leaf": 2},  # a tree of three levels over the eight labels
    "bert-sgm": {**_NEURAL, "label_embedding": 16, "epochs": 12},
    "seq2seq": {**_NEURAL, "heads": 4, "decoder_layers": 1, "epochs": 12, "encoder_rate": 0.04, "head_rate": 0.01},
    "seqtag": {**_OVER_ENCODER, **_CAREFUL, "encoder": _READER.name, "label_text": "new", "epochs": 25},
    "sgm": {
        **_NEURAL,
        "label_embedding": 16,
        "decoder_size": 32,
        "attention_size": 16,
        "epochs": 12,
        "first_state": "mean",
    },
    "nearest": {"neighbours": 5},
    "mixed": {"parts": ["br", "cnn"], "settings": {"br": _LINEAR, "cnn": {**_NEURAL, "filters": 16}}},
}


def _available(name: str) -> Any:
    """The model's name, marked as skipped if one of its packages is missing."""
    try:
        model_class(name)
    except ConfigError as error:
        return pytest.param(name, marks=pytest.mark.skip(reason=str(error)))
    return name


AVAILABLE = [_available(name) for name in MODELS]


def make_encoders(texts: Sequence[str]) -> None:
    """Put the tiny encoders in their places; the words of the texts are those that the second one knows."""
    from toys import tiny_bert

    tiny_bert(Path(_ENCODER.name))
    tiny_bert(Path(_READER.name), layers=1, texts=texts, vocabulary=400)
