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
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
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
from polytag.models.mixture.sent_documents import SentDocuments, corpora_of
from polytag.run import Run, read_log
from polytag.storage.artefact import remove_unused
from polytag.storage.state_json import State
from polytag.verbs.training import DataPlan, first_process, train_corpora
from polytag.work.workplace import HERE, Workplace

log = logging.getLogger(__name__)
BEST = "best.toml"
_PILOTS = 4  # number of pilots after which their median stops trials


class Trial(NamedTuple):
    """The settings of a trial and their value; if training failed or was stopped, ``value`` is None and ``failure`` the reason.

    ``pilot`` is the value of a training on a few documents, if the search has pilots.
    """

    number: int
    value: float | None
    options: dict[str, Any]
    seconds: float = 0.0
    failure: str = ""
    pilot: float | None = None


def with_search(recipe: Recipe, ranges: Sequence[str], settings: Sequence[str], numbers: Mapping[str, float | None]) -> Recipe:
    """The recipe with the options of the command line: further ranges, fixed settings, and numbers such as that of trials."""
    fixed = {setting.partition("=")[0].strip() for setting in settings}
    searched = {name: value for name, value in recipe.tune.get("ranges", {}).items() if name not in fixed}
    for text in ranges:
        try:
            searched |= parsed_toml(text)
        except ValueError:
            example = "'c = {low = 0.1, high = 10, log = true}' or 'folds = [2, 3]'"
            raise ConfigError(f"--range {brief(text, 80)} is not a range; write it as in a recipe: {example}") from None
    tune = {**recipe.tune, "ranges": searched, **{name: value for name, value in numbers.items() if value is not None}}
    return dataclasses.replace(recipe, tune=tune).checked()


def tune_run(
    recipe: Recipe, plan: DataPlan, out: str | Path, *, resume: bool = False, workplace: Workplace = HERE
) -> list[Trial]:
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
        run.workplace = workplace
        for trial in _Trials(recipe, (train, valid), plan.start, out, workplace).after(trials):
            trials.append(trial)
            run.log("trial", trial._asdict())
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
    if earlier.fingerprint() != recipe.fingerprint() or earlier.search()[1:] != recipe.search()[1:]:
        raise ConfigError(f"{out} has trials with other settings, ranges or data; use the same ones, or name another folder")
    last = {event["number"]: event for event in events}  # a trial is logged twice if the disk failed in between
    return [Trial(**{name: event[name] for name in Trial._fields if name in event}) for event in last.values()]


def _tidy(out: Path, finished: int) -> None:
    """Remove what finished trials left where files could not be removed."""
    for number in range(finished):
        for name in ("stages", "model"):
            shutil.rmtree(out / "trials" / f"{number:03}" / name, ignore_errors=True)
    remove_unused(out / "model")


# --- trials ----------------------------------------------------------------------------------------------------------


class _Trials:
    """The trials of a search, ``at_once`` of them in parallel.

    A trial is proposed from all trials but the ``at_once`` - 1 before it, whenever those end. So the same search has the same
    trials, wherever they run.
    """

    def __init__(
        self, recipe: Recipe, corpora: tuple[Corpus, Corpus | None], start: Path | None, out: Path, place: Workplace
    ) -> None:
        self.recipe, self.start, self.out, self.place = recipe, start, out, place
        self.sent, self.search = SentDocuments(place)(*corpora), recipe.search()

    def after(self, trials: Sequence[Trial]) -> Iterator[Trial]:
        """The trials that follow these, in order; the caller appends each."""
        running: deque[tuple[Trial, Recipe | None, Future[State] | None]] = deque()
        try:
            for number in range(len(trials), self.search.trials):
                running.append(self._begun(number, trials[: max(0, number + 1 - self.search.at_once)]))
                if len(running) == self.search.at_once:
                    yield self._ended(*running.popleft(), trials)
            while running:
                yield self._ended(*running.popleft(), trials)
        finally:
            for _, _, future in running:
                if future is not None and not future.done():
                    self.place.stop(future)

    def _begun(self, number: int, known: Sequence[Trial]) -> tuple[Trial, Recipe | None, Future[State] | None]:
        """Propose a trial, and queue its training unless its value is known."""
        options = propose(self.search.ranges, known, self.recipe.seed, number)
        for trial in known:
            if trial.options == options:  # same settings, same value
                return trial._replace(number=number, seconds=0.0), None, None
        try:
            recipe = dataclasses.replace(self.recipe, options={**self.recipe.options, **options}, tune={}).checked()
        except ConfigError as error:  # incompatible settings; the search continues
            return Trial(number, None, options, 0.0, str(error)), None, None
        folder = self.out.resolve() / "trials" / f"{number:03}"
        job: State = {"recipe": dataclasses.asdict(recipe), "folder": str(folder)}
        job |= {"start": self.start and str(self.start.resolve()), "pilot": self.search.pilot, "limit": _limit(known)}
        future = self.place.submit(trial_job, job, *self.sent, threads=self.place.threads(self.search.at_once))
        return Trial(number, None, options), recipe, future

    def _ended(self, trial: Trial, recipe: Recipe | None, future: Future[State] | None, before: Sequence[Trial]) -> Trial:
        """Wait for a trial; the best classifier so far becomes the model of the search."""
        if recipe is None or future is None:
            return trial
        found = future.result()
        trial = trial._replace(**{name: found[name] for name in ("value", "seconds", "failure", "pilot")})
        best = best_trial(before)
        if trial.value is not None and (best is None or best.value is None or trial.value > best.value):
            Classifier.from_state(found["classifier"]).save(self.out)
            recipe.write(self.out / BEST)
        return trial


