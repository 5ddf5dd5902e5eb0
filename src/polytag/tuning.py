"""A search for the settings that do best on held-out documents: what ``polytag tune`` does.

Every finished trial is a line in the log of the run. What the next one tries depends on the seed and on those lines alone, so a
search that was killed goes on as if nothing had happened, and one that has ended can be made longer.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
import shutil
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.markup import escape
from rich.table import Table

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.ranges import Range
from polytag.recipe import Recipe
from polytag.run import Run, read_log
from polytag.training import DataPlan, first_process, train_corpora

log = logging.getLogger(__name__)
BEST = "best.toml"


class Trial(NamedTuple):
    """What was tried and what came of it; ``value`` is None, and ``failure`` says why, where it could not be trained."""

    number: int
    value: float | None
    options: dict[str, Any]
    seconds: float = 0.0
    failure: str = ""


def with_search(recipe: Recipe, ranges: Sequence[str], settings: Sequence[str], trials: int | None) -> Recipe:
    """The recipe with what a command line says on top: more ranges, settings that are no longer searched, another number."""
    fixed = {setting.partition("=")[0].strip() for setting in settings}
    searched = {name: value for name, value in recipe.tune.get("ranges", {}).items() if name not in fixed}
    for text in ranges:
        try:
            searched |= tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            example = "'c = {low = 0.1, high = 10, log = true}' or 'folds = [2, 3]'"
            raise ConfigError(f"--range {text!r} is not a range; write it as in a recipe: {example}") from None
    tune = {**recipe.tune, "ranges": searched, **({} if trials is None else {"trials": trials})}
    return dataclasses.replace(recipe, tune=tune).checked()


def tune_run(recipe: Recipe, plan: DataPlan, out: str | Path, *, resume: bool = False) -> list[Trial]:
    """Make the trials that a recipe asks for, earlier ones in this folder included; leave the best recipe and its model there."""
    recipe, out = recipe.checked(), Path(out)
    if not recipe.search().ranges:
        raise ConfigError(f"nothing to search for {recipe.model!r}; declare ranges in the recipe under [tune.ranges]")
    if not first_process():
        raise ConfigError("a search runs in one process; start it without a launcher")
    _optuna()  # or an error before anything is read
    train, valid = plan.read()
    recipe = dataclasses.replace(recipe, data=plan.told(train, valid))
    trials = _earlier_trials(out, recipe, resume)
    with Run(out, resume=resume) as run:
        run.write_recipe(recipe)
        for number in range(len(trials), recipe.search().trials):
            options = propose(recipe.search().ranges, trials, recipe.seed)
            folder = out / "trials" / f"{number:03}"
            trials.append(_try(recipe, options, (train, valid), plan.start, folder, trials))
            run.log("trial", trials[-1]._asdict())
            _tell(trials, recipe)
    if best_trial(trials) is None:
        raise ConfigError(f"{out}: none of {len(trials)} trials could be trained, the first because: {trials[0].failure}")
    return trials


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the highest value, the first of equals; None if nothing could be trained."""
    done = [(trial.value, trial) for trial in trials if trial.value is not None]
    return max(done, key=lambda pair: pair[0])[1] if done else None


def _earlier_trials(out: Path, recipe: Recipe, resume: bool) -> list[Trial]:
    """The finished trials in a folder, if they are of this search and it goes on."""
    events = [event for event in read_log(out) if event["event"] == "trial"]
    if not events:
        return []
    if not resume:
        raise ConfigError(f"{out} has {len(events)} trials of an earlier search; go on with --resume, or name another folder")
    earlier = Recipe.read(out / "recipe.toml")
    if earlier.fingerprint() != recipe.fingerprint() or earlier.search().ranges != recipe.search().ranges:
        raise ConfigError(f"{out} has trials with other settings, ranges or data; repeat those, or name another folder")
    return [Trial(**{name: event[name] for name in Trial._fields}) for event in events]


# --- one trial -------------------------------------------------------------------------------------------------------


