"""A search tries what a recipe declares and finds the best on held-out documents; a killed one goes on as if it had not been."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Command, Toy
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.config.search_ranges import Range, Search
from polytag.errors import ConfigError
from polytag.formats.document import ReadOptions
from polytag.run import Run, read_log
from polytag.verbs import tuning
from polytag.verbs.training import DataPlan, train_run
from polytag.verbs.tuning import Trial, best_trial, propose, tune_run

C = {"low": 1e-5, "high": 10, "log": True}
FAST = {"ngrams": 1, "folds": 2}


def recipe_of(ranges: dict[str, Any], trials: int = 4, **keys: Any) -> Recipe:
    return Recipe("br", dict(FAST), tune={"trials": trials, "ranges": ranges}, **keys).checked()


@pytest.fixture
def plan(files: Path) -> DataPlan:
    return DataPlan(files / "train.jsonl", files / "valid.jsonl", None, ReadOptions())


def said(trials: list[Trial]) -> list[Any]:
    """The table without the clock."""
    return [trial._replace(seconds=0.0) for trial in trials]


# -- ranges ------------------------------------------------------------------------------------------------------------


def written(folder: Path, tune: str, model: str = "br") -> Path:
    path = folder / "recipe.toml"
    path.write_text(f'model = "{model}"\n{tune}\n', encoding="utf-8")
    return path


def test_ranges_are_read_in_the_types_of_the_options(tmp_path: Path) -> None:
    tune = """[tune]
    trials = 7
    [tune.ranges]
    c = {low = 1, high = 10, log = true}
    pooling = ["cls", "mean"]
    epochs = {low = 3, high = 20}
    """
    recipe = Recipe.read(written(tmp_path, tune.replace("c =", "encoder_rate ="), "bert"))
    rate, epochs, pooling = recipe.search().ranges[0], recipe.search().ranges[1], recipe.search().ranges[2]
    assert recipe.search().trials == 7 and rate == Range("encoder_rate", 1.0, 10.0, True)
    assert epochs == Range("epochs", 3, 20) and pooling == Range("pooling", choices=("cls", "mean"))
    assert (type(rate.low), type(rate.high), type(epochs.low)) == (float, float, int)
    recipe = Recipe.read(written(tmp_path, "[tune.ranges]\nc = {low = 1, high = 2}\nngrams = [1, [1, 2]]"))
    assert recipe.search() == Search(20, (Range("c", 1.0, 2.0), Range("ngrams", choices=(1, [1, 2]))))


@pytest.mark.parametrize(
    ("tune", "words"),
    [
        ("[tune]\ntrails = 3", r"\[tune\] has no key 'trails'; did you mean 'trials'\?"),
        ("[tune]\ntrials = 0", "'trials' is 0, but it must be a whole number, at least 1"),
        ("[tune]\ntrials = 2.5", "'trials' is 2.5, but it must be a whole number"),
        ("[tune]\nranges = 3", "'ranges' is 3, but it must be a table"),
        ("[tune.ranges]\nbalence = [0.1, 0.2]", "the model 'br' has no option 'balence'; did you mean 'balance'"),
        ("[tune.ranges]\nseed = {low = 0, high = 9}", "has no option 'seed'"),
        ("[tune.ranges]\nc = 3", r"'c' is 3, but it must be a table such as \{low = 1, high = 10\}, or a list"),
        ("[tune.ranges]\nc = {low = 3, hi = 4}", "'c' has no key 'hi'; did you mean 'high'"),
        ("[tune.ranges]\nc = {low = 3}", "'c' has no 'high'; give it"),
        ("[tune.ranges]\nc = {low = 3, high = 2}", "'low' is 3 and 'high' 2; 'low' must be the smaller one"),
        ("[tune.ranges]\nc = {low = 1, high = inf}", "'high' is inf, but it must be a list, each a number"),
        ("[tune.ranges]\nc = {low = 1, high = 2, log = 1}", "'log' is 1, but it must be true or false"),
        ("[tune.ranges]\nbalance = {low = 0, high = 1, log = true}", "'low' is 0, but with log = true it must be above 0"),
        ("[tune.ranges]\nbalance = {low = 0, high = 2}", "'high' is 2, but it must be a number, at least 0, at most 1"),
        ("[tune.ranges]\nfolds = {low = 2.5, high = 4}", "'low' is 2.5, but it must be a whole number"),
        ("[tune.ranges]\nfolds = [2, 2.5]", "'folds' is 2.5, but it must be a whole number"),
        ("[tune.ranges]\nfolds = [2, 3, 2]", "'folds' has 2 twice"),
        ("[tune.ranges]\nfolds = [2]", "nothing to choose from"),
    ],
)
def test_a_wrong_range_is_named_with_its_file_in_one_line(tmp_path: Path, tune: str, words: str) -> None:
    path = written(tmp_path, tune)
    with pytest.raises(ConfigError, match=words) as caught:
        Recipe.read(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_ranges_come_back_from_the_file_and_do_not_change_what_a_training_is(tmp_path: Path) -> None:
    recipe = recipe_of({"folds": [2, 3], "c": C, "ngrams": [1, [1, 2]]})
    recipe.write(tmp_path / "r.toml")
    again = Recipe.read(tmp_path / "r.toml")
    assert again == recipe and again.search() == recipe.search()
    assert recipe.fingerprint() == dataclasses.replace(recipe, tune={}).fingerprint()


NUMBERS = st.floats(0.01, 100, allow_nan=False)


@settings(max_examples=20)
@given(st.tuples(NUMBERS, NUMBERS).filter(lambda pair: pair[0] < pair[1]), st.integers(1, 5), st.booleans(), st.integers(0, 9))
def test_what_is_proposed_lies_in_the_ranges(limits: tuple[float, float], low: int, log: bool, seed: int) -> None:
    ranges = [Range("a", *limits, log), Range("b", low, low + 3, log), Range("c", choices=([1, 2], "none", True))]
    trials: list[Trial] = []
    for number in range(3):
        options = propose(ranges, trials, seed)
        assert limits[0] <= options["a"] <= limits[1] and options["c"] in ([1, 2], "none", True)
        assert type(options["b"]) is int and low <= options["b"] <= low + 3
        trials.append(Trial(number, None if number == 1 else float(number), options))


def test_proposals_go_where_the_values_are_high_and_depend_on_the_seed_and_the_trials_alone() -> None:
    """On a parabola: what is tried later is nearer to its top than what is drawn at random first."""
    ranges = [Range("x", 0.0, 1.0)]
    distances = []
    for seed in range(4):
        trials: list[Trial] = []
        for number in range(30):
            options = propose(ranges, trials, seed)
            assert options == propose(ranges, [Trial(**json.loads(json.dumps(t._asdict()))) for t in trials], seed)
            trials.append(Trial(number, -((options["x"] - 0.7) ** 2), options))
        distances.append([abs(trial.options["x"] - 0.7) for trial in trials])
    found = np.asarray(distances)
    assert len(np.unique(found)) > 100  # neither seeds nor trials repeat one another
    assert found[:, 15:].mean() < 0.2  # drawn at random: 0.29


# -- the search --------------------------------------------------------------------------------------------------------


def test_the_best_of_the_trials_is_kept_and_its_recipe_repeats_it(plan: DataPlan, toy: Toy, tmp_path: Path) -> None:
    """With C over six decades, and the test documents nowhere near."""
    trials = tune_run(recipe_of({"c": C}), plan, tmp_path / "run")
    values = [trial.value for trial in trials if trial.value is not None]
    best = best_trial(trials)
    assert len(values) == len(trials) == 4 and best is not None and best.value == max(values) > min(values) + 0.02
    recipe = Recipe.read(tmp_path / "run" / "best.toml")
    assert recipe.options["c"] == [best.options["c"]] and recipe.options["ngrams"] == [1] and not recipe.tune
    again = train_run(recipe, DataPlan.of(recipe, None, None, None, ReadOptions()), tmp_path / "again")
    kept = Classifier.load(tmp_path / "run")
    assert again.decision.report["cross_fitted"][again.decision.report["rule"]] == best.value
    assert kept.predict(toy.test.texts) == again.predict(toy.test.texts)
    assert (kept.scores(toy.test.texts).matrix != again.scores(toy.test.texts).matrix).nnz == 0
    assert not list((tmp_path / "run" / "trials").glob("*/model"))


@pytest.mark.parametrize("optimise", ["micro_f1", "subset_accuracy"])
def test_each_value_is_the_held_out_metric_that_the_recipe_names(optimise: str, plan: DataPlan, toy: Toy, tmp_path: Path) -> None:
    for trial in tune_run(recipe_of({"c": [0.001, 1.0]}, 2, optimise=optimise), plan, tmp_path / "run"):
        report = Classifier("br", {**FAST, **trial.options, "optimise": optimise}).fit(toy.train, toy.valid).decision.report
        assert report["metric"] == optimise and report["cross_fitted"][report["rule"]] == trial.value


class Killed(BaseException):
    """As a signal would be: nothing that the search may catch."""


def killed_after(count: int, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let so many trainings end and the next one die; the folders of those that began."""
    begun: list[Path] = []
    real = tuning.train_corpora

    def training(recipe: Recipe, train: Any, valid: Any, out: Path, **others: Any) -> Classifier:
        begun.append(out)
        if len(begun) > count:
            raise Killed
        return real(recipe, train, valid, out, **others)

    monkeypatch.setattr(tuning, "train_corpora", training)
    return begun


