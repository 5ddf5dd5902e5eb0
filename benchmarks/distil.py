"""Distillation: the share of a teacher's gain over a plain model that the same model has after it learned from the teacher.

    python benchmarks/distil.py teach --corpus reuters --teacher bert,embed,br --weights 2,1,1 --said SAID --out FILE
    python benchmarks/distil.py teach ... --folds 3 --fold 1 --unlabelled REST        # and 2 and 3, one process each
    python benchmarks/distil.py learn --corpus reuters --into bert --epochs 8 --unlabelled REST --said SAID
    python benchmarks/distil.py learn ... --seeds 0,1,2 --test --keep SETS --out FILE

``teach`` trains the teacher, a mixture of the named models, and opens test for its row. With ``--fold K`` it trains a copy
without a fold; what that says about the documents of the fold, about parts of them and about the texts of ``--unlabelled`` is
kept as K.npz in the folder SAID. ``--unlabelled`` names a corpus or a file; texts that stand in the validation or test documents
of CORPUS (near-duplicates by ``polytag.audit.near_duplicates``) are left out.

``learn`` trains the plain model and the student with the same settings; ``--epochs N`` are those of the student, which has more
texts. Without ``--test`` only validation documents are looked at. ``kept`` is (student - plain) / (teacher - plain) in micro-F1
on test, of the means over the seeds, with the interval of the gain by paired bootstrap.
"""

from __future__ import annotations

import argparse
import json
import time
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
from polytag.transfer.distillation import TRUST, VIEWS, Lesson, distil
from polytag.transfer.teacher import OutOfFold, without_fold

BERT: dict[str, Any] = {"encoder": "minilm", "pooling": "cls", "encoder_rate": 2e-4}
SETTINGS: dict[str, dict[str, Any]] = {  # of bert: as in jobs/reuters-members.json and jobs/aapd-even.json
    "reuters": {**BERT, "epochs": 16, "positive_weight": 0.25, "batch_size": 32},
    "aapd-even": {**BERT, "epochs": 3, "batch_size": 64},
}
SEQTAG: dict[str, Any] = {"encoder": "minilm", "encoder_rate": 2e-4, "epochs": 10, "label_text": "name"}
SAID = ("soft", "views", "others")
MEASURED = {"micro_f1": micro_f1, "macro_f1": macro_f1}


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


# -- files -------------------------------------------------------------------------------------------------------------


