"""``polytag diff``: the changes of two runs, the exit code of a regression, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import WORDS, Toy, toy_documents
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.verbs.difference import diff_runs, parsed_bounds


@pytest.fixture(scope="module")
def runs(toy: Toy, br: Classifier, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A good run, a worse one whose labels are in another order, and labelled documents."""
    folder = tmp_path_factory.mktemp("runs")
    br.save(folder / "good")
    texts, labels = toy_documents(24, 9)
    few = Corpus.of(texts, [row[:1] for row in labels])  # the second and third label of a document are never seen
    Classifier("br", {"c": [0.5], "ngrams": [1]}).fit(few).save(folder / "bad")
    toy.test.write(folder / "test.jsonl")
    return {"good": folder / "good", "bad": folder / "bad", "test": folder / "test.jsonl"}


def test_changes_and_metrics_are_those_of_the_two_predictions(toy: Toy, runs: dict[str, Path]) -> None:
    found = diff_runs(runs["bad"], runs["good"], runs["test"], rounds=50)
    bad, good = Classifier.load(runs["bad"]), Classifier.load(runs["good"])
    pairs = list(zip(bad.predict(toy.test.texts), good.predict(toy.test.texts), strict=True))
    expected = {
        (document, label, "gained" if label in new else "lost")
        for document, (old, new) in zip(toy.test.ids, pairs, strict=True)
        for label in set(old) ^ set(new)
    }
    changes = {(change.id, row.label, change.change): change for row in found.changes.rows for change in row.documents}
    assert set(changes) == expected and found.changes.changes == len(expected) > 20
    true = {(i, name) for i, row in zip(toy.test.ids, _names(toy.test), strict=True) for name in row}
    for (document, label, change), row in changes.items():
        assert row.true == ((document, label) in true) and row.better == ("new" if row.true == (change == "gained") else "old")
    metrics = {row.metric: row for row in found.metrics}
    assert metrics["micro_f1"].new == pytest.approx(good.evaluate(toy.test)["micro_f1"])
    assert metrics["micro_f1"].old == pytest.approx(bad.evaluate(toy.test)["micro_f1"])
    assert metrics["p@1"].old == pytest.approx(bad.evaluate(toy.test)["p@1"])
    assert found.significance is not None and found.significance.rows[0].low > 0
    back = diff_runs(runs["good"], runs["bad"], runs["test"], rounds=50)
    assert (back.changes.new_is_right, back.changes.old_is_right) == (found.changes.old_is_right, found.changes.new_is_right)


def test_reasons_are_words_of_the_label_in_the_run_that_gives_it(runs: dict[str, Path]) -> None:
    found = diff_runs(runs["bad"], runs["good"], runs["test"], rounds=5, explained=12, words=2)
    explained = [(row.label, change) for row in found.changes.rows for change in row.documents if change.reasons]
    assert len(explained) == 12 and len({label for label, _ in explained}) == len(found.changes.rows)
    gained = [(label, change) for label, change in explained if change.change == "gained" and change.true]
    assert len(gained) >= 4
    for label, change in gained:
        assert change.reasons[0].text.lower() in WORDS[label].split() and change.reasons[0].contribution > 0
    assert not any(
        c.reasons
        for row in diff_runs(runs["bad"], runs["good"], runs["test"], rounds=5, explained=0).changes.rows
        for c in row.documents
    )


def _names(corpus: Corpus) -> list[list[str]]:
    return [[corpus.labels[j] for j in corpus.truth[[i]].indices] for i in range(len(corpus))]


def test_the_exit_code_says_whether_a_metric_fell(polytag: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    good, bad, test = (str(runs[name]) for name in ("good", "bad", "test"))
    fine = polytag("diff", bad, good, test, "--fail-below", "micro_f1=-.005", "--json")
    assert fine.code == 0 and json.loads(fine.out)["failures"] == []
    out = tmp_path / "changes.json"
    fell = polytag("diff", good, bad, test, "--fail-below", "micro_f1=-.005", "--fail-below", "p@1=-1", "--out", str(out))
    assert fell.code == 1 and "micro_f1 changes by -" in fell.err and "p@1 changes" not in fell.err
    written = json.loads(out.read_text(encoding="utf-8"))
    assert [row["metric"] for row in written["failures"]] == ["micro_f1"]
    assert "the truth is with the new run" in fell.out and "micro_f1" in fell.out
    same = polytag("diff", good, good, test, "--fail-below", "micro_f1=0", "--json")
    assert same.code == 0 and json.loads(same.out)["changes"]["rows"] == []


def test_documents_without_labels_are_not_judged(polytag: Any, toy: Toy, runs: dict[str, Path], tmp_path: Path) -> None:
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(json.dumps({"text": text}) + "\n" for text in toy.test.texts), encoding="utf-8")
    found = polytag("diff", str(runs["bad"]), str(runs["good"]), str(plain), "--unlabelled", "--json")
    result = json.loads(found.out)
    assert found.code == 0 and result["metrics"] == [] and result["significance"] is None
    assert result["changes"]["new_is_right"] is None and result["changes"]["changes"] > 0
    judged = polytag("diff", str(runs["bad"]), str(runs["good"]), str(runs["test"]), "--json")
    assert json.loads(judged.out)["changes"]["changes"] == result["changes"]["changes"]
    table = polytag("diff", str(runs["bad"]), str(runs["good"]), str(plain), "--unlabelled")
    assert table.code == 0 and "gained" in table.out and "old right" not in table.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fail-below", "micro_f1"], "METRIC=NUMBER"),
        (["--fail-below", "f2=-1"], "there is no metric 'f2'; known: micro_precision"),
        (["--fail-below", "hamming_loss=-1"], "use hamming_accuracy"),
        (["--fail-below", "micro_f1=-1", "--unlabelled"], "no metric to check"),
    ],
)
def test_what_cannot_be_checked_is_refused_in_one_line(
    polytag: Any, runs: dict[str, Path], arguments: list[str], message: str
) -> None:
    told = polytag("diff", str(runs["good"]), str(runs["bad"]), str(runs["test"]), *arguments)
    assert told.code == 2 and message in told.err and told.err.count("\n") == 1


def test_bounds_are_read_as_numbers() -> None:
    assert parsed_bounds(["micro_f1=-.005", " p@5 = 1e-2 "]) == {"micro_f1": -0.005, "p@5": 0.01}
    for text in ("=1", "micro_f1=", "micro_f1=one", "micro_f1=1=2"):
        with pytest.raises(ConfigError, match=r"micro_f1=-\.005"):
            parsed_bounds([text])
