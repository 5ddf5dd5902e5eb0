"""Artefacts that earlier versions saved are still read, and say what they said then. ``fixtures/make.py`` tells how they came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polytag import Classifier

FIXTURES = Path(__file__).parent / "fixtures"
FORMAT1 = FIXTURES / "format1"
MODELS = (  # of version 0.1.0, whatever models there are now
    "bert", "bert-sgm", "br", "cc", "cnn", "cnn-rnn", "embed", "laco", "leam", "lp", "lsan", "mixed", "seq2seq", "seqtag",
    "sgm", "xbert", "xlinear", "xttention",
)  # fmt: skip
LINEAR = ("br", "cc", "lp", "xlinear")  # which need no torch
MOST = 5_000_000  # bytes of all fixtures together, as everybody who clones the repository has them

# What is computed depends a little on the processor: the order of sums differs between vector instructions, and so do the last
# digits of exp and tanh. With other instruction sets of the same processor linear models differed by 1.2e-7 at most, networks,
# which carry such differences through their layers, by 3e-7. For them 1e-6 would leave too little for other processors.
TOLERANCE = {**dict.fromkeys(MODELS, 1e-5), **dict.fromkeys(LINEAR, 1e-6)}


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model's name. Networks read on the CPU, also where there is a GPU: some encoders choose that, and half precision."""
    if request.param not in LINEAR:
        torch = pytest.importorskip("torch")
        pytest.importorskip("transformers")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return str(request.param)


def said(name: str) -> dict[str, Any]:
    """What the classifier said when it was saved."""
    return json.loads((FORMAT1 / "scores.json").read_text("utf-8"))[name]


def entries(rows: list[list[Any]]) -> list[tuple[list[int], list[float]]]:
    """Label numbers and scores per text, of rows that have all labels in their order or pairs of label and score."""
    pairs = [[pair if isinstance(pair, list) else [number, pair] for number, pair in enumerate(row)] for row in rows]
    return [([number for number, _ in row], [value for _, value in row]) for row in pairs]


def test_an_artefact_of_format_1_says_what_it_said(name: str) -> None:
    texts, known = json.loads((FORMAT1 / "texts.json").read_text("utf-8")), said(name)
    classifier = Classifier.load(FORMAT1 / name)
    assert list(classifier.labels) == known["labels"]
    found = list(classifier.scores(texts))
    for text, (numbers, values), (labels, scores) in zip(texts, found, entries(known["scores"]), strict=True):
        assert numbers.tolist() == labels, text
        assert np.abs(values - np.array(scores)).max(initial=0) <= TOLERANCE[name], text
    assert classifier.predict(texts) == known["predicted"]


def test_every_model_of_0_1_0_is_there_as_it_was_saved() -> None:
    assert sorted(path.name for path in FORMAT1.iterdir() if path.is_dir()) == sorted(MODELS)
    assert sorted(json.loads((FORMAT1 / "scores.json").read_text("utf-8"))) == sorted(MODELS)
    for name in MODELS:
        manifest = json.loads((FORMAT1 / name / "model" / "artefact.json").read_text("utf-8"))
        assert (manifest["format"], manifest["polytag"], manifest["state"]["model"]) == (1, "0.1.0", name)


def test_the_fixtures_are_small() -> None:
    assert sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file()) < MOST


RELEASE1 = FIXTURES / "release1"
GAINED = json.loads((RELEASE1 / "said.json").read_text("utf-8"))


@pytest.mark.parametrize("name", GAINED)
def test_an_artefact_of_1_0_0_says_what_it_said(name: str) -> None:
    texts, known = json.loads((FORMAT1 / "texts.json").read_text("utf-8")), GAINED[name]
    manifest = json.loads((RELEASE1 / name / "model" / "artefact.json").read_text("utf-8"))
    assert (manifest["format"], manifest["polytag"]) == (1, "1.0.0")
    classifier = Classifier.load(RELEASE1 / name)
    assert list(classifier.labels) == known["labels"]
    assert classifier.predict(texts) == known["predicted"]
    for text, found, expected in zip(texts, classifier.scores(texts).top(3), known["top"], strict=True):
        assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-6), text


def test_artefacts_of_1_0_0_have_what_came_after_0_1_0() -> None:
    assert Classifier.load(RELEASE1 / "edited").edits
    assert Classifier.load(RELEASE1 / "promising").decision.promise == "recall=0.8"
    assert "zeppelin" in Classifier.load(RELEASE1 / "learned").labels.names
