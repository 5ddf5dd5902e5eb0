"""The papers' figures and tables of analysis, on our corpora, from models that a CPU trains in minutes.

    python benchmarks/analyses.py NAME [--data DIR] [--runs DIR] [--corpora reuters,debtags,rcv1-small]

NAME is ``sgm-figure3``, ``sgm-table5``, ``laco-figure2``, ``laco-table5``, ``laco-table6`` or ``all``; ``models`` only trains. A
model is trained with train and validation documents when its run does not exist yet, and test is scored once. Every name replaces
its own part of ``results/analyses.json``. No text of a corpus is written, only ids and labels.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from peers.report import machine
from polytag.classifier import Classifier, Outcome
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.labels import LabelSet
from polytag.verbs.training import train_corpora

OUT = Path(__file__).parent / "results" / "analyses.json"
SGM: dict[str, Any] = {"encoder_rate": 0.003, "head_rate": 0.003, "layers": 1, "hidden": 128, "embedding": 128, "max_length": 96}
MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "reuters": {"br": {}, "cc": {}, "lp": {}, "sgm": {**SGM, "epochs": 8, "batch_size": 64}},
    "debtags": {"br": {}, "cc": {}, "lp": {}},
    "rcv1-small": {"br": {}, "cc": {}, "lp": {}, "sgm": {**SGM, "epochs": 15, "batch_size": 32}, "embed": {}},
}


class Parts(NamedTuple):
    """A corpus in its three parts, with one label set."""

    train: Corpus
    valid: Corpus
    test: Corpus


class Bench:
    """Corpora, trained runs and their outcomes, each made once."""

    def __init__(self, data: Path, runs: Path, corpora: list[str]) -> None:
        """Read from one folder, keep runs in another."""
        self.data, self.runs = data, runs
        self.corpora = {name: MODELS[name] for name in corpora}

    @functools.cache  # noqa: B019, one object per process
    def parts(self, corpus: str) -> Parts:
        """The corpus."""
        folder, labels = self.data / corpus, LabelSet.read(self.data / corpus / "labels.jsonl")
        train, valid, test = (Corpus.read(folder / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid", "test"))
        labels = labels.union(train.labels).union(valid.labels).union(test.labels)
        return Parts(*(part.with_labels(labels) for part in (train, valid, test)))

    @functools.cache  # noqa: B019
    def classifier(self, corpus: str, model: str) -> Classifier:
        """A trained model; it is trained if there is no run of it."""
        folder = self.runs / f"{corpus}-{model}"
        if not (folder / "metrics.json").exists():
            start, found = time.monotonic(), self.parts(corpus)
            train_corpora(Recipe(model, self.corpora[corpus][model]), found.train, found.valid, folder)
            print(f"{corpus} {model}: trained in {time.monotonic() - start:.0f} s", flush=True)
        return Classifier.load(folder)

    @functools.cache  # noqa: B019
    def outcome(self, corpus: str, model: str, part: str = "test") -> Outcome:
        """What a model says about a part of its corpus."""
        return self.classifier(corpus, model).outcome(getattr(self.parts(corpus), part))


def models(bench: Bench) -> dict[str, Any]:
    """Train all models; quality on test."""
    from polytag.metrics import set_metrics

    found: dict[str, Any] = {}
    for corpus, names in bench.corpora.items():
        for model, options in names.items():
            seen = bench.outcome(corpus, model)
            metrics = set_metrics(seen.truth, seen.predicted)
            row = {key: metrics[key] for key in ("micro_f1", "macro_f1", "subset_accuracy", "hamming_loss")}
            found.setdefault(corpus, {})[model] = {"options": options, **row}
            print(corpus, model, row, flush=True)
    return found


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {"models": models}


def main() -> None:
    """Make one part, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=(*PARTS, "all"))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLYTAG_DATA", "../shared/data")))
    parser.add_argument("--runs", type=Path, default=Path("runs/analyses"))
    parser.add_argument("--corpora", default=",".join(MODELS))
    told = parser.parse_args()
    bench = Bench(told.data, told.runs, told.corpora.split(","))
    for name in PARTS if told.name == "all" else (told.name,):
        part = PARTS[name](bench)
        found = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
        found |= {"command": "python benchmarks/analyses.py all", "machine": machine(), name: _rounded(part)}
        OUT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(value, 5) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
