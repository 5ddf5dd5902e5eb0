"""How fast ``auto`` thinks that this machine is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from polytag.auto import machine
from polytag.auto.machine import Speeds, layer_operations, measured_speeds
from polytag.nn.encoding import document_vectors
from polytag.nn.training import devices


@pytest.mark.parametrize(("able", "tiles"), [(False, False), (True, False), (True, True)])
def test_speeds_are_those_of_networks_as_they_will_be_computed(able: bool, tiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bf16 and in batches of the same size: otherwise an encoder would seem twice as slow, or four times as fast."""
    seen: list[tuple[bool, bool]] = []

    def half_a_second(work: Callable[[], object]) -> float:
        work()
        seen.append((torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()))
        return 0.5

    monkeypatch.setattr(devices, "multiplies_in_bf16", lambda: able)
    monkeypatch.setattr(document_vectors, "multiplies_in_tiles", lambda: tiles)
    monkeypatch.setattr(machine, "_seconds", half_a_second)
    found = measured_speeds(gpu=False)
    assert seen == [(able, False), (able, True), (False, False)], "steps, encoding, and convolutions, which are in float32"
    tokens = 4_096 if tiles else 512
    every = 2 * 12 * 384**2 + 4 * 128 * 384
    assert found.encoding == pytest.approx(tokens * every / 0.5)
    assert found.encoder_steps == pytest.approx(32 * 128 * every / 0.5)
    assert found.filter_steps == pytest.approx(4 * 128 * 2 * 300 * 256 * 12 / 0.5)


def test_operations_are_those_of_the_products_of_a_layer() -> None:
    """Counted by torch, for a text of 100 tokens."""
    from torch.utils.flop_counter import FlopCounterMode

    layer = torch.nn.TransformerEncoderLayer(384, 12, 4 * 384, batch_first=True)
    with FlopCounterMode(display=False) as counter:
        layer(torch.zeros((1, 100, 384)))
    assert counter.get_total_flops() == pytest.approx(100 * layer_operations(100), rel=0.01)


def test_a_step_is_dearer_than_encoding_and_another_load_slows_all_down() -> None:
    found = measured_speeds(gpu=False)
    assert 0 < found.encoder_steps < found.encoding and found.filter_steps > 0
    assert found.slower(2.0) == pytest.approx(Speeds(*(speed / 2 for speed in found)))


def test_the_smallest_of_several_times_counts_and_not_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_TIMES", 3)
    times = iter([0.0, 1.0, 10.0, 13.0, 20.0, 22.0, 30.0, 37.0])
    monkeypatch.setattr(machine.time, "monotonic", lambda: next(times))
    assert machine._seconds(lambda: None) == 2.0
