"""The search for a model: what is tried depends on the corpus, the time is kept, and a mixture wins only if it is better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import Command, Toy
from polytag.auto import choice as choosing
from polytag.auto import model_search as searching
from polytag.auto import pilot, plans, trial
from polytag.auto.automatic import auto_run, automatic, of_choice
from polytag.auto.choice import Goal, Limits, at_rows, choose, common_rows, compared_documents, teams
from polytag.auto.clock import Clock
from polytag.auto.facts import Facts, look_at
from polytag.auto.ladder import Candidate, ladder
from polytag.auto.lead import Caution
from polytag.auto.model_search import Wanted, reasons
from polytag.auto.pilot import Pilot
from polytag.auto.trial import Trained, Tried, Workshop
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.config.settings import declared
from polytag.corpus import Corpus
from polytag.datasets import load_sample
from polytag.errors import DataError
from polytag.labels import LabelSet
from polytag.metrics.of_rankings import precisions, ranking_metrics
from polytag.models.binary_relevance import BinaryRelevance
from polytag.models.mixture.part import Part
from polytag.models.mixture.sent_documents import corpus_state
from polytag.models.mixture.weights import PRECISION, fit_weights, mix
from polytag.models.model import State, model_class
from polytag.run import Run, read_log
from polytag.scores import Scores
from polytag.verbs.training import DataPlan
from polytag.work.child_processes import ChildProcesses
from polytag.work.workplace import HERE
from toys import Unfinished

FACTS = Facts(7_000, 90, 120, 1.2, 400, 0.99, True, False)


# -- what is tried -----------------------------------------------------------------------------------------------------


def test_facts_are_those_of_the_corpus(toy: Toy) -> None:
    found = look_at(toy.train)
    assert (found.documents, found.labels) == (len(toy.train), 8)
    assert found.labels_per_document == pytest.approx(toy.train.truth.nnz / len(toy.train))
    assert found.sets == len({tuple(sorted(row)) for row in toy.train.labels.decode(toy.train.truth)})
    assert found.words == pytest.approx(np.mean([len(text.split()) for text in toy.train.texts]))
    assert found.latin == 1.0
    assert "8 labels" in found.sentence()


def test_the_script_of_the_letters_is_seen() -> None:
    half = Corpus.of(["ветер и дождь", "wind and rain"] * 5, [["a"], ["b"]] * 5)
    assert 0.3 < look_at(half).latin < 0.7


@pytest.mark.parametrize(
    ("changes", "tried", "untried"),
    [
        ({}, {"br", "lp", "cc", "embed", "cnn", "bert"}, {"xlinear", "xbert", "laco"}),
        ({"networks": False}, {"br", "lp", "cc"}, {"embed", "cnn", "bert"}),
        (
            {"labels": 35_000, "sets": 20_000},
            {"xlinear", "xlinear:trees", "xlinear:vectors", "nearest", "nearest:labels"},
            {"br", "cc", "lp", "embed", "bert"},
        ),
        ({"labels": 35_000, "gpu": True}, {"xlinear", "xbert"}, {"br", "bert"}),
        ({"labels": 600, "sets": 9_000}, {"br", "xlinear", "embed"}, {"cc", "lp", "nearest", "xlinear:vectors"}),
        ({"labels": 600, "sets": 900, "documents": 1_000}, {"br", "lp", "embed"}, {"xlinear"}),
        ({"latin": 0.1}, {"br", "cnn"}, {"embed", "bert"}),
        ({"documents": 60}, {"br", "lp", "cc", "embed"}, {"cnn", "bert"}),
        ({"gpu": True}, {"bert", "laco"}, {"xbert"}),
    ],
)
def test_what_is_tried_depends_on_the_facts(changes: dict[str, Any], tried: set[str], untried: set[str]) -> None:
    names = [one.name for one in ladder(replace(FACTS, **changes))]
    assert tried <= set(names)
    assert not untried & set(names)
    assert len(set(names)) == len(names)


def test_all_options_of_candidates_are_options_of_their_models() -> None:
    for facts in (FACTS, replace(FACTS, gpu=True), replace(FACTS, labels=9_999, gpu=True)):
        for one in ladder(facts):
            Recipe(one.model, dict(one.options)).checked()


def test_a_forest_stands_on_words_and_on_vectors() -> None:
    made = {one.name: one.options for one in ladder(replace(FACTS, labels=35_000))}
    assert made["xlinear:vectors"]["trees"] == made["xlinear:trees"]["trees"] > 1


def test_a_tree_of_few_labels_scores_all_of_them() -> None:
    """Otherwise it could not be part of a mixture."""
    tree = next(one for one in ladder(replace(FACTS, labels=3_000, sets=9_000)) if one.name == "xlinear")
    assert tree.options["candidates"] >= 3_000
    assert tree.options["beam"] * declared(model_class("xlinear"))["max_leaf"].default >= 3_000


# -- the choice --------------------------------------------------------------------------------------------------------

LABELS = LabelSet([f"l{number}" for number in range(6)])


def known(name: str, scores: np.ndarray[Any, Any], rows: np.ndarray[Any, Any], **costs: float) -> Trained:
    part = Part(name, BinaryRelevance())
    held = Scores.full(scores.astype(np.float32), LABELS.names, "probability")
    return Trained(
        Candidate(name, "br", "linear", 1.0), part, held, rows, 100, 1.0, *({"speed": 1e3, "gigabytes": 0.1} | costs).values()
    )


def noisy(rng: np.random.Generator, truth: np.ndarray[Any, Any], noise: float) -> np.ndarray[Any, Any]:
    return 1 / (1 + np.exp(-(4 * truth - 2 + noise * rng.normal(size=truth.shape))))


@pytest.fixture
def goal() -> Goal:
    truth = (np.random.default_rng(0).random((600, 6)) < 0.3).astype(np.float32)
    return Goal(LABELS, csr_array(truth), "micro_f1", False, 0)


def test_models_with_different_errors_are_mixed_and_equals_are_not(goal: Goal) -> None:
    rng, truth, rows = np.random.default_rng(1), goal.truth.toarray(), np.arange(600)
    one, other = (known(name, noisy(rng, truth, 2.5), rows) for name in ("one", "other"))
    found = choose([one, other], goal, Limits())
    assert found.name == "one and other mixed"
    assert found.value > max(goal.value(each.held, rows) for each in (one, other)) + 0.02
    assert sum(found.weights) == pytest.approx(1)
    same = choose([one, replace(one, candidate=replace(one.candidate, name="twin"))], goal, Limits())
    assert same.name == "one", "the first of equals, alone"
    assert choose([known("bad", rng.random((600, 6)), rows), one], goal, Limits()).name == "one"


def test_a_candidate_over_vectors_leads_unless_another_is_clearly_better(goal: Goal) -> None:
    """On 40 documents a small lead is chance; on 600 the same difference is not."""
    rng, truth = np.random.default_rng(3), goal.truth.toarray()
    better, worse = noisy(rng, truth, 2.0), noisy(rng, truth, 2.6)
    for documents, winner in ((40, "vectors"), (600, "words")):
        rows = np.arange(documents)
        words, vectors = known("words", better[rows], rows), known("vectors", worse[rows], rows)
        vectors = replace(vectors, candidate=replace(vectors.candidate, kind="vectors"))
        assert goal.value(words.held, rows) > goal.value(vectors.held, rows) + 0.02
        assert choose([words, vectors], goal, Limits(), Caution(sure=1e9)).name == winner
        assert choose([words, vectors], goal, Limits(), Caution(clear=0, sure=1e9)).name == "words"


def test_without_vectors_the_first_candidate_leads(goal: Goal) -> None:
    rng, truth = np.random.default_rng(3), goal.truth.toarray()
    better, worse = noisy(rng, truth, 2.0), noisy(rng, truth, 2.6)
    for documents, winner in ((40, "first"), (600, "second")):
        rows = np.arange(documents)
        first, second = known("first", worse[rows], rows), known("second", better[rows], rows)
        assert choose([first, second], goal, Limits(), Caution(sure=1e9)).name == winner


def test_the_reason_compares_all_on_the_same_documents(goal: Goal) -> None:
    rng, truth, rows = np.random.default_rng(1), goal.truth.toarray(), np.arange(600)
    trained = [known(name, noisy(rng, truth, 2.5), rows) for name in "ab"]
    found = choose(trained, goal, Limits())
    part = np.arange(100, 300)
    assert len(found.parts) == 2
    assert found.judged_at(rows, goal) is found.judged
    shares = mix([at_rows(one, part) for one in found.parts], found.weights)
    assert found.judged_at(part, goal).value == pytest.approx(goal.value(shares, part))


def test_with_very_many_labels_rankings_are_compared(goal: Goal, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, truth, rows = np.random.default_rng(1), goal.truth.toarray(), np.arange(600)
    one, other = (known(name, noisy(rng, truth, 2.5), rows) for name in ("one", "other"))
    monkeypatch.setattr("polytag.auto.choice.MANY", 5)
    found = goal.judge(one.held, rows)
    expected = ranking_metrics(goal.truth, one.held)
    assert found.value == pytest.approx(np.mean([expected[f"p@{k}"] for k in (1, 3, 5)]))
    assert goal.error(found, goal.judge(other.held, rows), rows) == pytest.approx(
        np.std(precisions(goal.truth, one.held) - precisions(goal.truth, other.held)) / np.sqrt(600)
    )
    mixed = choose([one, other], goal, Limits())
    assert len(mixed.parts) == 2 and mixed.value > max(found.value, goal.value(other.held, rows)) + 0.01
    assert replace(goal, optimise="macro_f1").metric == "macro_f1", "another metric was asked for"


def test_weights_for_rankings_follow_the_better_ranking(goal: Goal) -> None:
    rng, truth, rows = np.random.default_rng(1), goal.truth.toarray(), np.arange(600)
    good, bad = known("good", noisy(rng, truth, 1.0), rows).held, known("bad", rng.random((600, 6)), rows).held
    found = fit_weights([bad, good], goal.truth, PRECISION, 0)
    assert found.weights[1] > 0.7
    assert found.value == pytest.approx(precisions(goal.truth, mix([bad, good], found.weights)).mean())


def test_weights_from_few_documents_stay_near_the_lead(goal: Goal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polytag.auto.choice._GAIN", -1.0)  # any mixture is taken
    rng, truth, shares = np.random.default_rng(1), goal.truth.toarray(), []
    tables = [noisy(rng, truth, 2.5) for _ in range(3)]
    for documents in (50, 600):
        rows = np.arange(documents)
        trained = [known(name, table[rows], rows) for name, table in zip("abc", tables, strict=True)]
        found = choose(trained, goal, Limits(), Caution(sure=0))
        free = choose(trained, goal, Limits(), Caution(prior=0, sure=0))
        share = documents / (documents + 200)
        assert [one.candidate.name for one in found.parts] == [one.candidate.name for one in free.parts]
        assert found.weights[1:] == pytest.approx([share * weight for weight in free.weights[1:]])
        assert sum(found.weights) == pytest.approx(1)
        shares.append(found.weights[0])
    assert shares[0] > 0.8 > shares[1]


def test_weights_are_compared_on_a_bounded_number_of_documents(goal: Goal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of weights are compared; the mixture itself is judged on all documents."""
    rng, rows, seen = np.random.default_rng(0), np.arange(600), []
    truth = goal.truth.toarray()
    two = [known(name, noisy(rng, truth, 2.5), rows) for name in "ab"]
    fit = choosing.fit_weights

    def watched(parts: Any, truth: Any, *given: Any) -> Any:
        seen.append((*(len(part) for part in parts), truth.shape[0]))
        return fit(parts, truth, *given)

    monkeypatch.setattr(choosing, "fit_weights", watched)
    whole = choose(two, goal, Limits())
    monkeypatch.setattr(choosing, "_WEIGHED", 300)
    found = choose(two, goal, Limits())
    assert seen == [(600, 600, 600), (300, 300, 300)]
    assert len(found.parts) == 2 and len(found.compared) == 600
    assert found.weights == pytest.approx(whole.weights, abs=0.2)


