"""The comparison of rankings in the benchmarks: hits at k are those of the kept labels, the mean over the seeds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("ranking_bootstrap", BENCHMARKS / "ranking_bootstrap.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ranking_bootstrap", module)
    spec.loader.exec_module(module)
    return module


def test_hits_are_the_mean_over_the_seeds_of_one_name(script: Any, tmp_path: Path) -> None:
    """A name that is the beginning of another one does not take its files."""
    import bootstrap

    truth = csr_array(np.array([[1, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0]], dtype=np.float32))
    right, wrong = np.array([[0, 2, 1, 3, 4], [3, 0, 1, 2, 4]]), np.array([[1, 0, 2, 3, 4], [0, 1, 2, 4, 5]])
    for name, best in (("a-1", right), ("a-2", wrong), ("a-b-1", wrong)):
        bootstrap.keep(tmp_path / f"{name}.npz", {"test": (truth, {"decided": truth})}, {"test": best.astype(np.int32)})
    found = script.hits(tmp_path, "a", "test")
    one, other = [[1, 2 / 3, 2 / 5], [1, 1 / 3, 1 / 5]], [[0, 2 / 3, 2 / 5], [0, 0, 0]]
    assert found == pytest.approx((np.array(one) + np.array(other)) / 2)
    assert script.hits(tmp_path, "a-b", "test") == pytest.approx(np.array(other))
    with pytest.raises(SystemExit, match="there is no c-SEED"):
        script.hits(tmp_path, "c", "test")
