"""Distillation: the share of a teacher's gain over a plain model that the same model has after it learned from the teacher.

    python benchmarks/distil.py --data DIR --corpus reuters --into br [--teacher br,cc,lp] [--folds 5] [--out FILE]
    python benchmarks/distil.py --data DIR --corpus aapd-even --into bert --teacher bert,embed,br --unlabelled arxiv --most 40000

The teacher is a mixture of the named models, trained on the training documents, with weights from the validation documents.
Plain models and students have the same settings. ``--unlabelled`` names a corpus or a file whose texts (``--most`` of them),
without those that stand in the validation or test documents of CORPUS (near-duplicates by ``polytag.audit.near_duplicates``),
the teacher labels. ``--transductive`` takes the texts of half of the test documents instead, and measures on the other half:
for corpora that have no unlabelled texts. What the teacher says is computed once for all students, and kept in the file
``--keep``; with ``--said`` that file is read instead of training a teacher, whose row is then that of FILE. ``--documents N
--rest M`` takes N training documents, and the texts of M more. ``kept`` is (student - plain) / (teacher - plain) in micro-F1 on
test, with the interval of the student's gain by paired bootstrap.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from polytag import Classifier, Corpus, LabelSet
from polytag.audit.near_duplicates import shingles, signatures
from polytag.config.recipe import Recipe
from polytag.metrics.bootstrap import paired_bootstrap
from polytag.metrics.of_sets import macro_f1, micro_f1
from polytag.run import Run
from polytag.transfer import distillation
from polytag.transfer.distillation import Lesson, distil
from polytag.transfer.teacher import OutOfFold

BERT: dict[str, Any] = {"encoder": "minilm", "pooling": "cls", "encoder_rate": 2e-4}
SETTINGS: dict[str, dict[str, Any]] = {  # of bert: as in jobs/single-pass.json and jobs/aapd-even.json
    "reuters": {**BERT, "epochs": 20, "positive_weight": 0.25, "batch_size": 32},
    "aapd-even": {**BERT, "epochs": 3, "batch_size": 64},
}


def copies_of(held: list[str], texts: list[str], share: float = 0.4) -> list[list[int]]:
    """For every text the held texts that it resembles: a share of the MinHash signature agrees, which estimates Jaccard.

    Texts that share a band of three rows are compared; a pair of similarity 0.5 shares one of 33 with probability 0.988.
    """
    signed = signatures(shingles([*held, *texts]), 99)
    known, asked = signed[: len(held)], signed[len(held) :]
    buckets: dict[tuple[int, bytes], list[int]] = {}
    for row, one in enumerate(known):
        for band in range(0, 99, 3):
            buckets.setdefault((band, one[band : band + 3].tobytes()), []).append(row)
    found = []
    for one in asked:
        near = {other for band in range(0, 99, 3) for other in buckets.get((band, one[band : band + 3].tobytes()), ())}
        found.append([other for other in sorted(near) if (known[other] == one).mean() >= share])
    return found


def without_copies(texts: list[str], held: list[str]) -> list[str]:
    """The texts that resemble none of the held ones."""
    return [text for text, copies in zip(texts, copies_of(held, texts), strict=True) if not copies]


class Said:
    """What the teachers say, computed once for all students; ``distil`` asks again for each."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        for name in ("out_of_fold", "taught_by"):
            setattr(distillation, name, partial(self._once, name, getattr(distillation, name)))

    def _once(self, name: str, ask: Callable[..., Any], *given: Any) -> Any:
        if name not in self.known:
            self.known[name] = ask(*given)
        return self.known[name]

    def read(self, path: Path) -> None:
        """Take the probabilities from a file."""
        with np.load(path, allow_pickle=False) as kept:
            parts = {name: [kept[f"{name}_{key}"] for key in ("data", "indices", "indptr")] for name in OutOfFold._fields}
            labels = int(kept["labels"])
        both = (csr_array(tuple(part), shape=(len(part[2]) - 1, labels)) for part in parts.values())
        self.known["out_of_fold"] = OutOfFold(*both)

    def keep(self, path: Path) -> None:
        """Write the probabilities as sparse rows."""
        parts = self.known["out_of_fold"]._asdict()
        arrays = {f"{name}_{key}": getattr(said, key) for name, said in parts.items() for key in ("data", "indices", "indptr")}
        np.savez_compressed(path, labels=parts["labelled"].shape[1], **arrays)


