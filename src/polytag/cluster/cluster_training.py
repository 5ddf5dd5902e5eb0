"""``polytag train --cluster`` as a function: the same artefact, trained on the nodes of a Ray cluster."""

from __future__ import annotations

from pathlib import Path

from polytag.classifier import Classifier
from polytag.cluster.ray_engine import connected, ray_module
from polytag.cluster.ray_workers import RayWorkers
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.models.model import MODELS, model_class
from polytag.verbs.training import DataPlan, train_run


def train_on_cluster(
    recipe: Recipe,
    plan: DataPlan,
    out: str | Path,
    *,
    cluster: str = "local",
    gpus: float = 0.0,
    resume: bool = False,
    earlier: Classifier | None = None,
    more: Corpus | None = None,
) -> Classifier:
    """Train with the workers of a cluster; this process reads the documents and writes the run."""
    ray_module()
    how = model_class(recipe.model).divided
    if not how:
        able = ", ".join(name for name in MODELS if model_class(name).divided)
        raise ConfigError(f"'{recipe.model}' is trained on one machine; leave --cluster out, or choose one of {able}")
    with connected(cluster) as ray:
        place = RayWorkers(ray, gpus)
        return train_run(recipe, plan, out, resume=resume, earlier=earlier, more=more, workplace=place)
