"""Requests and answers of the hot route; msgspec checks their types while it decodes them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

Ask = Annotated[float, Meta(ge=0, le=1)] | str
"""A share of documents, or a goal such as ``precision=.95``."""


class PredictRequest(Struct, forbid_unknown_fields=True):
    """Texts to label."""

    texts: list[str]
    top: Annotated[int, Meta(ge=1, le=2**31 - 1, description="number of best labels, instead of the decided set")] | None = None
    model: Annotated[str, Meta(description="name of the model; default: the first one")] | None = None
    ask: Annotated[Ask, Meta(description="share of texts to leave to people, or a goal: precision=.95")] | None = None
    floor: Annotated[float, Meta(description="also list all labels with at least this score")] | None = None


class Candidates(Struct):
    """All labels of a text with at least the floor, best first."""

    labels: list[str]
    scores: list[float]


class TextPrediction(Struct, omit_defaults=True):
    """The labels of one text, best first."""

    labels: list[str]
    scores: list[float]
    ask: bool | None = None
    candidates: Candidates | None = None


class PredictAnswer(Struct):
    """The predictions of one version of a model."""

    model: str
    version: str
    predictions: list[TextPrediction]


decode_predict = msgspec.json.Decoder(PredictRequest).decode
encode = msgspec.json.Encoder().encode
