"""Parts of a mixture in processes of their own: what they learn, what is left of them, and what they say when they fail."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Toy
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.models.binary_relevance import BinaryRelevance
from polytag.models.mixture import parallel_training as side_by_side
from polytag.models.mixture.part import Part
from polytag.models.mixture.sent_documents import SentDocuments, corpora_of, corpus_state
from polytag.run import Run, read_log
from polytag.storage.artefact import read_artefact
from polytag.verbs.training import train_corpora
from polytag.work import child_processes

FAST = {"c": [0.5], "ngrams": [1]}
THREE: dict[str, Any] = {"parts": ["br", "lp", "cc"], "settings": {"all": FAST}}


def values(classifier: Classifier, toy: Toy) -> np.ndarray:
    return classifier.scores(toy.test.texts).matrix.toarray()


@pytest.fixture(scope="module")
def alone(toy: Toy) -> Classifier:
    return Classifier("mixed", THREE).fit(toy.train, toy.valid)


def test_the_result_is_that_of_one_after_the_other(toy: Toy, alone: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: Any) -> None:
        raise AssertionError("trained in this process")

    monkeypatch.setattr(BinaryRelevance, "fit", fit)
    found = Classifier("mixed", {**THREE, "parts_at_once": 2}).fit(toy.train, toy.valid)
    assert np.array_equal(values(found, toy), values(alone, toy))
    assert found.decision.report == alone.decision.report


def test_folds_keep_their_order(toy: Toy) -> None:
    options = {"parts": ["br"], "settings": {"all": FAST}, "folds": 3}
    one, other = (Classifier("mixed", {**options, "parts_at_once": n}).fit(toy.train, toy.valid) for n in (1, 3))
    assert np.array_equal(values(one, toy), values(other, toy)) and one.decision.report == other.decision.report


def test_no_more_than_asked_for_run_at_once(toy: Toy, alone: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended, real = [], [], subprocess.Popen.wait

    def wait(self: Any, timeout: float | None = None) -> int:
        began.append(time.monotonic())
        time.sleep(0.2)  # long enough for the others to begin, if they may
        code = int(real(self, timeout))
        ended.append(time.monotonic())
        return code

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    Classifier("mixed", {**THREE, "parts": [*THREE["parts"], "br:again"], "parts_at_once": 2}).fit(toy.train, toy.valid)
    running = [sum(b <= at for b in began) - sum(e <= at for e in ended) for at in began]
    assert len(began) == 4 and max(running) == 2


def test_documents_come_through_unchanged() -> None:
    texts = ["a\x00b \ud7ff\U0010ffff", "lone \ud800", "", "line\u2028end\r\n"]
    corpus = Corpus.of(texts, [["x"], [], ["y", "x"], ["ü"]], ids=["1", "1", "b", "ß"])
    corpus.groups = ["g", "", "g", "h"]
    with child_processes.ChildProcesses(1) as place:
        sent = SentDocuments(place)
        folders = sent(corpus, None)
        assert sent(corpus) == folders, "written once"
        again, none = corpora_of(*(read_artefact(folder) for folder in folders))
    assert none is None
    assert (again.ids, again.texts, again.groups, again.labels) == (corpus.ids, corpus.texts, corpus.groups, corpus.labels)
    assert (again.truth != corpus.truth).nnz == 0 and again.truth.shape == corpus.truth.shape
    assert again.fingerprint() == corpus.fingerprint()


def test_what_a_part_complains_about_is_told_as_it_is(toy: Toy) -> None:
    pytest.importorskip("torch")
    options = {"parts": ["br", "bert"], "settings": {"br": FAST, "bert": {"encoder": "no/such/folder"}}, "parts_at_once": 2}
    with pytest.raises(ConfigError, match="no/such/folder"):
        Classifier("mixed", options).fit(toy.train, toy.valid)


def test_a_process_that_dies_is_told_and_takes_the_others_with_it(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    real, started = subprocess.Popen, []

    def popen(command: list[str], **given: Any) -> Any:
        first = not started
        started.append(real(["sleep", "0.1" if first else "60"], **given))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="ended without a result"):
        Classifier("mixed", {**THREE, "parts_at_once": 2}).fit(toy.train, toy.valid)
    assert time.monotonic() - start < 30 and all(process.poll() is not None for process in started)


def test_a_restart_does_not_train_a_finished_part_again(toy: Toy, alone: Classifier, tmp_path: Path) -> None:
    recipe = Recipe("mixed", {**THREE, "parts_at_once": 2})
    with pytest.MonkeyPatch.context() as patch:
        Watched(interrupted=2).put(patch)
        with pytest.raises(KeyboardInterrupt):
            train_corpora(recipe, toy.train, toy.valid, tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        (again := Watched()).put(patch)
        found = train_corpora(recipe, toy.train, toy.valid, tmp_path / "run", resume=True)
    assert np.array_equal(values(found, toy), values(alone, toy))
    assert 1 <= len(again.done) <= 2, "what was finished gets no process"
    stages = [(e["name"], e["resumed"]) for e in read_log(tmp_path / "run") if e["event"] == "stage"]
    kept = [name for name, resumed in stages if resumed]
    assert kept and len({name for name, _ in stages}) == 3
    assert {path.name for path in (tmp_path / "run" / "parts").iterdir()} == {"1-br", "2-lp", "3-cc"}


class Watched:
    """Stands for ``_Processes._run``: keeps the jobs that are done; one of them is interrupted once another is finished."""

    def __init__(self, interrupted: int | None = None) -> None:
        self.interrupted, self.done, self.real = interrupted, list[Path](), child_processes.ChildProcesses._run

    def __call__(self, processes: Any, job: Path) -> Any:
        if int(job.name) == self.interrupted:
            while not self.done:
                time.sleep(0.05)
            time.sleep(0.5)  # until it is a checkpoint
            raise KeyboardInterrupt
        state = self.real(processes, job)
        self.done.append(job)
        return state

    def put(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(child_processes.ChildProcesses, "_run", lambda *given: self(*given))


def test_a_part_is_trained_in_its_folder_of_the_run(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the run's own fingerprint: checkpoints of another recipe must not be taken."""
    given: list[Run] = []
    monkeypatch.setattr(side_by_side, "train_part", lambda part, train, valid, run: given.append(run) or {})
    with Run(tmp_path / "run", resume=True) as outer:
        outer.fingerprint = "of the recipe"
        one = side_by_side.Training("1-br", Part("br", BinaryRelevance()), toy.train, None)
        side_by_side.train_job(side_by_side._job(one, outer), corpus_state(toy.train))
    assert [(run.folder, run.resume, run.fingerprint) for run in given] == [(tmp_path / "run/parts/1-br", True, "of the recipe")]


def test_processes_that_train_a_part_together_train_no_others_beside_it(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="leave parts_at_once at 1"):
        Classifier("mixed", {**THREE, "parts_at_once": 2}).fit(toy.train, toy.valid)


def test_nothing_trains_on_when_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(Exception):
        pass

    def leave(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(Ended):
        child_processes._watch(os.getppid() + 1)