def _limit(known: Sequence[Trial]) -> float | None:
    """The value of a pilot below which a trial is stopped: the median so far, once there are some."""
    pilots = [trial.pilot for trial in known if trial.pilot is not None]
    return float(np.median(pilots)) if len(pilots) >= _PILOTS else None


def trial_job(job: State, *documents: State) -> State:
    """Train with the settings of a trial and evaluate; with a pilot that is below the limit, train no further."""
    begin, recipe = time.monotonic(), Recipe(**job["recipe"]).checked()
    found: State = {"value": None, "failure": "", "pilot": None, "classifier": None}
    folder = Path(job["folder"])
    with nullcontext(folder) if folder.parent.parent.exists() else TemporaryDirectory(prefix="polytag-") as kept:
        try:
            train, valid = corpora_of(*documents)
            if job["pilot"]:
                found["pilot"] = _pilot(recipe, train, valid, job["pilot"])
            if job["limit"] is not None and found["pilot"] < job["limit"]:
                found["failure"] = f"stopped early: {found['pilot']:.4f} in its pilot, half of the others {job['limit']:.4f}"
            else:
                before = None if job["start"] is None else Classifier.load(job["start"])
                # Only an interrupted trial has checkpoints, and only the same recipe uses them.
                classifier = train_corpora(recipe, train, valid, kept, resume=True, earlier=before)
                found |= {"value": _value(classifier.decision.report), "classifier": classifier.state()}
                shutil.rmtree(Path(kept) / "model")
        except ConfigError as error:  # incompatible settings; the search continues
            found["failure"] = str(error)
    return {**found, "seconds": time.monotonic() - begin}


def _pilot(recipe: Recipe, train: Corpus, valid: Corpus | None, share: float) -> float:
    """The value of a training on a share of the documents."""
    rows = np.random.default_rng(recipe.seed).permutation(len(train))[: max(1, round(share * len(train)))]
    return _value(Classifier(recipe).fit(train.subset(np.sort(rows)), valid, Run(progress=False)).decision.report)


def _value(report: Mapping[str, Any]) -> float:
    """The metric on held-out documents, cross-fitted if the decision has compared rules."""
    if not report:
        raise ConfigError("too few documents to compare settings on; give validation documents (--valid)")
    return float(report["cross_fitted"].get(report["rule"], report["fitted"]))


# --- the next trial --------------------------------------------------------------------------------------------------


def propose(ranges: Sequence[Range], trials: Sequence[Trial], seed: int, number: int | None = None) -> dict[str, Any]:
    """The settings of a trial, by default the next one, from a tree-structured Parzen estimator over the earlier ones."""
    optuna = _optuna()
    space = {each.name: _distribution(optuna, each) for each in ranges}
    # Seeded by the number of the trial: a resumed search draws the same settings as an uninterrupted one.
    draw = int(np.random.SeedSequence([seed, len(trials) if number is None else number]).generate_state(1)[0])
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