def errors_above_the_lead(goal: Goal, trained: list[Trained]) -> float:
    """The gain of a mixture of candidates with the same documents over its lead, in standard errors; 0 if none is better."""
    free = choose(trained, goal, Limits(), Caution(sure=0))
    if len(free.parts) < 2:
        return 0.0
    lead = next(one for one in trained if one.candidate.name == free.parts[0].candidate.name)
    alone = goal.judge(lead.held, lead.rows)
    return (free.value - alone.value - 0.001) / goal.error(free.judged, alone, lead.rows)


def test_a_mixture_needs_a_gain_beyond_chance(goal: Goal) -> None:
    rng, truth, errors = np.random.default_rng(1), goal.truth.toarray(), []
    tables = [noisy(rng, truth, 2.5) for _ in range(2)]
    for documents in (50, 600):
        rows = np.arange(documents)
        one, other = (known(name, table[rows], rows) for name, table in zip("ab", tables, strict=True))
        errors.append(goal.error(goal.judge(one.held, rows), goal.judge(other.held, rows), rows))
    assert errors[0] == pytest.approx(errors[1] * np.sqrt(12), rel=0.5), "it falls with the root of the documents"
    sure = errors_above_the_lead(goal, [one, other])
    for factor, parts in ((0.9, 2), (1.1, 1)):
        assert len(choose([one, other], goal, Limits(), Caution(sure=factor * sure)).parts) == parts


