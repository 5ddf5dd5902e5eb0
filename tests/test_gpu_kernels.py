"""The kernels for GPUs, run by Triton's interpreter, against torch in higher precision."""

from __future__ import annotations

import os

import pytest

if not os.path.exists("/proc/driver/nvidia"):  # where there is a GPU, other tests need the kernels as they are
    os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported
pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")

import numpy as np
import torch
from torch import Tensor

from polytag.config.groups.training_settings import ComputeSettings
from polytag.errors import ConfigError
from polytag.nn.encoding.encoders import Transformer
from polytag.nn.gpu import attention_kernels, compiled_layers
from polytag.nn.gpu.half_norm import keep_half_precision
from polytag.nn.gpu.memory_plan import batch_pieces, divided, needed
from polytag.nn.gpu.padded_attention import length_mask
from polytag.nn.training.step import Rows
from polytag.run import Run

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter: no GPU"),
]


def off_by(found: Tensor, expected: Tensor) -> float:
    """The relative error."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


# -- attention ---------------------------------------------------------------------------------------------------------


SEED = 123456789


def drawn(texts: list[int], heads: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (batch, length, 3, heads, size), the lengths of texts, and where their tokens are."""
    torch.manual_seed(1)
    lengths = torch.tensor(texts, dtype=torch.int32)
    real = (torch.arange(max(texts)) < lengths[:, None])[..., None, None]
    return torch.randn(len(texts), max(texts), 3, heads, size, requires_grad=True), lengths, real


def kept(seed: int, shape: tuple[int, int, int], share: float) -> Tensor:
    """The weights that dropout keeps (batch, heads, length, length), by the equations of the kernels."""
    batch, length, heads = shape
    mixed = np.arange(batch * heads * length, dtype=np.uint32) * np.uint32(0x9E3779B1) ^ np.uint32(seed)
    mixed = (mixed ^ mixed >> 16) * np.uint32(0x85EBCA6B)
    mixed ^= mixed >> 13
    factor, term = mixed * np.uint32(0xC2B2AE35), mixed * np.uint32(0x27D4EB2F)
    key = np.arange(length, dtype=np.uint32) * np.uint32(0x9E3779B1)
    key = (key ^ key >> 15) * np.uint32(0x2C1B3C6D)
    number = (factor ^ factor >> 16 | np.uint32(1))[:, None] * key + (term ^ term >> 15)[:, None]
    return torch.from_numpy(number.view(np.int32) >= round(share * 2**32) - 2**31).reshape(batch, heads, length, length)


def by_torch(qkv: Tensor, lengths: Tensor, share: float = 0.0) -> Tensor:
    """The same attention in double precision, with the weights in memory."""
    query, key, value = (part.transpose(1, 2).double() for part in qkv.unbind(2))
    mask = (torch.arange(qkv.shape[1]) < lengths[:, None])[:, None, None]
    energy = (query @ key.mT * qkv.shape[4] ** -0.5).masked_fill(~mask, -torch.inf)
    weights = energy.softmax(dim=3)
    if share:
        weights = weights * kept(SEED, (*qkv.shape[:2], qkv.shape[3]), share) / (1 - share)
    return (weights @ value).transpose(1, 2)


TEXTS = [
    ([1], 2, 32),
    ([16, 17, 5], 2, 32),
    ([64, 1, 65], 1, 64),
    ([130, 64, 128], 1, 32),
    ([130, 70], 1, 64),
    ([320, 192], 1, 32),
    ([40, 33, 32], 2, 16),
    ([40, 33], 1, 128),
]


@pytest.mark.parametrize(("texts", "heads", "size"), TEXTS)
def test_attention_has_the_states_and_gradients_of_torch(texts: list[int], heads: int, size: int) -> None:
    """Where a text ends within a block and where it fills its blocks; padding has no gradient, even if its states have one."""
    qkv, lengths, real = drawn(texts, heads, size)
    parts = [part.contiguous() for part in qkv.unbind(2)]
    found, expected = attention_kernels.attend(*parts, lengths, size**-0.5), by_torch(qkv, lengths)
    assert off_by(found * real, expected * real) < 1e-5
    gradient = torch.randn(found.shape)
    (wanted,) = torch.autograd.grad((expected * gradient * real).sum(), qkv)
    gradients = torch.stack(torch.autograd.grad((found * gradient).sum(), parts), dim=2)
    assert off_by(gradients, wanted) < 1e-5
    assert not (gradients * ~real[..., None]).any()


