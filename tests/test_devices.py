"""How precisely products are computed: less than float32 only where it was asked for, and only for as long."""

from __future__ import annotations

import pytest
import torch

from polytag.nn.training.devices import quick_products


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
