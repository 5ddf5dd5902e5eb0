"""Labels held out of training: laco's shared head against the nearest embedding of a frozen encoder.

    python benchmarks/new_labels.py --data DIR [--corpus debtags] [--hold 60] [--seeds 0,1,2] [--set epochs=6 ...]
        [--labels 120 --documents 5000] [--out FILE]

Some labels are held out: documents of train and valid lose them, as if nobody had thought of them yet. They are then added by
name and description, and scored on validation documents (``--split test``: once, when settings are frozen). Only documents that
have a held-out label count for P@k, which ranks the held-out labels alone; F1 is over all documents and needs a threshold:

``average_precision`` is that of each label over all documents, a mean over the labels: it asks who gets a label, whatever its
share of the documents.

- laco decides by its own, fitted with the shared head on validation documents and the labels that it knows;
- the embedding takes the cosine between a document and the text of a label; its threshold is fitted in the same way, on known
  labels. ``best_f1`` is for both the F1 of the best threshold, chosen on the very documents: a bound that nothing reaches.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.metrics import average_precision_score

from polytag import Classifier, Corpus, LabelSet
from polytag.config.groups.encoder_settings import WordSettings
from polytag.config.recipe import Recipe
from polytag.decision.thresholds import apply, common
from polytag.metrics.of_sets import macro_f1, micro_f1
from polytag.models.laco import Laco
from polytag.nn.encoding.document_vectors import document_vectors
from polytag.nn.encoding.encoders import build_encoder
from polytag.nn.encoding.pretrained import describe_encoder, load_pretrained
from polytag.nn.training.batch import Layout, tokenise
from polytag.nn.training.devices import pick_device
from polytag.scores import Scores

KS = (1, 3, 5)


def held_out_labels(train: Corpus, count: int, seed: int, least: int) -> list[str]:
    """Labels to hold out: drawn from those with a description and at least ``least`` training documents."""
    counts = np.bincount(train.truth.indices, minlength=len(train.labels))
    known = [name for name, n in zip(train.labels, counts, strict=True) if n >= least and name in train.labels.descriptions]
    drawn = np.random.default_rng(seed).permutation(len(known))[:count]
    return [known[number] for number in sorted(drawn.tolist())]


def without(corpus: Corpus, held: list[str]) -> Corpus:
    """The same documents, none of which has a label that is held out; some may be left without any."""
    left = [name for name in corpus.labels if name not in set(held)]
    return corpus.with_labels(LabelSet(left, descriptions={name: corpus.labels.descriptions.get(name, "") for name in left}))


def columns(scores: NDArray[Any], names: list[str], wanted: list[str]) -> Scores:
    """Full scores of some of the labels."""
    at = {name: number for number, name in enumerate(names)}
    return Scores.full(scores[:, [at[name] for name in wanted]], wanted, "probability")


def measured(scores: Scores, truth: csr_array, threshold: float) -> dict[str, float]:
    """P@k over documents that have any of these labels, and F1 over all documents."""
    ranked, _ = scores.ranked(max(KS))
    has = np.diff(truth.indptr) > 0
    dense = truth.toarray() > 0
    hit = np.take_along_axis(dense, np.maximum(ranked, 0), axis=1) & (ranked >= 0)
    found = {f"p@{k}": float(hit[has, :k].mean()) for k in KS}
    found["average_precision"] = float(average_precision_score(dense, scores.matrix.toarray(), average="macro"))
    decided = apply(scores, np.full(1, threshold, dtype=np.float32), 0)
    bound = apply(scores, common(scores, truth, "micro_f1", 0), 0)
    return found | {
        "micro_f1": micro_f1(truth, decided),
        "macro_f1": macro_f1(truth, decided),
        "best_f1": micro_f1(truth, bound),
        "threshold": threshold,
        "documents": float(has.sum()),
    }


def by_laco(train: Corpus, valid: Corpus, new: dict[str, str], asked: Corpus, recipe: Recipe) -> dict[str, Any]:
    """Train without the labels, add them, and measure them."""
    start = time.perf_counter()
    classifier = Classifier(recipe).fit(train, valid)
    seconds = time.perf_counter() - start
    usual = classifier.decision.report
    classifier.add_labels(new)
    assert isinstance(classifier.model, Laco)
    threshold = classifier.model.threshold
    values = classifier.scores(asked.texts).matrix.toarray()
    found = columns(values, list(classifier.labels), list(new))
    row = measured(found, asked.truth, 0.5 if threshold is None else threshold)
    return {**row, "train_seconds": seconds, "known_labels": usual}


def by_embedding(train: Corpus, valid: Corpus, new: dict[str, str], asked: Corpus, encoder: str) -> dict[str, Any]:
    """Cosines between documents and labels' texts, as if they were probabilities from 0 to 1."""
    tokens, description = describe_encoder(encoder, [], WordSettings(), None)
    network = build_encoder(description).eval()
    load_pretrained(network, encoder, tokens)
    network.to(pick_device("auto"))
    layout = Layout(256, prefix=tokens.prefix, suffix=tokens.suffix, pad=tokens.pad)

    def vectors(texts: list[str]) -> NDArray[np.float32]:
        return document_vectors(network, tokenise(tokens, texts), layout, "mean", "fp32")

    known = {name: train.labels.descriptions.get(name, name) for name in train.labels}
    rows = np.linspace(0, len(valid) - 1, min(len(valid), 2_000)).astype(int)
    seen = valid.subset(rows)
    scores = (1 + vectors(list(seen.texts)) @ vectors(list(known.values())).T) / 2
    threshold = float(common(Scores.full(scores, list(known), "probability"), seen.truth, "micro_f1", 0)[0])
    asked_scores = (1 + vectors(list(asked.texts)) @ vectors(list(new.values())).T) / 2
    return measured(Scores.full(asked_scores, list(new), "probability"), asked.truth, threshold)