@pytest.mark.parametrize(("texts", "heads", "size"), TEXTS)
def test_packed_attention_drops_the_same_weights_forward_and_backward(texts: list[int], heads: int, size: int) -> None:
    """Those of the equations; the gradient is one tensor that has no gaps, and padding has zeros in it."""
    qkv, lengths, real = drawn(texts, heads, size)
    seed, share = torch.tensor([SEED], dtype=torch.int32), 0.3
    found = attention_kernels._attend_packed(qkv, lengths, seed, size**-0.5, share)[0]
    expected = by_torch(qkv, lengths, share)
    assert off_by(found * real, expected * real) < 1e-5
    gradient = torch.randn(found.shape)
    (one,) = torch.autograd.grad((found * gradient).sum(), qkv)
    (other,) = torch.autograd.grad((expected * gradient * real).sum(), qkv)
    assert one.is_contiguous() and not (one * ~real[..., None]).any()
    assert off_by(one, other) < 1e-5


def test_attention_is_the_same_for_packed_and_for_separate_parts() -> None:
    """Also their dropout, from the generator of torch, which differs from call to call; also if texts have one token."""
    for texts in ([40, 23], [1, 1]):
        qkv, lengths, _ = drawn(texts, 2, 32)
        parts = qkv.transpose(1, 3).contiguous().transpose(1, 3).unbind(2)  # as the heads of a layer are, in other places
        states = []
        for _ in range(2):
            torch.manual_seed(3)
            states.append(attention_kernels.attend(*parts, lengths, 0.2, 0.25))
            torch.manual_seed(3)
            assert torch.equal(attention_kernels.attend_packed(qkv, lengths, 0.2, 0.25), states[-1])
        assert torch.equal(*states)
    qkv, lengths, _ = drawn([40, 23], 2, 32)
    assert not torch.equal(*(attention_kernels.attend_packed(qkv, lengths, 0.2, 0.25) for _ in range(2)))


def test_attention_of_the_first_token_alone() -> None:
    """One query per text, as the top layer of a classifier needs it."""
    qkv, lengths, _ = drawn([40, 3, 17], 2, 16)
    query, key, value = qkv.unbind(2)
    found = attention_kernels.attend(query[:, :1], key, value, lengths, 0.25)
    assert off_by(found, by_torch(qkv, lengths)[:, :1]) < 1e-5


def test_weights_of_keys_far_below_zero_have_finite_gradients() -> None:
    """All energies of a query are so low that a weight for the energy 0, which padding has, would be infinite."""
    qkv, lengths, real = drawn([70, 40], 1, 32)
    moved = qkv.detach() * 0.1
    moved[:, :, 0, :, 0], moved[:, :, 1, :, 0] = 40.0, -40.0
    moved.requires_grad_()
    found, expected = attention_kernels.attend_packed(moved, lengths, 32**-0.5), by_torch(moved, lengths)
    (one,) = torch.autograd.grad((found * real).square().sum(), moved)
    (other,) = torch.autograd.grad((expected * real).square().sum(), moved)
    assert off_by(one, other) < 1e-4


def test_a_compiled_function_can_contain_attention() -> None:
    """For batches of two shapes by the same code, with the gradient of the input."""

    def network(x: Tensor, lengths: Tensor) -> Tensor:
        return attention_kernels.attend_packed((x * 2).unflatten(2, (3, 2, 16)), lengths, 0.25).flatten(2).sin()

    compiled = torch.compile(network, dynamic=True, backend="aot_eager", fullgraph=True)
    for texts in ([9, 4], [20, 3, 6]):
        qkv, lengths, real = drawn(texts, 2, 16)
        x = qkv.detach().flatten(2).requires_grad_()
        one, other = ((each(x, lengths) * real[..., 0]).square().sum() for each in (compiled, network))
        assert torch.equal(torch.autograd.grad(one, x)[0], torch.autograd.grad(other, x)[0])


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_dropout_keeps_its_share_without_correlations(share: float) -> None:
    """Of neighbours in a row, in a column, of heads, texts and seeds; the number kept of a row varies as if by chance."""
    shape = 4, 120, 6
    drops = [kept(seed, shape, share).double() - (1 - share) for seed in (0, 1, 2, 2**30)]
    first, deviation = drops[0], (share * (1 - share)) ** 0.5
    assert abs(float(first.mean())) < 4 * deviation / first.numel() ** 0.5
    pairs = [(first, other) for other in drops[1:]] + [(first[1:], first[:-1]), (first[:, 1:], first[:, :-1])]
    for step in (1, 2, 8):
        pairs += [(first[:, :, step:], first[:, :, :-step]), (first[..., step:], first[..., :-step])]
    squares = [first[:, :, 1:, 1:] * first[:, :, 1:, :-1], first[:, :, :-1, 1:] * first[:, :, :-1, :-1]]
    pairs.append((squares[0] / deviation, squares[1] / deviation))
    for one, other in pairs:
        assert abs(float((one * other).mean())) < 4.5 * deviation**2 / one.numel() ** 0.5
    for axis in (2, 3):
        assert float(first.sum(dim=axis).var()) == pytest.approx(120 * deviation**2, rel=0.1)


# -- the rest ----------------------------------------------------------------------------------------------------------


