"""How fast this machine is at what networks do, measured with small ones in less than a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    import torch

HIDDEN, _HEADS = 384, 12  # of the packaged encoder
LAYER = 12 * HIDDEN**2  # weights of one of its layers
FILTERS = 2 * 300 * 256 * (3 + 4 + 5)  # operations per token of the default convolutions
_WORDS, _WIDTHS = (300, 256), (3, 4, 5)
_LENGTH, _BATCH, _FEW = 128, 32, 4  # tokens of a text, texts of a training step, and of one of convolutions
_GPU = 2e13  # operations per second that a small batch reaches
_BACKWARD = 3.0  # cost of a training step relative to inference
_TIMES = 5  # the smallest of several times is that of a moment without other work


class Speeds(NamedTuple):
    """Operations per second, those of a forward pass: of encoding texts, and of training steps of an encoder or convolutions."""

    encoding: float
    encoder_steps: float
    filter_steps: float

    def slower(self, times: float) -> Self:
        """Those of a machine that takes a multiple of the time."""
        return type(self)(*(speed / times for speed in self))


def layer_operations(tokens: float) -> float:
    """Operations of one of the packaged encoder's layers for a token of a text with this many."""
    return 2 * LAYER + 4 * tokens * HIDDEN


def measured_speeds(gpu: bool) -> Speeds:
    """The speeds of this machine; those of a GPU are not measured."""
    if gpu:
        return Speeds(_GPU, _GPU / _BACKWARD, _GPU / _BACKWARD)
    import torch
    from torch import nn

    from polytag.nn.encoding.document_vectors import tokens_at_once
    from polytag.nn.training.devices import autocast, multiplies_in_bf16

    device = torch.device("cpu")
    layer = nn.TransformerEncoderLayer(HIDDEN, _HEADS, 4 * HIDDEN, activation="gelu", batch_first=True)
    layer.dropout = nn.Identity()  # type: ignore[assignment]  # the encoder has none between its products
    filters = nn.ModuleList(nn.Conv1d(_WORDS[0], _WORDS[1], width) for width in _WIDTHS)
    texts = torch.zeros((_BATCH, _LENGTH, HIDDEN), requires_grad=True)
    words = torch.zeros((_FEW, _WORDS[0], _LENGTH), requires_grad=True)
    with autocast(device, torch.bfloat16 if multiplies_in_bf16() else None):
        few = texts[: tokens_at_once(device) // _LENGTH].detach()
        step = _seconds(lambda: _backward(layer(texts)))
        layer.eval()
        with torch.inference_mode():
            encoding = _seconds(lambda: layer(few))
    filtered = _seconds(lambda: _backward(*(one(words) for one in filters)))
    every = layer_operations(_LENGTH) * _LENGTH
    return Speeds(len(few) * every / encoding, len(texts) * every / step, len(words) * _LENGTH * FILTERS / filtered)


def _backward(*outputs: torch.Tensor) -> None:
    sum(output.float().sum() for output in outputs).backward()  # type: ignore[union-attr]


def _seconds(work: Callable[[], object]) -> float:
    """The smallest time of several, after a first one that is not counted."""
    times = []
    for _ in range(1 + _TIMES):
        start = time.monotonic()
        work()
        times.append(time.monotonic() - start)
    return min(times[1:])