def test_by_default_the_gain_is_a_standard_error_at_least(goal: Goal) -> None:
    """Half of one was too little: benchmarks/auto_small.py."""
    seen, rows = [], np.arange(150)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        tables = [noisy(rng, goal.truth.toarray(), noise)[rows] for noise in (2.5, 4.0)]
        one, other = (known(name, table, rows) for name, table in zip("ab", tables, strict=True))
        seen.append(errors_above_the_lead(goal, [one, other]))
        assert len(choose([one, other], goal, Limits()).parts) == (2 if seen[-1] > 1 else 1)
    assert any(0.5 < sure < 1 for sure in seen) and any(1 < sure < 2 for sure in seen)


def test_a_mixture_is_compared_with_the_lead_on_the_same_documents(goal: Goal) -> None:
    """A third model held out few documents, on which all are worse: that must not speak for the mixture of the others."""
    rng, truth, rows, hard = np.random.default_rng(1), goal.truth.toarray(), np.arange(600), np.arange(500, 600)
    table = noisy(rng, truth, 1.0)
    table[hard] = noisy(rng, truth[hard], 6.0)
    one = known("one", table, rows)
    twin = known("twin", np.clip(table + 1e-3 * rng.normal(size=table.shape), 0, 1), rows)
    bad = known("bad", rng.random((100, 6)), hard)
    assert choose([one, twin, bad], goal, Limits()).name == "one"


