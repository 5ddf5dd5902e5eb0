"""A run keeps what a training did, resumes finished stages only where nothing changed, and is alone in its folder."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polytag import run as run_module
from polytag.config.recipe import Recipe
from polytag.errors import ConfigError, PolytagError
from polytag.models.model import State
from polytag.run import Run, read_log
from polytag.storage.artefact import read_artefact, write_artefact


class Counted:
    """A stage that counts how often it was made."""

    def __init__(self, value: int = 1) -> None:
        self.calls, self.value = 0, value

    def __call__(self) -> State:
        self.calls += 1
        return {"x": np.full(3, self.value), "t": (1, 2)}


def stage_again(folder: Path, *, resume: bool = True, key: Any = None, recipe: Recipe | None = None) -> int:
    """How often a stage is made when a training is started in this folder."""
    make = Counted()
    with Run(folder, resume=resume) as run:
        run.write_recipe(recipe or Recipe())
        state = run.stage("index", make, key=key)
        assert (state["x"] == 1).all()
    return make.calls


def test_a_finished_stage_is_not_repeated_on_resume(tmp_path: Path) -> None:
    assert stage_again(tmp_path, resume=False) == 1
    assert stage_again(tmp_path) == 0
    assert [e["resumed"] for e in read_log(tmp_path) if e["event"] == "stage"] == [False, True]


@pytest.mark.parametrize(
    "other",
    [
        {"key": {"clusters": 4}},
        {"recipe": Recipe(seed=1)},
        {"recipe": Recipe(options={"c": 2.0})},
        {"recipe": Recipe(data={"fingerprint": "other"})},
        {"resume": False},
    ],
)
def test_a_stage_is_repeated_when_anything_it_depends_on_changed(tmp_path: Path, other: dict[str, Any]) -> None:
    assert stage_again(tmp_path, key={"clusters": 3}) == 1
    assert stage_again(tmp_path, key={"clusters": np.int64(3)}) == 0
    assert stage_again(tmp_path, **{"key": {"clusters": 3}, **other}) == 1


def test_the_parts_of_a_run_are_repeated_with_other_data(tmp_path: Path) -> None:
    """A part has no recipe of its own; what its checkpoints depend on is the recipe and the data of the run around it."""

    def made(data: str, *, resume: bool = True) -> int:
        make = Counted()
        with Run(tmp_path, resume=resume) as run:
            run.write_recipe(Recipe(data={"fingerprint": data}))
            with run.part("br") as inner:
                inner.stage("index", make)
        return make.calls

    assert [made("these", resume=False), made("these"), made("those"), made("those"), made("these")] == [1, 0, 1, 0, 1]


def test_another_version_repeats_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage_again(tmp_path)
    monkeypatch.setattr(run_module, "polytag_version", lambda: "99")
    assert stage_again(tmp_path) == 1


def test_a_damaged_checkpoint_is_made_again_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage_again(tmp_path)
    (file,) = (tmp_path / "stages" / "index").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    assert stage_again(tmp_path) == 1 and "cut short" in caplog.text
    assert stage_again(tmp_path) == 0


def test_made_and_resumed_stages_are_the_same_thing(tmp_path: Path) -> None:
    states = []
    for resume in (False, True):
        with Run(tmp_path, resume=resume) as run:
            states.append(run.stage("deep/index", Counted()))
    for state in states:
        assert state["t"] == [1, 2] and not state["x"].flags.writeable and np.array_equal(state["x"], [1, 1, 1])


def test_a_stage_that_fails_leaves_no_checkpoint(tmp_path: Path) -> None:
    def fail() -> State:
        raise RuntimeError("no")

    with Run(tmp_path) as run, pytest.raises(RuntimeError):
        run.stage("index", fail)
    assert stage_again(tmp_path) == 1


def test_checkpoints_are_replaced_as_training_goes_on(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        for step in range(3):
            run.save_stage("loop", {"step": step, "w": np.full(2, step)})
            assert run.load_stage("loop") is None, "a new training does not read checkpoints"
    with Run(tmp_path, resume=True) as run:
        state = run.load_stage("loop")
        assert state is not None and state["step"] == 2 and (state["w"] == 2).all()
        assert run.load_stage("other") is None
        assert len(list((tmp_path / "stages" / "loop").iterdir())) == 2


def test_names_of_stages_are_checked(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        for name in ("", "../x", "/x", "a//b", "a b", ".hidden"):
            with pytest.raises(ValueError, match="cannot name a stage"):
                run.stage(name, Counted())
        run.stage("twice", Counted())
        with pytest.raises(ValueError, match="used twice"):
            run.stage("twice", Counted())
    assert {p.name for p in tmp_path.iterdir()} == {".lock", "log.jsonl", "stages"}


def test_a_new_training_clears_stages_but_leaves_the_model(tmp_path: Path) -> None:
    stage_again(tmp_path)
    write_artefact(tmp_path / "model", {"n": 1})
    with Run(tmp_path) as run:
        assert not (tmp_path / "stages").exists()
        assert read_artefact(tmp_path / "model") == {"n": 1}
        run.stage("index", Counted())
        run.clear_stages()
        assert not (tmp_path / "stages").exists() and read_artefact(tmp_path / "model") == {"n": 1}


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Run() as run:
        make = Counted()
        assert run.stage("index", make)["t"] == (1, 2) and run.stage("index", make) and make.calls == 2
        run.log("x", {"y": 1})
        run.save_stage("s", {"x": 1})
        run.write_metrics({"micro_f1": 1.0})
        run.write_recipe(Recipe())
        run.clear_stages()
        assert list(run.track(range(3), "counting")) == [0, 1, 2]
        assert run.load_stage("s") is run.plots_folder is None
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="nothing to resume"):
        Run(None, resume=True)


def test_the_log_is_json_lines_with_times(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        run.log(
            "epoch", {"loss": np.float32(0.5), "bad": float("nan"), "p": Path("a"), "w": np.arange(2), "text": "é\u2028\ud800"}
        )
        with pytest.raises(TypeError):
            run.log("epoch", {"x": object()})
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_bytes().split(b"\n")[:-1]]
    assert [line["event"] for line in lines] == ["start", "epoch"] and read_log(tmp_path) == lines
    assert all(line["time"].endswith("+00:00") and line["elapsed"] >= 0 for line in lines)
    assert {k: lines[1][k] for k in ("loss", "bad", "p", "w", "text")} == {
        "loss": 0.5,
        "bad": None,
        "p": "a",
        "w": [0, 1],
        "text": "é\u2028?",
    }


def test_the_log_goes_on_after_a_kill_and_begins_anew_with_a_new_training(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        run.log("epoch", {"n": 1})
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"event": "epo')
    with Run(tmp_path, resume=True) as run:
        run.log("epoch", {"n": 2})
    assert [e.get("n") for e in read_log(tmp_path)] == [None, 1, None, 2]
    with Run(tmp_path) as run:
        run.log("epoch", {"n": 3})
    assert [e.get("n") for e in read_log(tmp_path)] == [None, 3]
    assert read_log(tmp_path / "nowhere") == []


def test_metrics_and_recipe_are_kept(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        run.write_metrics({"micro_f1": np.float64(0.5), "x": float("inf"), "tail": {"n": np.int32(3)}})
        run.write_recipe(Recipe(seed=5, data={"train": Path("t.jsonl")}))
    assert json.loads((tmp_path / "metrics.json").read_text()) == {"micro_f1": 0.5, "x": None, "tail": {"n": 3}}
    assert "seed = 5" in (tmp_path / "recipe.toml").read_text()
    assert {p.name for p in tmp_path.iterdir()} == {".lock", "log.jsonl", "metrics.json", "recipe.toml"}


def test_places_where_a_run_cannot_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "mine" / "stages").mkdir(parents=True)
    write_artefact(tmp_path / "model", {})
    for name, words in (
        ("file", "cannot be kept here"),
        ("mine", "'stages' that no training made"),
        ("model", "the folder of a model"),
    ):
        with pytest.raises(PolytagError, match=words):
            Run(tmp_path / name)
    assert (tmp_path / "mine" / "stages").exists()


# --- two at once


def test_two_trainings_in_one_folder_are_refused(tmp_path: Path) -> None:
    with Run(tmp_path) as first:
        first.stage("index", Counted())
        for resume in (False, True):
            with pytest.raises(ConfigError, match="another training is writing"):
                Run(tmp_path, resume=resume)
        assert (tmp_path / "stages" / "index").exists()
    Run(tmp_path).close()


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_training_frees_its_folder_and_resumes_behind_its_last_stage(tmp_path: Path) -> None:
    code = """
        import sys, time
        from polytag.config.recipe import Recipe
        from polytag.run import Run
        run = Run(sys.argv[1])
        run.write_recipe(Recipe())
        run.stage("one", lambda: {"x": 1})
        run.stage("two", lambda: print("working", flush=True) or time.sleep(60))
    """
    trainer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None and trainer.stdout.readline() == "working\n"
    with pytest.raises(ConfigError, match="another training"):
        Run(tmp_path)
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    trainer.stdout.close()
    with Run(tmp_path, resume=True) as run:
        run.write_recipe(Recipe())
        one, two = Counted(), Counted(2)
        assert run.stage("one", one) == {"x": 1} and one.calls == 0
        assert (run.stage("two", two)["x"] == 2).all() and two.calls == 1


# --- progress


def clock(step: float) -> Callable[[], float]:
    """A clock that goes on by so many seconds whenever it is read."""
    now = 0.0

    def read() -> float:
        nonlocal now
        now += step
        return now

    return read


def test_without_a_terminal_quiet_lines_come_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run()
    monkeypatch.setattr(run_module.time, "monotonic", clock(1.0))
    with caplog.at_level(logging.INFO, "polytag"):
        assert list(run.track(range(35), "reading")) == list(range(35))
        assert sum(1 for _ in run.track(iter(range(11)), "no end known")) == 11
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == "reading: 10 of 35, about 25 s left (10 s)"
    assert [m.split(",")[0] for m in messages] == [
        "reading: 10 of 35",
        "reading: 20 of 35",
        "reading: 30 of 35",
        "no end known: 10 (10 s)",
    ]
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_what_was_done_before_counts_as_done_but_not_as_speed(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run(progress=True) as run:
        assert list(run.track(range(71, 91), "steps", 100, lambda step: step)) == list(range(71, 91))
    assert "90/100" in capsys.readouterr().err
    monkeypatch.setattr(run_module.time, "monotonic", clock(1.0))
    with caplog.at_level(logging.INFO, "polytag"):
        assert sum(1 for _ in Run().track(range(71, 91), "steps", 100, lambda step: step)) == 20
    assert caplog.messages == ["steps: 80 of 100, about 20 s left (10 s)", "steps: 90 of 100, about 10 s left (20 s)"]


def test_on_a_terminal_there_are_bars_unless_only_warnings_are_wanted(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with caplog.at_level(logging.INFO, "polytag"):
        assert list(Run().track(range(3), "shown")) == [0, 1, 2]
    with caplog.at_level(logging.WARNING, "polytag"):
        assert list(Run().track(range(3), "hidden")) == [0, 1, 2]
    told = capsys.readouterr().err
    assert "shown" in told and "hidden" not in told


def test_bars_go_to_standard_error_nest_and_survive_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    with Run(progress=True) as run:
        for _ in run.track(range(2), "epochs"):
            assert list(run.track([1, 2, 3], "steps")) == [1, 2, 3]
        for _ in run.track(range(9), "stopped"):
            break
        with pytest.raises(KeyError):
            for _ in run.track(range(9), "failed"):
                raise KeyError
        assert list(run.track(iter([1]), "after")) == [1]
    captured = capsys.readouterr()
    assert captured.out == "" and "epochs" in captured.err and "2/2" in captured.err and "after" in captured.err


def test_importing_needs_neither_numba_nor_torch_nor_rich() -> None:
    code = "import sys, polytag.config.recipe, polytag.run; print({'numba', 'torch', 'rich', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.strip() == "set()"
