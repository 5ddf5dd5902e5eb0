"""``polytag auto`` as functions: from files and a number of minutes to the artefact of the best model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from polytag.auto.choice import Choice
from polytag.auto.clock import Clock
from polytag.auto.model_search import Found, Wanted, reasons, search
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.config.settings import effective
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.models.mixed import Mixed
from polytag.models.model import HeldOut, Model, model_name
from polytag.run import Run, read_log
from polytag.verbs.training import DataPlan, first_process
from polytag.work.workplace import HERE, Workplace

_LEAST = 0.1  # minutes


class Automatic(NamedTuple):
    """The classifier that won, and how it was found."""

    classifier: Classifier
    found: Found

    def sentences(self) -> list[str]:
        """Why this one, in words."""
        return list(reasons(self.found))

    def record(self) -> dict[str, Any]:
        """The search as a JSON record."""
        choice = self.found.choice
        parts = [one.candidate.name for one in choice.parts]
        return {
            "winner": parts,
            "weights": choice.weights,
            "value": self.found.value,
            "seconds": self.found.seconds,
            "tried": [one._asdict() for one in self.found.tried],
        }


def auto_run(plan: DataPlan, wanted: Wanted, out: str | Path, *, resume: bool = False, workplace: Workplace = HERE) -> Automatic:
    """Search, and write recipe, log, metrics and the artefact of the winner to the folder of the run."""
    if not wanted.minutes >= _LEAST:
        raise ConfigError(f"--minutes is {wanted.minutes:g}; a search needs {_LEAST:g} at least")
    if not first_process():
        raise ConfigError("a search runs in one process; start it without a launcher")
    clock = Clock(60 * wanted.minutes, _spent(out) if resume else 0.0)  # reading counts too
    train, valid = plan.read()
    data = plan.recipe_table(train, valid)
    with Run(out, resume=resume) as run:
        run.workplace = workplace
        run.fingerprint = Recipe(seed=wanted.seed, optimise=wanted.optimise, data=data).fingerprint()
        found = search(train, valid, wanted, run, clock)
        classifier = of_choice(found.choice, wanted, (found.train, found.valid), data)
        run.write_recipe(classifier.recipe)
        classifier.save(out)
        ended = Automatic(classifier, found)
        run.log("end", {"seconds": clock.elapsed()})
        run.write_metrics({"held_out": classifier.decision.report, "search": ended.record()})
        run.clear_stages()
    return ended


def automatic(train: Corpus, valid: Corpus | None = None, wanted: Wanted | None = None) -> Automatic:
    """Search for the best model of corpora in memory; nothing is written."""
    wanted = wanted or Wanted(10.0)
    found = search(train, valid, wanted, Run())
    return Automatic(of_choice(found.choice, wanted, (found.train, found.valid), {}), found)


def of_choice(choice: Choice, wanted: Wanted, corpora: tuple[Corpus, Corpus | None], data: Mapping[str, Any]) -> Classifier:
    """The classifier of the winner: a model, or a mixture, with its decision fitted on the held-out scores.

    A model alone keeps the order of its held-out documents, on which the comparison of rules depends: so it decides exactly as
    if it had been trained without a search.
    """
    train, valid = corpora
    whole = train if valid is None else train.concat(valid)
    alone = choice.parts[0] if len(choice.parts) == 1 else None
    scores, rows = (choice.held, choice.rows) if alone is None else (alone.held, alone.rows)
    held = HeldOut(whole.truth[rows], scores, rows)
    shared: dict[str, Any] = {"seed": wanted.seed, "optimise": wanted.optimise}
    parts = [one.part for one in choice.parts]
    model: Model = Mixed.joined(parts, choice.weights, train.labels, shared) if alone is None else alone.part.model
    calibration = None if alone is None else alone.part.calibration
    own = {name: value for name, value in effective(model).items() if name not in shared}
    recipe = Recipe(model_name(model), own, **shared, closed=wanted.closed, data=dict(data))
    return Classifier.of_trained(model, recipe, held, train, valid, calibration)


def _spent(out: str | Path) -> float:
    """Seconds that an interrupted search in this folder has used."""
    return max((float(event.get("spent", 0.0)) for event in read_log(out) if event["event"] == "candidate"), default=0.0)
