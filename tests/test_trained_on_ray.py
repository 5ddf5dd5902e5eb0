"""Training, searching and selecting on a real Ray with two nodes: a worker dies, and the result is that of one machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Toy
from polytag.auto.automatic import auto_run
from polytag.auto.model_search import Wanted
from polytag.classifier import Classifier
from polytag.cluster.cluster_training import auto_on_cluster, train_on_cluster, tune_on_cluster
from polytag.config.recipe import Recipe
from polytag.datasets.synthetic import Shape, corpus
from polytag.errors import ConfigError
from polytag.formats.document import ReadOptions
from polytag.run import read_log
from polytag.storage.artefact import MANIFEST, artefact_folder
from polytag.verbs.training import DataPlan, train_run
from polytag.verbs.tuning import Trial, tune_run
from ray_nodes import Nodes, one_worker_killed

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("same_modules")]
PARTS: dict[str, Any] = {"parts": ["br", "lp", "cc"], "settings": {"all": {"c": [0.5], "ngrams": [1]}}}
NETWORK: dict[str, Any] = {
    "encoder": "bilstm", "embedding": 1024, "hidden": 6, "layers": 1, "epochs": 4, "batch_size": 8, "head_rate": 1e-2,
    "encoder_dropout": 0.2, "checkpoint_seconds": 0.0, "device": "cpu", "precision": "fp32",
}  # fmt: skip


@pytest.fixture(scope="module")
def many_labels(tmp_path_factory: pytest.TempPathFactory) -> DataPlan:
    path = tmp_path_factory.mktemp("data") / "train.jsonl"
    corpus(Shape(documents=1500, labels=400, vocabulary=3000)).write(path)
    return DataPlan(path, None, None, ReadOptions())


@pytest.fixture(scope="module")
def plan(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> DataPlan:
    folder = tmp_path_factory.mktemp("toy")
    toy.train.write(folder / "train.jsonl")
    toy.valid.write(folder / "valid.jsonl")
    return DataPlan(folder / "train.jsonl", folder / "valid.jsonl", None, ReadOptions())


def arrays_of(run: Path) -> dict[str, bytes]:
    """The arrays of an artefact; its JSON has times."""
    found = {path.name.partition("-")[0]: path.read_bytes() for path in artefact_folder(run).rglob("*.safetensors")}
    assert found
    return found


def test_trees_of_labels_are_those_of_one_machine(ray_cluster: Nodes, many_labels: DataPlan, tmp_path: Path) -> None:
    recipe = Recipe("xlinear", {"trees": 2, "branching": 8, "max_leaf": 20, "negatives": "matcher"})
    alone = train_run(recipe, many_labels, tmp_path / "alone")
    with one_worker_killed("ray::polytag solve_pieces"):
        found = train_on_cluster(recipe, many_labels, tmp_path / "found", cluster=ray_cluster.address)
    assert arrays_of(tmp_path / "found") == arrays_of(tmp_path / "alone")
    assert found.decision.report == alone.decision.report


@pytest.mark.parametrize("options", [PARTS, {**PARTS, "parts": ["br"], "folds": 2}], ids=["parts", "folds"])
def test_members_of_a_mixture_are_those_of_one_machine(
    ray_cluster: Nodes, plan: DataPlan, tmp_path: Path, options: dict[str, Any]
) -> None:
    recipe = Recipe("mixed", options)
    alone = train_run(recipe, plan, tmp_path / "alone")
    with one_worker_killed("ray::polytag train_job"):
        found = train_on_cluster(recipe, plan, tmp_path / "found", cluster=ray_cluster.address)
    assert arrays_of(tmp_path / "found") == arrays_of(tmp_path / "alone")
    assert found.decision.report == alone.decision.report


def test_the_command_reaches_a_cluster_through_its_client_port(ray_cluster: Nodes, plan: DataPlan, tmp_path: Path) -> None:
    settings = ["--model", "mixed", "--set", "parts=br,lp", "--set", "all.ngrams=1"]
    command = [sys.executable, "-m", "polytag", "train", str(plan.train), "--valid", str(plan.valid), *settings]
    for more in ([], ["--cluster", ray_cluster.client]):
        out = ["--out", str(tmp_path / ("found" if more else "alone"))]
        done = subprocess.run([*command, *more, *out], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    assert arrays_of(tmp_path / "found") == arrays_of(tmp_path / "alone")


def said(trials: list[Trial]) -> list[Any]:
    return [trial._replace(seconds=0.0) for trial in trials]


def test_trials_are_those_of_one_machine(ray_cluster: Nodes, plan: DataPlan, tmp_path: Path) -> None:
    ranges = {"c": {"low": 0.001, "high": 10, "log": True}, "balance": {"low": 0, "high": 1}}
    tune = {"trials": 8, "at_once": 2, "pilot": 0.5, "ranges": ranges}
    recipe = Recipe("br", {"ngrams": [1]}, tune=tune)
    alone = tune_run(recipe, plan, tmp_path / "alone")
    with one_worker_killed("ray::polytag trial_job"):
        found = tune_on_cluster(recipe, plan, tmp_path / "found", cluster=ray_cluster.address)
    assert said(found) == said(alone) and any("stopped early" in trial.failure for trial in found)
    for name in ("best.toml", "recipe.toml"):
        assert (tmp_path / "found" / name).read_text() == (tmp_path / "alone" / name).read_text()
    assert arrays_of(tmp_path / "found") == arrays_of(tmp_path / "alone")


def test_the_winner_is_that_of_one_machine(ray_cluster: Nodes, plan: DataPlan, tmp_path: Path) -> None:
    """Without networks, whose training depends on the time that is left."""
    with pytest.MonkeyPatch.context() as patch:
        from dataclasses import replace

        from polytag.auto import model_search

        look_at = model_search.look_at
        patch.setattr(model_search, "look_at", lambda corpus: replace(look_at(corpus), networks=False))
        alone = auto_run(plan, Wanted(5.0), tmp_path / "alone")
        with one_worker_killed("ray::polytag try_job"):
            found = auto_on_cluster(plan, Wanted(5.0), tmp_path / "found", cluster=ray_cluster.address)
    assert found.record()["winner"] == alone.record()["winner"] and found.found.choice.value == alone.found.choice.value
    assert [one._replace(seconds=0.0) for one in found.found.tried] == [one._replace(seconds=0.0) for one in alone.found.tried]
    assert arrays_of(tmp_path / "found") == arrays_of(tmp_path / "alone")


@pytest.mark.parametrize("shard", ["optimiser", "weights"])
def test_processes_of_a_network_go_on_after_one_dies(ray_cluster: Nodes, plan: DataPlan, tmp_path: Path, shard: str) -> None:
    """Two processes, with dropout: the killed training has the weights of one that was not, to the bit."""
    recipe = Recipe("bert", {**NETWORK, "shard": shard})
    whole = train_on_cluster(recipe, plan, tmp_path / "whole", cluster=ray_cluster.address, workers=2)
    with one_worker_killed("ray::TrainingProcess.train", once=tmp_path / "found" / "stages" / "bert" / "training" / MANIFEST):
        found = train_on_cluster(recipe, plan, tmp_path / "found", cluster=ray_cluster.address, workers=2)
    assert any(event["event"] == "resumed" for event in read_log(tmp_path / "found"))
    assert arrays_of(tmp_path / "found") == arrays_of(tmp_path / "whole")
    assert found.decision.report == whole.decision.report
    assert Classifier.load(tmp_path / "found").decision.report == found.decision.report


def test_what_one_machine_trains_is_refused(ray_cluster: Nodes, plan: DataPlan, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'br' is trained on one machine"):
        train_on_cluster(Recipe("br"), plan, tmp_path / "run", cluster=ray_cluster.address)
    assert not (tmp_path / "run").exists()


def test_an_error_of_a_piece_is_one_line(ray_cluster: Nodes, plan: DataPlan, tmp_path: Path) -> None:
    recipe = Recipe("mixed", {"parts": ["br", "bert"], "settings": {"bert": {"encoder": "no/such/folder"}}})
    with pytest.raises(ConfigError, match="no/such/folder"):
        train_on_cluster(recipe, plan, tmp_path / "run", cluster=ray_cluster.address)