def _try(
    recipe: Recipe,
    options: dict[str, Any],
    corpora: tuple[Corpus, Corpus | None],
    start: Path | None,
    folder: Path,
    earlier: Sequence[Trial],
) -> Trial:
    """Train with these options and measure; the best classifier so far becomes the model of the search."""
    number = len(earlier)
    for trial in earlier:
        if trial.options == options:  # the same settings give the same value
            return trial._replace(number=number, seconds=0.0)
    begin = time.monotonic()
    try:
        told = dataclasses.replace(recipe, options={**recipe.options, **options}, tune={}).checked()
        before = None if start is None else Classifier.load(start)
        # Only the trial that a kill cut short has checkpoints, and only the same recipe uses them.
        classifier = train_corpora(told, *corpora, folder, resume=True, earlier=before)
    except ConfigError as error:  # settings that do not go together; the search goes on
        return Trial(number, None, options, time.monotonic() - begin, str(error))
    value = _value(classifier.decision.report)
    best = best_trial(earlier)
    if best is None or best.value is None or value > best.value:
        classifier.save(folder.parent.parent)
        told.write(folder.parent.parent / BEST)
    shutil.rmtree(folder / "model")
    return Trial(number, value, options, time.monotonic() - begin)


def _value(report: Mapping[str, Any]) -> float:
    """The metric on held-out documents; of thresholds from other documents where the decision has compared rules that way."""
    if not report:
        raise ConfigError("too few documents to compare settings on; give validation documents (--valid)")
    return float(report["cross_fitted"].get(report["rule"], report["fitted"]))


# --- what to try next ------------------------------------------------------------------------------------------------


def propose(ranges: Sequence[Range], trials: Sequence[Trial], seed: int) -> dict[str, Any]:
    """What the next trial should try, by the tree-structured Parzen estimator over the earlier ones."""
    optuna = _optuna()
    space = {each.name: _distribution(optuna, each) for each in ranges}
    # Seeded by number: a sampler that has lived through all trials and one that was told about them draw the same.
    draw = int(np.random.SeedSequence([seed, len(trials)]).generate_state(1)[0])
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=draw))
    for trial in trials:
        values = [(each, trial.options[each.name]) for each in ranges]
        params = {each.name: each.choices.index(value) if each.choices else value for each, value in values}
        state = optuna.trial.TrialState.FAIL if trial.value is None else optuna.trial.TrialState.COMPLETE
        study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=trial.value, state=state))
    drawn = study.ask(space).params
    return {each.name: each.choices[drawn[each.name]] if each.choices else drawn[each.name] for each in ranges}


def _distribution(optuna: Any, each: Range) -> Any:
    """A range as the library knows it; values go by their place in the list, for they may be lists themselves."""
    if each.choices:
        return optuna.distributions.CategoricalDistribution(range(len(each.choices)))
    whole = isinstance(each.low, int) and isinstance(each.high, int)
    kind = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
    return kind(each.low, each.high, log=each.log)


def _optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ModuleNotFoundError:
        raise ConfigError("a search needs the package 'optuna'; install polytag[tune]") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it prints by itself, once for every trial that it is told
    return optuna


# --- telling ---------------------------------------------------------------------------------------------------------


def _tell(trials: Sequence[Trial], recipe: Recipe) -> None:
    last, best = trials[-1], best_trial(trials)
    came = f"{recipe.optimise} {last.value:.4f}" if last.value is not None else last.failure
    top = "" if best is None else f" (best: {best.value:.4f}, trial {best.number})"
    tried = ", ".join(f"{name}={_cell(value)}" for name, value in last.options.items())
    log.info("trial %d of %d: %s with %s%s", last.number + 1, recipe.search().trials, came, tried, top)


def trials_table(trials: Sequence[Trial], metric: str) -> Table:
    """Trials as rows, what was tried as columns, the best in bold."""
    names = list(trials[0].options)
    table = Table("trial", *map(escape, names), metric.replace("_", " "), "seconds", box=None, header_style="dim")
    for column in table.columns:
        column.justify = "right"
    best = best_trial(trials)
    for trial in trials:
        value = "failed" if trial.value is None else f"{trial.value:.4f}"
        cells = [escape(_cell(trial.options[name])) for name in names]
        table.add_row(str(trial.number), *cells, value, f"{trial.seconds:,.1f}", style="bold" if trial is best else "")
    return table


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def as_record(trials: Sequence[Trial], metric: str) -> dict[str, Any]:
    """The search for scripts: the metric, the number of the best trial, and all trials."""
    best = best_trial(trials)
    return {"metric": metric, "best": None if best is None else best.number, "trials": [trial._asdict() for trial in trials]}
