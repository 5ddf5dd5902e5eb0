"""Compilation of the layers of a transformer for training on a GPU, where it saves more time than it takes.

All layers share the compiled code, and it serves batches of any shape. Captured steps contain the compiled kernels.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from polytag.nn.encoding.encoders import Transformer
from polytag.nn.training.batch import Documents

_WORTH = 5e15  # operations of a training from which on compilation saves time: about 50 s on an H200, of which it saves a fifth


def compile_layers(network: nn.Module, choice: str, data: Documents, epochs: int) -> None:
    """Compile the layers of the network's transformer; with ``auto`` only for a training that is long enough."""
    encoder = getattr(network, "encoder", None)
    if not isinstance(encoder, Transformer) or choice == "off":
        return
    _, layers = encoder.layer_list()
    if choice == "auto" and operations(layers, data, epochs) < _WORTH:
        return
    for layer in layers:
        layer.compile(dynamic=True, options=_options())


def drop_compiled(network: nn.Module) -> None:
    """Call the layers as they were written again."""
    for module in network.modules():
        module._compiled_call_impl = None


def operations(layers: nn.Module, data: Documents, epochs: int) -> float:
    """The floating-point operations of the layers in a training: six per weight and token."""
    weights = sum(parameter.numel() for parameter in layers.parameters() if parameter.requires_grad)
    return 6.0 * weights * float((data.lengths * data.windows).sum()) * epochs


def _options() -> dict[str, Any]:
    """Options of the compiler; one kernel for both gradients of a layer normalisation was slower than two on an H200."""
    from torch._inductor import config

    return {"triton.mix_order_reduction": False} if hasattr(config.triton, "mix_order_reduction") else {}
