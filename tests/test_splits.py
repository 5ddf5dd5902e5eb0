"""Splits: every document in exactly one part, groups whole, labels spread evenly, and fast."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from polytag.errors import ConfigError, DataError, PolytagError
from polytag.formats.splits import By, fold_rows, split_rows, stratified_parts, time_parts
from polytag.labels import indicator
from polytag.verbs.partition import split_file

FRACTIONS = st.lists(st.integers(1, 8), min_size=1, max_size=5).map(lambda shares: [share / sum(shares) for share in shares])
LABELLED = st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=40).map(lambda rows: indicator(rows, 6))


def long_tail(n: int, n_labels: int, per_document: float, seed: int = 0) -> csr_array:
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, n_labels + 1)
    counts = rng.poisson(per_document, n)
    drawn = rng.choice(n_labels, size=int(counts.sum()), p=weight / weight.sum())
    return indicator(np.split(drawn, np.cumsum(counts)[:-1]), n_labels)


@given(LABELLED, FRACTIONS, st.sampled_from(["random", "group", "stratified"]), st.integers(0, 99))
def test_every_document_is_in_exactly_one_part_and_the_seed_decides(
    truth: csr_array, fractions: list[float], by: By, seed: int
) -> None:
    n = truth.shape[0]
    groups = [f"g{i % 7}" for i in range(n)]
    parts = split_rows(by, fractions, n, truth, groups, seed)
    assert len(parts) == len(fractions)
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    assert all((np.diff(part) > 0).all() for part in parts)
    again = split_rows(by, fractions, n, truth, groups, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize("by", ["random", "group", "stratified"])
def test_another_seed_gives_another_split(by: By) -> None:
    truth = long_tail(200, 10, 2)
    groups = [str(i // 2) for i in range(200)]
    first, second = (split_rows(by, [0.5, 0.5], 200, truth, groups, seed)[0].tolist() for seed in (0, 1))
    assert first != second


@given(st.integers(1, 500), FRACTIONS)
def test_random_parts_have_the_sizes_asked_for(n: int, fractions: list[float]) -> None:
    parts = split_rows("random", fractions, n, indicator([[]] * n, 1), None)
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) - fraction * n) <= 1


@given(st.lists(st.integers(0, 12), min_size=1, max_size=80), FRACTIONS, st.integers(0, 9))
def test_a_group_never_straddles(numbers: list[int], fractions: list[float], seed: int) -> None:
    groups = [f"g{number}" if number else "" for number in numbers]
    parts = split_rows("group", fractions, len(groups), indicator([[]] * len(groups), 1), groups, seed)
    for group in set(groups) - {""}:
        assert sum(any(groups[row] == group for row in part) for part in parts) == 1


def test_documents_without_a_group_are_spread_and_sizes_are_met() -> None:
    groups = [""] * 600 + [f"g{i // 20}" for i in range(400)]
    parts = split_rows("group", [0.8, 0.1, 0.1], 1000, indicator([[]] * 1000, 1), groups)
    for part, size in zip(parts, (800, 100, 100), strict=True):
        assert abs(len(part) - size) <= 20
        assert (part < 600).any()


def test_large_groups_may_land_in_any_part() -> None:
    groups = ["large"] * 50 + [f"g{i}" for i in range(450)]
    truth = indicator([[]] * 500, 1)
    home = {
        int(np.argmax([0 in part for part in split_rows("group", [0.5, 0.3, 0.2], 500, truth, groups, s)])) for s in range(30)
    }
    assert home == {0, 1, 2}


def by_rescanning(truth: csr_array, fractions: Sequence[float], rng: np.random.Generator) -> list[int]:
    """Sechidis, Tsoumakas and Vlahavas's algorithm as they write it down: all labels are counted again in every round."""
    dense = truth.toarray() > 0
    n, n_labels = dense.shape
    order = rng.permutation(n)
    turn = rng.integers(len(fractions), size=n)
    wanted = np.outer(fractions, dense.sum(axis=0))
    size = np.array(fractions) * n
    part = np.full(n, -1)

    def give(row: int, want: np.ndarray) -> None:
        from_turn = [(int(turn[row]) + step) % len(fractions) for step in range(len(fractions))]
        part[row] = best = max(from_turn, key=lambda at: (want[at], size[at]))  # the first of equal ones
        wanted[best, dense[row]] -= 1
        size[best] -= 1

    while (left := dense[part < 0].sum(axis=0)).any():
        label = min((j for j in range(n_labels) if left[j]), key=lambda j: left[j])
        for row in order:
            if part[row] < 0 and dense[row, label]:
                give(row, wanted[:, label])
    for row in order:
        if part[row] < 0:
            give(row, size)
    return part.tolist()


@given(LABELLED, FRACTIONS, st.integers(0, 9))
@settings(max_examples=150)
def test_stratification_equals_the_papers_algorithm(truth: csr_array, fractions: list[float], seed: int) -> None:
    fast = stratified_parts(truth, fractions, np.random.default_rng(seed))
    assert fast.tolist() == by_rescanning(truth, fractions, np.random.default_rng(seed))


