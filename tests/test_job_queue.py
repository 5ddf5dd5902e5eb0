"""The queue of the benchmarks: its order, what it resumes, where it stops, and what a job needs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from polytag.classifier import Classifier

JOBS = Path(__file__).parents[1] / "benchmarks" / "jobs"
_SPEC = importlib.util.spec_from_file_location("job_queue", Path(__file__).parents[1] / "benchmarks" / "job_queue.py")
assert _SPEC is not None and _SPEC.loader is not None
job_queue: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(job_queue)


def job(name: str, seeds: tuple[int, ...] = (0,), **other: Any) -> dict[str, Any]:
    return {"name": name, "corpus": "toy", "model": "br", "options": {}, "seeds": list(seeds), **other}


class Bench:
    """Trains by name: it remembers what it was asked for, and fails where it is told to."""

    def __init__(self, folder: Path) -> None:
        self.out, self.runs = folder / "rows.json", folder / "runs"
        self.asked: list[tuple[str, int]] = []
        self.broken: set[str] = set()

    def train(self, one: dict[str, Any], seed: int) -> dict[str, Any]:
        self.asked.append((one["name"], seed))
        if one["name"] in self.broken:
            return {"seed": seed, "error": "no memory"}
        (self.runs / f"{one['name']}-{seed}").mkdir(parents=True, exist_ok=True)
        return {"seed": seed, "valid": {"micro_f1": 0.5}}

    def run(self, *files: list[dict[str, Any]], **told: Any) -> list[tuple[str, int]]:
        left: list[tuple[str, int]] = job_queue.run_queue(
            list(files), job_queue.Ledger(self.out, resume=True), self.train, len, lambda made: None,
            run_of=lambda one, seed: self.runs / f"{one['name']}-{seed}", **told,
        )  # fmt: skip
        return left


def test_every_job_gets_its_first_seed_before_any_gets_its_second(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.run([job("a", (0, 1)), job("b", (0, 1))], [job("c", (5,))]) == []
    assert bench.asked == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("c", 5)]


def test_it_goes_on_where_it_ended_and_tries_failures_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.broken = {"b"}
    bench.run([job("a"), job("b")])
    bench.broken = set()
    bench.asked.clear()
    bench.run([job("a", (0, 1)), job("b")])
    assert bench.asked == [("b", 0), ("a", 1)]
    written = {one["name"]: one["rows"] for one in json.loads(bench.out.read_text())}
    assert [row["seed"] for row in written["a"]] == [0, 1] and "error" not in written["b"][0]


def test_other_options_make_old_rows_void(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run([job("a", (0, 1))])
    bench.asked.clear()
    bench.run([job("a", (0,), options={"epochs": 3})])
    assert bench.asked == [("a", 0)] and len(json.loads(bench.out.read_text())[0]["rows"]) == 1


def test_it_starts_nothing_that_would_end_too_late(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    left = bench.run([job("short", gpu_seconds=20), job("long", gpu_seconds=500), job("other", gpu_seconds=30)], seconds=60)
    assert left == [("long", 0)] and bench.asked == [("short", 0), ("other", 0)]


def test_needed_runs_that_are_missing_are_trained_first_and_count(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    jobs = [job("bert", (0, 1), gpu_seconds=40), job("mixed", (0, 1), needs=["bert"], gpu_seconds=10)]
    bench.run(jobs, parallel=2)
    assert bench.asked.count(("bert", 0)) == 1 and bench.asked.index(("bert", 1)) < bench.asked.index(("mixed", 1))
    for path in bench.runs.iterdir():  # as on another machine
        path.rmdir()
    bench.asked.clear()
    again = [job("bert", (0, 1), gpu_seconds=40), job("mixed", (0, 1, 2), needs=["bert"], gpu_seconds=10)]
    assert bench.run(again, seconds=45) == [("mixed", 2)], "50 seconds with its member"
    assert bench.run(again) == [] and bench.asked == [("bert", 2), ("mixed", 2)]


def test_members_of_other_seeds_are_awaited(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    six = job("six", needs=[["bert", 0], ["bert", 1]])
    bench.run([job("bert", (0, 1))], [six], parallel=3)
    assert bench.asked[-1] == ("six", 0) and len(bench.asked) == 3
    with pytest.raises(SystemExit, match="needs bert, which is in none of the files"):
        Bench(tmp_path / "other").run([six])


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.json")), ids=lambda path: path.stem)
def test_every_committed_job_is_accepted(path: Path) -> None:
    """Its settings exist and fit together, and its name is its own; mixtures of finished runs need these."""
    jobs = json.loads(path.read_text(encoding="utf-8"))
    assert len({one["name"] for one in jobs}) == len(jobs)
    for one in jobs:
        if "{runs}" not in json.dumps(one["options"]):
            Classifier(one["model"], one["options"])
