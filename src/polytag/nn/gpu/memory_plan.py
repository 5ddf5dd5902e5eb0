"""The GPU memory that a training needs, and the number of pieces into which a batch is divided so that it fits."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from polytag.errors import ConfigError
from polytag.nn.encoding.encoders import Transformer
from polytag.nn.training.batch import Documents
from polytag.nn.training.step import Rows

if TYPE_CHECKING:
    from polytag.run import Run

log = logging.getLogger(__name__)
_PER_WEIGHT = 18  # bytes: the weight, its gradient and two moments in float32, and a copy in half precision
_PER_UNIT = 60  # bytes that a token keeps per layer and hidden unit until the backward pass
_USED = 0.9  # share of the free memory; the rest is for captured steps and fragments
_GIB = float(1 << 30)


def needed(network: nn.Module, tokens: int) -> float:
    """The bytes of a training whose batches have this many tokens, by the sizes of the network's transformer."""
    weights = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    return _PER_WEIGHT * weights + tokens * _per_token(network)


def _per_token(network: nn.Module) -> float:
    encoder = getattr(network, "encoder", None)
    if not isinstance(encoder, Transformer):
        return 0.0
    trained = [layer for layer in encoder.layer_list()[1] if any(parameter.requires_grad for parameter in layer.parameters())]
    return float(_PER_UNIT * encoder.hidden * max(1, len(trained)))


def pieces_on(device: torch.device, network: nn.Module, data: Documents, texts: int, run: Run) -> int:
    """The number of pieces of a batch of ``texts`` of these documents, so that it fits into the free memory of a GPU."""
    if device.type != "cuda":
        return 1
    longest = int((data.lengths * data.windows).max(initial=1))
    return batch_pieces(network, texts, longest, free_memory(device), run)


def batch_pieces(network: nn.Module, batch: int, length: int, free: float, run: Run) -> int:
    """The number of pieces of a batch of ``batch`` texts of ``length`` tokens, for ``free`` bytes; the estimate is announced."""
    fixed, per_text = needed(network, 0), length * _per_token(network)
    if not per_text:
        return 1
    room = _USED * free - fixed
    if room < per_text:
        raise ConfigError(
            f"training needs about {(fixed + per_text) / _GIB:.1f} GiB of GPU memory for one text of {length} tokens, and "
            f"{free / _GIB:.1f} GiB are free; lower max_length, set frozen_layers, or name a smaller encoder"
        )
    texts = min(batch, int(room // per_text))
    pieces = math.ceil(batch / texts)
    whole = fixed + batch * per_text
    run.log("gpu_memory", {"needed_gib": whole / _GIB, "free_gib": free / _GIB, "pieces": pieces})
    divided = f"; a batch is divided into {pieces} pieces" if pieces > 1 else ""
    log.info("training will take about %.1f GiB of GPU memory, %.1f GiB are free%s", whole / _GIB, free / _GIB, divided)
    return pieces


def free_memory(device: torch.device) -> float:
    """The bytes that are free on a GPU, with those that torch holds and does not use."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(torch.cuda.mem_get_info(device)[0] + unused)


def divided(part: Rows, pieces: int) -> list[Rows]:
    """A batch as pieces of similar size; the weighted sum of their losses is the loss of the batch."""
    if pieces == 1 or len(part.rows) <= 1:
        return [part]
    chunks = part.rows.tensor_split(min(pieces, len(part.rows)))
    return [part._replace(rows=rows, weight=part.weight * len(rows) / len(part.rows)) for rows in chunks]
