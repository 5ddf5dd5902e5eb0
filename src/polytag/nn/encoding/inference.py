"""Inference with a trained network: states that no output depends on are not computed."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from polytag.nn.encoding.encoders import Transformer


def for_inference(network: nn.Module) -> nn.Module:
    """The network, or an equivalent one with shared weights that computes the same outputs with fewer operations.

    A network with ``first_token`` uses the first token's state only. The top layer of its encoder then computes query and
    feed-forward layer for that token, and only keys and values for the others.
    """
    encoder = getattr(network, "encoder", None)
    if not getattr(network, "first_token", False) or not isinstance(encoder, Transformer):
        return network
    stack = getattr(encoder.model, "encoder", None)
    layers = getattr(stack, "layer", None)
    if not encoder.exact_mask or not isinstance(layers, nn.ModuleList) or not is_bert_layer(layers[-1]):
        return network
    assert isinstance(stack, nn.Module)
    top = nn.ModuleList([*layers[:-1], FirstTokenLayer(layers[-1])])
    return _with(network, encoder=_with(encoder, model=_with(encoder.model, encoder=_with(stack, layer=top)))).eval()


class FirstTokenLayer(nn.Module):
    """A BERT layer that returns the first token's state only (batch, 1, hidden)."""

    def __init__(self, layer: nn.Module) -> None:
        """Wrap the layer; its weights are shared."""
        super().__init__()
        self.layer = layer

    def forward(self, states: Tensor, mask: Tensor | None = None, *rest: Any, **more: Any) -> Tensor:
        """From the states of all tokens (batch, length, hidden)."""
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        layer: Any = self.layer
        attention = layer.attention.self
        attend = ALL_ATTENTION_FUNCTIONS[attention.config._attn_implementation]
        first = states[:, :1]  # (batch, 1, hidden)
        heads = [_heads(part, attention) for part in (attention.query(first), attention.key(states), attention.value(states))]
        seen, _ = attend(attention, *heads, mask, dropout=0.0, scaling=attention.scaling)  # (batch, 1, heads, size)
        attended = layer.attention.output(seen.reshape(first.shape), first)
        found: Tensor = layer.output(layer.intermediate(attended), attended)
        return found


def _heads(states: Tensor, attention: Any) -> Tensor:
    """Reshape (batch, length, hidden) to (batch, heads, length, size)."""
    batch, length, _ = states.shape
    return states.view(batch, length, -1, attention.attention_head_size).transpose(1, 2)


def is_bert_layer(layer: nn.Module) -> bool:
    """Whether a layer has exactly the submodules of a BERT layer."""
    parts = {name for name, _ in layer.named_children()}
    inner = getattr(getattr(layer, "attention", None), "self", None)
    return parts == {"attention", "intermediate", "output"} and all(
        hasattr(inner, name) for name in ("query", "key", "value", "attention_head_size", "scaling")
    )


def _with(module: nn.Module, **parts: nn.Module) -> nn.Module:
    """A shallow copy of a module with some submodules replaced."""
    made = copy.copy(module)
    made._modules = {**module._modules, **parts}
    return made
