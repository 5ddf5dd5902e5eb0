"""Training, searching and selecting on a real Ray with two nodes: a worker dies, and the result is that of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from polytag.cluster.cluster_training import train_on_cluster
from polytag.config.recipe import Recipe
from polytag.datasets.synthetic import Shape, corpus
from polytag.formats.document import ReadOptions
from polytag.storage.artefact import artefact_folder
from polytag.verbs.training import DataPlan, train_run
from ray_nodes import one_worker_killed, ray_cluster, same_modules  # noqa: F401, fixtures

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def many_labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents whose training takes some seconds."""
    path = tmp_path_factory.mktemp("data") / "train.jsonl"
    corpus(Shape(documents=6000, labels=2000, vocabulary=8000)).write(path)
    return path


def plan_of(path: Path, valid: Path | None = None) -> DataPlan:
    return DataPlan(path, valid, None, ReadOptions())


def arrays_of(run: Path) -> dict[str, bytes]:
    """The arrays of an artefact; its JSON has times."""
    folder = artefact_folder(run)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.safetensors")}


def test_trees_of_labels_are_those_of_one_machine_although_a_worker_dies(
    ray_cluster: str, many_labels: Path, tmp_path: Path
) -> None:
    recipe = Recipe("xlinear", {"trees": 2, "branching": 8, "max_leaf": 20, "negatives": "matcher"})
    alone = train_run(recipe, plan_of(many_labels), tmp_path / "alone")
    with one_worker_killed("ray::polytag solve_pieces"):
        found = train_on_cluster(recipe, plan_of(many_labels), tmp_path / "found", cluster=ray_cluster)
    assert arrays_of(tmp_path / "found") == arrays_of(tmp_path / "alone")
    assert arrays_of(tmp_path / "found")
    assert found.decision.report == alone.decision.report