def test_a_helper_is_part_of_mixtures_although_others_are_better_alone(goal: Goal) -> None:
    """Five candidates know one half of the labels, each with its own errors; the helper, which is worst, knows the other half."""
    rng, truth, rows = np.random.default_rng(1), goal.truth.toarray(), np.arange(600)

    def half(first: int, noise: float) -> np.ndarray[Any, Any]:
        table = np.full(truth.shape, 0.2)
        table[:, first : first + 3] = noisy(rng, truth[:, first : first + 3], noise)
        return table

    others = [known(name, half(0, 1.5), rows) for name in "abcde"]
    helper = known("helper", half(3, 4.0), rows)
    for helps in (False, True):
        asked = replace(helper, candidate=replace(helper.candidate, helper=helps))
        found = choose([*others, asked], goal, Limits())
        assert ("helper" in found.name) is helps


def test_seeds_of_a_network_are_one_member_of_a_mixture(goal: Goal) -> None:
    """Their mean is weighed against the others, so that three seeds have no more weight than one; limits count each of them."""
    rng = np.random.default_rng(4)
    truth, rows = goal.truth.toarray(), np.arange(600)
    other, *seeds = (known(name, noisy(rng, truth, 1.3), rows) for name in ("other", "net", "net:2", "net:3"))
    seeds = [seeds[0], *(replace(one, candidate=replace(one.candidate, of="net")) for one in seeds[1:])]
    team = teams(seeds, Limits())
    assert len(team) == 1 and [one.candidate.name for one in team[0].seeds] == ["net", "net:2", "net:3"]
    assert team[0].held.matrix.toarray() == pytest.approx(np.mean([one.held.matrix.toarray() for one in seeds], axis=0))
    assert goal.value(team[0].held, rows) > max(goal.value(one.held, rows) for one in seeds)
    choice = choose([other, *seeds], goal, Limits())
    weights = {one.candidate.name: weight for one, weight in zip(choice.parts, choice.weights, strict=True)}
    assert set(weights) >= {"net", "net:2", "net:3"} and sum(weights.values()) == pytest.approx(1)
    assert weights["net"] == pytest.approx(weights["net:2"]) == pytest.approx(weights["net:3"])
    assert goal.value(mix([at_rows(one, rows) for one in choice.parts], choice.weights), rows) == pytest.approx(choice.value)
    assert len(teams(seeds, Limits(speed=400.0))[0].seeds) == 2, "1,000 documents per second each: three of them have 333"


def test_limits_bind_the_winner_and_mixtures_add_up(goal: Goal) -> None:
    rng, truth, rows = np.random.default_rng(1), goal.truth.toarray(), np.arange(600)
    quick = known("quick", noisy(rng, truth, 3.0), rows, speed=1000, gigabytes=0.1)
    slow = known("slow", noisy(rng, truth, 1.5), rows, speed=10, gigabytes=2.0)
    assert "slow" in choose([quick, slow], goal, Limits()).name
    assert choose([quick, slow], goal, Limits(speed=500)).name == "quick"
    assert choose([quick, slow], goal, Limits(speed=9.95)).name == "slow", "mixed they score 9.9 documents a second"
    assert choose([quick, slow], goal, Limits(gigabytes=2.05)).name == "slow", "together they have 2.1"
    with pytest.raises(Exception, match="no model keeps the limits: quick predicts 1,000 documents/s"):
        choose([quick], goal, Limits(speed=1e6))


def test_scores_of_different_documents_are_compared_on_the_common_ones(goal: Goal) -> None:
    rng, truth = np.random.default_rng(1), goal.truth.toarray()
    shuffled, part = rng.permutation(600), np.arange(400, 600)
    everywhere = known("everywhere", noisy(rng, truth, 3.0)[shuffled], shuffled)
    here = known("here", noisy(rng, truth[part], 1.0), part)
    assert np.array_equal(common_rows([everywhere, here]), part)
    assert choose([everywhere, here], goal, Limits()).name.startswith("here")
    alone = choose([everywhere], goal, Limits())
    assert np.array_equal(alone.rows, np.arange(600))
    assert alone.value == pytest.approx(goal.value(everywhere.held, shuffled), abs=0.01)


