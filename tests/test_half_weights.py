"""Copies of weights in bf16: losses and gradients are those of autocast, in float32, and nothing stays after a training."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polytag.models.bert import BertNetwork
from polytag.nn.encoding.encoders import Transformer
from polytag.nn.gpu.half_weights import HalfWeights, half_weights_for
from polytag.nn.training import loop
from polytag.nn.training.batch import Batch, Examples, Layout, tokenise
from polytag.nn.training.losses import binary_cross_entropy
from polytag.nn.training.optimiser import _with_tensors, clipped, divided_in_update, set_rates
from polytag.run import Run
from polytag.text.tokens import WordTokens
from toys import setup, toy_corpus

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 60}


def tiny(kind: str = "bert", **more: Any) -> Transformer:
    """A small encoder without dropout; the same weights every time."""
    with loop.seeded(0):
        if kind == "distilbert":
            sizes = {"dim": 32, "n_layers": 3, "n_heads": 2, "hidden_dim": 48, "vocab_size": 60}
            return Transformer({"model_type": kind, **sizes}, 0.0)
        return Transformer({"model_type": kind, **SIZES, **more}, 0.0)


def texts(batch: int = 4, length: int = 7) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(batch)
    lengths = torch.randint(1, length + 1, (batch, 1), generator=draw)
    return torch.randint(5, 60, (batch, length), generator=draw), torch.arange(length) < lengths


def passed(encoder: Transformer, halves: HalfWeights | None, *batches: tuple[Tensor, Tensor]) -> tuple[float, dict[str, Tensor]]:
    """The loss over all batches, and the gradients by name."""
    encoder.zero_grad(set_to_none=True)
    encoder.train()
    if halves is not None:
        halves.refresh()
    total = 0.0
    for ids, mask in batches:
        with torch.autocast("cpu", torch.bfloat16):
            states = encoder(ids, mask)
        loss = (states * mask[..., None]).square().mean() + (states[:, 0, ::2] - 1).square().mean()
        loss.backward()
        total += loss.item()
        if halves is not None:
            halves.collect()
    return total, {name: one.grad for name, one in encoder.named_parameters() if one.grad is not None}


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    size = max(float(one.norm()) for one in expected.values())
    for name, gradient in found.items():
        assert gradient.dtype is torch.float32
        assert gradient.stride() == expected[name].stride()
        assert float((gradient - expected[name]).norm()) < 0.02 * float(expected[name].norm()) + 1e-3 * size, name


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("packs", [True, False])
def test_losses_and_gradients_are_those_of_autocast(kind: str, packs: bool) -> None:
    encoder = tiny(kind)
    expected = passed(tiny(kind), None, texts())
    halves = HalfWeights(encoder, packs=packs)
    shapes = [tuple(copy.leaf.shape) for copy in halves.copies]
    assert ((96, 32) in shapes) == (packs and kind != "distilbert")
    assert sum(leaf.numel() for leaf, _ in halves.copies) == 3 * (4 * 32 * 33 + 2 * 32 * 48 + 32 + 48)
    found = passed(encoder, halves, texts())
    assert found[0] == pytest.approx(expected[0], rel=5e-3)
    assert_close(found[1], expected[1])
    if not packs:  # the same products in the same order
        assert found[0] == expected[0]
        assert all(torch.equal(found[1][name], expected[1][name]) for name in found[1])


def test_gradients_of_several_pieces_are_added_in_float32() -> None:
    encoder, batches = tiny(), [texts(batch) for batch in (2, 3, 5)]
    halves = HalfWeights(encoder)
    singles = [passed(encoder, halves, batch) for batch in batches]
    total, gradients = passed(encoder, halves, *batches)
    assert total == pytest.approx(sum(single for single, _ in singles))
    for name, gradient in gradients.items():
        wanted = torch.stack([single[name].double() for _, single in singles]).sum(dim=0)
        assert torch.allclose(gradient.double(), wanted, rtol=1e-6, atol=1e-7)
    assert all(leaf.grad is None for leaf, _ in halves.copies)


def test_one_product_is_three() -> None:
    encoder = tiny()
    layer: Any = encoder.layer_list()[1][1]
    attention = layer.attention.self
    states, mask = torch.randn(2, 5, 32), torch.ones(2, 1, 1, 5, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        expected = attention(states, attention_mask=mask)[0]
        HalfWeights(encoder)
        found = attention(states, attention_mask=mask, encoder_hidden_states=None, past_key_values=None)[0]
    assert torch.equal(found, expected)
    rows = attention.half_weight.detach().split(32)
    assert all(torch.equal(one, part.weight.bfloat16()) for one, part in zip(rows, attention_parts(attention), strict=True))


def attention_parts(attention: Any) -> list[nn.Linear]:
    return [attention.query, attention.key, attention.value]


def attend_plainly(packed: Tensor, lengths: Tensor, scale: float, dropout: float) -> Tensor:
    """Torch's attention with the signature of the kernel."""
    assert dropout == 0.0
    query, key, value = packed.permute(2, 0, 3, 1, 4).unbind()
    mask = torch.arange(packed.shape[1]) < lengths[:, None]
    return nn.functional.scaled_dot_product_attention(query, key, value, mask[:, None, None], scale=scale).transpose(1, 2)


