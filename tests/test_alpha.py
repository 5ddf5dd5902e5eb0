"""The sweep over the weight of a mixture: its ends are the two models alone, and its metrics are the package's."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from polytag.metrics.of_sets import micro_f1, set_metrics, subset_accuracy


@pytest.fixture
def alpha(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("alpha")


def test_the_ends_are_the_two_models_and_the_middle_their_mean(alpha: Any) -> None:
    rng = np.random.default_rng(0)
    truth = csr_array((rng.random((40, 6)) < 0.3).astype(np.float32))
    first, second = (csr_array(rng.random((40, 6)).astype(np.float32)) for _ in range(2))
    found = alpha.sweep(first, second, truth)
    mixed = (first.toarray() + second.toarray()) / 2
    for at, dense in ((0, second.toarray()), (10, mixed), (20, first.toarray())):
        sets = csr_array((dense >= 0.5).astype(np.float32))
        assert found["micro_f1"][at] == pytest.approx(micro_f1(truth, sets))
        assert found["subset_accuracy"][at] == pytest.approx(subset_accuracy(truth, sets))
        assert found["hamming_accuracy"][at] == pytest.approx(set_metrics(truth, sets)["hamming_accuracy"])
    assert list(found) == ["hamming_accuracy", "subset_accuracy", "micro_f1", "macro_f1"] and len(alpha.ALPHAS) == 21


def test_kept_scores_are_read_again(alpha: Any, tmp_path: Path) -> None:
    matrix = csr_array(np.array([[0.5, 0.0], [0.25, 1.0]], dtype=np.float32))
    arrays = {"valid_data": matrix.data.astype(np.float16), "valid_indices": matrix.indices, "valid_indptr": matrix.indptr}
    np.savez_compressed(tmp_path / "one-0.npz", **arrays)
    assert (alpha.scores_of(tmp_path / "one-0.npz", "valid", (2, 2)).toarray() == matrix.toarray()).all()