def test_very_many_documents_are_compared_on_some_of_them(goal: Goal) -> None:
    """The weights come from these alone; thresholds are fitted on all documents."""
    rng, truth, rows = np.random.default_rng(1), goal.truth.toarray(), np.arange(600)
    some = np.sort(rng.permutation(600)[:200])
    trained = [known(name, noisy(rng, truth, 2.5), rows) for name in "ab"]
    found = choose(trained, replace(goal, compared=some), Limits())
    assert len(found.parts) == 2
    assert np.array_equal(found.compared, some) and np.array_equal(found.rows, rows)
    held = mix([at_rows(one, rows) for one in found.parts], found.weights)
    assert np.allclose(found.held.matrix.toarray(), held.matrix.toarray())
    assert found.value == pytest.approx(goal.value(mix([at_rows(one, some) for one in found.parts], found.weights), some))
    outside = np.setdiff1d(rows, some)
    changed = [replace(one, held=known("", np.where(np.isin(rows, outside)[:, None], 0.5, one.held.matrix.toarray()), rows).held)
               for one in trained]  # fmt: skip
    assert choose(changed, replace(goal, compared=some), Limits()).weights == found.weights


def test_validation_documents_are_compared_first() -> None:
    assert compared_documents(30_000, 50_000, 100, 0) is None
    found = compared_documents(500_000, 510_000, 100, 0)
    assert found is not None and len(found) == len(set(found.tolist())) == 50_000 and (np.diff(found) > 0).all()
    assert set(range(500_000, 510_000)) <= set(found.tolist())
    few = compared_documents(500_000, 510_000, 2_000, 0)
    assert few is not None and len(few) == 10_000 and few.min() == 500_000, "20 million decisions"
    many = compared_documents(500_000, 510_000, 400_000, 0)
    assert many is not None and len(many) == 50_000, "of very many labels few are kept"


# -- the search --------------------------------------------------------------------------------------------------------


class InProcess(Workshop):
    """Trains in this process, and remembers what."""

    trained: list[tuple[str, int, dict[str, Any]]]

    def train(
        self, candidate: Candidate, train: Corpus, valid: Corpus | None, seconds: float, options: Any = None, paced: Any = None
    ) -> State | None:
        self.trained.append((candidate.name, len(train), dict(options or {})))
        job = {
            "name": candidate.name,
            "model": candidate.model,
            "options": {**self.shared, **candidate.options, **(options or {})},
            "paced": paced,
        }
        documents = [corpus_state(corpus) for corpus in (train, valid) if corpus is not None]
        return {**trial.try_job(job, *documents), "documents": len(train), "seconds": 1.0}


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> type[InProcess]:
    monkeypatch.setattr(InProcess, "trained", [], raising=False)
    monkeypatch.setattr(searching, "Workshop", InProcess)
    monkeypatch.setattr(searching, "look_at", lambda corpus: replace(look_at(corpus), networks=False))
    return InProcess


def test_the_winner_is_an_ordinary_classifier(toy: Toy, shop: type[InProcess], tmp_path: Path) -> None:
    ended = automatic(toy.train, toy.valid, Wanted(1.0))
    assert [name for name, *_ in shop.trained] == ["br", "lp", "cc"]
    ended.classifier.save(tmp_path)
    again = Classifier.load(tmp_path)
    assert again.evaluate(toy.test) == ended.classifier.evaluate(toy.test)
    assert again.evaluate(toy.test)["micro_f1"] > 0.9
    assert [one.name for one in ended.found.tried] == ["br", "lp", "cc"]
    assert ended.sentences()[0].startswith(f"{ended.found.choice.name}: ")
    assert "br alone" in ended.sentences()[0]