def main() -> None:
    """Train teacher, plain models and students, and measure them on test once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="reuters")
    parser.add_argument("--teacher", default="br,cc,lp")
    parser.add_argument("--into", default="br")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--trust", type=float, help="share of the teacher; by default chosen on held-out documents")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unlabelled", default="")
    parser.add_argument("--most", type=int, default=0, help="texts without labels, drawn with the seed; 0 = all")
    parser.add_argument("--transductive", action="store_true")
    parser.add_argument("--part", default="test", choices=("valid", "test"), help="valid: choose settings; train alone is used")
    parser.add_argument("--documents", type=int, default=0, help="training documents, for a trial; 0 = all")
    parser.add_argument("--rest", type=int, default=0, help="texts of the next training documents that the teacher labels")
    parser.add_argument("--runs", type=Path, help="folder for checkpoints of out-of-fold teachers")
    parser.add_argument("--said", type=Path, help="a file of --keep")
    parser.add_argument("--keep", type=Path, help="file for what the teacher says")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    said, (train, valid, test, more) = Said(), _documents(told)
    rows: dict[str, Any] = {}
    teacher, found = None, None
    if told.said:
        said.read(told.said)
        rows |= json.loads(told.out.read_text(encoding="utf-8"))["rows"]
    else:
        start = time.perf_counter()
        teacher = _trained("mixed", {"parts": told.teacher.split(","), "settings": _settings(told)}, told.seed, train, valid)
        rows["teacher"], found = _measured(teacher, test, time.perf_counter() - start)
    result = {
        **{key: str(value) for key, value in vars(told).items() if key not in ("out", "data", "runs", "keep", "said")},
        "unlabelled_texts": len(more),
        "rows": rows,
    }
    for name in told.into.split(","):
        options = _settings(told).get(name, {})
        start = time.perf_counter()
        plain = _trained(name, options, told.seed, train, valid)
        row, first = _measured(plain, test, time.perf_counter() - start)
        rows[name] = {"plain": row}
        start = time.perf_counter()
        run = Run(None if told.runs is None else told.runs / f"{told.corpus}-{name}", resume=told.runs is not None)
        lesson, recipe = Lesson(told.folds, told.trust), Recipe(name, options, seed=told.seed)
        student = distil(teacher or plain, recipe, train, valid, unlabelled=more, lesson=lesson, run=run)
        rows[name]["student"], second = _measured(student, test, time.perf_counter() - start)
        gains = {key: rows["teacher"][key] - rows[name]["plain"][key] for key in ("micro_f1", "macro_f1")}
        rows[name]["kept"] = {
            key: (rows[name]["student"][key] - rows[name]["plain"][key]) / gain for key, gain in gains.items() if gain > 0
        }
        rows[name]["student_minus_plain"] = paired_bootstrap(test.truth, second, first)._asdict()
        if found is not None:
            rows[name]["teacher_minus_plain"] = paired_bootstrap(test.truth, found, first)._asdict()
        print(name, json.dumps(rows[name]), flush=True)
        if told.keep:
            said.keep(told.keep)
        if told.out:
            told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _documents(told: argparse.Namespace) -> tuple[Corpus, Corpus, Corpus, list[str]]:
    """The documents to train on, to hold out and to measure on, and the texts without labels."""
    folder = told.data / told.corpus
    labels = LabelSet.read(next(folder.glob("labels.jsonl*")))
    train, valid, test = (Corpus.read(folder / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid", "test"))
    more: list[str] = []
    if told.documents:
        more = train.texts[told.documents : told.documents + told.rest]
        train = train.subset(np.arange(told.documents))
    if told.part == "valid":  # nothing of the test documents is read
        train, valid, test = *train.split(0.9, 0.1, seed=1), valid
    if told.transductive:
        half = np.random.default_rng(told.seed).permutation(len(test))
        more = [*test.subset(np.sort(half[: len(half) // 2])).texts]
        test = test.subset(np.sort(half[len(half) // 2 :]))
    elif told.unlabelled:
        other = told.data / told.unlabelled
        files = [other / f"{part}.jsonl.xz" for part in ("train", "valid", "test")] if other.is_dir() else [Path(told.unlabelled)]
        texts = [text for file in files for text in Corpus.read(file).texts]
        few = np.random.default_rng(told.seed).permutation(len(texts))[: told.most or None]
        more = without_copies([texts[row] for row in sorted(few.tolist())], [*valid.texts, *test.texts])
    return train, valid, test, more


def _settings(told: argparse.Namespace) -> dict[str, Any]:
    return {"bert": SETTINGS[told.corpus]} if "bert" in (*told.teacher.split(","), *told.into.split(",")) else {}


def _trained(model: str, options: dict[str, Any], seed: int, train: Corpus, valid: Corpus) -> Classifier:
    return Classifier(model, {**options, "seed": seed}).fit(train, valid)


def _measured(classifier: Classifier, test: Corpus, seconds: float) -> tuple[dict[str, float], csr_array]:
    """Metrics and speed, and the predicted sets."""
    start = time.perf_counter()
    predicted = classifier.outcome(test).predicted
    speed = len(test) / (time.perf_counter() - start)
    scores = {"micro_f1": float(micro_f1(test.truth, predicted)), "macro_f1": float(macro_f1(test.truth, predicted))}
    return {**scores, "seconds": seconds, "documents_per_second": speed}, predicted


if __name__ == "__main__":
    main()