def corpora(told: argparse.Namespace) -> tuple[Corpus, Corpus, Corpus]:
    """Training, validation and test documents."""
    folder = told.data / told.corpus
    labels = LabelSet.read(next(folder.glob("labels.jsonl*")))
    train, valid, test = (Corpus.read(folder / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid", "test"))
    return train, valid, test


def unlabelled(told: argparse.Namespace, held: list[str]) -> list[str]:
    """The texts without labels, none of which resembles a held one."""
    if not told.unlabelled:
        return []
    other = told.data / told.unlabelled
    files = [other / f"{part}.jsonl.xz" for part in ("train", "valid", "test")] if other.is_dir() else [Path(told.unlabelled)]
    texts = [text for file in files for text in Corpus.read(file).texts]
    return texts if told.clean else without_copies(texts, held)


def keep(path: Path, said: dict[str, csr_array]) -> None:
    """Write what a teacher says, as sparse rows in half precision."""
    arrays: dict[str, Any] = {}
    for name, part in said.items():
        arrays |= {f"{name}_data": part.data.astype(np.float16), f"{name}_indices": part.indices.astype(np.uint16)}
        arrays[f"{name}_indptr"] = part.indptr
    np.savez_compressed(path, labels=said["soft"].shape[1], **arrays)


def kept(path: Path) -> dict[str, csr_array]:
    """Read what a teacher says."""
    with np.load(path, allow_pickle=False) as found:
        parts = {name: [found[f"{name}_{key}"] for key in ("data", "indices", "indptr")] for name in SAID}
        labels = int(found["labels"])
    rows = {name: (part[0].astype(np.float32), part[1].astype(np.int32), part[2]) for name, part in parts.items()}
    return {name: csr_array(part, shape=(len(part[2]) - 1, labels)) for name, part in rows.items()}


def said_of(folder: Path, train: Corpus) -> tuple[OutOfFold, int]:
    """What the teachers without a fold say, and the number of views of every document."""
    files = sorted(folder.glob("*.npz"), key=lambda path: int(path.stem))
    teachers = [kept(path) for path in files]
    views = teachers[0]["views"].shape[0] // teachers[0]["soft"].shape[0]
    return OutOfFold.of(teachers, train.folds(len(files), seed=0), views), views


def write(told: argparse.Namespace, changes: dict[str, Any]) -> None:
    """Add to the file of results."""
    result: dict[str, Any] = json.loads(told.out.read_text(encoding="utf-8")) if told.out and told.out.exists() else {}
    result = {"corpus": told.corpus, **result, **changes}
    if told.out:
        told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


# -- teachers and students ---------------------------------------------------------------------------------------------


def teach(told: argparse.Namespace) -> None:
    """Train the teacher and measure it on test, or a copy without a fold, and keep what that says."""
    train, valid, test = corpora(told)
    parts = told.teacher.split(",")
    settings = {part: own for part in parts if (own := _settings(told.corpus, part))}
    weights = [float(weight) for weight in told.weights.split(",")]
    options = {"parts": parts, "parts_at_once": told.at_once, "settings": settings, "weights": weights, "seed": told.seed}
    start = time.perf_counter()
    if told.fold:
        more = unlabelled(told, [*valid.texts, *test.texts])
        part = train.folds(told.folds, seed=told.seed)[told.fold - 1]
        said = without_fold(Recipe("mixed", options, seed=told.seed), train, part, more, told.views)
        told.said.mkdir(parents=True, exist_ok=True)
        keep(told.said / f"{told.fold}.npz", said)
        print("fold", told.fold, round(time.perf_counter() - start), "s", flush=True)
        return
    teacher = Classifier("mixed", options).fit(train, valid)
    row, _ = _measured([teacher], test)
    row |= {"seconds": time.perf_counter() - start, "held_out": _held_out(teacher), "parts": parts, "weights": weights}
    print("teacher", json.dumps(row), flush=True)
    write(told, {"teacher": row, "folds": told.folds, "views": told.views})


def learn(told: argparse.Namespace) -> None:
    """Train plain models and students, and compare them."""
    train, valid, test = corpora(told)
    more = unlabelled(told, [*valid.texts, *test.texts])
    said, asked = said_of(told.said, train)
    assert not more or len(more) == said.others.shape[0], "SAID is of other texts"
    at = {text: row for row, text in enumerate(more)}

    def known(_teacher: Any, _train: Corpus, _folds: int, texts: list[str], _run: Run, views: int) -> OutOfFold:
        """What is known of the texts that distil has not left out."""
        first = np.flatnonzero(np.arange(said.views.shape[0]) % max(1, asked) < views)
        return OutOfFold(said.labelled, csr_array(said.views[first]), csr_array(said.others[[at[text] for text in texts]]))

    vars(distillation)["out_of_fold"] = known
    own = {**_settings(told.corpus, told.into), **dict(json_item(item) for item in told.set)}
    taught_with = {**own, "epochs": told.epochs} if told.epochs else own
    kinds = {**({} if told.students_only else {"plain": (own, False)}), "student": (taught_with, True)}
    rows: dict[str, Any] = {"settings": own, "trust": told.trust, "views": told.views, "seeds": told.seeds}
    rows |= {"epochs": told.epochs} if told.epochs else {}
    told.keep.mkdir(parents=True, exist_ok=True)
    sets: dict[str, list[csr_array]] = {}
    for kind, (options, taught) in kinds.items():
        start, found = time.perf_counter(), []
        for seed in map(int, told.seeds.split(",")):
            if taught:
                plain = Classifier(told.into, {**own, "seed": seed})
                plain.labels = train.labels
                lesson, recipe = Lesson(2, told.trust, told.views), Recipe(told.into, options, seed=seed)
                found.append(distil(plain, recipe, train, valid, unlabelled=more, lesson=lesson, run=_told()))
            else:
                found.append(Classifier(told.into, {**options, "seed": seed}).fit(train, valid))
        rows[kind] = {"held_out": [_held_out(one) for one in found], "seconds": time.perf_counter() - start}
        if told.test:
            row, sets[kind] = _measured(found, test)
            rows[kind] |= row
            for seed, one in zip(told.seeds.split(","), sets[kind], strict=True):
                np.savez_compressed(
                    told.keep / f"{told.corpus}-{told.into}-{kind}-{seed}", indices=one.indices, indptr=one.indptr
                )
        print(told.into, kind, json.dumps(rows[kind]), flush=True)
    if told.test and "plain" in rows:
        teacher = json.loads(told.out.read_text(encoding="utf-8"))["teacher"]
        gains = {key: (teacher[key] - rows["plain"][key], rows["student"][key] - rows["plain"][key]) for key in MEASURED}
        rows["kept"] = {key: mine / full for key, (full, mine) in gains.items() if full > 0}
        rows["student_minus_plain"] = paired_bootstrap(test.truth, sets["student"], sets["plain"])._asdict()
        print(told.into, json.dumps(rows["kept"]), flush=True)
    write(told, {told.name or told.into: rows})


def _told() -> Run:
    """A run that prints its log: how many texts are used, and what students with more or less trust are worth."""
    run = Run()
    run.log = lambda event, values: print(event, json.dumps(values, default=str)[:300], flush=True)  # type: ignore[method-assign]
    return run


def json_item(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON."""
    name, _, value = text.partition("=")
    return name, json.loads(value)


def _settings(corpus: str, part: str) -> dict[str, Any]:
    """The settings of a model; a number after its name is the seed."""
    model, _, tag = part.partition(":")
    found = {"bert": SETTINGS[corpus], "seqtag": SEQTAG}.get(model, {})
    return {**found, **({"seed": int(tag)} if tag else {})}


def _held_out(classifier: Classifier) -> float:
    """The metric that the decision was chosen by, cross-fitted where it was fitted on held-out documents."""
    report = classifier.decision.report
    return float(report.get("cross_fitted", {}).get(report.get("rule"), report.get("fitted", 0.0)))


def _measured(found: list[Classifier], test: Corpus) -> tuple[dict[str, Any], list[csr_array]]:
    """Mean metrics, those of every seed, the speed of the last one, and the predicted sets."""
    sets = [one.outcome(test).predicted for one in found]
    start = time.perf_counter()
    found[-1].outcome(test)
    row: dict[str, Any] = {"documents_per_second": len(test) / (time.perf_counter() - start)}
    for name, metric in MEASURED.items():
        values = [float(metric(test.truth, one)) for one in sets]
        row |= {name: float(np.mean(values)), f"{name}_by_seed": values}
    return row, sets


def main() -> None:
    """One of both steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    for name, step in (("teach", teach), ("learn", learn)):
        one = steps.add_parser(name)
        one.set_defaults(step=step)
        one.add_argument("--data", type=Path, default=Path("../shared/data"))
        one.add_argument("--corpus", default="reuters", choices=sorted(SETTINGS))
        one.add_argument("--unlabelled", default="")
        one.add_argument(
            "--clean", action="store_true", help="the unlabelled texts are known to have no copies of held documents"
        )
        one.add_argument("--said", type=Path, required=True, help="folder of what the teachers without a fold say")
        one.add_argument("--views", type=int, default=VIEWS, help="parts of every labelled document")
        one.add_argument("--out", type=Path)
    one = steps.choices["teach"]
    one.add_argument("--teacher", default="br,cc,lp")
    one.add_argument("--folds", type=int, default=5)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--at-once", type=int, default=1, help="parts of the teacher that are trained at once")
    one.add_argument("--weights", default="1,1,1", help="of the parts of the teacher")
    one.add_argument("--fold", type=int, default=0, help="train without this fold; 0 = the teacher itself")
    one = steps.choices["learn"]
    one.add_argument("--into", default="br")
    one.add_argument("--name", default="", help="name of the row; by default that of the model")
    one.add_argument("--set", action="append", default=[], help="NAME=VALUE of plain model and student")
    one.add_argument("--trust", type=float, default=TRUST, help="share of the teacher")
    one.add_argument("--epochs", type=int, default=0, help="of the student, which has more texts; 0 = as the plain model")
    one.add_argument("--keep", type=Path, default=Path(), help="folder for the label sets of test documents")
    one.add_argument("--seeds", default="0")
    one.add_argument("--students-only", action="store_true", help="to compare settings of students")
    one.add_argument("--test", action="store_true", help="open test")
    told = parser.parse_args()
    told.step(told)


if __name__ == "__main__":
    main()
