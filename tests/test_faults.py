"""A disk that is full or broken, and a kill at any moment: one line, the old result or the new one, and nothing else is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from conftest import Toy
from faults import CASES, KILLED

HERE = Path(__file__).parent
ALL = os.environ.get("POLYTAG_FAULTS") == "all"
TOGETHER = [  # verbs that share a process, each with the number of points that are tried if not all are
    {"train": 4, "resume": 2, "predict": 2, "predict-gz": 2, "predict-print": 1, "evaluate": 1, "compare": 2},
    {"tune": 4},
    {"export": 3},
    {"report": 1},
]
PRINTS = ("evaluate", "predict-print")
SUMMARY = os.environ.get("POLYTAG_FAULTS_OUT")  # a JSON file that gets what came of all points


def run(verbs: dict[str, int], toy: Toy, folder: Path) -> list[dict[str, Any]]:
    """What the script says about verbs: of each first without a fault, then at every point."""
    toy.valid.write(folder / "train.jsonl")
    toy.test.subset(range(12)).write(folder / "test.jsonl")
    asked = [f"{verb}={'all' if ALL else points}" for verb, points in verbs.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLYTAG_THREADS": "1"}
    command = [sys.executable, str(HERE / "faults.py"), str(folder), *asked]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "report.jsonl").read_text().splitlines()]


def temporary(name: str) -> bool:
    return any(part.startswith(".") for part in Path(name).parts if part != ".lock")


def kept(name: str) -> bool:
    """Whether a file is for the next training: a checkpoint, or the model of a trial that was not written down yet."""
    parts = Path(name).parts
    return "stages" in parts or ("trials" in parts and "model" in parts)


def problems(sound: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """What is wrong after a fault; nothing should be."""
    verb, found = row["verb"], []
    removal = row["operation"].split()[0] in ("unlink", "rmdir")
    lines = row["err"].splitlines()
    if row["fault"] == "kill":
        if row["code"] != KILLED:
            found.append(f"it was not killed, but ended with {row['code']}")
    elif removal and row["code"] == 0:  # what cannot be removed may stay, if the result is whole
        if row["left"] != "new":
            found.append(f"it ended with 0, and left {row['left']}")
    elif row["code"] != 2 or len(lines) != 1 or not lines[0].startswith("polytag: "):
        found.append(f"it ended with {row['code']} and said: {row['err']}")
    between = ("none",) if verb == "export" and row["fault"] == "kill" else ()  # without an export, torch does its work
    if row["left"] not in ("old", "new", *between):
        found.append(f"what is left: {row['left']}")
    strange = set(row["files"]) - {*sound["before"], *sound["expected"]}
    strange = {name for name in strange if not kept(name)}
    if row["fault"] == "kill" or removal:
        strange = {name for name in strange if not temporary(name)}
    if strange:
        found.append(f"left behind: {sorted(strange)}")
    if row["again"] != 0 or row["after"] != ("old" if verb in PRINTS else "new"):
        found.append(f"repeated, it ended with {row['again']} and left {row['after']}: {row['again_err']}")
    if row["final"] != sound["expected"]:
        found.append(f"repeated, it left other files: {sorted(set(row['final']) ^ set(sound['expected']))}")
    return found


def summarise(rows: list[dict[str, Any]], wrong: list[str], path: Path) -> None:
    """Write, or add to what other processes wrote, the points of every verb and how the verb ended there."""
    command = "POLYTAG_FAULTS_OUT=benchmarks/results/faults.json make faults"
    found = json.loads(path.read_text()) if path.exists() else {"command": command, "verbs": {}}
    for verb in dict.fromkeys(row["verb"] for row in rows):
        sound, *faults = [row for row in rows if row["verb"] == verb]
        operations = Counter(operation.split()[0] for operation in sound["seen"])
        ends: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for row in faults:
            end = "killed" if row["fault"] == "kill" else f"exit {row['code']}"
            ends[row["fault"]][f"{end}, {row['left']} left, repeated: exit {row['again']}, {row['after']}"] += 1
        found["verbs"][verb] = {
            "points": len(sound["seen"]), "operations": operations, "faults": len(faults), "outcomes": ends,
            "wrong": [line for line in wrong if line.startswith(f"{verb}:")],
        }  # fmt: skip
    verbs = found["verbs"].values()
    found |= {name: sum(verb[name] for verb in verbs) for name in ("points", "faults")}
    path.write_text(json.dumps(found | {"wrong": sum(len(verb["wrong"]) for verb in verbs)}, indent=1) + "\n")


@pytest.mark.skipif(not (hasattr(os, "fork") and Path("/proc/self/fd").exists()), reason="the verb runs in a copy of the process")
@pytest.mark.parametrize("verbs", TOGETHER, ids=", ".join)
def test_at_every_point_a_disk_may_fail(verbs: dict[str, int], toy: Toy, tmp_path: Path) -> None:
    """All points with POLYTAG_FAULTS=all (``make faults``), otherwise some of them."""
    for package in ("optuna",) if "tune" in verbs else ("onnxruntime", "onnxscript") if "export" in verbs else ():
        pytest.importorskip(package)
    rows = run(verbs, toy, tmp_path)
    wrong = []
    for verb in verbs:
        sound, *faults = [row for row in rows if row["verb"] == verb]
        print(f"{verb}: {len(sound['seen'])} points, {len(faults)} faults")
        assert (sound["code"], sound["again"], sound["err"]) == (0, 0, sound["again_err"]) and sound["seen"], sound
        assert sound["files"] == sound["final"] == sound["expected"], sound
        for row in faults:
            place = f"{verb}: {row['fault']} at {row['point']}, {row['operation']}"
            wrong += [f"{place}: {problem}" for problem in problems(sound, row)]
    assert {row["verb"] for row in rows} == set(verbs)
    if SUMMARY:
        summarise(rows, wrong, Path(SUMMARY))
    assert not wrong, "\n".join(wrong)


def test_every_verb_is_tried() -> None:
    assert {verb for verbs in TOGETHER for verb in verbs} == set(CASES)