def main() -> None:
    """Run it for every seed, which also draws the labels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--corpus", default="debtags")
    parser.add_argument("--split", default="valid", choices=("valid", "test"))
    parser.add_argument("--hold", type=int, default=60)
    parser.add_argument("--least", type=int, default=20, help="training documents that a label to hold out must have")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--labels", type=int, default=0, help="number of most frequent labels to use; 0 = all")
    parser.add_argument("--documents", type=int, default=0, help="training documents, evenly taken; 0 for all")
    parser.add_argument("--encoder", default="minilm", help="for laco and for the embedding")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    folder = told.data / told.corpus
    labels = LabelSet.read(folder / "labels.jsonl")
    parts = {name: Corpus.read(folder / f"{name}.jsonl.xz", labels=labels) for name in ("train", "valid", told.split)}
    if told.documents:
        parts = {
            name: part.subset(np.linspace(0, len(part) - 1, min(len(part), told.documents)).astype(int))
            for name, part in parts.items()
        }
    if told.labels:
        counts = np.bincount(parts["train"].truth.indices, minlength=len(labels))
        often = np.sort(np.argsort(-counts, kind="stable")[: told.labels])
        few = LabelSet([labels[number] for number in often], descriptions=labels.descriptions)
        parts = {name: part.with_labels(few) for name, part in parts.items()}
    recipe = Recipe("laco", {"shared": True, "label_text": "description", "encoder": told.encoder}).with_overrides(told.settings)
    result = []
    for seed in map(int, told.seeds.split(",")):
        held = held_out_labels(parts["train"], told.hold, seed, told.least)
        new = {name: labels.descriptions[name] for name in held}
        train, valid = without(parts["train"], held), without(parts["valid"], held)
        asked = parts[told.split].with_labels(LabelSet(held))
        row = {
            "seed": seed,
            "held": held,
            "laco": by_laco(train, valid, new, asked, replace(recipe, seed=seed)),
            "embedding": by_embedding(train, valid, new, asked, told.encoder),
        }
        result.append(row)
        print(json.dumps({name: row[name] for name in ("seed", "laco", "embedding")}))
    if told.out:
        sizes = {name: len(part) for name, part in parts.items()} | {"labels": len(parts["train"].labels), "held": told.hold}
        found = {"command": " ".join(["python", *sys.argv]), "split": told.split, "sizes": sizes, "rows": result}
        told.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
