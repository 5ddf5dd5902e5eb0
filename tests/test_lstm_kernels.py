"""The LSTM kernels: on a GPU the kernels themselves, elsewhere what surrounds them, with their steps made by torch."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from polytag.nn.gpu import lstm_kernels
from polytag.nn.gpu.lstm_kernels import both_ways

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def off_by(found: Tensor, expected: Tensor) -> float:
    """The relative error; the absolute one where zeros are expected."""
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / (expected.norm() or 1))


def as_kernels(name: str, tensors: list[Tensor], batch: int, hidden: int) -> None:
    """The contract of ``lstm_steps.cu``, word for word: padding is neither read nor written."""
    *given, last, final = tensors
    length = len(given[0])
    for row, words in enumerate(given[2 if name == "forward_steps" else 4].tolist()):
        for side in range(2):
            order = [words - 1 - step if side else step for step in range(words)]
            units = slice(side * hidden, (side + 1) * hidden)
            if name == "forward_steps":
                gates, weights, _, states, cells, active = given
                state, cell = torch.zeros(hidden), torch.zeros(hidden)
                for word in order:
                    own = weights[side].float().view(4, hidden, hidden) @ state  # (gate, unit)
                    gate = gates[word, row].float().view(2, hidden, 4)[side].T + own
                    enter, forget, leave = (torch.sigmoid(gate[number]) for number in (0, 1, 3))
                    cell = forget * cell + enter * torch.tanh(gate[2])
                    state = (leave * torch.tanh(cell)).half().float()
                    states[word, row, units], cells[word, row, units] = state.half(), cell
                    kept = torch.stack([enter, forget, torch.tanh(gate[2]), leave], dim=1)
                    active[word, row].view(2, hidden, 4)[side] = kept.half()
                last[row, units], final[row, units] = state, cell
                continue
            gradients, to_states, to_cells, weights, _, cells = given
            active, inner = last, final
            to_cell, back = to_cells[row, units].clone(), torch.zeros(hidden)
            for number, word in enumerate(reversed(order)):
                enter, forget, fresh, leave = active[word, row].float().view(2, hidden, 4)[side].T
                earlier = cells[order[len(order) - 2 - number], row, units] if number + 1 < words else torch.zeros(hidden)
                out = torch.tanh(cells[word, row, units])
                to_state = gradients[word, row, units].float() + back + (0 if number else to_states[row, units])
                through = to_cell + to_state * leave * (1 - out * out)
                four = through * fresh * enter * (1 - enter), through * earlier * forget * (1 - forget)
                four += through * enter * (1 - fresh * fresh), to_state * out * leave * (1 - leave)
                inner[word, row].view(2, hidden, 4)[side] = torch.stack(four, dim=1).to(inner.dtype)
                to_cell = through * forget
                back = torch.einsum("aug,ug->a", weights[side].float(), torch.stack(four, dim=1))
    assert length


def compared(length: int, lengths: list[int], size: int, hidden: int, device: str, likeness: float) -> None:
    """States, last states and cells, and all gradients are those of torch's packed BiLSTM in float32."""
    torch.manual_seed(0)
    lstm = nn.LSTM(size, hidden, bidirectional=True).to(device)
    x = torch.randn(length, len(lengths), size, device=device, requires_grad=True)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    states, (last, cells) = lstm(packed)
    states = nn.utils.rnn.pad_packed_sequence(states, total_length=length)[0]
    outputs = [states, last.transpose(0, 1).flatten(1), cells.transpose(0, 1).flatten(1)]
    weights = [parameter for _, parameter in lstm.named_parameters()]
    to_outputs = [torch.randn_like(output) for output in outputs]
    loss = sum((one * to).sum() for one, to in zip(outputs, to_outputs, strict=True))
    expected = torch.autograd.grad(loss, [x, *weights])
    found = both_ways(x, torch.tensor(lengths, device=device), weights[:4], weights[4:])
    assert max(map(off_by, found, outputs)) < likeness
    assert not found[0].detach()[torch.arange(length)[:, None] >= torch.tensor(lengths)].any()
    loss = sum((one.float() * to).sum() for one, to in zip(found, to_outputs, strict=True))
    gradients = torch.autograd.grad(loss, [x, *weights])
    assert max(map(off_by, gradients, expected)) < 10 * likeness


@pytest.mark.parametrize(("length", "lengths"), [(6, [6, 1, 4]), (1, [1, 1]), (5, [3, 2])])
def test_weights_and_gradients_are_arranged_as_the_kernels_have_them(
    monkeypatch: pytest.MonkeyPatch, length: int, lengths: list[int]
) -> None:
    """A gate, a direction or a neighbour in the wrong place changes some gradient."""
    monkeypatch.setattr(lstm_kernels, "_launch", as_kernels)
    compared(length, lengths, 12, 16, "cpu", 1e-3)


@on_gpu
@pytest.mark.parametrize("hidden", [128, 256])
@pytest.mark.parametrize(("length", "batch"), [(1, 1), (7, 3), (40, 64), (33, 70), (20, 300)])
def test_kernels_are_torch_s_lstm(hidden: int, length: int, batch: int) -> None:
    """Batches that fill no tile, and those with more clusters than the GPU has at once."""
    lengths = torch.randint(1, length + 1, (batch,), generator=torch.Generator().manual_seed(1)).tolist()
    assert lstm_kernels.fits(hidden, torch.device("cuda", 0))
    compared(length, [length, *lengths[1:]], 48, hidden, "cuda", 1e-3)


@on_gpu
def test_the_same_input_gives_the_same_bits() -> None:
    """Blocks exchange their sums in a fixed order."""
    lstm = nn.LSTM(32, 256, bidirectional=True).cuda()
    weights = [parameter for _, parameter in lstm.named_parameters()]
    x, lengths = torch.randn(50, 64, 32, device="cuda"), torch.full((64,), 50, device="cuda")

    def gradients() -> list[Tensor]:
        states, _, cells = both_ways(x, lengths, weights[:4], weights[4:])
        return list(torch.autograd.grad(states.float().square().sum() + cells.sum(), weights))

    first = gradients()
    assert all(torch.equal(one, other) for _ in range(3) for one, other in zip(first, gradients(), strict=True))


@pytest.mark.services
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs CUDA's compiler, nvcc")
@pytest.mark.parametrize(("hidden", "tiles"), [(256, 1), (256, 2), (128, 1), (128, 2)])
def test_the_source_compiles_and_all_weights_stay_in_registers(tmp_path: Path, hidden: int, tiles: int) -> None:
    """Weights that are spilled to memory would be read again at every step."""
    source = str(files("polytag.nn.gpu").joinpath("lstm_steps.cu"))
    options = [f"-DHIDDEN={hidden}", f"-DTILES={tiles}", "-arch=sm_90", "-cubin", "-Xptxas", "-v", "-o", str(tmp_path / "out")]
    done = subprocess.run(["nvcc", *options, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr) == [("0", "0")] * 2
