"""Several processes from the command line: one of them keeps the run, and what it leaves is what one process would leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import FAST, Command
from polytag.config.recipe import Recipe
from polytag.formats.document import ReadOptions
from polytag.run import Run, read_log
from polytag.storage.artefact import read_artefact
from polytag.verbs.training import DataPlan, train_run
from toys import toy_corpus

SETTINGS = {
    "encoder": "bilstm", "embedding": 8, "hidden": 6, "layers": 1, "epochs": 3, "batch_size": 8, "head_rate": 0.01,
    "dropout": 0, "checkpoint_seconds": 0, "device": "cpu", "precision": "fp32", "average": 0.9,
}  # fmt: skip
LAUNCH = (
    "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no "
    "--main_process_port 0 -m polytag"
)


class Cut(Exception):
    """A training ends before its time."""


def test_a_second_process_keeps_nothing_and_says_nothing(
    files: Path, tmp_path: Path, polytag: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("train", files / "train.jsonl", *FAST, "--out", tmp_path / "run")
    monkeypatch.setenv("RANK", "1")
    told = polytag(*command)
    assert told.code == 0 and told.out == told.err == "" and list(tmp_path.iterdir()) == []
    monkeypatch.setenv("RANK", "0")
    assert polytag(*command).code == 0 and (tmp_path / "run" / "model").is_dir()


def test_two_processes_resume_what_one_began_and_leave_one_artefact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_corpus(60).write(tmp_path / "train.jsonl")
    toy_corpus(20, 1).write(tmp_path / "valid.jsonl")
    recipe = Recipe("bert").with_overrides([f"{key}={value}" for key, value in SETTINGS.items()])
    plan = DataPlan.of(recipe, tmp_path / "train.jsonl", tmp_path / "valid.jsonl", None, ReadOptions())
    train_run(recipe, plan, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(Run, "save_stage", cut_after(10))
        train_run(recipe, plan, tmp_path / "cut")
    said = launched("train", "--recipe", tmp_path / "cut" / "recipe.toml", "--out", tmp_path / "cut", "--resume")
    events = read_log(tmp_path / "cut")
    assert [event["step"] for event in events if event["event"] == "resumed"] == [10]
    assert [event["event"] for event in events].count("end") == 1
    assert said.count("trained bert on") == 1
    one, two = (read_artefact(tmp_path / run / "model")["state"]["weights"] for run in ("whole", "cut"))
    assert all(np.allclose(one[name], two[name], atol=1e-4) for name in one)
    assert json.loads((tmp_path / "cut" / "metrics.json").read_text())["held_out"]


def cut_after(steps: int) -> Any:
    """A Run's way to save checkpoints that ends the training after so many of its steps."""
    save, seen = Run.save_stage, iter(range(1, 1000))

    def save_or_stop(run: Run, name: str, state: Any, *, key: Any = None) -> None:
        save(run, name, state, key=key)
        if name.endswith("training") and next(seen) == steps:
            raise Cut

    return save_or_stop


def launched(*arguments: object) -> str:
    """What two processes on the CPU say."""
    done = subprocess.run(
        [sys.executable, *LAUNCH.split(), *map(str, arguments)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"},
    )  # fmt: skip
    aborted = "terminate called without an active exception" in done.stderr  # torch, while an interpreter exits
    assert done.returncode == 0 or aborted, done.stderr[-3000:]
    return done.stderr
