"""How much of the time and of the documents a candidate of ``auto`` gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conftest import Toy
from polytag.auto.clock import Clock, epoch_seconds, vector_seconds
from polytag.auto.facts import Facts
from polytag.auto.ladder import Candidate, ladder
from polytag.auto.machine import Speeds
from polytag.auto.model_search import Wanted
from polytag.auto.model_search import _Lane as Lane
from polytag.auto.pilot import Pilot
from polytag.auto.trial import Tried, Workshop
from polytag.corpus import Corpus
from polytag.models.model import State
from polytag.run import Run
from polytag.work.workplace import HERE
from toys import Unfinished

FACTS = Facts(7_000, 90, 120, 1.2, 400, 0.99, True, False)


def even(speed: float) -> Speeds:
    """A machine that is as fast at everything."""
    return Speeds(speed, speed, speed)


# -- linear models, by pilots ------------------------------------------------------------------------------------------


def test_what_is_expected_follows_the_learning_curve_of_the_first() -> None:
    tried = Pilot(Corpus.of(["a"] * 400, [["x"]] * 400), 400, 0)
    assert tried.hopeless(0.5, []) == ""
    others = [0.75]  # half of its errors are gone with all documents
    assert tried.hopeless(0.5, others) == ""
    assert tried.hopeless(0.48, others) == "", "expected .74, within noise"
    assert "expected 0.600 after 0.200" in tried.hopeless(0.2, others)


def test_two_pilots_tell_the_start_of_a_training_from_its_documents() -> None:
    """The first one alone takes the time of the start for that of its documents, and finds all far too long."""
    assert Pilot.of(Corpus.of(["a"] * 1_999, [["x"]] * 1_999), 0) is None
    assert Pilot.of(Corpus.of(["a"] * 70_000, [["x"]] * 70_000), 0).larger is None
    tried = Pilot.of(Corpus.of([str(number) for number in range(100_000)], [["x"]] * 100_000), 0)
    assert tried is not None and tried.larger is not None
    assert (len(tried.documents), len(tried.larger)) == (2_000, 20_000)
    assert set(tried.documents.texts) <= set(tried.larger.texts)
    real = [2.5 + 2e-5 * documents for documents in (2_000, 20_000, 100_000)]
    assert tried.seconds_of_all(real[0]) > 5 * real[2]
    assert tried.seconds_of_all(*real[:2]) == pytest.approx(1.15 * real[2])
    assert tried.seconds_of_all(4.0, 400.0) == tried.seconds_of_all(4.0), "a disturbed second one makes nothing longer"


def test_a_second_pilot_is_made_where_all_documents_seem_too_many(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Lane(FACTS, toy.train, None, Wanted(2.0), Clock(120), Run(), Workshop(HERE, {}))
    lane.plans.pilot, asked = Pilot(Corpus.of(["a"] * 100_000, [["x"]] * 100_000), 2_000, 0), []

    def trains(candidate: Candidate, documents: Corpus, valid: Any, seconds: float) -> State | None:
        asked.append((len(documents), seconds))
        return {"seconds": 3.0}

    monkeypatch.setattr(lane.shop, "train", trains)
    br = Candidate("br", "br", "linear", 0.4)
    assert lane.plans.seconds_of_all(br, 3.0, 30.0) == lane.plans.pilot.seconds_of_all(3.0), "they fit"
    assert not asked
    assert lane.plans.seconds_of_all(br, 2.6, 20.0) == pytest.approx(1.15 * (3.0 + 80_000 * 0.4 / 18_000))
    assert asked == [(20_000, 10.0)]
    assert lane.plans.seconds_of_all(br, 9.0, 20.0) == lane.plans.pilot.seconds_of_all(9.0), "it says enough"
    assert len(asked) == 1


def test_a_part_that_is_far_smaller_than_that_of_the_first_is_not_tried(toy: Toy) -> None:
    lane = Lane(FACTS, toy.train, None, Wanted(2.0), Clock(120), Run(), Workshop(HERE, {}))
    lane.plans.pilot = Pilot(toy.train, 5, 0)
    share = 0.4 * len(toy.train)
    for documents, tried in ((2 * share - 2, True), (2 * share + 4, False)):
        lane.tried[:] = [Tried("br", 0.8, 1.0, int(documents))]
        assert isinstance(lane.plans.fitted(100.0, 40.0), str) is not tried
    lane.tried.clear()
    assert len(lane.plans.fitted(100.0, 40.0)[0]) == int(share), "the first one is trained anyway"


# -- an encoder's vectors ----------------------------------------------------------------------------------------------


def test_vectors_read_as_many_tokens_as_fit_into_the_time(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """All documents at the full length, then shorter; without a pilot, which would read an eighth of them twice."""
    shop = Workshop(HERE, {})
    lane = Lane(replace(FACTS, words=300), toy.train, None, Wanted(2), Clock(120), Run(), shop)
    lane.plans.speeds, lane.plans.later = even(1e11), [Candidate("cnn", "cnn", "network", 0.35)]
    monkeypatch.setattr(lane.plans, "fits", lambda *given: True)  # so that no time would be idle
    embed = Candidate("embed", "embed", "vectors", 0.8)
    needed = {length: vector_seconds(lane.plans.facts, length, lane.plans.speeds) for length in (256, 128, 64, 32)}
    assert needed[256] > 1.9 * needed[128] > 3.5 * needed[64] > 6.9 * needed[32]
    for length in (256, 128, 64, 32):
        planned = lane.plans.vectors(embed, 6 + 1.51 * needed[length])
        assert not isinstance(planned, str)
        assert len(planned[0]) == len(toy.train) and planned[1] == ({} if length == 256 else {"max_length": length})
    lane.tried[:] = [Tried("br", 0.8, 20.0, 100)]  # so the classifiers over the vectors will take 30 s
    assert lane.plans.vectors(embed, 6 + 29 + 1.5 * needed[256])[1] == {"max_length": 128}
    assert lane.plans.vectors(embed, 6 + 31 + 1.5 * needed[256])[1] == {}
    forest = replace(embed, model="xlinear", options={"trees": 3})  # 90 s
    assert lane.plans.vectors(forest, 6 + 89 + 1.5 * needed[256])[1] == {"max_length": 128}
    assert lane.plans.vectors(forest, 6 + 91 + 1.5 * needed[256])[1] == {}
    lane.tried.clear()
    assert "would take about" in str(lane.plans.vectors(embed, 6 + 1.49 * needed[32]))


def test_vectors_are_tried_in_time_that_would_be_idle(toy: Toy) -> None:
    """The measured speed may be half of the real one; but what would take far too long is not tried."""
    lane = Lane(FACTS, toy.train, None, Wanted(2), Clock(120), Run(), Workshop(HERE, {}))
    embed, left = Candidate("embed", "embed", "vectors", 0.8), lane.clock.left()
    enough = 1.5 * vector_seconds(FACTS, 32, even(1.0))  # operations at the shortest length
    for times, tried in ((2.0, True), (4.0, False)):
        lane.plans.speeds = even(enough / (times * left - 6))
        planned = lane.plans.vectors(embed, embed.share * left)
        assert (not isinstance(planned, str) and planned[1] == {"max_length": 32}) is tried


def test_vectors_may_use_the_time_that_no_network_could_use(toy: Toy) -> None:
    """They are planned for their share; where they turn out slower, they are not ended before the rest of the time."""
    shop = Unfinished(HERE, {})
    lane = Lane(FACTS, toy.train, toy.valid, Wanted(10.0), Clock(600), Run(), shop)
    embed, bert = (one for one in ladder(FACTS) if one.name in ("embed", "bert"))
    for speed, share in ((3e12, embed.share), (1e11, 1.0)):
        lane.plans.speeds, lane.plans.later = even(speed), [bert]
        lane.try_out(embed)
        assert shop.given[-1] == pytest.approx(share * lane.clock.left(), abs=1)
    assert lane.tried[-1].reason.startswith("stopped after")


# -- networks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("speed", "share"), [(1e12, 0.35), (7e10, 1.0)])
def test_a_network_gets_the_time_that_no_other_could_use(toy: Toy, speed: float, share: float) -> None:
    """A slow machine cannot finish enough epochs of ``bert``, so ``cnn`` may use all of the time."""
    lane = Lane(FACTS, toy.train, toy.valid, Wanted(10.0), Clock(600), Run(), Workshop(HERE, {}))
    cnn, bert = (one for one in ladder(FACTS) if one.name in ("cnn", "bert"))
    lane.plans.speeds, lane.plans.later = even(speed), [bert]
    left = lane.clock.left()
    planned = lane.plans.network(cnn, cnn.share * left)
    assert not isinstance(planned, str)
    assert planned[1]["minutes"] == pytest.approx((0.92 * share * left - 6) / 60, abs=0.05)  # tokens and scores need time too


def test_a_network_that_cannot_finish_half_of_its_epochs_is_not_tried(toy: Toy) -> None:
    lane = Lane(FACTS, toy.train, toy.valid, Wanted(10.0), Clock(600), Run(), Workshop(HERE, {}))
    for name, epochs in (("cnn", 12), ("bert", 5)):
        network = next(one for one in ladder(FACTS) if one.name == name)
        left = lane.clock.left()
        enough = epochs / 2 * epoch_seconds(network, FACTS, even(1.0)) / (0.92 * left - 6)  # the speed that takes all of the time
        lane.plans.speeds = even(1.05 * enough)
        assert not isinstance(lane.plans.network(network, left), str)
        lane.plans.speeds = even(0.95 * enough)
        assert "half of its epochs would take about" in str(lane.plans.network(network, left))
