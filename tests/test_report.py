"""``polytag report``: its numbers are those of evaluate and of the analyses; its files are whole; what is missing is left out."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from conftest import FAST, Command, Toy
from polytag.analysis.significance import compare_systems
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.labels import LabelSet
from polytag.report.composition import composed
from polytag.report.data_table import DataTable, latex_of, markdown_of
from polytag.verbs.reporting import gathered
from test_page import Tags

HOSTILE = "</script><img src=x onerror=alert(1)> & $x_1$ | \\ \x07 %"


@pytest.fixture(scope="module")
def runs(files: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of the toy corpus with everything that the command line writes."""
    from polytag.cli.app import app

    folder = tmp_path_factory.mktemp("runs")
    for model in ("lp", "br"):
        arguments = ["train", str(files / "train.jsonl"), "--labels", str(files / "labels.jsonl"), "--model", model, *FAST]
        app(["-q", *arguments, "--out", str(folder / model)], standalone_mode=False)
    return [folder / "lp", folder / "br"]


def test_the_numbers_are_those_of_evaluate(runs: list[Path], files: Path, toy: Toy) -> None:
    evidence = gathered(runs, files / "test.jsonl")
    assert [run.name for run in evidence.runs] == ["lp", "br"]
    for run, folder in zip(evidence.runs, runs, strict=True):
        expected = Classifier.load(folder).evaluate(Corpus.read(files / "test.jsonl", labels=toy.train.labels))
        assert {key: run.metrics[key] for key in expected if key != "unseen_labels"} == pytest.approx(
            {key: value for key, value in expected.items() if key != "unseen_labels"}
        )


def test_the_plain_decision_is_probability_one_half(runs: list[Path], files: Path) -> None:
    run = gathered(runs[1:], files / "test.jsonl").last
    assert run.outcome is not None and run.plain is not None and run.outcome.scores.kind == "probability"
    table, sets = run.outcome.scores.matrix.toarray(), run.plain.toarray() > 0
    least = int(run.facts["min_labels"])
    for row, chosen in zip(table, sets, strict=True):
        expected = set(np.flatnonzero(row >= 0.5)) | set(np.argsort(-row, kind="stable")[:least])
        assert set(np.flatnonzero(chosen)) == expected


def test_the_page_has_every_section_and_every_picture_has_words(
    runs: list[Path], files: Path, polytag: Command, tmp_path: Path
) -> None:
    told = polytag(
        "report", *runs, "--test", files / "test.jsonl", "--out", tmp_path / "r.html", "--markdown", tmp_path / "r.md",
        "--latex", tmp_path / "r.tex", "--pictures", tmp_path / "pictures", "--static",
    )  # fmt: skip
    assert (told.code, told.err.count("Traceback")) == (0, 0), told.err
    found = Tags((tmp_path / "r.html").read_text(encoding="utf-8"))
    anchors = [attributes["id"] for tag, attributes in found.tags if tag == "section"]
    assert anchors == [
        "summary", "comparison", "where-it-is-hard", "can-its-confidence-be-trusted", "labels", "labels-that-are-confused",
        "labels-that-come-together", "label-map", "case-studies",
    ]  # fmt: skip
    pictures = [attributes for tag, attributes in found.tags if tag == "img"]
    assert len(pictures) >= 7 and all(str(one["alt"]).strip() for one in pictures)
    assert sum(tag == "figcaption" for tag, _ in found.tags) == len(pictures)
    assert len(list((tmp_path / "pictures").glob("*.svg"))) == len(list((tmp_path / "pictures").glob("*.png"))) == len(pictures)
    assert not any("data-chart" in attributes for _, attributes in found.tags)
    assert "\\begin{tabular}" in (tmp_path / "r.tex").read_text() and "| run |" in (tmp_path / "r.md").read_text()


def test_the_comparison_is_the_paired_bootstrap(runs: list[Path], files: Path) -> None:
    evidence = gathered(runs, files / "test.jsonl", seed=3)
    draft = composed(evidence, interactive=False, method="pca")
    table = next(table for table in draft.tables if table.caption.startswith("Differences to lp"))
    (_, first), (_, second) = evidence.tested
    expected = compare_systems(first.truth, first.predicted, second.predicted, seed=3).rows
    assert [row[1:3] for row in table.rows] == [[row.first, row.second] for row in expected]
    assert [row[5] for row in table.rows] == [f"{row.p:.3f}" for row in expected]


def test_without_test_documents_there_are_runs_and_the_map(runs: list[Path], polytag: Command, tmp_path: Path) -> None:
    assert polytag("report", runs[1], "--out", tmp_path / "r.html", "--static", "--map", "pca").code == 0
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.findall(r'<section id="([^"]+)"', text) == ["summary", "label-map"]
    assert "--test" in text


def test_training_curves_come_from_the_log(files: Path, tmp_path: Path, polytag: Command) -> None:
    pytest.importorskip("torch")
    small = ("encoder=words", "embedding=8", "epochs=3", "device=cpu", "precision=fp32", "log_every=1")
    settings = [word for setting in small for word in ("--set", setting)]
    told = polytag(
        "-q",
        "train",
        files / "train.jsonl",
        "--valid",
        files / "valid.jsonl",
        "--model",
        "bert",
        *settings,
        "--out",
        tmp_path / "run",
    )
    assert told.code == 0, told.err
    draft = composed(gathered([tmp_path / "run"], None), interactive=False, method="pca")
    charts = {chart.title: chart for chart in draft.charts}
    assert {"Training loss", "Validation during training"} <= set(charts)
    losses = charts["Training loss"].series[0]  # type: ignore[union-attr]
    assert len(losses.y) >= 3 and list(losses.x) == sorted(losses.x)  # type: ignore[type-var]


