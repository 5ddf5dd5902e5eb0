"""The command line as scripts call it: stable forms, JSON, and one line with exit code 2 for every mistake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import FAST, Command, Toy, execute
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe

KEYS = ["micro_f1", "macro_f1", "macro_f1_all", "samples_f1", "subset_accuracy", "hamming_loss", "lrap"]
KEYS += [f"{name}@{k}" for name in ("p", "r", "ndcg", "psp", "psndcg") for k in (1, 3, 5)]


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
    all_of_them = polytag("predict", run_folder, files / "test.jsonl", "--top", 99999999999).out
    assert all_of_them == polytag("predict", run_folder, files / "test.jsonl", "--top", 8).out


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
    assert isinstance(told, dict) and {"c", "order", "ngrams", "optimise"} <= {option["name"] for option in told["options"]}
    assert "most frequent first" in polytag("info", "cc").out
    everything = polytag("info", "cc", "--all", "--json").json
    assert isinstance(everything, dict) and {"seed", "tolerance"} <= {option["name"] for option in everything["options"]}
    assert told["more"] == len(everything["options"]) - len(told["options"]) > 0 == everything["more"]


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
    code = """if True:
        import sys
        sys.argv = ['polytag', '--help']
        import polytag.cli.app
        try:
            polytag.cli.app.main()
        except SystemExit:
            print(*sys.modules)
    """
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "numba", "torch", "pandas", "pyarrow"} & set(loaded)


def test_a_linear_model_never_needs_torch(run_folder: Path, files: Path, tmp_path: Path) -> None:
    """Importing the package and predicting with a linear model work where torch cannot be imported at all."""
    (tmp_path / "torch.py").write_text("raise ImportError('this machine has no torch')")
    (tmp_path / "transformers.py").write_text("raise ImportError('nor transformers')")
    code = """if True:
        import sys, polytag
        assert 'torch' not in sys.modules and 'numpy' not in sys.modules
        import polytag.cli.app
        sys.argv = ['polytag', 'predict', *sys.argv[1:]]
        try:
            polytag.cli.app.main()
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


@pytest.mark.parametrize("verb", ["train", "tune"])
def test_who_interrupts_is_told_how_to_go_on(polytag: Command, files: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("polytag.verbs.training.train_run", stop)
    monkeypatch.setattr("polytag.verbs.tuning.tune_run", stop)
    ranges = ["--range", "c={low=0.1,high=1}"] if verb == "tune" else []
    told = polytag(verb, files / "train.jsonl", *ranges, "--out", files / "stopped")
    assert told.code == 130 and told.err.strip().endswith("with --resume to continue")
