"""Where pieces of work run changes no result: a workplace like a cluster, with read-only copies and functions known by name."""

from __future__ import annotations

import copy
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Toy
from polytag.config.recipe import Recipe
from polytag.datasets.synthetic import Shape, corpus
from polytag.errors import ConfigError, DataError
from polytag.formats.document import ReadOptions
from polytag.models.xlinear import XLinear
from polytag.run import Run
from polytag.verbs import tuning
from polytag.verbs.training import DataPlan, train_corpora
from polytag.verbs.tuning import Trial, tune_run
from polytag.work.child_processes import outcome, result_of, work_named
from polytag.work.workplace import HERE

ONE = {"ngrams": [1], "c": [0.5]}


def locked(state: Any) -> Any:
    """A copy whose arrays nobody can write to, as in a store of shared objects."""
    found = copy.deepcopy(state)
    _lock(found)
    return found


def _lock(state: Any) -> None:
    if isinstance(state, np.ndarray):
        state.flags.writeable = False
    elif isinstance(state, dict | list | tuple):
        for item in state.values() if isinstance(state, dict) else state:
            _lock(item)
    elif hasattr(state, "indptr"):
        _lock([state.data, state.indices, state.indptr])


class FewThreads:
    """A cluster with two workers in this process."""

    pieces = 5

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.jobs: list[str] = []

    def threads(self, jobs: int) -> int:
        return 1

    def share(self, state: Any) -> Any:
        return locked(state)

    def submit(self, work: Any, job: Any, *shared: Any, threads: int = 0) -> Future[Any]:
        name = f"{work.__module__}:{work.__qualname__}"
        self.jobs.append(work.__qualname__)
        return self.pool.submit(lambda: locked(result_of(outcome(work_named(name), locked(job), *shared))))

    def stop(self, future: Future[Any]) -> None:
        future.cancel()


def run_at(place: Any) -> Run:
    run = Run(progress=False)
    run.workplace = place
    return run


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "indptr"):
        return all(same(getattr(one, name), getattr(other, name)) for name in ("data", "indices", "indptr"))
    return bool(np.array_equal(one, other)) and getattr(one, "dtype", None) == getattr(other, "dtype", None)


@pytest.mark.parametrize("negatives", ["teacher", "matcher"])
def test_trees_of_labels(negatives: str) -> None:
    documents = corpus(Shape(documents=600, labels=150, vocabulary=1000))
    options = {"trees": 2, "branching": 4, "max_leaf": 8, "negatives": negatives}
    here, there = XLinear.build(options), XLinear.build(options)
    here.fit(documents, None, run_at(HERE))
    there.fit(documents, None, run_at(place := FewThreads()))
    assert here.forest is not None and there.forest is not None
    assert same(here.forest.state(), there.forest.state()) and here.curve == there.curve
    assert place.jobs.count("instance_tree") == 4 and place.jobs.count("solve_pieces") > 20


@pytest.mark.parametrize("folds", [0, 2])
def test_parts_and_folds_of_a_mixture(toy: Toy, tmp_path: Path, folds: int) -> None:
    recipe = Recipe("mixed", {"parts": ["br", "lp"], "settings": {"all": ONE}, "folds": folds})
    here = train_corpora(recipe, toy.train, toy.valid, tmp_path / "here")
    there = train_corpora(recipe, toy.train, toy.valid, tmp_path / "there", workplace=(place := FewThreads()))
    assert same(here.model.state()["parts"][0]["state"], there.model.state()["parts"][0]["state"])
    assert here.decision.report == there.decision.report and place.jobs == ["train_job"] * (2 * max(1, folds))


@pytest.fixture
def plan(toy: Toy, tmp_path: Path) -> DataPlan:
    toy.train.write(tmp_path / "train.jsonl")
    toy.valid.write(tmp_path / "valid.jsonl")
    return DataPlan(tmp_path / "train.jsonl", tmp_path / "valid.jsonl", None, ReadOptions())


def said(trials: list[Trial]) -> list[Trial]:
    return [trial._replace(seconds=0.0) for trial in trials]


def test_trials_and_what_stops_them(plan: DataPlan, tmp_path: Path) -> None:
    """Trials in parallel are those of one machine, resumed or not; below the median of four pilots a trial ends."""
    ranges = {"c": {"low": 0.0001, "high": 10, "log": True}, "balance": {"low": 0, "high": 1}}
    recipe = Recipe("br", {"ngrams": [1]}, tune={"trials": 12, "at_once": 3, "pilot": 0.5, "ranges": ranges})
    here = tune_run(recipe, plan, tmp_path / "here")
    there = tune_run(recipe, plan, tmp_path / "there", workplace=FewThreads())
    assert said(here) == said(there)
    assert (tmp_path / "here" / "best.toml").read_text() == (tmp_path / "there" / "best.toml").read_text()
    stopped = [trial for trial in here if trial.failure.startswith("stopped early")]
    assert 1 <= len(stopped) <= 9 and all(trial.value is None and trial.pilot is not None for trial in stopped)
    for trial in here:
        pilots = [before.pilot for before in here[: max(0, trial.number - 2)] if before.pilot is not None]
        below = len(pilots) >= 4 and trial.pilot is not None and trial.pilot < np.median(pilots)
        assert (trial in stopped) == below
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning._Trials, "_ended", _dies_after(4, tuning._Trials._ended))
        with pytest.raises(KeyboardInterrupt):
            tune_run(recipe, plan, tmp_path / "killed")
    assert said(tune_run(recipe, plan, tmp_path / "killed", resume=True)) == said(here)


def _dies_after(count: int, real: Any) -> Any:
    ended = []

    def end(*given: Any) -> Any:
        ended.append(given)
        if len(ended) > count:
            raise KeyboardInterrupt
        return real(*given)

    return end


@pytest.mark.parametrize(
    ("tune", "message"),
    [({"at_once": 0}, "'at_once' is 0"), ({"pilot": 1.0}, "'pilot' is 1.0"), ({"pilot": "half"}, "'pilot' is 'half'")],
)
def test_wrong_numbers_of_a_search(tune: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Recipe("br", tune=tune).checked()


def test_only_functions_of_polytag_are_done_by_name() -> None:
    with pytest.raises(ValueError, match="no function of polytag"):
        work_named("os:system")


def failing(job: Any) -> Any:
    raise DataError(f"no {job['name']}") if job["name"] else RuntimeError("a bug")


def test_an_error_comes_back_as_it_was() -> None:
    with pytest.raises(DataError, match="no apple"):
        result_of(outcome(failing, {"name": "apple"}))
    with pytest.raises(RuntimeError, match=r"in failing(.|\n)*a bug"):
        result_of(outcome(failing, {"name": ""}))
