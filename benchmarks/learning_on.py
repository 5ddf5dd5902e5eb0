"""Learning on: a corpus in parts, one after the other, against training on all of it at once.

    python benchmarks/learning_on.py --data DIR [--corpus debtags] [--model br] [--parts 10] [--set ngrams=2] [--split test]
        [--out FILE]

The training documents are shuffled and divided into parts. The first part is trained; every further part is learned on from the
saved artefact of the one before, as ``polytag train --from`` does. This is done without old rows and with ``keep_features``. All
choices (C, n-grams, calibration, thresholds) are made on training documents; the split is scored after every part, for the
curve. Last, ``Classifier.learn`` gets corrections, a few at a time: true labels of documents of the split ``valid``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from polytag import Classifier, Corpus, LabelSet
from polytag.config.recipe import Recipe
from polytag.storage.artefact import artefact_info

SHOWN = ("micro_f1", "macro_f1", "p@5")


def measured(classifier: Classifier, asked: Corpus) -> dict[str, float]:
    """Some metrics."""
    found = classifier.evaluate(asked)
    return {name: found[name] for name in SHOWN if name in found}


def in_parts(model: str, options: dict[str, Any], parts: list[Corpus], asked: Corpus, folder: Path) -> Iterator[dict[str, Any]]:
    """Learn part after part, each from the saved artefact of the one before."""
    for number, part in enumerate(parts, start=1):
        start = time.perf_counter()
        classifier = Classifier(model, options)
        if number > 1:
            classifier.continue_from(Classifier.load(folder))
        classifier.fit(part)
        classifier.save(folder)
        seconds = time.perf_counter() - start
        size = artefact_info(folder / "model").bytes
        yield {"part": number, "seconds": seconds, "megabytes": size / 1e6, **measured(classifier, asked)}


def corrections(folder: Path, source: Corpus, times: int = 20, at_once: int = 5) -> dict[str, float]:
    """Seconds of one ``learn`` with a few corrections; the first may compile, so the median counts."""
    classifier, seconds = Classifier.load(folder), []
    for number in range(times):
        some = source.subset(np.arange(number * at_once, (number + 1) * at_once))
        start = time.perf_counter()
        classifier.learn(some.texts, some.label_lists())
        seconds.append(time.perf_counter() - start)
    return {"documents": at_once, "labels": len(classifier.labels), "median": float(np.median(seconds)), "most": max(seconds)}


def main() -> None:
    """Train all at once and in parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="debtags")
    parser.add_argument("--model", default="br")
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--documents", type=int, default=0, help="training documents; 0 = all")
    parser.add_argument("--split", default="valid", choices=("valid", "test"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], dest="settings", help="setting of the parts, as in ngrams=2")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    folder = told.data / told.corpus
    labels = LabelSet.read(folder / "labels.jsonl")
    train, valid, asked = (Corpus.read(folder / f"{name}.jsonl.xz", labels=labels) for name in ("train", "valid", told.split))
    order = np.random.default_rng(told.seed).permutation(len(train))[: told.documents or len(train)]
    parts = [train.subset(np.sort(rows)) for rows in np.array_split(order, told.parts)]
    start = time.perf_counter()
    whole = Classifier(told.model).fit(train.subset(np.sort(order)))
    once = {"seconds": time.perf_counter() - start, **measured(whole, asked)}
    print(json.dumps(once), flush=True)
    result: dict[str, Any] = {"command": " ".join(["python", *sys.argv]), "split": told.split, "documents": len(order)}
    result |= {"labels": len(labels), "model": told.model, "at_once": once}
    with tempfile.TemporaryDirectory() as place:
        for name, keep in (("weights", False), ("features", True)):
            options = Recipe(told.model).with_overrides([*told.settings, f"keep_features={str(keep).lower()}"]).options
            rows: list[dict[str, Any]] = []
            for row in in_parts(told.model, options, parts, asked, Path(place) / name):
                rows.append(row)
                result[name] = {"parts": rows, "difference": {key: row[key] - once[key] for key in SHOWN if key in once}}
                print(name, json.dumps(row), flush=True)
                written(result, told.out)
            if not keep:
                result["corrections"] = corrections(Path(place) / name, valid)
                print(json.dumps(result["corrections"]), flush=True)
    written(result, told.out)


def written(result: dict[str, Any], out: Path | None) -> None:
    """Write what there is so far: the whole takes long."""
    if out:
        out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
