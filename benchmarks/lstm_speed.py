"""GPU time of two BiLSTM layers in several arrangements, forward and backward, as captured graphs.

python benchmarks/lstm_speed.py [--out FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gpu_time import kernels, milliseconds
from polytag.nn.training.devices import autocast, pick_device, pick_precision

SIZES = {"batch": 64, "length": 192, "input": 256, "hidden": 256, "layers": 2}  # those of sgm on AAPD
KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
Sides = tuple[nn.LSTM, nn.LSTM]
_SIDE: list[torch.cuda.Stream] = []


def lstms(device: torch.device) -> dict[str, Any]:
    """Milliseconds of two layers in both directions in several arrangements, and of one LSTM."""
    s = SIZES
    found: dict[str, Any] = {"sizes": s}
    x = torch.randn(s["length"], s["batch"], s["input"], device=device)
    sides = [(_new(s["input"], s, device), _new(s["input"], s, device)), (_new(512, s, device), _new(512, s, device))]
    ways: dict[str, Callable[[], Tensor]] = {
        "two calls": lambda: _stack(x, sides, _apart),
        "one call of twice the size": lambda: _stack(x, sides, _in_one),
    }
    both = nn.LSTM(s["input"], s["hidden"], s["layers"], bidirectional=True).to(device)
    ways["torch, bidirectional"] = lambda: both(x)[0]
    for size in (256, 512):
        one = _new(256, {**s, "hidden": size}, device)
        ways[f"one LSTM of {size}"] = _bound(one, x)
    ways["two streams"] = lambda: _stack(x, sides, _streams)  # last, in case of a deadlock between kernels
    for name, encode in ways.items():
        for precision in ("auto", "fp32") if name in ("two calls", "torch, bidirectional") else ("auto",):
            dtype = pick_precision(precision, device)

            def forward(encode: Callable[[], Tensor] = encode, dtype: torch.dtype | None = dtype) -> Tensor:
                with autocast(device, dtype):
                    return encode().float().square().mean()

            def backward(forward: Callable[[], Tensor] = forward) -> None:
                forward().backward()  # type: ignore[no-untyped-call]

            label = f"{name}, {precision}"
            try:
                found[label] = {"forward": milliseconds(forward, device), "forward, backward": milliseconds(backward, device)}
                found[label] |= kernels(backward, device)
            except RuntimeError as error:
                found[label] = {"error": str(error)[:300]}
            _show(label, found[label])
    return found


def _show(label: str, row: dict[str, Any]) -> None:
    numbers = {key: value for key, value in row.items() if key != "longest"}
    print(f"{label:40} {json.dumps(numbers)}", flush=True)
    for kernel in row.get("longest", [])[:4]:
        print(f"    {kernel['ms']:8.3f} ms {kernel['count']:5} x {kernel['name'][:90]}", flush=True)


def _new(size: int, s: dict[str, int], device: torch.device) -> nn.LSTM:
    return nn.LSTM(size, s["hidden"]).to(device)


def _bound(one: nn.LSTM, x: Tensor) -> Callable[[], Tensor]:
    return lambda: one(x)[0]


def _stack(x: Tensor, sides: list[Sides], encode: Callable[[Tensor, Tensor, Sides], tuple[Tensor, Tensor]]) -> Tensor:
    for pair in sides:
        first, second = encode(x, x.flip(0), pair)
        x = torch.cat([first, second.flip(0)], dim=2)
    return x


def _apart(there: Tensor, back: Tensor, pair: Sides) -> tuple[Tensor, Tensor]:
    return pair[0](there)[0], pair[1](back)[0]


def _streams(there: Tensor, back: Tensor, pair: Sides) -> tuple[Tensor, Tensor]:
    """Each direction on its own CUDA stream."""
    first, second = on_streams(lambda: pair[0](there)[0], lambda: pair[1](back)[0], back)
    return first, second


def on_streams(one: Callable[[], Any], other: Callable[[], Any], given: Tensor) -> tuple[Any, Any]:
    """Two functions in parallel, the second one with its input ``given`` on another stream."""
    if not torch.cuda.is_available():
        return one(), other()
    if not _SIDE:
        _SIDE.append(torch.cuda.Stream())  # type: ignore[no-untyped-call]
    main = torch.cuda.current_stream()
    _SIDE[0].wait_stream(main)
    given.record_stream(_SIDE[0])
    with torch.cuda.stream(_SIDE[0]):
        second = other()
    first = one()
    main.wait_stream(_SIDE[0])
    return first, second


def _in_one(there: Tensor, back: Tensor, pair: Sides) -> tuple[Tensor, Tensor]:
    """One LSTM of twice the size with block-diagonal matrices."""
    right, left = ([side.get_parameter(f"{kind}_l0") for kind in KINDS] for side in pair)
    weights = [_diagonal(a, b) for a, b in zip(right[:2], left[:2], strict=True)]
    weights += [_interleaved(a, b) for a, b in zip(right[2:], left[2:], strict=True)]
    zero = there.new_zeros(1, there.shape[1], weights[1].shape[1])
    both = torch.lstm(torch.cat([there, back], dim=2), (zero, zero), weights, True, 1, 0.0, True, False, False)[0]
    first, second = both.chunk(2, dim=2)
    return first, second


def _interleaved(a: Tensor, b: Tensor) -> Tensor:
    gates = 4, len(a) // 4, *a.shape[1:]
    return torch.stack([a.view(gates), b.view(gates)], dim=1).flatten(0, 2)


def _diagonal(a: Tensor, b: Tensor) -> Tensor:
    zero = torch.zeros_like(a)
    return _interleaved(torch.cat([a, zero], dim=1), torch.cat([zero, b], dim=1))


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--length", type=int, default=SIZES["length"])
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    SIZES["length"] = told.length
    found = lstms(pick_device(told.device))
    if told.out:
        told.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
