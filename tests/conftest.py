"""What several test files share: a toy corpus that can be learned, and the command line called as a user calls it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import settings

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.labels import LabelSet
from ray_nodes import ray_cluster, same_modules  # noqa: F401, fixtures of two files

# Networks as small as a test's are slower on several threads, on a busy machine twenty times so; read when torch is imported.
# The Makefile says it too, for numpy, which was imported before.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Products in bf16 without the tiles of AMX, which some virtual machines announce and do not have; read at the first product.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# How long one example takes says nothing on a busy machine.
settings.register_profile("polytag", deadline=None)
settings.load_profile("polytag")

WORDS = {
    "fishing": "trawler cod quota net herring harbour",
    "trade": "tariff export import customs duty market",
    "weather": "rain storm wind forecast thunder cloud",
    "sport": "goal match striker league referee stadium",
    "football": "penalty offside corner keeper dribble kickoff",
    "music": "violin melody chord orchestra rhythm tempo",
    "opera": "aria soprano libretto tenor overture maestro",
    "space": "orbit rocket comet lunar satellite galaxy",
}
PARENTS = {"football": "sport", "opera": "music"}  # a child never comes without its parent
TOGETHER = [
    ["fishing"], ["trade"], ["weather"], ["sport"], ["music"], ["space"], ["fishing", "trade"], ["fishing", "weather"],
    ["sport", "football"], ["music", "opera"], ["weather", "space"], ["sport", "football", "weather"],
]  # fmt: skip
FILLER = ["the", "a", "of", "and", "to", "in", "is", "that", "it", "for", "with", "on", "as", "by"]


def toy_documents(count: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Texts in which every label shows itself by some of its own words, and their labels."""
    generator = np.random.default_rng(seed)
    texts, labels = [], []
    for number in range(count):
        names = TOGETHER[number % len(TOGETHER)]
        words = [*generator.choice(FILLER, 6)]
        for name in names:
            words += [*generator.choice(WORDS[name].split(), 4, replace=False)]
        texts.append(" ".join(generator.permutation(words)))
        labels.append(list(names))
    return texts, labels


def toy_corpus(count: int, seed: int) -> Corpus:
    return Corpus.of(*toy_documents(count, seed), label_set=LabelSet(list(WORDS), parents=PARENTS))


class Toy(NamedTuple):
    """A corpus in three parts."""

    train: Corpus
    valid: Corpus
    test: Corpus


@pytest.fixture(scope="session")
def toy() -> Toy:
    """About 200 documents with 8 labels, a tree and labels that come together."""
    return Toy(toy_corpus(144, 1), toy_corpus(48, 2), toy_corpus(60, 3))


@pytest.fixture(scope="session")
def br(toy: Toy) -> Classifier:
    """A trained binary relevance; tests must not change it."""
    return Classifier("br").fit(toy.train, toy.valid)


@pytest.fixture(scope="session")
def files(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy corpus as files."""
    folder = tmp_path_factory.mktemp("toy")
    for name, part in toy._asdict().items():
        part.write(folder / f"{name}.jsonl")
    toy.train.labels.write(folder / "labels.jsonl")
    return folder


@pytest.fixture(scope="session")
def run_folder(br: Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the trained binary relevance in it."""
    folder = tmp_path_factory.mktemp("run")
    br.save(folder)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, without a window."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    with driver.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


class Told(NamedTuple):
    """What a command said: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> object:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line about a user's mistake, and nothing else."""
        assert self.code == 2, self
        lines = self.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("polytag: ") and "Traceback" not in self.err, self.err
        assert self.out == ""
        return lines[0].removeprefix("polytag: ")


Command = Callable[..., Told]


@pytest.fixture
def polytag(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process: the same entry point, without the second that a new interpreter takes."""
    from polytag.cli.app import main

    def command(*arguments: object) -> Told:
        monkeypatch.setattr(sys, "argv", ["polytag", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Told(code, *capsys.readouterr())

    return command


FAST = ("--set", "c=1", "--set", "ngrams=1")  # settings that make a training short


def execute(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as installed."""
    command = [sys.executable, "-m", "polytag", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