def test_runs_with_other_labels_are_compared_over_all_of_them(files: Path, toy: Toy, tmp_path: Path) -> None:
    order = LabelSet([*reversed(toy.train.labels.names), "extra"])
    turned = Corpus.of(toy.train.texts, toy.train.labels.decode(toy.train.truth), label_set=order)
    for name, corpus in (("a", toy.train), ("b", turned)):
        Classifier("br", {"c": [1.0], "ngrams": [1]}).fit(corpus).save(tmp_path / name)
    first, second = (out for _, out in gathered([tmp_path / "a", tmp_path / "b"], files / "test.jsonl").tested)
    assert first.labels == second.labels and "extra" in first.labels
    assert (first.truth != second.truth).nnz == 0
    assert (first.predicted != second.predicted).nnz == 0
    assert np.array_equal(first.train_counts[:8], second.train_counts[:8])


def test_texts_and_names_of_strangers_stay_text(tmp_path: Path) -> None:
    texts = [f"cod {HOSTILE}", f"storm {HOSTILE}", "cod storm", "wind"] * 10
    labels = [[HOSTILE, "fish"], ["weather"], ["fish", "weather"], ["weather", HOSTILE]] * 10
    corpus = Corpus.of(texts, labels)
    Classifier("br", {"c": [1.0], "ngrams": [1]}).fit(corpus).save(tmp_path / "run")
    corpus.write(tmp_path / "test.jsonl")
    draft = composed(gathered([tmp_path / "run"], tmp_path / "test.jsonl"), interactive=False, method="pca")
    found = Tags(draft.page.html())
    assert sum(tag == "script" for tag, _ in found.tags) == 1  # that of the tables
    assert all(str(attributes["src"]).startswith("data:image/") for tag, attributes in found.tags if tag == "img")


def test_folders_of_the_same_name_are_told_by_the_folder_above(br: Classifier, files: Path, tmp_path: Path) -> None:
    for name in ("x/run", "y/run"):
        br.save(tmp_path / name)
    shutil.copytree(tmp_path / "x" / "run", tmp_path / "z" / "x" / "run")
    places = [tmp_path / "x" / "run", tmp_path / "y" / "run" / "model", tmp_path / "z" / "x" / "run"]
    assert [run.name for run in gathered(places, None).runs] == ["x/run (1)", "y/run", "x/run (3)"]


def test_an_audit_is_summed_up(run_folder: Path, polytag: Command, tmp_path: Path) -> None:
    suspect = {"label": "sport", "given": True, "error": 0.9, "words": [{"text": "cod", "contribution": 1.5}]}
    lines = [
        {"id": "a", "suspects": [suspect, {**suspect, "given": False, "error": 0.95}]},
        {"id": "b", "text": "", "labels": []},
    ]
    (tmp_path / "audit.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    told = polytag(
        "report", run_folder, "--audit", tmp_path / "audit.jsonl", "--out", tmp_path / "r.html", "--static", "--map", "pca"
    )
    assert told.code == 0, told.err
    text = (tmp_path / "r.html").read_text(encoding="utf-8").partition('<section id="audit"')[2]
    assert "1 labels are suspected to be wrongly given, 1 to be wrongly missing" in text
    assert text.index("0.950") < text.index("0.900")
    (tmp_path / "bad.jsonl").write_text("[]\n", encoding="utf-8")
    assert "no lines of an audit" in polytag("report", run_folder, "--audit", tmp_path / "bad.jsonl", "--static").complaint


def test_mistakes_are_one_line(run_folder: Path, polytag: Command, tmp_path: Path) -> None:
    assert "a report ends in .html" in polytag("report", run_folder, "--out", tmp_path / "r.pdf").complaint
    assert (
        "must end in .md"
        in polytag("report", run_folder, "--out", tmp_path / "r.html", "--markdown", tmp_path / "x.txt").complaint
    )
    assert "no projection 'som'" in polytag("report", run_folder, "--out", tmp_path / "r.html", "--map", "som").complaint
    assert (
        "no such"
        in polytag("-q", "report", run_folder, "--test", tmp_path / "none.jsonl", "--out", tmp_path / "r.html").complaint
    )
    assert not (tmp_path / "r.html").exists()


# -- tables for a paper ------------------------------------------------------------------------------------------------

TABLE = DataTable("A_caption | 50%", ["run", "F1"], [["a|b", 0.5], [HOSTILE, None], ["c", 12345]])


def test_markdown_has_one_cell_per_value_whatever_the_names() -> None:
    lines = markdown_of("t", [TABLE]).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 5
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)
    assert rows[-1] == "| c | 12,345 |"


def test_latex_escapes_its_special_characters() -> None:
    text = latex_of("t", [TABLE])
    body = text.split("\\midrule\n")[1].split("\\bottomrule")[0].splitlines()
    assert len(body) == 3 and all(line.endswith(r" \\") for line in body)
    assert all(len(re.findall(r"(?<!\\)&", line)) == 1 for line in body)
    assert not re.search(r"(?<!\\)[%$#_]", "".join(body))
    assert r"\caption{A\_caption \textbar{} 50\%}" in text
