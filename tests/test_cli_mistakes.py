"""Mistakes get one line and exit code 2, a damaged artefact is noticed, and nothing that was there is lost."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import FAST, Command, execute
from polytag.classifier import Classifier
from polytag.storage.artefact import MANIFEST

# -- mistakes ----------------------------------------------------------------------------------------------------------


def trained(polytag: Command, tmp_path: Path, content: str | bytes, *more: object, name: str = "t.jsonl") -> str:
    """What training on a file with this content complains about."""
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    complaint = polytag("train", path, "--out", tmp_path / "r", *more).complaint
    assert not (tmp_path / "r" / "model").exists()
    return complaint


GOOD = '{"text": "a b", "labels": ["x"]}\n{"text": "c d", "labels": ["y"]}\n'


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (GOOD + '{"text": "a", "labels": [\n', "t.jsonl", r"t\.jsonl, line 3: not JSON"),
        (GOOD + "[1, 2]\n", "t.jsonl", r"t\.jsonl, line 3: not an object"),
        (GOOD + '{"text": ["a"], "labels": ["x"]}\n', "t.jsonl", r"t\.jsonl, line 3: .*not text"),
        ('{"words": "a", "labels": ["x"]}\n', "t.jsonl", r"t\.jsonl: no column looks like the text.*words.*--text"),
        ('{"text": "a", "kind": "x"}\n', "t.jsonl", r"t\.jsonl: .*label.*--label-column"),
        ("text,labels\na,x\nb\n", "t.csv", r"t\.csv, line 3: 1 columns, but the header has 2"),
        ('{"text": "caf\xe9", "labels": ["x"]}\n'.encode("latin-1"), "t.jsonl", r"t\.jsonl, line 1: not UTF-8.*convert"),
        ("text,labels\ncaf\xe9,x\n".encode("latin-1"), "t.csv", r"t\.csv, line 2: not UTF-8.*convert"),
        ('{"text": "a", "labels": []}\n' * 3, "t.jsonl", "no labels at all"),
        ('{"text": "a", "labels": ["x"]}\n' * 3, "t.jsonl", "one label only.*'x'"),
        ("", "t.jsonl", r"t\.jsonl: no documents"),
        (b"\x1f\x8b\x08nonsense", "t.jsonl.gz", r"t\.jsonl\.gz: damaged"),
        ("just some words\nwithout labels\n", "t.txt", "plain text has no labels.*--format"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "bytes",
)  # fmt: skip
def test_bad_training_files(polytag: Command, tmp_path: Path, content: str | bytes, name: str, words: str) -> None:
    assert re.search(words, trained(polytag, tmp_path, content, name=name))


def test_missing_columns_and_files(polytag: Command, tmp_path: Path, files: Path) -> None:
    assert re.search(r"'head'.*text, labels", trained(polytag, tmp_path, GOOD, "--text", "head"))
    assert re.search(r"'tags'.*text, labels", trained(polytag, tmp_path, GOOD, "--label-column", "tags"))
    nowhere = tmp_path / "nowhere.jsonl"
    assert polytag("train", nowhere, "--out", tmp_path / "r").complaint == f"{nowhere}: no such file"
    for option in ("--valid", "--labels", "--recipe"):
        assert "nowhere" in polytag("train", files / "train.jsonl", option, nowhere, "--out", tmp_path / "r").complaint
    assert "no training documents" in polytag("train", "--out", tmp_path / "r").complaint
    assert "is a folder" in polytag("train", tmp_path, "--out", tmp_path / "r").complaint
    assert not (tmp_path / "r" / "model").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "bz"), r"no model 'bz'.*\bbr\b"),
        (("--set", "cc=2"), r"'cc'.*did you mean 'c'"),
        (("--set", "wholly_unknown=2"), r"'wholly_unknown'.*\bngrams\b"),
        (("--set", "c"), r"'c' has no value.*NAME=VALUE"),
        (("--set", "c=two"), r"'c' is 'two'"),
        (("--set", "c=-1"), r"'c' is .*at least"),
        (("--set", "ngrams=9"), r"'ngrams' is .*9.*at most 5"),
        (("--set", "preprocess=all"), r"'preprocess' is 'all'.*clean"),
        (("--optimise", "f1"), r"'optimise' is 'f1'.*macro_f1"),
        (("--seed", "-1"), r"'seed' is -1"),
        (("--format", "xml"), r"no format 'xml'.*jsonl"),
        (("--on-bad", "ignore"), r"on_bad is 'ignore'.*'skip'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_bad_settings(polytag: Command, files: Path, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    complaint = polytag("train", files / "train.jsonl", "--out", tmp_path / "r", *arguments).complaint
    assert re.search(words, complaint), complaint
    assert not (tmp_path / "r").exists()


def test_compare_needs_models(polytag: Command, files: Path) -> None:
    told = polytag("compare", files / "train.jsonl", "--test", files / "test.jsonl", "--models", " , ")
    assert "no model" in told.complaint
    told = polytag("compare", files / "train.jsonl", "--test", files / "test.jsonl", "--models", "br,bz")
    assert "no model 'bz'" in told.complaint


def test_folders_that_are_no_runs(polytag: Command, files: Path, tmp_path: Path) -> None:
    test = files / "test.jsonl"
    for verb, *more in (["evaluate", test], ["predict", test], ["info"]):
        assert "no such folder" in polytag(verb, tmp_path / "nowhere", *more).complaint
        assert "not an artefact" in polytag(verb, tmp_path, *more).complaint
        assert "is a file" in polytag(verb, test, *more).complaint
    (tmp_path / "log.jsonl").write_text("")
    assert "no model yet" in polytag("info", tmp_path).complaint


def reseal(manifest: Path, change: tuple[str, str]) -> None:
    """Change a manifest as somebody would who knows how it is sealed."""
    _, body = manifest.read_text().split("\n", 1)
    assert change[0] in body
    body = body.replace(*change, 1)
    manifest.write_text(f'{{"sha256": "{hashlib.sha256(body.encode()).hexdigest()}",\n{body}')


@pytest.fixture
def copy(run_folder: Path, tmp_path: Path) -> Path:
    """A run that a test may damage."""
    return shutil.copytree(run_folder, tmp_path / "run")


def complaint_about(polytag: Command, run: Path, files: Path) -> str:
    """What all verbs that read a run say about it, which is the same."""
    said = {
        polytag(verb, run, *more).complaint
        for verb, *more in (["evaluate", files / "test.jsonl"], ["predict", files / "test.jsonl"], ["info"])
    }
    assert len(said) == 1
    return said.pop()


@pytest.mark.parametrize("name", [MANIFEST, "*.safetensors"])
def test_an_artefact_with_a_byte_changed(polytag: Command, copy: Path, files: Path, name: str) -> None:
    (path,) = (copy / "model").glob(name)
    whole = path.read_bytes()
    for place in (len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        complaint = complaint_about(polytag, copy, files)
        assert str(path) in complaint and re.search("changed|damaged", complaint) and "train again" in complaint


@pytest.mark.parametrize("name", [MANIFEST, "*.safetensors"])
def test_an_artefact_cut_short(polytag: Command, copy: Path, files: Path, name: str) -> None:
    (path,) = (copy / "model").glob(name)
    path.write_bytes(path.read_bytes()[:-20])
    assert re.search(r"cut short.*train again", complaint_about(polytag, copy, files))
    if name != MANIFEST:
        path.unlink()
        assert re.search(r"missing.*train again", complaint_about(polytag, copy, files))


def test_an_artefact_from_a_newer_format(polytag: Command, copy: Path, files: Path) -> None:
    reseal(copy / "model" / MANIFEST, ('"format": 1', '"format": 2'))
    assert re.search(r"format 2.*update Polytag", complaint_about(polytag, copy, files))


def test_an_artefact_that_names_an_unknown_model(polytag: Command, copy: Path, files: Path) -> None:
    reseal(copy / "model" / MANIFEST, ('"model": "br"', '"model": "os"'))
    assert re.search(r"no model 'os'.*\bbr\b", complaint_about(polytag, copy, files))


def test_an_artefact_with_an_unknown_option(polytag: Command, copy: Path, files: Path) -> None:
    reseal(copy / "model" / MANIFEST, ('"folds": 3', '"sheep": 3'))
    assert "'sheep'" in complaint_about(polytag, copy, files)


def test_an_artefact_whose_parts_do_not_fit_together(polytag: Command, copy: Path, files: Path) -> None:
    """Compiled code trusts sizes: one label less than there are weights must be noticed when the artefact is read."""
    reseal(copy / "model" / MANIFEST, (', "space"', ""))
    assert "train" in complaint_about(polytag, copy, files)


def test_a_bug_shows_its_trace_and_a_mistake_does_not(files: Path, tmp_path: Path) -> None:
    told = execute("train", tmp_path / "nowhere.jsonl", "--out", tmp_path / "r")
    assert (told.returncode, told.stdout, told.stderr) == (2, "", f"polytag: {tmp_path / 'nowhere.jsonl'}: no such file\n")
    (tmp_path / "bad.jsonl").write_text(GOOD + "{\n")
    told = execute("--quiet", "train", tmp_path / "bad.jsonl", "--out", tmp_path / "r")
    assert told.returncode == 2 and len(told.stderr.splitlines()) == 1 and "line 3" in told.stderr


# -- nothing is lost ---------------------------------------------------------------------------------------------------


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def test_a_failed_training_leaves_the_model_as_it_was(polytag: Command, copy: Path, tmp_path: Path) -> None:
    before = snapshot(copy / "model")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(GOOD + "{\n")
    assert polytag("train", bad, "--out", copy).code == 2
    bad.write_text('{"text": "", "labels": ["x"]}\n{"text": "", "labels": ["y"]}\n')
    assert "texts are empty" in polytag("train", bad, "--out", copy).complaint
    assert snapshot(copy / "model") == before and Classifier.load(copy).predict(["trawler cod net"]) == [["fishing"]]


KILLER = """
import os, signal, sys
from pathlib import Path
from polytag.cli import app as cli
from polytag.classifier import Classifier
from polytag.run import Run

