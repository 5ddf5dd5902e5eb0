"""How precisely products are computed: less than float32 only where it was asked for, and only for as long."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch

from polytag.errors import ConfigError
from polytag.nn.encoding.encoders import Transformer
from polytag.nn.training import devices
from polytag.nn.training.devices import multiplies_in_bf16, pick_precision, quick_products


@pytest.mark.parametrize(
    ("device", "dtype", "inside"),
    [("cuda", torch.bfloat16, "high"), ("cuda", None, "highest"), ("cpu", torch.bfloat16, "highest")],
)
def test_float32_products_are_rounded_on_a_gpu_that_rounds_others_anyway(
    device: str, dtype: torch.dtype | None, inside: str
) -> None:
    assert torch.get_float32_matmul_precision() == "highest"
    with pytest.raises(ValueError), quick_products(torch.device(device), dtype):
        assert torch.get_float32_matmul_precision() == inside
        raise ValueError
    assert torch.get_float32_matmul_precision() == "highest"


def bert(hidden: int) -> Transformer:
    config = {"model_type": "bert", "hidden_size": hidden, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}
    return Transformer({**config, "intermediate_size": 2 * hidden}, None)


@pytest.mark.parametrize("able", [False, True])
def test_transformers_use_bf16_on_a_processor_that_has_it(able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By choice on a CPU, for networks whose products are large; a named precision is obeyed anywhere."""
    monkeypatch.setattr(devices, "multiplies_in_bf16", lambda: able)
    cpu, large, small = torch.device("cpu"), torch.nn.Sequential(bert(128)), bert(32)
    assert pick_precision("auto", cpu, large) == (torch.bfloat16 if able else None)
    assert pick_precision("auto", cpu, small) is None and pick_precision("auto", cpu, torch.nn.Linear(512, 512)) is None
    assert pick_precision("fp32", cpu, large) is None and pick_precision("bf16", cpu, small) is torch.bfloat16


@pytest.mark.parametrize(
    ("limit", "able"),
    [("", True), ("AVX512_CORE_BF16", True), ("AVX512_CORE_AMX", True), ("AVX2", False), ("AVX512_CORE_VNNI", False)],
)
def test_instructions_that_are_hidden_are_not_counted_on(limit: str, able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit) if limit else monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    multiplies_in_bf16.cache_clear()
    try:
        assert multiplies_in_bf16() is able
    finally:
        monkeypatch.undo()
        multiplies_in_bf16.cache_clear()


def test_a_processor_that_only_announces_its_tiles_multiplies_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product is tried in another process, which an illegal instruction may end."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True, raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    cpu, large = torch.device("cpu"), torch.nn.Sequential(bert(128))
    for work, able in ((lambda: None, True), (lambda: os.kill(os.getpid(), signal.SIGILL), False)):
        monkeypatch.setattr(devices, "_product_in_bf16", work)
        multiplies_in_bf16.cache_clear(), devices.ended_by_bf16.cache_clear()
        assert pick_precision("auto", cpu, large) == (torch.bfloat16 if able else None)
        if not able:
            with pytest.raises(ConfigError, match="fails at them"):
                pick_precision("bf16", cpu, large)
    monkeypatch.undo()
    multiplies_in_bf16.cache_clear(), devices.ended_by_bf16.cache_clear()


def test_a_trial_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_PATIENCE", 0.1)
    start = time.monotonic()
    assert not devices.survives(lambda: time.sleep(60))
    assert time.monotonic() - start < 10


def test_states_in_bf16_are_near_those_in_float32() -> None:
    torch.manual_seed(0)
    encoder = bert(128).eval()
    ids = torch.arange(48).view(4, 12) % 50
    with torch.inference_mode():
        exact = encoder(ids, torch.ones_like(ids, dtype=torch.bool))
        with devices.autocast(torch.device("cpu"), torch.bfloat16):
            rounded = encoder(ids, torch.ones_like(ids, dtype=torch.bool)).float()
    worst = float((exact - rounded).abs().max())
    assert 0 < worst < 0.05
