"""A training that is ended as soon as it is clear that it will not be over in time, and what ``auto`` does then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Toy
from polytag.auto import model_search, pace, trial
from polytag.auto.clock import Clock, vector_seconds
from polytag.auto.facts import Facts
from polytag.auto.ladder import Candidate
from polytag.auto.machine import Speeds
from polytag.auto.model_search import Wanted
from polytag.auto.trial import Workshop
from polytag.corpus import Corpus
from polytag.models.embed import Embed
from polytag.models.mixture.sent_documents import corpus_state
from polytag.models.model import State
from polytag.run import Run
from polytag.work.workplace import HERE
from toys import Stopwatch, tiny_bert

FACTS = Facts(7_000, 90, 300, 1.2, 400, 0.99, True, False)
EMBED = Candidate("embed", "embed", "vectors", 0.8)
SPEEDS = Speeds(1e11, 1e11, 1e11)  # operations per second


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    found = Stopwatch()
    monkeypatch.setattr(pace, "time", found)
    return found


# -- a loop ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "done"), [(90.0, 6), (92.0, 100)])
def test_a_loop_that_will_be_too_late_is_ended_at_once(clock: Stopwatch, limit: float, done: int) -> None:
    run, seen = pace.TimedRun(limit), 0
    try:
        for _ in run.track(range(100), "steps"):
            clock.now += 1.0
            seen += 1
    except pace.TooSlow as slow:
        assert slow.seconds == pytest.approx(100.0)
    assert seen == done


def test_a_loop_is_ended_when_other_work_begins_and_not_by_a_slow_first_step(clock: Stopwatch) -> None:
    run, seen = pace.TimedRun(200.0), 0
    with pytest.raises(pace.TooSlow):
        for step in run.track(range(100), "steps"):
            clock.now += 20.0 if step < 1 else 1.0 if step < 50 else 5.0
            seen += 1
    assert 50 < seen < 75, "its mean pace decides"


def test_few_steps_say_nothing_about_the_pace(clock: Stopwatch) -> None:
    for _ in pace.TimedRun(10.0).track(range(49), "folds"):
        clock.now += 1.0


# -- vectors in a search -----------------------------------------------------------------------------------------------


class Slower(Workshop):
    """A place where vectors take a multiple of the planned time."""

    times: float
    seen: list[tuple[int, float, float | None]]

    def train(
        self, candidate: Candidate, train: Corpus, valid: Any, seconds: float, options: Any = None, paced: float | None = None
    ) -> State | None:
        length = options.get("max_length", 256)
        self.seen.append((length, seconds, paced))
        real = self.times * vector_seconds(FACTS, length, SPEEDS)
        return None if paced is None or real <= paced else {"needed": real}


@pytest.mark.parametrize(
    ("times", "lengths"), [(1.0, [256]), (2.4, [256, 128]), (4.4, [256, 64]), (9.0, [256, 32]), (60.0, [256])]
)
def test_texts_are_shortened_where_vectors_turn_out_slow(toy: Toy, times: float, lengths: list[int]) -> None:
    shop, planned = Slower(HERE, {}), vector_seconds(FACTS, 256, SPEEDS)
    shop.times, shop.seen = times, []
    lane = model_search._Lane(FACTS, toy.train, toy.valid, Wanted(10), Clock(20 + 2 * planned), Run(), shop)
    lane.plans.speeds = SPEEDS
    lane.try_out(EMBED)
    assert [length for length, *_ in shop.seen] == lengths
    for _, seconds, paced in shop.seen:
        assert paced == pytest.approx(seconds - 3)
    assert lane.plans.speeds == pytest.approx(SPEEDS.slower(times if times > 2 else 1.0)), "networks are planned with it too"


def test_idle_time_is_not_spent_on_vectors_that_turn_out_too_slow(toy: Toy) -> None:
    """The shortest texts are tried in hope; their pace ends that, so that the search is over early."""
    shop, shortest = Slower(HERE, {}), vector_seconds(FACTS, 32, SPEEDS)
    shop.times, shop.seen = 1.0, []
    lane = model_search._Lane(FACTS, toy.train, toy.valid, Wanted(10), Clock(10 + 0.9 * shortest), Run(), shop)
    lane.plans.speeds = SPEEDS
    lane.try_out(EMBED)
    assert [length for length, *_ in shop.seen] == [32] and "would take about" in lane.tried[-1].reason


def test_what_no_length_makes_fast_enough_is_left_to_a_network(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, planned = Slower(HERE, {}), vector_seconds(FACTS, 256, SPEEDS)
    shop.times, shop.seen = 60.0, []
    lane = model_search._Lane(FACTS, toy.train, toy.valid, Wanted(10), Clock(20 + 2 * planned), Run(), shop)
    lane.plans.speeds, lane.plans.later = SPEEDS, [Candidate("cnn", "cnn", "network", 0.35)]
    monkeypatch.setattr(lane.plans, "fits", lambda *given: True)
    lane.try_out(EMBED)
    assert len(shop.seen) == 1 and "would take about" in lane.tried[-1].reason


def test_vectors_that_are_too_slow_say_how_long_they_would_take(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "_SURE", 0.0)
    monkeypatch.setattr(pace, "_MANY", 2)
    options = {"encoder": str(tiny_bert(tmp_path)), "device": "cpu", "c": [1.0], "precision": "fp32"}
    job = {"name": "embed", "model": "embed", "options": options}
    assert trial.try_job({**job, "paced": 1e-6}, corpus_state(toy.train))["needed"] > 1e-6
    assert trial.try_job({**job, "paced": 600.0}, corpus_state(toy.train))["held"] is not None


def test_vectors_show_their_progress_and_are_the_same_with_it(toy: Toy, tmp_path: Path) -> None:
    """In batches of about the same number of tokens, so that the time that is left can be told."""
    tracked: dict[str, int] = {}

    class Watched(Run):
        def track(self, iterable: Any, description: str, *given: Any) -> Any:
            tracked[description] = len(iterable)
            return iter(iterable)

    model = Embed.build({"encoder": str(tiny_bert(tmp_path)), "device": "cpu", "c": [1.0], "precision": "fp32"})
    model.fit(toy.train, None, Watched())
    assert tracked["document vectors, in batches"] > 1
    texts = toy.train.texts
    assert np.array_equal(model._vectors(texts, None), model._vectors(texts, Watched()))