def as_lengths(mask: Tensor) -> Tensor:
    return mask.sum(dim=1, dtype=torch.int32)[None, None, None]


def test_where_the_mask_has_lengths_a_kernel_takes_the_product_as_it_is() -> None:
    encoder, (ids, mask) = tiny(), texts()
    expected, wanted = passed(other := tiny(), HalfWeights(other), (ids, mask))
    halves = HalfWeights(encoder, kernel=attend_plainly)
    encoder._attended = as_lengths  # type: ignore[method-assign]
    loss, gradients = passed(encoder, halves, (ids, mask))
    assert loss == pytest.approx(expected, rel=1e-2)
    assert_close(gradients, wanted)


def test_copies_are_those_of_the_current_weights_and_not_used_in_evaluation() -> None:
    encoder, (ids, mask) = tiny(), texts()
    halves = HalfWeights(encoder)
    before = passed(encoder, halves, (ids, mask))[0]
    with torch.no_grad():
        for one in encoder.parameters():
            one.mul_(1.5)
    reference = tiny()
    reference.load_state_dict(encoder.state_dict())
    after = passed(encoder, halves, (ids, mask))[0]
    assert after != before and after == pytest.approx(passed(reference, None, (ids, mask))[0], rel=0.01)
    assert all(torch.equal(leaf, torch.cat(masters).to(leaf.dtype)) for leaf, masters in halves.copies)
    for leaf, _ in halves.copies:
        leaf.detach().fill_(float("nan"))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(encoder.eval()(ids, mask), reference.eval()(ids, mask))
        assert torch.equal(encoder.train()(ids, mask), reference.train()(ids, mask))  # no gradients: no training step


def test_nothing_stays_after_undo() -> None:
    encoder, (ids, mask) = tiny(), texts()
    names, kinds = list(encoder.state_dict()), [type(module) for module in encoder.modules()]
    expected = encoder.eval()(ids, mask)
    halves = HalfWeights(encoder)
    assert list(encoder.state_dict()) == names
    assert [name for name, _ in encoder.named_parameters()] == [name for name, _ in tiny().named_parameters()]
    assert [type(module) for module in encoder.modules()] != kinds
    halves.undo()
    halves.undo()
    assert [type(module) for module in encoder.modules()] == kinds
    assert [name for name, _ in encoder.named_buffers()] == [name for name, _ in tiny().named_buffers()]
    assert torch.equal(encoder(ids, mask), expected)


def test_frozen_layers_have_no_copies() -> None:
    encoder, reference = tiny(), tiny()
    for one in (encoder, reference):
        one.freeze(2)
    halves = HalfWeights(encoder)
    layers = encoder.layer_list()[1]
    assert [any("half_weight" in name for name, _ in layer.named_buffers()) for layer in layers] == [False, False, True]
    found, expected = passed(encoder, halves, texts()), passed(reference, None, texts())
    assert_close(found[1], expected[1])
    encoder.freeze(-1)
    halves.undo()
    assert not HalfWeights(encoder).copies


