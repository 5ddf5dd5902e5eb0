"""GPU time of attention over padded texts, forward and backward, as captured graphs; and how far its gradients are off.

python benchmarks/attention_speed.py [--tiles] [--out FILE]

``--tiles`` also measures other blocks, 15 per size of a head; each takes a second or two to compile.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gpu_time import milliseconds
from polytag.nn.gpu import attention_kernels
from polytag.nn.gpu.attention_kernels import attend, attend_packed

HEADS, LENGTH, LEAST, SHARE = 12, 176, 144, 0.1  # texts of 144 to 176 tokens
SIZES, BATCHES = (32, 64), (32, 256)
FORWARD = [(64, 64, 4, 1), (64, 64, 4, 3), (64, 32, 4, 1), (64, 32, 4, 2), (64, 32, 4, 3), (32, 64, 2, 2), (32, 32, 2, 2)]
TILES = {  # queries and keys of a block, warps, stages, registers
    32: [(64, 64, 4, 1, None), (64, 64, 4, 2, None), (64, 64, 4, 2, 168), (64, 64, 4, 1, 128), (32, 32, 2, 1, None),
         (32, 32, 2, 1, 128), (32, 32, 2, 2, 168), (32, 64, 2, 1, None)],
    64: [(64, 64, 4, 1, None), (64, 64, 4, 1, 168), (32, 64, 4, 1, None), (32, 64, 4, 2, 168), (32, 64, 8, 1, None),
         (32, 32, 4, 1, 128), (32, 32, 2, 1, None)],
}  # fmt: skip


def measured(batch: int, size: int) -> dict[str, Any]:
    """Milliseconds of each way, and the errors of ours."""
    qkv, lengths, mask = _drawn(batch, size)
    found: dict[str, Any] = {"batch": batch, "size": size}
    for name, way in _ways(qkv, lengths, mask).items():
        found[name] = _timed(way, qkv.device)
        print(f"batch {batch:3}  size {size}  {name:24} {json.dumps(found[name])}", flush=True)
    return found


def accuracy(size: int) -> dict[str, float]:
    """Relative errors of states and gradients in bf16, and of torch in bf16, against torch in float32; with dropout, too."""
    qkv, lengths, mask = _drawn(BATCHES[0], size)
    real = mask[:, 0, 0, :, None, None]
    gradient = torch.randn(*qkv.shape[:2], HEADS, size, device=qkv.device) * real
    seed = torch.tensor([1234567], dtype=torch.int32, device=qkv.device)

    def ours(share: float) -> list[Tensor]:
        states = attention_kernels._attend_packed(qkv, lengths, seed, size**-0.5, share)[0]
        return [states * real, *torch.autograd.grad(states, qkv, gradient.to(states.dtype))]

    exact = qkv.detach().float().requires_grad_()
    found = {}
    for share in (0.0, SHARE):
        kept = _kept(lengths, seed, size, share) if share else torch.ones((), device=qkv.device)
        expected = _explicit(exact, mask, kept, gradient, real)
        once, again = ours(share), ours(share)
        for name, one, other in zip(("states", "gradients"), once, expected, strict=True):
            found[f"{name}, dropout {share}"] = _off_by(one, other)
        if not share:
            halves = _explicit(qkv, mask, kept.to(qkv.dtype), gradient.to(qkv.dtype), real)
            found["gradients, torch in bf16"] = _off_by(halves[1], expected[1])
        found[f"the same again, dropout {share}"] = float(all(map(torch.equal, once, again)))
        found[f"gradient of padding, dropout {share}"] = float((once[1] * ~real[:, :, None]).abs().max())
        if share:
            found["kept share"] = float(kept[(mask & mask.mT).expand(kept.shape)].ne(0).float().mean())
    print(f"size {size}  {json.dumps(found)}", flush=True)
    return found


def tiles(size: int) -> list[dict[str, Any]]:
    """Milliseconds of packed attention with other blocks; first with the present ones, which come back."""
    rows = []
    for tile in (attention_kernels._FORWARD, *FORWARD):
        with patch.object(attention_kernels, "_FORWARD", tile):
            rows.append(_row("forward", tile, size))
    for back in (attention_kernels._TILES[size], *TILES[size]):
        with patch.dict(attention_kernels._TILES, {size: back}):
            rows.append(_row("both", back, size))
    return rows


def _row(part: str, tile: tuple[int | None, ...], size: int) -> dict[str, Any]:
    row: dict[str, Any] = {"size": size, "part": part, "tile": tile}
    for batch in BATCHES:
        qkv, lengths, mask = _drawn(batch, size)
        row[f"batch {batch}"] = _timed(_ways(qkv, lengths, mask)["packed"], qkv.device, (part,))[part]
    print(json.dumps(row), flush=True)
    return row


def _drawn(batch: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values in one tensor, the lengths of texts, and their mask (batch, 1, 1, length)."""
    torch.manual_seed(0)
    qkv = torch.randn(batch, LENGTH, 3, HEADS, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    lengths = torch.randint(LEAST, LENGTH + 1, (batch,), dtype=torch.int32, device="cuda")
    return qkv, lengths, (torch.arange(LENGTH, device="cuda") < lengths[:, None])[:, None, None]


Way = tuple[Callable[[], Tensor], list[Tensor]]


def _ways(qkv: Tensor, lengths: Tensor, mask: Tensor) -> dict[str, Way]:
    """Functions and their inputs."""
    scale = qkv.shape[4] ** -0.5
    query, key, value = apart = [part.detach().clone().requires_grad_() for part in qkv.unbind(2)]
    asked, known, held = turned = [part.detach().transpose(1, 2).contiguous().requires_grad_() for part in apart]

    def torch_masked() -> Tensor:
        return scaled_dot_product_attention(asked, known, held, attn_mask=mask, dropout_p=SHARE)

    def torch_full() -> Tensor:
        return scaled_dot_product_attention(asked, known, held, dropout_p=SHARE)

    return {
        "apart": (lambda: attend(query, key, value, lengths, scale, SHARE), apart),
        "packed": (lambda: attend_packed(qkv, lengths, scale, SHARE), [qkv]),
        "packed, no dropout": (lambda: attend_packed(qkv, lengths, scale), [qkv]),
        "torch, masked": (torch_masked, turned),
        "torch, all of the length": (torch_full, turned),
    }


def _timed(way: Way, device: torch.device, parts: tuple[str, ...] = ("forward", "both")) -> dict[str, float]:
    encode, inputs = way
    gradient = torch.randn_like(encode())
    works = {"forward": encode, "both": lambda: torch.autograd.grad(encode(), inputs, gradient)}
    return {part: round(milliseconds(works[part], device), 4) for part in parts}


def _kept(lengths: Tensor, seed: Tensor, size: int, share: float) -> Tensor:
    """What dropout multiplies weights by (batch, heads, length, length): the states of equal weights, with unit values."""
    qkv = torch.zeros(len(lengths), LENGTH, 3, HEADS, size, device="cuda")
    found = []
    for start in range(0, LENGTH, size):
        qkv[:, :, 2] = torch.eye(LENGTH, size, device="cuda").roll(start, dims=0)[None, :, None]
        if start + size > LENGTH:
            qkv[:, :start, 2] = 0
        found.append(attention_kernels._attend_packed(qkv, lengths, seed, 1.0, share)[0] * lengths[:, None, None, None])
    kept = torch.cat(found, dim=3)[..., :LENGTH].transpose(1, 2)
    return (kept * (1 - share)).round() / (1 - share)


def _explicit(qkv: Tensor, mask: Tensor, kept: Tensor, gradient: Tensor, real: Tensor) -> list[Tensor]:
    """States and gradients by torch, with the weights in memory."""
    query, key, value = (part.transpose(1, 2) for part in qkv.unbind(2))
    energy = query @ key.mT * qkv.shape[4] ** -0.5
    states = ((energy.masked_fill(~mask, -torch.inf).softmax(dim=3) * kept) @ value).transpose(1, 2)
    return [states * real, *torch.autograd.grad(states, qkv, gradient)]


def _off_by(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, Any] = {"errors": {size: accuracy(size) for size in SIZES}}
    found["ms"] = [measured(batch, size) for size in SIZES for batch in BATCHES]
    if told.tiles:
        found["tiles"] = [row for size in SIZES for row in tiles(size)]
    if told.out:
        told.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
