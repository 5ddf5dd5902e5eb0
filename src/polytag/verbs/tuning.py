"""``polytag tune`` as functions: a search for the settings with the best metric on held-out documents.

Every finished trial is a line in the log of the run. The next trial depends only on the seed and on these lines. A killed search
therefore resumes without loss, and a finished one can be extended.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.markup import escape
from rich.table import Table

from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.config.search_ranges import Range
from polytag.config.toml_text import parsed_toml
from polytag.corpus import Corpus
from polytag.errors import ConfigError, brief
from polytag.run import Run, read_log
from polytag.storage.artefact import remove_unused
from polytag.verbs.training import DataPlan, first_process, train_corpora

log = logging.getLogger(__name__)
BEST = "best.toml"


class Trial(NamedTuple):
    """The settings of a trial and their value; if training failed, ``value`` is None and ``failure`` is the reason."""

    number: int
    value: float | None
    options: dict[str, Any]
    seconds: float = 0.0
    failure: str = ""


def with_search(recipe: Recipe, ranges: Sequence[str], settings: Sequence[str], trials: int | None) -> Recipe:
    """The recipe with the options of the command line: further ranges, fixed settings, number of trials."""
    fixed = {setting.partition("=")[0].strip() for setting in settings}
    searched = {name: value for name, value in recipe.tune.get("ranges", {}).items() if name not in fixed}
    for text in ranges:
        try:
            searched |= parsed_toml(text)
        except ValueError:
            example = "'c = {low = 0.1, high = 10, log = true}' or 'folds = [2, 3]'"
            raise ConfigError(f"--range {brief(text, 80)} is not a range; write it as in a recipe: {example}") from None
    tune = {**recipe.tune, "ranges": searched, **({} if trials is None else {"trials": trials})}
    return dataclasses.replace(recipe, tune=tune).checked()


def tune_run(recipe: Recipe, plan: DataPlan, out: str | Path, *, resume: bool = False) -> list[Trial]:
    """Run the trials of a recipe, minus those already in the folder; write the best recipe and its model there."""
    recipe, out = recipe.checked(), Path(out)
    if not recipe.search().ranges:
        raise ConfigError(f"nothing to search for {recipe.model!r}; declare ranges in the recipe under [tune.ranges]")
    if not first_process():
        raise ConfigError("a search runs in one process; start it without a launcher")
    _optuna()  # raises an error before any data are read
    train, valid = plan.read()
    recipe = dataclasses.replace(recipe, data=plan.recipe_table(train, valid))
    trials = _earlier_trials(out, recipe, resume)
    with Run(out, resume=resume) as run:
        run.write_recipe(recipe)
        _tidy(out, len(trials))
        for number in range(len(trials), recipe.search().trials):
            options = propose(recipe.search().ranges, trials, recipe.seed)
            folder = out / "trials" / f"{number:03}"
            trials.append(_try(recipe, options, (train, valid), plan.start, folder, trials))
            run.log("trial", trials[-1]._asdict())
            _log_trial(trials, recipe)
    if best_trial(trials) is None:
        raise ConfigError(f"{out}: none of {len(trials)} trials could be trained, the first because: {trials[0].failure}")
    return trials


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the highest value, the first one of a tie; None if every training failed."""
    done = [(trial.value, trial) for trial in trials if trial.value is not None]
    return max(done, key=lambda pair: pair[0])[1] if done else None


def _earlier_trials(out: Path, recipe: Recipe, resume: bool) -> list[Trial]:
    """The finished trials in a folder, if they belong to this search and it resumes."""
    events = [event for event in read_log(out) if event["event"] == "trial"]
    if not events:
        return []
    if not resume:
        raise ConfigError(
            f"{out} has {len(events)} trials of an earlier search; add --resume to continue, or name another folder"
        )
    earlier = Recipe.read(out / "recipe.toml")
    if earlier.fingerprint() != recipe.fingerprint() or earlier.search().ranges != recipe.search().ranges:
        raise ConfigError(f"{out} has trials with other settings, ranges or data; use the same ones, or name another folder")
    last = {event["number"]: event for event in events}  # a trial is logged twice if the disk failed in between
    return [Trial(**{name: event[name] for name in Trial._fields}) for event in last.values()]


def _tidy(out: Path, finished: int) -> None:
    """Remove what finished trials left where files could not be removed."""
    for number in range(finished):
        for name in ("stages", "model"):
            shutil.rmtree(out / "trials" / f"{number:03}" / name, ignore_errors=True)
    remove_unused(out / "model")


# --- one trial -------------------------------------------------------------------------------------------------------


def _try(
    recipe: Recipe,
    options: dict[str, Any],
    corpora: tuple[Corpus, Corpus | None],
    start: Path | None,
    folder: Path,
    earlier: Sequence[Trial],
) -> Trial:
    """Train with these options and evaluate; the best classifier so far becomes the model of the search."""
    number = len(earlier)
    for trial in earlier:
        if trial.options == options:  # same settings, same value
            return trial._replace(number=number, seconds=0.0)
    begin = time.monotonic()
    try:
        trial_recipe = dataclasses.replace(recipe, options={**recipe.options, **options}, tune={}).checked()
        before = None if start is None else Classifier.load(start)
        # Only an interrupted trial has checkpoints, and only the same recipe uses them.
        classifier = train_corpora(trial_recipe, *corpora, folder, resume=True, earlier=before)
    except ConfigError as error:  # incompatible settings; the search continues
        return Trial(number, None, options, time.monotonic() - begin, str(error))
    value = _value(classifier.decision.report)
    best = best_trial(earlier)
    if best is None or best.value is None or value > best.value:
        classifier.save(folder.parent.parent)
        trial_recipe.write(folder.parent.parent / BEST)
    shutil.rmtree(folder / "model")
    return Trial(number, value, options, time.monotonic() - begin)


def _value(report: Mapping[str, Any]) -> float:
    """The metric on held-out documents, cross-fitted if the decision has compared rules."""
    if not report:
        raise ConfigError("too few documents to compare settings on; give validation documents (--valid)")
    return float(report["cross_fitted"].get(report["rule"], report["fitted"]))


# --- the next trial --------------------------------------------------------------------------------------------------


def propose(ranges: Sequence[Range], trials: Sequence[Trial], seed: int) -> dict[str, Any]:
    """The settings of the next trial, from a tree-structured Parzen estimator over the earlier ones."""
    optuna = _optuna()
    space = {each.name: _distribution(optuna, each) for each in ranges}
    # Seeded by the number of the trial: a resumed search draws the same settings as an uninterrupted one.
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
    """A range as optuna's distribution; choices are given by index, as they may be lists."""
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
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # by default it logs every trial that is added
    return optuna


# --- output ----------------------------------------------------------------------------------------------------------


def _log_trial(trials: Sequence[Trial], recipe: Recipe) -> None:
    last, best = trials[-1], best_trial(trials)
    outcome = f"{recipe.optimise} {last.value:.4f}" if last.value is not None else last.failure
    top = "" if best is None else f" (best: {best.value:.4f}, trial {best.number})"
    tried = ", ".join(f"{name}={_cell(value)}" for name, value in last.options.items())
    log.info("trial %d of %d: %s with %s%s", last.number + 1, recipe.search().trials, outcome, tried, top)


def trials_table(trials: Sequence[Trial], metric: str) -> Table:
    """Trials as rows, their settings as columns, the best trial in bold."""
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
    """The search as a JSON record: the metric, the number of the best trial, and all trials."""
    best = best_trial(trials)
    return {"metric": metric, "best": None if best is None else best.number, "trials": [trial._asdict() for trial in trials]}
