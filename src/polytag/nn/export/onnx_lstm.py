"""The layers of a BiLSTM as ONNX operations: traced step by step, the graph would have a fixed text length."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polytag.nn.encoding.bilstm_layer import BothWays
from polytag.nn.encoding.encoders import BiLSTM

_VERSION = 14  # of the operation


def with_onnx_lstm(encoder: BiLSTM) -> None:
    """Replace the layers of an encoder before tracing."""
    encoder.layers = nn.ModuleList(OnnxLstm(layer) for layer in encoder.layers if isinstance(layer, BothWays))


class OnnxLstm(nn.Module):
    """A BiLSTM layer as one operation, which supports texts of different lengths."""

    inputs: Tensor  # (2, 4 * size, input size)
    states: Tensor  # (2, 4 * size, size)
    biases: Tensor  # (2, 8 * size)

    def __init__(self, layer: BothWays) -> None:
        """Convert the weights to the layout of ONNX: another order of the gates, both directions in one tensor."""
        super().__init__()
        self.size = layer.right.hidden_size
        self.register_buffer("inputs", _both(layer, "weight_ih_l0"))
        self.register_buffer("states", _both(layer, "weight_hh_l0"))
        self.register_buffer("biases", torch.cat([_both(layer, "bias_ih_l0"), _both(layer, "bias_hh_l0")], dim=1))

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Concatenated states of both directions: (length, batch, size) to (length, batch, 2 * hidden)."""
        length, batch, _ = states.shape
        found = torch.onnx.ops.symbolic(
            "LSTM",
            [states, self.inputs, self.states, self.biases, lengths[:, 0].to(torch.int32)],
            {"direction": "bidirectional", "hidden_size": self.size},
            dtype=states.dtype,
            shape=(length, 2, batch, self.size),
            version=_VERSION,
        )
        return found.transpose(1, 2).reshape(length, batch, 2 * self.size)


def _both(layer: BothWays, name: str) -> Tensor:
    """A weight of both directions; torch orders the gates input, forget, cell, output, ONNX input, output, forget, cell."""
    found = []
    for side in (layer.right, layer.left):
        gate = side.get_parameter(name).detach().chunk(4)
        found.append(torch.cat([gate[0], gate[3], gate[1], gate[2]]))
    return torch.stack(found)