def tiny(**more: int) -> Transformer:
    """A small BERT with random weights."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 50}
    return Transformer({"model_type": "bert", **sizes, **more}, None)


def test_without_a_gpu_masks_and_layers_are_as_before() -> None:
    """A mask stays a mask, layer normalisation stays in float32, and a state dict has the same names."""
    mask = torch.ones(2, 5, dtype=torch.bool)
    assert length_mask(mask).shape == (2, 1, 1, 5)
    encoder = tiny()
    names = list(encoder.state_dict())
    keep_half_precision(encoder)
    assert list(encoder.state_dict()) == names
    with torch.autocast("cpu", torch.bfloat16):
        assert encoder(torch.ones(2, 5, dtype=torch.long), mask).dtype is torch.float32


def test_long_trainings_are_compiled_and_short_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the operations of the layers; ``on`` and ``off`` decide without them."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = tiny()

    class Data:
        def __init__(self, documents: int) -> None:
            self.lengths, self.windows = torch.full((documents,), 100).numpy(), 1

    def compiled(choice: str, documents: int) -> bool:
        network = Net()
        compiled_layers.compile_layers(network, choice, Data(documents), epochs=1)  # type: ignore[arg-type]
        layers = network.encoder.layer_list()[1]
        found = [layer._compiled_call_impl is not None for layer in layers]
        compiled_layers.drop_compiled(network)
        assert not any(layer._compiled_call_impl for layer in layers)
        assert len(set(found)) == 1
        return found[0]

    weights = sum(parameter.numel() for parameter in tiny().layer_list()[1].parameters())
    monkeypatch.setattr(compiled_layers, "_WORTH", 6.0 * weights * 100 * 50)
    assert [compiled("auto", 49), compiled("auto", 51), compiled("on", 1), compiled("off", 99)] == [False, True, True, False]
    assert ComputeSettings().compile == "auto"


def test_a_compiled_layer_computes_what_the_layer_does() -> None:
    """For batches of two shapes, by the same code, with gradients."""
    torch.manual_seed(0)
    encoder = tiny(hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    for layer in encoder.layer_list()[1]:
        layer.compile(dynamic=True, backend="aot_eager")
    for shape in ((2, 5), (3, 9)):
        ids, mask = torch.randint(0, 50, shape), torch.ones(shape, dtype=torch.bool)
        found = encoder(ids, mask)
        gradients = torch.autograd.grad(found.square().sum(), list(encoder.layer_list()[1].parameters()))
        plain = tiny(hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        plain.load_state_dict(encoder.state_dict())
        expected = plain(ids, mask)
        assert off_by(found, expected) < 1e-5
        wanted = torch.autograd.grad(expected.square().sum(), list(plain.layer_list()[1].parameters()))
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(gradients, wanted, strict=True))


class Sized(torch.nn.Module):
    """A network with an encoder of the given sizes."""

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        self.encoder = tiny(**sizes)


@pytest.mark.parametrize(
    ("sizes", "peak_gib"),
    [
        ({"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}, 6.79),
        ({"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}, 26.25),
    ],
)
def test_the_estimate_of_memory_is_near_what_was_measured(sizes: dict[str, int], peak_gib: float) -> None:
    """Peaks of training_speed.json at batch 256; the longest batches have 320 tokens, 192 at the median."""
    found = needed(Sized(**sizes, vocab_size=30_522), 256 * 192) / 2**30
    assert 0.75 * peak_gib < found < 1.35 * peak_gib


def test_a_batch_is_divided_until_it_fits() -> None:
    """Fewer free bytes, more pieces; less than one text needs is an error that says what to do."""
    network, run = Sized(), Run()
    fixed, text = needed(network, 0), needed(network, 100) - needed(network, 0)
    free = [(fixed + texts * text + 1) / 0.9 for texts in (64, 32, 20, 1)]
    assert [batch_pieces(network, 64, 100, each, run) for each in free] == [1, 2, 4, 64]
    with pytest.raises(ConfigError, match="lower max_length"):
        batch_pieces(network, 64, 100, fixed, run)
    assert batch_pieces(torch.nn.Linear(3, 3), 64, 100, 1.0, run) == 1  # only transformers are estimated


def test_the_pieces_of_a_batch_have_its_loss() -> None:
    """The mean over documents is the weighted sum of the means of the pieces, also if they differ in size."""
    values = torch.rand(10)
    part = Rows(torch.arange(10), 7, 1, 0.5)
    pieces = divided(part, 3)
    assert [len(piece.rows) for piece in pieces] == [4, 3, 3]
    assert torch.cat([piece.rows for piece in pieces]).tolist() == list(range(10))
    total = sum(float(values[piece.rows].mean()) * piece.weight for piece in pieces)
    assert total == pytest.approx(0.5 * float(values.mean()))
    assert divided(part, 1) == [part]
