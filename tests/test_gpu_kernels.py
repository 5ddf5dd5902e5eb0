"""The kernels for GPUs, run by Triton's interpreter, against torch in higher precision."""

from __future__ import annotations

import os

import pytest

if not os.path.exists("/proc/driver/nvidia"):  # where there is a GPU, other tests need the kernels as they are
    os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported
pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")

import torch
from torch import Tensor
from torch.nn import functional

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


def drawn(batch: int, length: int, heads: int, size: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Queries, keys and values, the lengths of texts, and where their tokens are (batch, length, 1, 1)."""
    torch.manual_seed(1)
    parts = [torch.randn(batch, length, heads, size, requires_grad=True) for _ in range(3)]
    lengths = torch.randint(1, length + 1, (batch,), dtype=torch.int32)
    lengths[0] = length
    return parts, lengths, (torch.arange(length) < lengths[:, None])[..., None, None]


def by_torch(parts: list[Tensor], lengths: Tensor) -> Tensor:
    """The same attention in double precision with a mask."""
    query, key, value = (part.transpose(1, 2).double() for part in parts)
    mask = (torch.arange(key.shape[2]) < lengths[:, None])[:, None, None]
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)


@pytest.mark.parametrize(("batch", "length", "heads", "size"), [(2, 70, 2, 32), (3, 20, 1, 16), (2, 64, 1, 64)])
def test_attention_skips_padding_and_has_the_gradients_of_torch(batch: int, length: int, heads: int, size: int) -> None:
    """Also where a text ends within a block, and where it fills all blocks; padding has no gradient."""
    parts, lengths, real = drawn(batch, length, heads, size)
    gradient = torch.randn(batch, length, heads, size) * real
    found, expected = attention_kernels.attend(*parts, lengths, size**-0.5), by_torch(parts, lengths)
    assert off_by(found * real, expected * real) < 1e-5
    wanted = torch.autograd.grad((expected * gradient).sum(), parts)
    for one, other in zip(torch.autograd.grad((found * gradient).sum(), parts), wanted, strict=True):
        assert off_by(one, other * real) < 1e-5
        assert not (one * ~real).any()


def test_attention_of_the_first_token_alone() -> None:
    """One query per text, as the top layer of a classifier needs it."""
    (query, key, value), lengths, _ = drawn(3, 40, 2, 16)
    found = attention_kernels.attend(query[:, :1], key, value, lengths, 0.25)
    assert off_by(found, by_torch([query[:, :1], key, value], lengths)) < 1e-5


def test_dropout_keeps_its_share_and_drops_the_same_weights_backward() -> None:
    """The states are linear in the values, so <values, their gradient> = <states, gradient>; queries and keys by differences."""
    (query, key, value), lengths, real = drawn(2, 70, 2, 32)
    seed, scale, share = torch.tensor([7], dtype=torch.int32), 32**-0.5, 0.3

    def states(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention_kernels._attend(query, key, value, lengths, seed, scale, share)[0]

    kept = states(query, key, torch.ones_like(value))  # the sums of the kept weights, divided by their expected share
    assert abs(float(kept[real.expand_as(kept)].mean()) - 1) < 0.05
    assert float(kept[real.expand_as(kept)].std()) > 0.01
    gradient = torch.randn_like(value) * real
    both = attention_kernels._attend(query, key, value, lengths, seed, scale, share)
    to_query, to_key, to_value = attention_kernels._attend_backward(
        gradient, query, key, value, lengths, seed, *both, scale, share
    )
    assert float((value * to_value).sum()) == pytest.approx(float((both[0] * gradient).sum()), rel=1e-4)
    way = torch.randn_like(query) * 0.01
    for slope, moved in (
        (to_query, lambda step: states(query + step * way, key, value)),
        (to_key, lambda step: states(query, key + step * way, value)),
    ):
        difference = float(((moved(1) - moved(-1)) * gradient).sum()) / 2
        assert float((slope * way).sum()) == pytest.approx(difference, rel=0.02, abs=2e-4)


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