def test_a_model_that_wins_alone_decides_as_if_there_had_been_no_search(
    shop: type[InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules are compared by fifths of the held-out documents, so their order matters: that of the folds, not of the corpus."""
    monkeypatch.setattr(searching, "ladder", lambda facts: [Candidate("br", "br", "linear", 1.0)])
    few, other = load_sample()[1].subset(np.arange(60)), load_sample()[2]
    found, plain = automatic(few, None, Wanted(1.0)).classifier, Classifier("br").fit(few)
    assert found.decision.report == plain.decision.report
    assert np.array_equal(found.decision.thresholds, plain.decision.thresholds)
    assert found.predict(other.texts) == plain.predict(other.texts)


def test_a_mixture_predicts_as_it_was_judged(toy: Toy, shop: type[InProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    found = automatic(toy.train, toy.valid, Wanted(1.0)).found
    lane = [one for one in found.tried if one.value is not None]
    assert len(lane) == 3
    monkeypatch.setattr("polytag.auto.choice._GAIN", -1.0)  # any mixture is taken
    monkeypatch.setattr("polytag.auto.choice.Goal.error", lambda *given: 0.0)
    mixed = automatic(toy.train, toy.valid, Wanted(1.0))
    assert len(mixed.found.choice.parts) > 1
    assert mixed.classifier.recipe.model == "mixed"
    texts = toy.test.texts[:7]
    parts = [one.part for one in mixed.found.choice.parts]
    tables = [part.probabilities(part.model.score(texts), toy.train.labels.names).matrix.toarray() for part in parts]
    weighed = sum(weight * table for weight, table in zip(mixed.found.choice.weights, tables, strict=True))
    assert np.allclose(mixed.classifier.scores(texts).matrix.toarray(), weighed, atol=1e-5)


def test_rows_of_a_sample_are_those_of_the_corpus(toy: Toy, shop: type[InProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that is trained on a sample is judged with the labels of its own documents."""
    monkeypatch.setattr(pilot, "_SIZE", (20, 40))
    monkeypatch.setattr(plans.Plans, "fitted", lambda made, *given: (np.arange(3, len(made.everything), 2), {}))
    found = automatic(toy.train, toy.valid, Wanted(1.0)).found
    assert all(one.value is None or one.value > 0.8 for one in found.tried)
    assert found.choice.value > 0.8


def test_time_that_is_left_goes_to_all_documents(toy: Toy, shop: type[InProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot overestimates the time of all documents; the training of a part tells it, and the best candidate is first."""
    monkeypatch.setattr(pilot, "_SIZE", (20, 40))
    monkeypatch.setattr(plans.Plans, "fitted", lambda made, *given: (np.arange(3, len(made.everything), 2), {}))
    found = automatic(toy.train, toy.valid, Wanted(1.0)).found
    whole = [name for name, documents, _ in shop.trained if documents == len(toy.train)]
    assert sorted(whole) == ["br", "cc", "lp"]
    assert [one.name for one in found.tried] == ["br", "lp", "cc"], "each once, in the order of the ladder"
    assert all(one.documents == len(toy.train) for one in found.tried)
    assert {one.documents for one in found.choice.parts} == {len(toy.train)}


def test_all_documents_are_tried_only_if_they_fit(toy: Toy) -> None:
    lane = searching._Lane(FACTS, toy.train, None, Wanted(10.0), Clock(600), Run(), Workshop(HERE, {}))
    rows, rng, half = np.arange(len(toy.train)), np.random.default_rng(0), len(toy.train) // 2
    lane.goal = replace(lane.goal, truth=csr_array((rng.random((len(rows), 6)) < 0.3).astype(np.float32)), labels=LABELS)
    for name, noise, documents in (("worse", 3.0, half), ("better", 0.5, half), ("whole", 0.2, len(rows))):
        table = noisy(rng, lane.goal.truth.toarray(), noise)
        lane.finished.append(replace(known(name, table, rows), documents=documents, seconds=100.0))
    again = lane.with_all_documents()
    assert again is not None and (again.name, again.whole, again.share) == ("better", True, 1.0)
    lane.clock = Clock(600, spent=600 - 36 - 2 * 100)  # twice the documents and a margin would be needed
    assert lane.with_all_documents() is None


def test_a_candidate_whose_share_was_too_short_is_tried_in_time_that_is_left(
    shop: type[InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{number}" for number in rng.integers(0, 40, 12)) for _ in range(400)]
    corpus = Corpus.of(texts, [[f"l{number}" for number in range(4) if f"w{number}" in text.split()] or ["l9"] for text in texts])
    monkeypatch.setattr(pilot, "_SIZE", (60, 60))
    monkeypatch.setattr(plans, "_LEAST_PART", 0.9)
    monkeypatch.setattr(Pilot, "seconds_of_all", lambda *given: 20.0)  # of 56 s, of which the first one may take 22
    found = automatic(corpus, None, Wanted(1.0)).found
    assert {name for name, documents, _ in shop.trained if documents == len(corpus)} == {"br", "lp", "cc"}
    assert {one.name: one.value is not None for one in found.tried} == {"br": True, "lp": True, "cc": True}
    shop.trained.clear()
    monkeypatch.setattr(Pilot, "seconds_of_all", lambda *given: 100.0)
    with pytest.raises(DataError, match="br: would take about 100 s"):
        automatic(corpus, None, Wanted(1.0))
    assert [name for name, *_ in shop.trained] == ["br", "lp", "cc"], "a pilot of each, and no second try"


def test_a_failure_with_all_documents_keeps_what_a_part_has_given(toy: Toy) -> None:
    lane = searching._Lane(FACTS, toy.train, None, Wanted(10.0), Clock(600), Run(), Workshop(HERE, {}))
    lane._note(Tried("br", 0.8, 1.0, 10))
    lane._note(Tried("br", None, 9.0, 0, "stopped after 9 s"))
    assert [one.value for one in lane.tried] == [0.8]
    lane._note(Tried("br", 0.9, 9.0, 20))
    assert [one.value for one in lane.tried] == [0.9]


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_the_choice_has_time_of_its_own(share: float, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many times the time of a comparison as it needs, whether all documents are compared or some of them."""
    lane = searching._Lane(FACTS, toy.train, None, Wanted(10.0), Clock(600), Run(), Workshop(HERE, {}))
    before, rows = lane.clock.left(), np.arange(len(toy.train))
    one = known("br", np.random.default_rng(0).random((len(rows), 6)), rows)
    lane.finished = [one]
    some = int(share * len(rows))
    lane.goal = replace(lane.goal, compared=None if share == 1 else rows[:some])
    seconds = iter((0.0, 90.0, 100.0, 110.0))  # of a comparison that compiles, and of another one
    monkeypatch.setattr(lane.clock, "elapsed", lambda: next(seconds, 0.0))
    monkeypatch.setattr(Goal, "value", lambda *given: 0.5)
    assert before == pytest.approx(600 - 36, abs=1)
    for name, spent in (("br", 90), ("cc", 10)):
        assert lane._value(replace(one, candidate=replace(one.candidate, name=name))) == 0.5
        kept = 6 * spent + 2 * spent * len(rows) / some
        assert lane.clock._reserved == pytest.approx(kept)
    lane.clock.reserve(1.0)
    assert lane.clock.left() == pytest.approx(600 - 36)


@pytest.mark.parametrize("cheap", [False, True])
def test_a_candidate_that_cannot_win_is_stopped_after_its_pilot_unless_it_is_cheap(
    cheap: bool, shop: type[InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{number}" for number in rng.integers(0, 400, 12)) for _ in range(400)]
    labels = [[f"l{number}" for number in range(8) if f"w{number}" in text.split() or rng.random() < 0.02] for text in texts]
    monkeypatch.setattr(pilot, "_SIZE", (60, 60))
    monkeypatch.setattr(plans, "_CHEAP", 0.5 if cheap else 0.0)
    monkeypatch.setattr(Pilot, "hopeless", lambda tried, value, others: "hopeless" if others else "")
    found = automatic(Corpus.of(texts, labels), None, Wanted(1.0)).found
    assert [one.reason for one in found.tried] == ["", *([""] * 2 if cheap else ["hopeless"] * 2)]
    assert [size for _, size, _ in shop.trained] == [60, 400, *([60, 400, 60, 400] if cheap else [60, 60])]


def test_a_helper_is_tried_even_if_it_is_bad_alone(shop: type[InProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{number}" for number in rng.integers(0, 40, 12)) for _ in range(400)]
    corpus = Corpus.of(texts, [[f"l{number}" for number in range(4) if f"w{number}" in text.split()] or ["l9"] for text in texts])
    monkeypatch.setattr(pilot, "_SIZE", (60, 60))
    monkeypatch.setattr(plans, "_CHEAP", 0.0)
    monkeypatch.setattr(Pilot, "hopeless", lambda tried, value, others: "hopeless" if others else "")
    made = [
        Candidate("br", "br", "linear", 0.4),
        Candidate("a", "nearest", "linear", 0.3),
        Candidate("b", "nearest", "linear", 0.3, {}, True),
    ]
    monkeypatch.setattr(searching, "ladder", lambda facts: made)
    found = automatic(corpus, None, Wanted(1.0)).found
    assert [one.reason for one in found.tried] == ["", "hopeless", ""]


def test_candidates_are_compared_on_sets_as_the_decision_makes_them(toy: Toy, shop: type[InProcess]) -> None:
    """Every document of the toy corpus has a label, so every predicted set has one: when candidates are compared too."""
    lane = searching._Lane(FACTS, toy.train, toy.valid, Wanted(2), Clock(120), Run(), Workshop(HERE, {}))
    assert lane.goal.least == 1 == automatic(toy.train, toy.valid, Wanted(1.0)).classifier.decision.min_labels


def test_a_small_share_of_little_time_is_still_enough_to_start(toy: Toy) -> None:
    """A fifth of 14 s would not be more than the start of a process."""
    shop = Unfinished(HERE, {})
    lane = searching._Lane(FACTS, toy.train, toy.valid, Wanted(0.3), Clock(18), Run(), shop)
    lane.try_out(Candidate("lp", "lp", "linear", 0.2))
    assert len(shop.given) == 1
    lane.clock = Clock(18, spent=11.5)  # with the four seconds that are kept, 2.5 are left
    lane.try_out(Candidate("lp", "lp", "linear", 0.2))
    assert len(shop.given) == 1 and lane.tried[-1].reason


def test_time_that_is_left_goes_to_further_seeds_of_the_best_networks(toy: Toy) -> None:
    """The one with the fewest trainings first; none that is far below the best, and none that would not end in time."""
    lane = searching._Lane(FACTS, toy.train, toy.valid, Wanted(10.0, seed=7), Clock(600), Run(), Workshop(HERE, {}))
    rows, rng = np.arange(600), np.random.default_rng(0)
    for name, kind, value, seconds in (
        ("br", "linear", 0.81, 1.0), ("cnn", "network", 0.70, 9.0), ("laco", "network", 0.82, 60.0), ("bert", "network", 0.8, 60),
    ):  # fmt: skip
        one = known(name, rng.random((600, 6)), rows)
        lane.finished.append(replace(one, candidate=Candidate(name, name, kind, 0.3, {"epochs": 5}), seconds=seconds))
        lane.tried.append(Tried(name, value, seconds, 100))
    found = []
    while (another := lane.another_seed()) is not None:
        found.append((another.name, another.of, another.options, another.share))
        lane.finished.append(replace(lane.finished[0], candidate=another, seconds=60.0))
        lane.tried.append(Tried(another.name, 0.8, 60.0, 100))
    assert [name for name, *_ in found] == ["laco:2", "bert:2", "laco:3", "bert:3"]
    assert found[0] == ("laco:2", "laco", {"epochs": 5, "seed": 8}, 1.0) and found[3][2]["seed"] == 9
    lane.finished, lane.tried = lane.finished[:4], lane.tried[:4]
    lane.clock = Clock(600, spent=600 - 36 - 62.0)  # 69 s and a start would be needed
    assert lane.another_seed() is None


def test_a_search_goes_on_where_it_was_interrupted(toy: Toy, shop: type[InProcess], tmp_path: Path) -> None:
    toy.train.write(tmp_path / "train.jsonl")
    plan = DataPlan.of(Recipe(), tmp_path / "train.jsonl", None, None, toy_options())
    real = searching._Lane.try_out

    def dies(lane: Any, candidate: Candidate) -> None:
        if candidate.name == "cc":
            raise KeyboardInterrupt
        real(lane, candidate)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(searching._Lane, "try_out", dies)
        auto_run(plan, Wanted(1.0), tmp_path / "run")
    before = len(shop.trained)
    ended = auto_run(plan, Wanted(1.0), tmp_path / "run", resume=True)
    assert [name for name, *_ in shop.trained[before:]] == ["cc"]
    assert len(ended.found.tried) == 3
    assert [event["name"] for event in read_log(tmp_path / "run") if event["event"] == "candidate"][-3:] == ["br", "lp", "cc"]
    assert not (tmp_path / "run" / "stages").exists()


def toy_options() -> Any:
    from polytag.formats.document import ReadOptions

    return ReadOptions()


def test_no_training_starts_when_the_time_is_over(toy: Toy, shop: type[InProcess]) -> None:
    with pytest.raises(Exception, match="no model was trained: br: no time was left"):
        searching.search(toy.train, toy.valid, Wanted(1.0), Run(), Clock(60, spent=60))
    assert not shop.trained


def test_a_training_that_takes_too_long_is_ended(toy: Toy) -> None:
    with ChildProcesses(1) as place:
        shop = Workshop(place, {})
        assert shop.train(Candidate("br", "br", "linear", 1.0), toy.train, None, 0.05) is None


def test_the_verb(polytag: Command, toy: Toy, tmp_path: Path) -> None:
    toy.train.write(tmp_path / "train.jsonl")
    toy.test.write(tmp_path / "test.jsonl")
    done = polytag("auto", tmp_path / "train.jsonl", "--minutes", 0.25, "--out", tmp_path / "run", "--predict-speed", 1)
    assert done.code == 0, done.err
    assert " alone " in done.err
    assert polytag("evaluate", tmp_path / "run", tmp_path / "test.jsonl").code == 0
    assert Recipe.read(tmp_path / "run" / "recipe.toml").checked()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--minutes", "0"], "--minutes is 0"),
        (["--minutes", "nan"], "--minutes is nan"),
        (["--optimise", "accuracy"], "accuracy"),
        (["--predict-speed", "-1"], "--predict-speed"),
    ],
)
def test_wrong_input_is_one_line(polytag: Command, toy: Toy, tmp_path: Path, given: list[str], message: str) -> None:
    toy.train.write(tmp_path / "train.jsonl")
    done = polytag("auto", tmp_path / "train.jsonl", "--out", tmp_path / "run", *given)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert message in done.err
    assert not (tmp_path / "run").exists()


def test_sentences_name_the_winner_first(toy: Toy, shop: type[InProcess]) -> None:
    ended = automatic(toy.train, toy.valid, Wanted(1.0))
    assert reasons(ended.found)[0].startswith(ended.found.choice.name)
    again = of_choice(ended.found.choice, Wanted(1.0), (toy.train, toy.valid), {})
    assert again.predict(toy.test.texts[:5]) == ended.classifier.predict(toy.test.texts[:5])
