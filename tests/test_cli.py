"""The command line as scripts call it: stable forms, JSON, and one line with exit code 2 for every mistake."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Command, Toy

from polytag.artefact import MANIFEST
from polytag.classifier import Classifier
from polytag.recipe import Recipe

FAST = ("--set", "c=1")
KEYS = "micro_f1 macro_f1 macro_f1_all samples_f1 subset_accuracy hamming_loss p@1 p@3 p@5 r@5 ndcg@5 psp@1 psp@3 psp@5 psndcg@5 lrap".split()


def execute(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as installed."""
    command = [sys.executable, "-m", "polytag", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


# -- the forms that stay -----------------------------------------------------------------------------------------------


def test_train_evaluate_predict_info(polytag: Command, files: Path, tmp_path: Path, toy: Toy) -> None:
    run = tmp_path / "run"
    told = polytag(
        "train", files / "train.jsonl", "--valid", files / "valid.jsonl", "--labels", files / "labels.jsonl",
        "--model", "br", "--out", run, "--seed", "0", "--set", "c=2", "--optimise", "micro_f1",
    )  # fmt: skip
    assert told.code == 0 and told.out == ""
    assert "trained br on 192 documents, 8 labels" in told.err and "on held-out documents" in told.err
    assert {"recipe.toml", "log.jsonl", "metrics.json", "model"} <= {path.name for path in run.iterdir()}
    assert Classifier.load(run).model.options()["c"] == [2.0]
    for folder in (run, run / "model"):
        found = polytag("evaluate", folder, files / "test.jsonl", "--json")
        assert found.code == 0
        assert isinstance(found.json, dict) and set(KEYS) <= set(found.json)
        assert found.json == pytest.approx(Classifier.load(run).evaluate(toy.test))
        rows = [json.loads(line) for line in polytag("predict", folder, files / "test.jsonl").out.splitlines()]
        assert [row["labels"] for row in rows] == Classifier.load(run).predict(toy.test.texts)
        about = polytag("info", folder, "--json")
        assert isinstance(about.json, dict) and about.json["labels"] == 8 and about.json["model"] == "br"
        assert about.json["trained_on_documents"] == 192 and about.json["options"]["c"] == [2.0]
    table = polytag("evaluate", run, files / "test.jsonl").out
    assert all(
        re.search(rf"^ *{re.escape(key)} +0\.\d{{4}}|^ *{re.escape(key)} +1\.0000", table, re.M)
        for key in ("micro_f1", "p@5", "psp@5")
    )
    assert "micro_f1" in polytag("info", run).out


def test_predict_writes_id_labels_and_scores(polytag: Command, run_folder: Path, files: Path, tmp_path: Path, toy: Toy) -> None:
    out = tmp_path / "deep" / "out.jsonl"
    told = polytag("predict", run_folder, files / "test.jsonl", "--out", out)
    assert told.code == 0 and told.out == "" and "labelled 60 documents" in told.err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(list(row) == ["id", "labels", "scores"] for row in rows)
    assert [row["id"] for row in rows] == toy.test.ids
    assert all(len(row["labels"]) == len(row["scores"]) and row["scores"] == sorted(row["scores"], reverse=True) for row in rows)
    rows = [json.loads(line) for line in polytag("predict", run_folder, files / "test.jsonl", "--top", 3).out.splitlines()]
    assert all(len(row["labels"]) == len(row["scores"]) == 3 for row in rows)
    assert polytag("predict", run_folder, files / "test.jsonl", "--top", 0).code == 2


def test_compare_trains_each_and_prints_one_table(polytag: Command, files: Path, tmp_path: Path) -> None:
    splits = (files / "train.jsonl", "--test", files / "test.jsonl", "--valid", files / "valid.jsonl")
    told = polytag("compare", *splits, "--models", "br,cc,lp", "--json", *FAST)
    assert told.code == 0
    rows = told.json
    assert isinstance(rows, list) and [row["model"] for row in rows] == ["br", "cc", "lp"]
    for row in rows:
        assert {*KEYS, "train_seconds", "documents_per_second", "megabytes"} <= set(row) and row["micro_f1"] > 0.9
    told = polytag("compare", *splits, "--models", "br,lp", "--out", tmp_path / "runs", *FAST)
    assert [line.split()[0] for line in told.out.splitlines()] == ["model", "br", "lp"]
    assert "docs/s" in told.out and "MB" in told.out and "train s" in told.out
    assert Classifier.load(tmp_path / "runs" / "lp").recipe.model == "lp"


def test_data_describe(polytag: Command, files: Path) -> None:
    told = polytag("data", "describe", files / "train.jsonl", "--test", files / "test.jsonl", "--json")
    assert told.code == 0 and isinstance(told.json, dict)
    assert "144" in polytag("data", "describe", files / "train.jsonl").out


def test_data_sample_can_be_trained_on(polytag: Command, tmp_path: Path) -> None:
    assert polytag("data", "sample", "--out", tmp_path / "s").code == 0
    names = {path.name for path in (tmp_path / "s").iterdir()}
    assert {"train.jsonl.xz", "valid.jsonl.xz", "test.jsonl.xz", "labels.jsonl"} <= names


def test_info_lists_the_settings_of_a_model(polytag: Command) -> None:
    told = polytag("info", "cc", "--json").json
    assert isinstance(told, dict) and {"c", "order", "ngrams", "seed"} <= {option["name"] for option in told["options"]}
    assert "order of the chain" in polytag("info", "cc").out


def test_every_verb_explains_itself(polytag: Command) -> None:
    whole = polytag("--help")
    assert whole.code == 0
    for verb in ("train", "evaluate", "predict", "compare", "info", "data"):
        assert re.search(rf"^ +{verb} ", whole.out, re.M)
        assert polytag(verb, "--help").code == 0
    assert re.fullmatch(r"\d+\.\d+.*\n", polytag("--version").out)


def test_the_recipe_of_a_run_repeats_it(polytag: Command, files: Path, tmp_path: Path, toy: Toy) -> None:
    """With the files that it names, and with other files given on the command line."""
    first = tmp_path / "first"
    settings = ("--set", "c=0.5,1", "--set", "ngrams=2", "--seed", "5", "--optimise", "macro_f1", "--closed")
    polytag(
        "train",
        files / "train.jsonl",
        "--valid",
        files / "valid.jsonl",
        "--labels",
        files / "labels.jsonl",
        "--model",
        "cc",
        "--out",
        first,
        *settings,
    )
    recipe = Recipe.read(first / "recipe.toml")
    assert (recipe.model, recipe.seed, recipe.optimise, recipe.closed) == ("cc", 5, "macro_f1", True)
    assert polytag("train", "--recipe", first / "recipe.toml", "--out", tmp_path / "second").code == 0
    arrays = [sorted(path.name for path in (run / "model").glob("*.safetensors")) for run in (first, tmp_path / "second")]
    assert arrays[0] == arrays[1], "array files are named by their content"
    assert Recipe.read(tmp_path / "second" / "recipe.toml") == recipe


def test_columns_formats_and_separators_are_told(polytag: Command, toy: Toy, tmp_path: Path) -> None:
    lines = ["head,body,topics"] + [
        f"{t.split()[0]},{' '.join(t.split()[1:])},{'+'.join(row)}"
        for t, row in zip(toy.train.texts, toy.train.label_lists(), strict=True)
    ]
    (tmp_path / "t.data").write_text("\n".join(lines))
    reading = ("--format", "csv", "--text", "head,body")
    told = polytag(
        "train", tmp_path / "t.data", "--out", tmp_path / "r", *FAST, *reading, "--label-column", "topics", "--separator", "+"
    )
    assert told.code == 0, told.err
    assert set(Classifier.load(tmp_path / "r").labels) == set(toy.train.labels)
    assert len(polytag("predict", tmp_path / "r", tmp_path / "t.data", *reading).out.splitlines()) == 144
    again = polytag("train", "--recipe", tmp_path / "r" / "recipe.toml", "--out", tmp_path / "again")
    assert again.code == 0 and "144 documents, 8 labels" in again.err, "the recipe remembers how the files are read"


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
        (("--set", "ngrams=9"), r"'ngrams' is 9.*at most 5"),
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
    first, body = manifest.read_text().split("\n", 1)
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
    reseal(copy / "model" / MANIFEST, (', {"name": "space"}', ""))
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


def test_a_killed_training_leaves_the_model_as_it_was(files: Path, copy: Path) -> None:
    """Killed without warning at several moments, from before the data are read until the new model is there."""
    before = snapshot(copy / "model")
    command = [
        sys.executable,
        "-m",
        "polytag",
        "train",
        files / "train.jsonl",
        "--out",
        copy,
        "--set",
        "c=0.1,0.3,1,3",
        "--set",
        "ngrams=3",
    ]
    finished = 0
    for place in range(8):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        log = copy / "log.jsonl"
        deadline = time.monotonic() + 30
        size = log.stat().st_size if log.exists() else 0
        if place:  # the first is killed while it starts; the others, a little later each, once the training has begun
            while process.poll() is None and time.monotonic() < deadline and not (log.exists() and log.stat().st_size > size):
                time.sleep(0.002)
            time.sleep(0.04 * (place - 1))
        else:
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        finished += process.wait() == 0
        now = snapshot(copy / "model")
        if MANIFEST in now and now[MANIFEST] != before[MANIFEST]:
            finished += 1
            Classifier.load(copy)
            break
        assert {name: now.get(name) for name in before} == before
        assert Classifier.load(copy).predict(["trawler cod net"]) == [["fishing"]]
    assert place >= 2, "a training that was over before it could be killed proves nothing"
    again = execute("train", files / "train.jsonl", "--out", copy, *FAST)
    assert again.returncode == 0, again.stderr
    assert {path.suffix for path in (copy / "model").iterdir()} == {".json", ".safetensors"}
    assert len(list((copy / "model").iterdir())) == 2, "what the killed ones left behind is gone"


def test_training_again_replaces_the_model(polytag: Command, copy: Path, files: Path) -> None:
    assert polytag("train", files / "train.jsonl", "--model", "lp", "--out", copy, *FAST).code == 0
    assert Classifier.load(copy).recipe.model == "lp" and len(list((copy / "model").iterdir())) == 2


def test_unseen_labels_and_repeated_ids_are_kept_and_counted(
    polytag: Command, run_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    test = tmp_path / "t.jsonl"
    test.write_text('{"id": "1", "text": "trawler cod", "labels": ["fishing", "brand new"]}\n' * 2)
    told = polytag("evaluate", run_folder, test, "--json")
    assert isinstance(told.json, dict)
    assert told.json["documents"] == 2 and told.json["unseen_labels"] == 1 and told.json["micro_recall"] == 0.5
    assert "1 ids are there more than once" in caplog.text and "added 1 labels" in caplog.text


# -- fast and light ----------------------------------------------------------------------------------------------------


def test_help_answers_at_once() -> None:
    """0.4 s on an idle machine; the bound here leaves room for a busy one."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert execute("--help").returncode == 0
        times.append(time.perf_counter() - start)
    print(f"polytag --help: {min(times):.3f} s at best")
    assert min(times) < 1.0


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['polytag', '--help']; import polytag.cli as c\ntry: c.main()\nexcept SystemExit: print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "numba", "torch", "pandas", "pyarrow"} & set(loaded)


def test_a_linear_model_never_needs_torch(run_folder: Path, files: Path, tmp_path: Path) -> None:
    """Importing the package and predicting with a linear model work where torch cannot be imported at all."""
    (tmp_path / "torch.py").write_text("raise ImportError('this machine has no torch')")
    (tmp_path / "transformers.py").write_text("raise ImportError('nor transformers')")
    code = """if True:
        import sys, polytag
        assert 'torch' not in sys.modules and 'numpy' not in sys.modules
        import polytag.cli
        sys.argv = ['polytag', 'predict', *sys.argv[1:]]
        try:
            polytag.cli.main()
        except SystemExit as end:
            assert not end.code
        assert 'numba' in sys.modules and 'torch' not in sys.modules and 'transformers' not in sys.modules
    """
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, run_folder, files / "test.jsonl"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 60
