"""The results book: every number of its prose is in the results it names, and tables of papers hold what is trained."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Toy

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import book_numbers  # noqa: E402
import paper_tables  # noqa: E402

PAGES = [ROOT / "benchmarks" / "README.md", *sorted((ROOT / "benchmarks" / "book").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_number_of_a_chapter_is_in_the_results_that_its_section_names(page: Path) -> None:
    assert book_numbers.missing(page) == []


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("micro-F1 is .7123", []),
        ("micro-F1 is .712 or 71.2 %", []),
        ("micro-F1 is .7124", [".7124"]),
        ("12,345 documents/s", []),
        ("12,346 documents/s", ["12,346"]),
        ("in section 6.1, `.999` and [x](y.99) are left out, and so are 3 seeds and P@1", []),
        ("| made by hand | .9 |", [".9"]),
        ("<!-- results:x -->\n.9\n<!-- end:x -->", []),
    ],
)
def test_a_number_that_is_nowhere_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, absent: list[str]
) -> None:
    monkeypatch.setattr(book_numbers, "RESULTS", tmp_path)
    (tmp_path / "probe.json").write_text(json.dumps({"rows": [{"micro_f1": 0.71234}], "note": "12,345 a second"}))
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n## One\n\n`results/probe.json`: {text}\n\n## Two\n")
    assert book_numbers.missing(page) == absent
    page.write_text(f"# Page\n\n## One\n\n`results/probe.json`\n\n## Two\n\n{text}\n")
    assert len(book_numbers.missing(page)) >= len(absent)  # another section's results do not count


def test_the_index_is_short_and_names_every_chapter() -> None:
    index = PAGES[0].read_text(encoding="utf-8")
    assert len(index.splitlines()) < 80
    assert [page.name for page in PAGES[1:] if f"(book/{page.name})" not in index] == []


def _table() -> dict[str, Any]:
    rows = [
        {"name": "A", "paper": {"micro_f1": 0.5}, "ours": "toy a"},
        {"name": "B", "paper": {"micro_f1": 0.6}, "ours": "toy b"},
    ]
    rows.append({"name": "C", "paper": {"micro_f1": 0.4}, "ours": None})
    part = {"paper": "Big", "ours": "toy", "rows": rows}
    return {
        "title": "T",
        "paper": "P",
        "metrics": ["micro_f1"],
        "anchor": "A",
        "key": "micro_f1",
        "results": ["one"],
        "parts": [part],
    }


def test_a_table_has_means_deviations_gains_and_what_is_missing(tmp_path: Path) -> None:
    row = {"name": "toy a", "corpus": "toy", "model": "a", "seeds": [0, 1], "rules": ["threshold"]}
    row |= {"test_mean_and_deviation": {"micro_f1": [0.8, 0.01]}, "test_by_rule": {"0.5": {"micro_f1": [0.7, 0.02]}}}
    other = {**row, "name": "toy b", "test_mean_and_deviation": {"micro_f1": [0.84, 0]}, "test_by_rule": {}}
    table = _table()
    (tmp_path / "one.json").write_text(json.dumps({"rows": [row]}))
    rows = paper_tables.our_rows(table, tmp_path)
    assert paper_tables.missing(table, rows) == ["toy b"]
    (tmp_path / "one.json").write_text(json.dumps({"rows": [row, other]}))
    made = paper_tables.filled("t", table, paper_tables.our_rows(table, tmp_path))
    first, second, third = made["parts"][0]["rows"]
    assert made["missing"] == [] and third["ours"] == {}
    assert first["ours"] == {"paper": {"micro_f1": [0.7, 0.02]}, "polytag": {"micro_f1": [0.8, 0.01]}}
    assert second["gain"] == {"quoted": 20.0, "polytag": 5.0}
    shown = paper_tables.markdown(made, ["micro_f1"])
    assert "| *B* | *paper* |  | .6 | +20.0 % |" in shown and ".7000 ± .0200" in shown and "+5.0 %" in shown


@pytest.mark.parametrize("name", paper_tables.papers())
def test_jobs_exist_for_every_row_that_a_table_wants(name: str) -> None:
    table = paper_tables.papers()[name]
    files = [ROOT / "benchmarks" / "jobs" / f"{file}.json" for file in table["jobs"]]
    known = {job["name"] for path in files for job in json.loads(path.read_text(encoding="utf-8"))}
    lacking = paper_tables.missing(table, paper_tables.our_rows(table))
    assert [row for row in lacking if row not in known] == []
    assert all(row["name"] for part in table["parts"] for row in part["rows"])
    assert table["anchor"] in {row["name"] for part in table["parts"] for row in part["rows"]}


def test_what_is_missing_is_trained_once_and_put_into_its_results(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("jobs", "results", "data/toy"):
        (tmp_path / name).mkdir(parents=True)
    for part in ("train", "valid", "test"):
        getattr(toy, part).write(tmp_path / "data" / "toy" / f"{part}.jsonl.xz")
    toy.train.labels.write(tmp_path / "data" / "toy" / "labels.jsonl")
    job = {"corpus": "toy", "model": "br", "options": {"c": [1.0], "ngrams": [1]}, "seeds": [0], "decisions": [0.5]}
    jobs = [{"name": name, **job} for name in ("toy a", "toy b", "toy b, other")]
    (tmp_path / "jobs" / "one.json").write_text(json.dumps(jobs))
    monkeypatch.setattr(paper_tables, "JOBS", tmp_path / "jobs")
    monkeypatch.setattr(paper_tables, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    table = {**_table(), "jobs": {"one": "one"}}
    paper_tables.train("t", table, ["toy a", "toy b"], tmp_path / "data", 600, tmp_path / "work")
    rows = paper_tables.our_rows(table, tmp_path / "results")
    assert sorted(rows) == ["toy a", "toy b"]
    line = paper_tables.filled("t", table, rows)["parts"][0]["rows"][0]
    assert line["ours"]["polytag"]["micro_f1"][0] > 0.7 and set(line["ours"]) == {"paper", "polytag"}
    capfd.readouterr()
    paper_tables.train("t", table, ["toy a", "toy b"], tmp_path / "data", 600, tmp_path / "work")
    assert "toy" not in capfd.readouterr().out  # both are finished: nothing is trained again