def test_other_devices_and_precisions_have_no_copies() -> None:
    network = BertNetwork(tiny(), 3, "mean", 0.0)
    assert half_weights_for(network, torch.device("cpu"), torch.bfloat16) is None
    assert half_weights_for(network, torch.device("cuda"), torch.float16) is None
    assert half_weights_for(network, torch.device("cuda"), None) is None
    assert half_weights_for(nn.Linear(2, 2), torch.device("cuda"), torch.bfloat16) is None
    halves = half_weights_for(network, torch.device("cuda"), torch.bfloat16)
    assert halves is not None and halves.copies
    halves.undo()


@pytest.mark.parametrize("kernel", [None, attend_plainly])
def test_all_layers_share_one_compiled_graph(kernel: Any) -> None:
    encoder = tiny()
    if kernel is not None:
        encoder._attended = as_lengths  # type: ignore[method-assign]
    plain = passed(encoder, halves := HalfWeights(encoder, kernel=kernel), texts())
    torch._dynamo.reset()
    for layer in encoder.layer_list()[1]:
        layer.compile(dynamic=True, backend="eager")
    counted = torch._dynamo.utils.counters["stats"]
    before = counted["unique_graphs"]
    compiled = passed(encoder, halves, texts())
    passed(encoder, halves, texts(6, 9))
    assert counted["unique_graphs"] - before == 1
    assert compiled[0] == pytest.approx(plain[0], rel=1e-3)
    assert_close(compiled[1], plain[1])


# -- in the loop ------------------------------------------------------------------------------------------------------------


def loss_of(network: nn.Module, batch: Batch) -> Tensor:
    assert batch.targets is not None
    return binary_cross_entropy(network(batch.ids, batch.mask), batch.targets)


def steps_of(encoder: Transformer, run: Run | None = None, **settings: Any) -> tuple[nn.Module, Iterator[loop.Step]]:
    corpus = toy_corpus(40)
    tokens = WordTokens.fit(corpus.texts, 55)
    with loop.seeded(0):
        network = BertNetwork(encoder, len(corpus.labels), "mean", 0.0)
    examples = Examples(tokenise(tokens, corpus.texts), corpus.truth, Layout(12))
    told = {"epochs": 2, "batch_size": 8, "encoder_rate": 1e-3, "head_rate": 1e-2, "device": "cpu", "precision": "bf16"}
    return network, loop.train(network, examples, loss_of, setup(**{**told, **settings}), run or Run())


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[HalfWeights]:
    """Trainings have copies; the list has those that were made."""
    made: list[HalfWeights] = []

    def make(network: Any, *_: Any) -> HalfWeights:
        made.append(HalfWeights(network.encoder))
        return made[-1]

    monkeypatch.setattr(loop, "half_weights_for", make)
    return made


@pytest.mark.parametrize("settings", [{}, {"accumulate": 2, "average": 0.9, "clip": 0.1, "frozen_layers": 1}])
def test_a_training_with_copies_has_the_losses_of_one_without(settings: dict[str, Any], request: pytest.FixtureRequest) -> None:
    reference, steps = steps_of(tiny(), **settings)
    expected = [float(step.loss) for step in steps]
    made = request.getfixturevalue("copied")
    network, steps = steps_of(tiny(), **settings)
    found = [float(step.loss) for step in steps]
    assert made and not made[0].copies
    assert np.allclose(found, expected, rtol=1e-2)
    assert list(network.state_dict()) == list(reference.state_dict())
    for one, other in zip(network.parameters(), reference.parameters(), strict=True):
        assert one.dtype is torch.float32
        assert float((one - other).detach().abs().mean()) < 2e-3


