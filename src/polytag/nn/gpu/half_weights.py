"""Copies in bf16 of the weights of a transformer's layers, for training on a GPU.

Autocast converts every weight and every gradient by a kernel of its own, and most of them are small. Here one call per step
converts all weights, and one all gradients. The parameters stay float32; optimiser, checkpoints and averages see nothing else.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from polytag.nn.encoding.encoders import Transformer
from polytag.nn.encoding.inference import is_bert_layer

Attend = Callable[[Tensor, Tensor, float, float], Tensor]
"""From queries, keys and values (batch, length, 3, heads, size), lengths, scale and dropout to (batch, length, heads, size)."""


def half_weights_for(network: nn.Module, device: torch.device, dtype: torch.dtype | None) -> HalfWeights | None:
    """The copies for a training on a GPU in bf16, or None where nothing gains by them."""
    encoder = getattr(network, "encoder", None)
    if device.type != "cuda" or dtype is not torch.bfloat16 or not isinstance(encoder, Transformer):
        return None
    return HalfWeights(encoder, kernel=_kernel())


def _kernel() -> Attend | None:
    """Attention that takes queries, keys and values from their product without copying them."""
    if find_spec("triton") is None:
        return None
    from polytag.nn.gpu.attention_kernels import attend_packed

    return attend_packed


class _Copy(NamedTuple):
    """A leaf of the graph in bf16, and the parameters that it consists of, one below the other."""

    leaf: Tensor
    masters: list[nn.Parameter]


class HalfWeights:
    """Lets the trained linear layers of an encoder compute with bf16 copies of their weights, under autocast in training."""

    def __init__(self, encoder: Transformer, *, packs: bool = True, kernel: Attend | None = None) -> None:
        """Make the copies; with ``packs``, a BERT layer computes queries, keys and values as one product."""
        self.copies: list[_Copy] = []
        self._changed: list[tuple[nn.Module, type[nn.Module], list[str]]] = []
        layers = encoder.layer_list()[1]
        uses = Counter(parameter for module in encoder.modules() for parameter in module.parameters(recurse=False))
        done: set[nn.Module] = set()
        for layer in layers if packs and encoder.exact_mask else ():
            attention = _packable(layer, uses)
            if attention is not None:
                name = attention.config._attn_implementation
                self._change(attention, _packed(attention.__class__, name, kernel), _projections(attention))
                done.update(_projections(attention))
        for module in layers.modules():
            if _is_trained(module, uses) and module not in done:
                self._change(module, _HalfLinear, [module])
        pairs = [
            pair for copy in self.copies for pair in zip(_parts(copy.leaf.detach(), copy.masters), copy.masters, strict=True)
        ]
        self._targets: list[Tensor] = [part for part, _ in pairs]
        self._sources: list[Tensor] = [master for _, master in pairs]
        self.refresh()

    def _change(self, module: nn.Module, kind: type[nn.Module], linears: Iterable[Any]) -> None:
        """Give a module the copies of some linear layers, one below the other, and the class that computes with them."""
        linears = list(linears)
        names = ["half_weight", "half_bias"]
        for name, masters in zip(names, ([one.weight for one in linears], [one.bias for one in linears]), strict=True):
            if masters[0] is None:
                module.register_buffer(name, None, persistent=False)
                continue
            leaf = torch.cat([master.detach() for master in masters]).to(torch.bfloat16).requires_grad_()
            module.register_buffer(name, leaf, persistent=False)
            self.copies.append(_Copy(leaf, masters))
        self._changed.append((module, type(module), names))
        module.__class__ = kind

    @torch.no_grad()
    def refresh(self) -> None:
        """Convert the weights, at the start of a step; gradients of a step that failed are dropped."""
        for leaf, _ in self.copies:
            leaf.grad = None
        if self._targets:
            torch._foreach_copy_(self._targets, self._sources)

    @torch.no_grad()
    def collect(self) -> None:
        """Move the gradients of the copies to the parameters, after a backward pass; there they are added in float32."""
        first: list[tuple[nn.Parameter, Tensor]] = []
        more: list[tuple[Tensor, Tensor]] = []
        for leaf, masters in self.copies:
            if leaf.grad is None:
                continue
            for master, gradient in zip(masters, _parts(leaf.grad, masters), strict=True):
                if master.grad is None:
                    first.append((master, gradient))
                else:
                    more.append((master.grad, gradient))
            leaf.grad = None
        if first:
            new = [torch.empty_like(master) for master, _ in first]
            torch._foreach_copy_(new, [gradient for _, gradient in first])
            for (master, _), gradient in zip(first, new, strict=True):
                master.grad = gradient
        if more:
            torch._foreach_add_([total for total, _ in more], [gradient for _, gradient in more])

    def undo(self) -> None:
        """Remove the copies, and let every module compute as it was written."""
        for module, kind, names in self._changed:
            module.__class__ = kind
            for name in names:
                delattr(module, name)
        self.copies, self._changed, self._targets, self._sources = [], [], [], []


def _parts(tensor: Tensor, masters: list[nn.Parameter]) -> list[Tensor]:
    """The part of a copy, or of its gradient, for every parameter."""
    return [tensor] if len(masters) == 1 else list(torch.split(tensor, [len(master) for master in masters]))


def _is_trained(module: Any, uses: Counter[nn.Parameter]) -> bool:
    """Whether a module is a plain linear layer that is trained, and shares its weights with no other one."""
    return type(module) is nn.Linear and all(
        one.requires_grad and one.dtype is torch.float32 and uses[one] == 1 for one in module.parameters()
    )


def _projections(attention: Any) -> list[Any]:
    return [attention.query, attention.key, attention.value]


def _packable(layer: nn.Module, uses: Counter[nn.Parameter]) -> Any | None:
    """The attention of a BERT layer, if its queries, keys and values can be one product."""
    if not is_bert_layer(layer):
        return None
    attention: Any = layer.attention.self  # type: ignore[union-attr]
    parts = _projections(attention)
    alike = (
        all(_is_trained(part, uses) for part in parts) and len({(part.weight.shape, part.bias is None) for part in parts}) == 1
    )
    plain = not getattr(attention, "is_decoder", False) and isinstance(getattr(attention, "dropout", None), nn.Dropout)
    return attention if alike and plain else None


def _computes(module: nn.Module, states: Tensor) -> bool:
    """Whether a module computes with its copies now; they are those of the weights at the start of a training step."""
    kind = states.device.type
    return (
        module.training
        and torch.is_grad_enabled()
        and torch.is_autocast_enabled(kind)
        and torch.get_autocast_dtype(kind) is torch.bfloat16
    )


class _HalfLinear(nn.Linear):
    half_weight: Tensor
    half_bias: Tensor | None

    def forward(self, input: Tensor) -> Tensor:
        if _computes(self, input):
            return functional.linear(input, self.half_weight, self.half_bias)
        return super().forward(input)


@functools.cache
def _packed(kind: Any, name: str, kernel: Attend | None) -> type[nn.Module]:
    """The class of a self-attention of this kind whose queries, keys and values are one product; ``name`` is transformers'."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    otherwise = ALL_ATTENTION_FUNCTIONS[name]

    class PackedAttention(kind):  # type: ignore[misc]
        def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None, *rest: Any, **more: Any) -> Any:
            if rest or more.get("past_key_values") is not None or not _computes(self, hidden_states):
                return super().forward(hidden_states, attention_mask, *rest, **more)
            batch, length, _ = hidden_states.shape
            heads, size = self.query.out_features // self.attention_head_size, self.attention_head_size
            packed = functional.linear(hidden_states, self.half_weight, self.half_bias).view(batch, length, 3, heads, size)
            weights = None
            if kernel is not None and attention_mask is not None and attention_mask.dtype is torch.int32:
                found = kernel(packed, attention_mask.flatten(), self.scaling, self.dropout.p)
            else:
                parts = packed.permute(2, 0, 3, 1, 4).unbind()  # (batch, heads, length, size)
                found, weights = otherwise(
                    self, *parts, attention_mask, dropout=self.dropout.p, scaling=self.scaling, **more
                )  # (batch, length, heads, size)
            return found.reshape(batch, length, heads * size), weights

    return PackedAttention