def test_stratification_spreads_labels_better_than_chance() -> None:
    truth = long_tail(2000, 60, 3)
    total = truth.sum(axis=0)

    def error(by: By) -> float:
        parts = split_rows(by, [0.1] * 10, 2000, truth, None)
        return float(np.mean([np.abs(truth[part].sum(axis=0) - 0.1 * total).mean() for part in parts]))

    assert error("stratified") < 0.5 * error("random")


def test_stratification_puts_a_rare_label_into_every_part() -> None:
    truth = indicator([[0, 1] if row < 5 else [1] for row in range(1000)], 2)
    for part in split_rows("stratified", [0.2] * 5, 1000, truth, None):
        assert truth[part].sum(axis=0).tolist() == [1, 200]


def test_stratification_is_fast() -> None:
    truth = long_tail(24_000, 629, 8)
    start = time.process_time()
    split_rows("stratified", [0.8, 0.1, 0.1], 24_000, truth, None)
    assert time.process_time() - start < 4


@given(LABELLED.filter(lambda truth: truth.shape[0] >= 5), st.integers(2, 5), st.sampled_from(["random", "group", "stratified"]))
def test_every_document_is_held_out_once(truth: csr_array, k: int, by: By) -> None:
    n = truth.shape[0]
    groups = [str(i // 2) for i in range(n)]
    folds = fold_rows(by, k, n, truth, groups)
    assert len(folds) == k
    assert sorted(np.concatenate([held for _, held in folds]).tolist()) == list(range(n))
    for train, held in folds:
        assert sorted([*train, *held]) == list(range(n))


@pytest.mark.parametrize("fractions", [[], [0.5], [0.5, 0.6], [1.2, -0.2], [1.0, 0.0]])
def test_fractions_that_make_no_sense(fractions: list[float]) -> None:
    with pytest.raises(ConfigError, match="sum to 1"):
        split_rows("random", fractions, 10, indicator([[]] * 10, 1), None)


def test_mistakes_are_named() -> None:
    truth = indicator([[]] * 3, 1)
    with pytest.raises(DataError, match="no group to split by"):
        split_rows("group", [0.5, 0.5], 3, truth, None)
    with pytest.raises(ConfigError, match="known: random, group, stratified"):
        split_rows("luck", [1.0], 3, truth, None)  # type: ignore[arg-type]
    for k in (1, 4):
        with pytest.raises(ConfigError, match=f"{k} folds of 3 documents"):
            fold_rows("random", k, 3, truth, None)


# -- the verb ----------------------------------------------------------------------------------------------------------


def numbered(folder: Path, count: int = 40) -> Path:
    """Documents with a source and a date, newest first."""
    rows = []
    for i in range(count):
        labels, date = ["fish"] if i % 4 else ["sea"], f"2026-01-{28 - i // 2:02d}"
        rows.append({"id": i, "text": f"cod {i}", "labels": labels, "source": f"s{i % 7}", "date": date})
    path = folder / "all.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def parts_in(folder: Path) -> dict[str, list[int]]:
    found = {path.stem: path.read_text().splitlines() for path in folder.glob("*.jsonl") if path.stem != "labels"}
    return {name: [int(json.loads(line)["id"]) for line in lines] for name, lines in found.items()}


def test_split_writes_every_document_once(tmp_path: Path) -> None:
    counts = split_file(numbered(tmp_path), tmp_path / "out", parts=".5,.25,.25", seed=3)
    found = parts_in(tmp_path / "out")
    assert counts == {"train": 20, "valid": 10, "test": 10} == {name: len(rows) for name, rows in found.items()}
    assert sorted(i for rows in found.values() for i in rows) == list(range(40))


def test_split_by_time_puts_the_newest_last_and_keeps_a_time_together(tmp_path: Path) -> None:
    split_file(numbered(tmp_path), tmp_path / "out", time="date", parts=".77,.23")
    found = parts_in(tmp_path / "out")
    date = {i: 28 - i // 2 for i in range(40)}
    assert max(date[i] for i in found["train"]) < min(date[i] for i in found["test"])
    assert len(found["train"]) == 32, "31 are wanted; the other document of that day comes too"
    assert time_parts(["9", "10", "8", "100"], [0.5, 0.5]).tolist() == [0, 1, 0, 1], "numbers sort as numbers"


def test_split_by_group_keeps_groups_together(tmp_path: Path) -> None:
    split_file(numbered(tmp_path), tmp_path / "out", by="group", group="source")
    found = parts_in(tmp_path / "out")
    assert sum(len({i % 7 for i in rows}) for rows in found.values()) == 7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "best"}, "cannot split by 'best'; known: random, group, stratified, time"),
        ({"parts": ".8"}, "write two or three shares that sum to 1"),
        ({"parts": "a,b"}, "write two or three shares that sum to 1"),
        ({"parts": ".8,.8"}, "must be positive and sum to 1"),
        ({"by": "time", "group": "source"}, "--group names a column that a split by time does not use"),
        ({"group": "nothing"}, "nothing"),
        ({"by": "time"}, "time"),
    ],
)
def test_wrong_splits_write_nothing(tmp_path: Path, options: dict[str, str], words: str) -> None:
    path = numbered(tmp_path)
    with pytest.raises(PolytagError, match=words):
        split_file(path, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