run, train, out = sys.argv[1:]
arguments = ["polytag", "-q", "train", train, "--model", "lp", "--set", "c=1", "--set", "ngrams=1", "--set", "folds=2", "--out"]
read = lambda: {path.name: path.read_bytes() for path in Path(run, "model").iterdir() if path.suffix != ".tmp"}

def training(moment):
    calls = 0
    def deadly(function):
        def call(*args, **options):
            nonlocal calls
            calls += 1
            if calls == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)
        return call
    for owner, name in ((os, "replace"), (os, "fsync"), (os, "unlink"), (os, "mkdir"), (Run, "log"), (Run, "write_metrics")):
        setattr(owner, name, deadly(getattr(owner, name)))
    sys.argv = [*arguments, run]
    cli.main()

sys.argv = [*arguments, out]
try:
    cli.main()  # compiled code is loaded before the process divides
except SystemExit:
    pass
before, moment, status = read(), 0, signal.SIGKILL
while status == signal.SIGKILL:
    moment += 1
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            training(moment)
        except SystemExit as end:
            os._exit(end.code or 0)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    now = read()
    old = {name: now.get(name) for name in before} == before
    print(status, "old" if old else "new", Classifier.load(run).recipe.model)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the training is killed in a copy of the process")
def test_a_training_killed_at_any_moment_leaves_a_model(files: Path, copy: Path, tmp_path: Path) -> None:
    """Killed before each of its steps on the disk in turn: what is there is the old model, and from one moment on the new one."""
    done = subprocess.run(
        [sys.executable, "-c", KILLER, copy, files / "valid.jsonl", tmp_path / "other"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    *killed, last = (line.split() for line in done.stdout.splitlines())
    assert last == ["0", "new", "lp"], "the last one was let live"
    assert all(int(status) == signal.SIGKILL for status, *_ in killed)
    states = [(state, model) for _, state, model in killed]
    assert states.count(("old", "br")) >= 10 and states == sorted(states, reverse=True)
    assert set(states) == {("old", "br"), ("new", "lp")}
    assert {path.suffix for path in (copy / "model").iterdir()} == {".json", ".safetensors", ".md"}
    assert len(list((copy / "model").iterdir())) == 3, "what the killed ones left behind is gone"


@pytest.mark.parametrize("delay", [None, 0.0, 0.1])
def test_a_killed_training_leaves_the_model_as_it_was(files: Path, copy: Path, delay: float | None) -> None:
    """From outside, without warning: while it starts, and when the training has begun."""
    before = snapshot(copy / "model")
    command = [sys.executable, "-m", "polytag", "train", str(files / "train.jsonl"), "--out", str(copy), "--set", "folds=20"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    if delay is None:
        time.sleep(0.3)
    else:
        deadline = time.monotonic() + 30
        while not (copy / "log.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(delay)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "a training that is over proves nothing"
    now = snapshot(copy / "model")
    assert {name: now.get(name) for name in before} == before
    assert Classifier.load(copy).predict(["trawler cod net"]) == [["fishing"]]


def test_training_again_replaces_the_model(polytag: Command, copy: Path, files: Path) -> None:
    assert polytag("train", files / "train.jsonl", "--model", "lp", "--out", copy, *FAST).code == 0
    assert Classifier.load(copy).recipe.model == "lp" and len(list((copy / "model").iterdir())) == 3
    assert "# A lp model" in (copy / "model" / "README.md").read_text()


def test_unseen_labels_and_repeated_ids_are_kept_and_counted(
    polytag: Command, run_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    test = tmp_path / "t.jsonl"
    test.write_text('{"id": "1", "text": "trawler cod", "labels": ["fishing", "brand new"]}\n' * 2)
    told = polytag("evaluate", run_folder, test, "--json")
    assert isinstance(told.json, dict)
    assert told.json["documents"] == 2 and told.json["unseen_labels"] == 1 and told.json["micro_recall"] == 0.5
    assert "1 ids occur more than once" in caplog.text and "added 1 labels" in caplog.text
