"""The paired bootstrap of the benchmarks: a planted difference is found, none where there is none, and F1 is the package's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import DataError
from polytag.metrics.of_sets import macro_f1, micro_f1, subset_accuracy

_SPEC = importlib.util.spec_from_file_location("bootstrap", Path(__file__).parents[1] / "benchmarks" / "bootstrap.py")
assert _SPEC is not None and _SPEC.loader is not None
bootstrap: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(bootstrap)

TRUTH = np.random.default_rng(0).random((400, 12)) < 0.2


def sets(dense: NDArray[Any]) -> csr_array:
    return csr_array(dense.astype(np.float32))


def guessed(wrong: float, seed: int) -> tuple[csr_array, csr_array]:
    """The truth, with so many of its cells turned over."""
    flips = np.random.default_rng(seed).random(TRUTH.shape) < wrong
    return sets(TRUTH ^ flips), sets(TRUTH)


def test_a_planted_difference_is_found_with_its_sign_and_size() -> None:
    worse, better = [guessed(0.08, seed) for seed in (1, 2, 3)], [guessed(0.05, seed) for seed in (4, 5, 6)]
    found = bootstrap.compare(worse, better, draws=1000)
    for name, metric in (("micro_f1", micro_f1), ("macro_f1", macro_f1)):
        expected = np.mean([metric(t, d) for d, t in better]) - np.mean([metric(t, d) for d, t in worse])
        low, high = found[name]["interval_95"]
        assert found[name]["difference"] == pytest.approx(expected, abs=1e-6), "F1 as the package measures it"
        assert 0 < low < expected < high
    back = bootstrap.compare(better, worse, draws=1000)
    assert back["micro_f1"]["interval_95"][1] < 0


def test_models_that_are_equally_good_have_zero_inside() -> None:
    inside = 0
    for trial in range(20):
        base, other = ([guessed(0.06, 100 * trial + seed) for seed in range(start, start + 3)] for start in (0, 50))
        low, high = bootstrap.compare(base, other, draws=300)["micro_f1"]["interval_95"]
        inside += low <= 0 <= high
    assert inside >= 15, "about 19 of 20, had the seeds been drawn too"


def test_it_is_paired() -> None:
    """A model that differs in a few documents only has an interval far narrower than its own spread over documents."""
    base = guessed(0.08, 1)
    decided = base[0].toarray()
    decided[:8] = TRUTH[:8]
    found = bootstrap.compare([base], [(sets(decided), base[1])], draws=500)["micro_f1"]
    low, high = found["interval_95"]
    assert low > 0 and high - low < 0.02
    same = bootstrap.compare([base], [base], draws=100)["micro_f1"]
    assert same["interval_95"] == [0.0, 0.0]


def test_sets_of_every_rule_are_kept_and_read_again(tmp_path: Path) -> None:
    """The paper's rule is the decoded set; for a model that decodes none, it is 0.5."""
    (decided, truth), (half, _), (decoded, _) = guessed(0.1, 3), guessed(0.2, 4), guessed(0.3, 5)
    plain, generated = tmp_path / "new" / "aapd-laco-0.npz", tmp_path / "new" / "aapd-sgm-0.npz"
    best = {"test": np.zeros((truth.shape[0], 5), dtype=np.int32)}
    bootstrap.keep(plain, {"test": (truth, {"decided": decided, "0.5": half})}, best)
    bootstrap.keep(generated, {"test": (truth, {"decided": decided, "0.5": half, "decoded": decoded})}, best)
    for path, rule, expected in ((plain, "decided", decided), (plain, "paper", half), (generated, "paper", decoded)):
        again = bootstrap.kept(path, "test", rule)
        assert not (again[0] != expected).nnz and not (again[1] != truth).nnz and again[1].shape == truth.shape
    with pytest.raises(SystemExit, match="without --test"):
        bootstrap.kept(plain, "valid")
    with pytest.raises(SystemExit, match="no sets by 'decoded'"):
        bootstrap.kept(plain, "test", "decoded")


def test_subset_accuracy_is_the_packages() -> None:
    worse, better = guessed(0.08, 1), guessed(0.03, 2)
    found = bootstrap.compare([worse], [better], draws=200)["subset_accuracy"]
    assert found["base_by_seed"] == pytest.approx([subset_accuracy(worse[1], worse[0])])
    assert found["difference"] == pytest.approx(subset_accuracy(better[1], better[0]) - subset_accuracy(worse[1], worse[0]))
    assert found["interval_95"][0] > 0


def test_other_documents_are_refused() -> None:
    with pytest.raises(SystemExit, match="same documents"):
        bootstrap.compare([guessed(0.1, 0)], [(sets(TRUTH), sets(TRUTH[::-1]))], draws=10)


def test_families_are_drawn_whole() -> None:
    """Copies tell nothing new: an interval over families of four copies is that of one copy each."""
    from polytag.metrics.bootstrap import bootstrap_interval, paired_bootstrap, resamples

    families = np.repeat(np.arange(400), 4)
    decided, truth = guessed(0.08, 1)
    other, _ = guessed(0.05, 2)
    copied, copies, others = (csr_array(part[families]) for part in (decided, truth, other))
    for block in resamples(1600, 10, 0, families=families):
        assert (block.reshape(400, 4, -1) == block[::4][:, None]).all() and (block.sum(axis=0) == 1600).all()
    alone = bootstrap_interval(truth, decided, "micro_f1", 1000, 0)
    whole = bootstrap_interval(copies, copied, "micro_f1", 1000, 0, families)
    apart = bootstrap_interval(copies, copied, "micro_f1", 1000, 0)
    assert whole == pytest.approx(alone, abs=2e-3)
    assert (whole.high - whole.low) / (apart.high - apart.low) == pytest.approx(2, rel=0.15)
    pair = paired_bootstrap(copies, others, copied, "micro_f1", 500, 0, families)
    assert pair == pytest.approx(paired_bootstrap(truth, other, decided, "micro_f1", 500, 0), abs=2e-3)
    with pytest.raises(DataError, match="3 families for 1600 documents"):
        bootstrap_interval(copies, copied, families=families[:3])