def test_a_killed_search_goes_on_and_ends_like_one_that_was_not(
    plan: DataPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with half a line in the log, and with more trials than a sampler draws at random before it learns."""
    recipe = recipe_of({"c": C, "balance": {"low": 0, "high": 1}, "lowercase": [True, False]}, 13)
    whole = tune_run(recipe, plan, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_after(2, patch)
        tune_run(recipe, plan, tmp_path / "killed")
    with open(tmp_path / "killed" / "log.jsonl", "a") as file:
        file.write('{"event": "trial", "number": 2, "val')
    with monkeypatch.context() as patch:
        begun = killed_after(99, patch)
        resumed = tune_run(recipe, plan, tmp_path / "killed", resume=True)
    assert said(resumed) == said(whole) and [trial.number for trial in resumed] == list(range(13))
    assert [path.name for path in begun] == [f"{number:03}" for number in range(2, 13)]
    assert (tmp_path / "killed" / "best.toml").read_text() == (tmp_path / "whole" / "best.toml").read_text()


def test_a_search_killed_inside_a_trial_goes_on_from_the_checkpoints_of_that_trial(
    plan: DataPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, out, real = recipe_of({"c": C}, 2), tmp_path / "killed", Run.stage

    def stage(run: Run, name: str, make: Any, **others: Any) -> Any:
        state = real(run, name, make, **others)
        if run.folder == out / "trials" / "001" and name == "fold1":
            raise Killed
        return state

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Run, "stage", stage)
        tune_run(recipe, plan, out)
    resumed = tune_run(recipe, plan, out, resume=True)
    stages = [(event["name"], event["resumed"]) for event in read_log(out / "trials" / "001") if event["event"] == "stage"]
    assert stages == [("fold1", False), ("fold1", True), ("fold2", False)]
    assert said(resumed) == said(tune_run(recipe, plan, tmp_path / "whole"))


def test_of_trials_with_the_same_value_the_first_one_stays(
    plan: DataPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the table, in the recipe and in the model alike; otherwise they would not belong together."""
    monkeypatch.setattr(tuning, "_value", lambda report: 0.5)
    trials = tune_run(recipe_of({"c": C}, 3), plan, tmp_path)
    tried = [trial.options["c"] for trial in trials]
    assert len(set(tried)) == 3 and best_trial(trials) == trials[0]
    assert Recipe.read(tmp_path / "best.toml").options["c"] == tried[:1]
    assert Classifier.load(tmp_path).recipe.options["c"] == tried[:1]


def test_a_finished_search_can_be_made_longer_but_not_another_one(plan: DataPlan, tmp_path: Path) -> None:
    out = tmp_path / "run"
    short = tune_run(recipe_of({"c": C}, 2), plan, out)
    with pytest.raises(ConfigError, match="has 2 trials of an earlier search; add --resume"):
        tune_run(recipe_of({"c": C}, 3), plan, out)
    others = [recipe_of({"c": {**C, "high": 9}}), recipe_of({"c": C}, seed=1), recipe_of({"c": C}, optimise="macro_f1")]
    for other in others:
        with pytest.raises(ConfigError, match="other settings, ranges or data"):
            tune_run(other, plan, out, resume=True)
    with pytest.raises(ConfigError, match="other settings, ranges or data"):
        tune_run(recipe_of({"c": C}), dataclasses.replace(plan, valid=None), out, resume=True)
    longer = tune_run(recipe_of({"c": C}, 3), plan, out, resume=True)
    assert longer[:2] == short and len(longer) == 3
    assert tune_run(recipe_of({"c": C}, 2), plan, out, resume=True) == longer


def test_the_seed_decides_what_is_tried() -> None:
    ranges = recipe_of({"c": C}).search().ranges
    assert propose(ranges, [], 0) == propose(ranges, [], 0) != propose(ranges, [], 1)


def test_settings_that_were_tried_are_not_trained_again(plan: DataPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = killed_after(99, monkeypatch)
    trials = tune_run(recipe_of({"balance": [0.0, 1.0]}, 6), plan, tmp_path / "run")
    assert len(trials) == 6 and len(begun) == 2
    assert len({(trial.options["balance"], trial.value) for trial in trials}) == 2


def test_settings_that_do_not_go_together_fail_their_trial_only(
    plan: DataPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tuning.train_corpora

    def training(recipe: Recipe, *others: Any, **more: Any) -> Classifier:
        if recipe.options["balance"] == 0.0 or recipe.options["folds"] == 3:
            raise ConfigError("they do not go together")
        return real(recipe, *others, **more)

    monkeypatch.setattr(tuning, "train_corpora", training)
    trials = tune_run(recipe_of({"balance": [0.0, 1.0]}, 6), plan, tmp_path / "some")
    failed = [trial for trial in trials if trial.value is None]
    assert {trial.options["balance"] for trial in failed} == {0.0} and "go together" in failed[0].failure
    best = best_trial(trials)
    assert len(failed) < 6 and best is not None and best.options["balance"] == 1.0
    fixed = dataclasses.replace(recipe_of({"balance": [0.1, 1.0]}, 2), options={**FAST, "folds": 3})
    with pytest.raises(ConfigError, match="none of 2 trials could be trained, the first because: they do not"):
        tune_run(fixed, plan, tmp_path / "none")


def test_too_few_documents_to_hold_any_out_are_an_error(tmp_path: Path, toy: Toy) -> None:
    toy.train.subset(np.arange(3)).write(tmp_path / "few.jsonl")
    few = DataPlan(tmp_path / "few.jsonl", None, None, ReadOptions())
    with pytest.raises(ConfigError, match="too few documents to compare settings on"):
        tune_run(recipe_of({"c": C}), few, tmp_path / "run")


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_trials_and_leaves_the_best(polytag: Command, files: Path, tmp_path: Path) -> None:
    recipe, out = tmp_path / "mine.toml", tmp_path / "run"
    recipe_of({"c": C, "folds": [2, 3]}, 9).write(recipe)
    asked = (
        "tune",
        files / "train.jsonl",
        "--valid",
        files / "valid.jsonl",
        "--recipe",
        recipe,
        "--out",
        out,
        "--set",
        "folds=2",
    )
    told = polytag(*asked, "--trials", 3)
    assert told.code == 0 and f"best recipe: {out / 'best.toml'}" in told.err
    lines = told.out.splitlines()
    assert lines[0].split() == ["trial", "c", "micro", "f1", "seconds"]  # what --set fixes is not searched
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]
    found = polytag(*asked, "--trials", 4, "--resume", "--json").json
    assert isinstance(found, dict) and found["metric"] == "micro_f1" and len(found["trials"]) == 4
    values = [trial["value"] for trial in found["trials"]]
    assert values[found["best"]] == max(values)
    assert [f"{value:.4f}" for value in values[:3]] == [line.split()[-2] for line in lines[1:]]
    assert Recipe.read(out / "best.toml").options["c"] == [found["trials"][found["best"]]["options"]["c"]]
    assert polytag("evaluate", out, files / "test.jsonl", "--json").code == 0
    # A recipe that names its data needs nothing else: the one that the search left goes on with it.
    assert polytag("tune", out / "recipe.toml", "--out", out, "--resume", "--json").json == found


def test_the_best_row_is_bold() -> None:
    table = tuning.trials_table([Trial(0, 0.5, {"c": 1.0}), Trial(1, 0.75, {"c": 2.0}), Trial(2, None, {"c": 3.0})], "micro_f1")
    assert [str(row.style) for row in table.rows] == ["", "bold", ""]
    assert list(table.columns[2].cells) == ["0.5000", "0.7500", "failed"]


def test_ranges_can_be_named_on_the_command_line(polytag: Command, files: Path, tmp_path: Path) -> None:
    asked = ("tune", files / "train.jsonl", "--out", tmp_path / "run", "--model", "br", "--set", "ngrams=1")
    assert "declare ranges in the recipe under [tune.ranges]" in polytag(*asked).complaint
    assert "write it as in a recipe" in polytag(*asked, "--range", "c=[low,high]").complaint
    assert "did you mean 'balance'" in polytag(*asked, "--range", "balanc=[0.1,0.2]").complaint
    told = polytag(*asked, "--range", "balance={low=0.1,high=0.2}", "--range", "folds=[2,3]", "--trials", 2, "--json").json
    assert isinstance(told, dict) and all(0.1 <= trial["options"]["balance"] <= 0.2 for trial in told["trials"])
    assert {trial["options"]["folds"] for trial in told["trials"]} <= {2, 3}


def test_another_model_does_not_take_the_ranges_of_a_recipe(polytag: Command, files: Path, tmp_path: Path) -> None:
    recipe_of({"c": C}).write(tmp_path / "br.toml")
    asked = ("tune", files / "train.jsonl", "--recipe", tmp_path / "br.toml", "--model", "lp", "--out", tmp_path / "run")
    assert "nothing to search for 'lp'" in polytag(*asked).complaint


def test_without_optuna_one_line_says_what_to_install(
    polytag: Command, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    asked = ("tune", files / "train.jsonl", "--out", tmp_path / "run", "--range", "balance=[0.1,0.2]")
    assert polytag(*asked).complaint == "a search needs the package 'optuna'; install polytag[tune]"
    assert not (tmp_path / "run").exists()