def test_a_step_trains_all_modules_whatever_was_done_in_between() -> None:
    network, steps = steps_of(tiny())
    for number, _ in zip(range(4), steps, strict=False):
        assert all(module.training for module in network.modules())
        [network, network.encoder, network.encoder.layer_list()[1][0], network.encoder][number].eval()  # type: ignore[operator, union-attr]


def test_a_training_that_is_left_early_leaves_no_copies(copied: list[HalfWeights]) -> None:
    network, steps = steps_of(encoder := tiny())
    next(iter(steps))
    assert copied[0].copies
    del steps
    assert not copied[0].copies
    assert not any("half" in name for name, _ in network.named_buffers())
    assert all(type(module).__name__ != "_HalfLinear" for module in encoder.modules())


# -- clipping and rates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.01, 1.0, 1e6])
def test_clipping_in_the_update_is_clipping_before_it(limit: float) -> None:
    results = []
    for in_update in (False, True):
        with loop.seeded(0):
            network = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(3, 3))
            inputs = torch.randn(4, 6)
        optimiser = torch.optim.AdamW(network.parameters(), lr=0.1, eps=1e-3, fused=True)
        for number in range(3):
            optimiser.zero_grad(set_to_none=True)
            network[:2](inputs * (number + 1)).square().sum().backward()  # the last layer has no gradient
            weights = list(network.parameters())
            if in_update:
                with divided_in_update(weights, limit, optimiser):
                    optimiser.step()
                assert not hasattr(optimiser, "grad_scale")
            else:
                nn.utils.clip_grad_norm_(weights, limit)
                optimiser.step()
        results.append([*weights, *(one.grad for one in weights if one.grad is not None)])
    for found, expected in zip(*results, strict=True):
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_without_gradients_nothing_is_clipped() -> None:
    network = nn.Linear(2, 2)
    optimiser = torch.optim.AdamW(network.parameters(), fused=True)
    with divided_in_update(list(network.parameters()), 1.0, optimiser):
        optimiser.step()
    assert not hasattr(optimiser, "grad_scale")


@pytest.mark.parametrize(("device", "scaled", "in_update"), [("cuda", False, True), ("cuda", True, False), ("cpu", False, False)])
def test_only_adamw_on_a_gpu_without_a_scaler_clips_by_itself(device: str, scaled: bool, in_update: bool) -> None:
    network = nn.Linear(2, 2)
    network(torch.ones(1, 2)).square().sum().mul(100).backward()
    weights = list(network.parameters())
    optimiser = torch.optim.AdamW(weights, fused=True)
    processes: Any = SimpleNamespace(device=torch.device(device))
    with clipped(weights, 0.5, optimiser, processes, scaled=scaled):
        assert hasattr(optimiser, "grad_scale") == in_update
        norm = torch.cat([one.grad.flatten() for one in weights if one.grad is not None]).norm()
        assert (float(norm) == pytest.approx(0.5, rel=1e-4)) != in_update


def test_one_kernel_sets_the_rates_of_all_groups() -> None:
    layers = [nn.Linear(3, 2) for _ in range(3)]
    groups = [{"params": list(one.parameters()), "base": 10.0**-n, "lr": 10.0**-n} for n, one in enumerate(layers, 1)]
    optimiser = torch.optim.AdamW(_with_tensors(groups, torch.device("cpu")), fused=True, weight_decay=0.0)
    rates = [group["lr"] for group in optimiser.param_groups]
    set_rates(optimiser, 0.5)
    assert [float(group["lr"]) for group in optimiser.param_groups] == pytest.approx([0.05, 0.005, 0.0005])
    assert all(group["lr"] is rate for group, rate in zip(optimiser.param_groups, rates, strict=True))
    before = [one.weight.detach().clone() for one in layers]
    sum(one(torch.ones(1, 3)).sum() for one in layers).backward()
    optimiser.step()
    moved = [float((one.weight - old).detach().abs().mean()) for one, old in zip(layers, before, strict=True)]
    assert moved == pytest.approx([0.05, 0.005, 0.0005], rel=1e-3)  # the first step of Adam is the rate
