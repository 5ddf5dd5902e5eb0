"""Labels added to a trained model without training it, by their texts and with a few examples.

    python benchmarks/added_labels.py --data DIR [--corpus debtags] [--models embed,br] [--examples 0,4,16] [--seeds 1,2,3]
        [--documents 0] [--split test] [--vectors DIR] [--setfit 40] [--out FILE]

The labels, the documents and the metrics are those of ``new_labels.py``: 60 labels are held out of training, then added by name
and description, and with examples: documents of training, drawn at random, that have them. The threshold comes from the labels of
training. ``--setfit`` trains SetFit on the same examples, for this number of steps; its own head decides, and without
examples it has no row. ``--vectors`` keeps the vectors of texts in a folder, because encoding takes most of the time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from new_labels import held_out_labels, measured, without
from polytag import Classifier, Corpus, LabelSet
from polytag.models.embed import Embed
from polytag.scores import Scores


class Vectors:
    """The vectors of texts, each encoded once, and kept in a folder if there is one."""

    def __init__(self, folder: Path | None) -> None:
        """Read what the folder has."""
        self.folder, self.known = folder, dict[str, NDArray[np.float32]]()
        for path in sorted(folder.glob("*.npz")) if folder else []:
            found = np.load(path)
            self.known |= dict(zip(found["keys"].tolist(), found["vectors"], strict=True))

    def of(self, texts: Sequence[str], encode: Callable[[list[str]], NDArray[np.float32]]) -> NDArray[np.float32]:
        """The vectors of these texts."""
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24] for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self.known}
        if missing:
            made = encode(list(missing.values()))
            self.known |= dict(zip(missing, made, strict=True))
            if self.folder:
                self.folder.mkdir(parents=True, exist_ok=True)
                np.savez(self.folder / f"{next(iter(missing))}.npz", keys=np.array(list(missing)), vectors=made)
        return np.stack([self.known[key] for key in keys]) if keys else np.zeros((0, 384), dtype=np.float32)


def trained(model: str, train: Corpus, vectors: Vectors, seed: int) -> Classifier:
    """A classifier that can add labels. Its own labels are trained roughly, as nothing depends on them."""
    classifier = Classifier(model, {"keep_features": True, "seed": seed, "c": [1.0], "folds": 2, "tolerance": 10.0})
    if isinstance(classifier.model, Embed):
        encode = classifier.model._vectors
        classifier.model._vectors = lambda texts, run: vectors.of(texts, lambda some: encode(some, run))  # type: ignore[method-assign]
    return classifier.fit(train)


def drawn(train: Corpus, held: list[str], count: int, seed: int) -> Corpus | None:
    """Examples of the labels that are held out: ``count`` of each, if there are as many."""
    if not count:
        return None
    part, rng = train.with_labels(LabelSet(held)), np.random.default_rng(seed)
    columns, rows = part.truth.tocsc(), set[int]()
    pairs: list[tuple[int, int]] = []
    for label in range(len(held)):
        own = rng.permutation(columns.indices[columns.indptr[label] : columns.indptr[label + 1]])[:count]
        rows |= set(own.tolist())
        pairs += [(int(row), label) for row in own]
    order = sorted(rows)
    labels: list[list[str]] = [[held[label] for row, label in pairs if row == own] for own in order]
    return Corpus.of([train.texts[row] for row in order], labels, label_set=LabelSet(held))


def added(classifier: Classifier, new: dict[str, str], examples: Corpus | None, asked: Corpus) -> dict[str, float]:
    """Add labels to a copy of the classifier, and measure them."""
    again = Classifier.from_state(
        {
            "model": classifier.recipe.model, "options": classifier.model.options(), "labels": classifier.labels.state(),
            "recipe": {name: getattr(classifier.recipe, name) for name in ("calibrate", "min_labels", "closed", "promise")},
            "reading": {}, "state": classifier.model.state(), "decision": classifier.decision.state(), "abstention": None,
            "calibration": classifier.calibration and classifier.calibration.state(), "training": classifier.training,
        }
    )  # fmt: skip
    if isinstance(again.model, Embed):
        again.model._vectors = classifier.model._vectors  # type: ignore[attr-defined, method-assign]
    again.add_labels(new, examples)
    start = time.perf_counter()
    values = again.scores(asked.texts).matrix.toarray()[:, -len(new) :]
    limits = again.decision.thresholds[-len(new) :]
    shift = np.asarray(limits, dtype=np.float64)
    odds = np.log(np.maximum(values, 1e-9) / np.maximum(1 - values, 1e-9)) - np.log(shift / (1 - shift))
    even = (1 / (1 + np.exp(-odds))).astype(np.float32)  # in units of the threshold of each label, so that one half decides
    row = measured(Scores.full(even, list(new), "probability"), asked.truth, 0.5)
    ranked = measured(Scores.full(values, list(new), "probability"), asked.truth, 0.5)
    return row | {"best_f1": ranked["best_f1"], "score_seconds": time.perf_counter() - start}


def by_setfit(examples: Corpus, asked: Corpus, steps: int, encoder: str) -> dict[str, float]:
    """SetFit on the examples alone: contrastive training of the encoder, then one logistic regression per label."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    start = time.perf_counter()
    dense = examples.truth.toarray().astype(int)
    model = SetFitModel.from_pretrained(encoder, multi_target_strategy="one-vs-rest")
    arguments = TrainingArguments(batch_size=16, max_steps=steps, report_to="none")
    data = Dataset.from_dict({"text": list(examples.texts), "label": dense.tolist()})
    Trainer(model=model, args=arguments, train_dataset=data).train()
    values = np.asarray(model.model_head.predict_proba(model.model_body.encode(list(asked.texts))))
    row = measured(Scores.full(values.astype(np.float32), list(examples.labels), "probability"), asked.truth, 0.5)
    return row | {"steps": steps, "seconds": time.perf_counter() - start}


