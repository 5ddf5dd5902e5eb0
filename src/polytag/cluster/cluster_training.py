"""``polytag train``, ``tune`` and ``auto`` with ``--cluster`` as functions: the same results, from the nodes of a Ray cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from polytag.auto.automatic import Automatic, auto_run
from polytag.auto.model_search import Wanted
from polytag.classifier import Classifier
from polytag.cluster.process_group import Size, train_in_processes
from polytag.cluster.ray_engine import connected, ray_module
from polytag.cluster.ray_workers import RayWorkers
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.models.model import MODELS, model_class
from polytag.verbs.training import DataPlan, read_plan, train_run
from polytag.verbs.tuning import Trial, tune_run


def train_on_cluster(
    recipe: Recipe,
    plan: DataPlan,
    out: str | Path,
    *,
    cluster: str = "local",
    workers: int = 0,
    gpus: float = 0.0,
    resume: bool = False,
    earlier: Classifier | None = None,
    more: Corpus | None = None,
) -> Classifier:
    """Train with the workers of a cluster; this process reads the documents.

    The pieces of a training are tasks, and this process writes the run. The processes of a network train together, ``workers``
    of them, and the first one writes the run.
    """
    ray_module()
    how = model_class(recipe.model).divided
    if not how:
        able = ", ".join(name for name in MODELS if model_class(name).divided)
        raise ConfigError(f"'{recipe.model}' is trained on one machine; leave --cluster out, or choose one of {able}")
    with connected(cluster) as ray:
        if how == "pieces":
            place = RayWorkers(ray, gpus)
            return train_run(recipe, plan, out, resume=resume, earlier=earlier, more=more, workplace=place)
        recipe, train, valid = read_plan(recipe, plan, more)
        size = Size.of(ray, workers, gpus)
        return train_in_processes(ray, size, recipe, (train, valid), Path(out), resume=resume, earlier=earlier)


def tune_on_cluster(
    recipe: Recipe, plan: DataPlan, out: str | Path, *, cluster: str = "local", resume: bool = False
) -> list[Trial]:
    """Search with trials on a cluster; without a number of its own, as many at once as there are cores."""
    with connected(cluster) as ray:
        place = RayWorkers(ray)
        if "at_once" not in recipe.tune:
            recipe = replace(recipe, tune={**recipe.tune, "at_once": place.cores})
        return tune_run(recipe, plan, out, resume=resume, workplace=place)


def auto_on_cluster(
    plan: DataPlan, wanted: Wanted, out: str | Path, *, cluster: str = "local", resume: bool = False
) -> Automatic:
    """Find the best model with candidates on a cluster."""
    with connected(cluster) as ray:
        return auto_run(plan, wanted, out, resume=resume, workplace=RayWorkers(ray))
