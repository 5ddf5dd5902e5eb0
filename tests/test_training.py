"""A training from files to artefact: what it reads, and that nothing it computed is lost before its model is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.errors import ArtefactError, ConfigError
from polytag.formats.document import ReadOptions
from polytag.run import read_log
from polytag.verbs.training import DataPlan

FILES: dict[str, Any] = {"train": "t.jsonl", "valid": "v.jsonl", "labels": "l.jsonl", "from": "run"}


def test_the_files_of_a_recipe_are_read_unless_others_are_named() -> None:
    recipe, read = Recipe(data={**FILES, "reading": {"separator": ";", "on_bad": "skip"}}), ReadOptions(separator="|")
    of_recipe = ReadOptions(separator=";", on_bad="skip")
    t, v, lab, start = (Path(FILES[key]) for key in ("train", "valid", "labels", "from"))
    assert DataPlan.of(recipe, None, None, None, read) == DataPlan(t, v, lab, of_recipe, start)
    mine = Path("v2"), Path("l2")
    assert DataPlan.of(recipe, None, *mine, read, Path("r2")) == DataPlan(t, *mine, of_recipe, Path("r2"))
    assert DataPlan.of(Recipe(data={"train": "t.jsonl"}), None, None, None, read) == DataPlan(t, None, None, ReadOptions())


def test_a_training_file_that_is_named_takes_nothing_from_the_recipe() -> None:
    read = ReadOptions(separator="|")
    assert DataPlan.of(Recipe(data=FILES), Path("mine"), None, None, read) == DataPlan(Path("mine"), None, None, read)
    with pytest.raises(ConfigError, match="no training documents"):
        DataPlan.of(Recipe(), None, Path("v"), Path("l"), read)


def test_checkpoints_stay_until_the_model_is_saved(
    polytag: Command, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that fails, as on a full disk, loses no finished stage: a resumed training repeats none of them."""

    def full(classifier: Classifier, folder: Path) -> None:
        raise ArtefactError(f"{folder}: cannot save here (No space left on device)")

    asked = ("train", files / "train.jsonl", "--out", tmp_path / "r", "--set", "ngrams=1")
    with monkeypatch.context() as patch:
        patch.setattr(Classifier, "save", full)
        assert "No space left" in polytag(*asked).complaint
    assert polytag(*asked, "--resume").code == 0
    stages = [(event["name"], event["resumed"]) for event in read_log(tmp_path / "r") if event["event"] == "stage"]
    made = [name for name, resumed in stages if not resumed]
    assert len(made) >= 3 and [name for name, resumed in stages if resumed] == made
    assert not (tmp_path / "r" / "stages").exists() and (tmp_path / "r" / "model").exists()
