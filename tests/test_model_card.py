"""The model card says what the artefact holds, is the same for the same training, and is needed by nobody."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from conftest import Toy
from polytag.classifier import Classifier
from polytag.metrics.of_sets import set_metrics
from polytag.storage.model_card import model_card
from polytag.verbs.inspection import describe_run

FAST = {"c": 1.0, "ngrams": 1}


def card_of(folder: Path) -> str:
    return (folder / "model" / "README.md").read_text("utf-8")


def rows(card: str, section: str) -> dict[str, str]:
    """The table of a section."""
    inside = card.partition(f"## {section}\n")[2].partition("\n## ")[0]
    found = [line.strip("| ").split(" | ") for line in inside.splitlines() if line.startswith("| ")]
    return {row[0]: row[-1] for row in found}


@pytest.fixture(scope="module")
def saved(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    Classifier("br", {**FAST, "promise": "recall=.8"}).fit(toy.train, toy.valid).save(folder)
    return folder


def test_it_says_what_was_trained_and_measured(saved: Path, toy: Toy) -> None:
    card, classifier = card_of(saved), Classifier.load(saved)
    assert "# A br model for 8 labels" in card
    assert rows(card, "Data")["documents"] == "192: 144 for training, 48 for validation"
    counts = np.bincount(toy.train.truth.indices, minlength=8) + np.bincount(toy.valid.truth.indices, minlength=8)
    listed = {name: int(count) for name, count in rows(card, "Labels").items() if name != "label"}
    assert listed == dict(zip(toy.train.labels.names, counts.tolist(), strict=True))
    assert rows(card, "Decision")["promise"].startswith("recall=0.8, with ")
    measured = classifier.decision.report["metrics"]
    told = rows(card, "Quality on held-out documents")
    assert told["micro_recall"] == f"{measured['micro_recall']:.4f}" and measured["documents"] == 96  # half of them calibrate
    assert "The promise holds on average" in card
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert code
    exec(code[1].replace('"model"', repr(str(saved / "model"))), {})


def test_the_held_out_metrics_are_those_of_the_cross_fitted_sets(toy: Toy) -> None:
    """A toy model that decides everything the same way with or without a fifth measures itself as evaluate does."""
    classifier = Classifier("br", FAST).fit(toy.train, toy.valid)
    measured = classifier.decision.report["metrics"]
    crossed = classifier.decision._crossed
    assert crossed is not None
    assert measured["predicted_labels_per_document"] == crossed.nnz / crossed.shape[0]
    assert set(measured) - {"documents"} < set(set_metrics(crossed, crossed))


def test_the_same_training_gives_the_same_card_without_date_or_path(toy: Toy, tmp_path: Path) -> None:
    cards = []
    for name in ("one", "two"):
        Classifier("br", FAST).fit(toy.train, toy.valid).save(tmp_path / name)
        cards.append(card_of(tmp_path / name))
    assert cards[0] == cards[1]
    assert str(tmp_path) not in cards[0] and not re.search(r"\b20\d\d-\d\d|/home|/tmp|\\\\", cards[0])


def test_names_of_labels_cannot_leave_their_cell() -> None:
    names = ["a|b", "<script>", "line\nbreak", "[x](y)", "\ud800"]
    state = {
        "model": "br",
        "labels": {"names": names},
        "training": {"documents": 9, "label_counts": np.arange(5)},
        "decision": {"rule": "auto", "optimise": "micro_f1", "min_labels": 0, "closed": False, "report": {}},
    }
    card = model_card(state)
    assert "| a\\|b | 0 |" in card and "<script>" not in card and "| line break | 2 |" in card and "[x](y)" not in card
    assert "1 label had no training document." in card and "nothing was measured" in card


def test_nobody_needs_it_and_info_tells_of_its_state(saved: Path, toy: Toy) -> None:
    place = saved / "model" / "README.md"
    text = place.read_text()
    before = Classifier.load(saved).scores(toy.test.texts).matrix
    assert describe_run(saved)["card"] == "as saved"
    place.write_text(text + "\nOur own remark.\n")
    assert describe_run(saved)["card"] == "changed"
    place.unlink()
    assert describe_run(saved)["card"] == "missing"
    after = Classifier.load(saved).scores(toy.test.texts).matrix
    assert (before != after).nnz == 0
    place.write_text(text)