def main() -> None:
    """Run all methods for every seed, which also draws the labels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="debtags")
    parser.add_argument("--models", default="embed,br")
    parser.add_argument("--examples", default="0,4,16")
    parser.add_argument("--split", default="valid", choices=("valid", "test"))
    parser.add_argument("--hold", type=int, default=60)
    parser.add_argument("--least", type=int, default=20)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--documents", type=int, default=0, help="training documents, drawn at random; 0 = all")
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--setfit", type=int, default=0, help="steps of SetFit; 0 = not at all")
    parser.add_argument("--encoder", default="", help="folder of SetFit's encoder")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    folder = told.data / told.corpus
    labels = LabelSet.read(folder / "labels.jsonl")
    train, asked = (Corpus.read(folder / f"{name}.jsonl.xz", labels=labels) for name in ("train", told.split))
    rows = np.random.default_rng(5).permutation(len(train))[: told.documents or len(train)]
    part, vectors, result = train.subset(np.sort(rows)), Vectors(told.vectors), list[dict[str, Any]]()
    for seed in map(int, told.seeds.split(",")):
        held = held_out_labels(train, told.hold, seed, told.least)
        new, truth = {name: labels.descriptions[name] for name in held}, asked.with_labels(LabelSet(held))
        row: dict[str, Any] = {"seed": seed}
        shown = {count: drawn(part, held, count, seed) for count in map(int, told.examples.split(","))}
        for model in filter(None, told.models.split(",")):
            classifier = trained(model, without(part, held), vectors, seed)
            for count, examples in shown.items():
                row[f"{model}:{count}"] = added(classifier, new, examples, truth)
                print(seed, model, count, json.dumps(row[f"{model}:{count}"]), flush=True)
        for count, examples in shown.items() if told.setfit else ():
            if examples is not None:
                row[f"setfit:{count}"] = by_setfit(examples, truth, told.setfit, told.encoder)
                print(seed, "setfit", count, json.dumps(row[f"setfit:{count}"]), flush=True)
        result.append(row)
    names = [name for name in result[0] if name != "seed"]
    means = {name: {key: float(np.mean([row[name][key] for row in result])) for key in result[0][name]} for name in names}
    print(json.dumps(means, indent=1))
    if told.out:
        sizes = {"train": len(part), "asked": len(asked), "labels": len(labels), "held": told.hold}
        found = {"command": " ".join(["python", *sys.argv]), "split": told.split, "sizes": sizes, "means": means, "rows": result}
        told.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
