"""Attention of Hugging Face encoders over padded texts: on a GPU by kernels that skip the padding, else by torch."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

_NAME = "polytag_padded"
_NEWEST_WITHOUT = (7, 5)  # GPUs up to this compute capability have no bf16


def skip_padding(model: Any) -> bool:
    """Let an encoder skip padding where its mask has the lengths of texts; return whether it can.

    Other masks are treated as before.
    """
    if find_spec("triton") is None or not torch.cuda.is_available():
        return False
    from polytag.nn.gpu.attention_kernels import SIZES

    if model.config.hidden_size // model.config.num_attention_heads not in SIZES:
        return False
    _register()
    model.config._attn_implementation = _NAME
    return True


def length_mask(mask: Tensor) -> Tensor:
    """The mask of four dimensions for texts (batch, length) whose padding follows the tokens.

    On a GPU in half precision it has the lengths of the texts (1, 1, 1, batch); elsewhere it is (batch, 1, 1, length).
    """
    if not (mask.is_cuda and torch.is_autocast_enabled("cuda") and _is_new(mask.device)):
        return mask[:, None, None, :]
    return mask.sum(dim=1, dtype=torch.int32)[None, None, None]


@functools.cache
def _is_new(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) > _NEWEST_WITHOUT


@functools.cache
def _register() -> None:
    """Make the attention known to transformers by its name."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    from polytag.nn.gpu.attention_kernels import attend

    def chosen(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None,
        dropout: float = 0.0, scaling: float | None = None, **rest: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """From (batch, heads, length, size) to (batch, length, heads, size)."""
        if attention_mask is None or attention_mask.dtype is not torch.int32:
            found: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
                module, query, key, value, attention_mask, dropout, scaling, **rest
            )
            return found
        scale = query.shape[3] ** -0.5 if scaling is None else scaling
        asked, known, held = (part.transpose(1, 2) for part in (query, key, value))
        return attend(asked, known, held, attention_mask.flatten(), scale, dropout), None

    ALL_ATTENTION_FUNCTIONS.register(_NAME, chosen)
