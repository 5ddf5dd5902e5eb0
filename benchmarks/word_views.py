"""Two pictures of the papers on our corpora: where SGM attends (table 4), and which words two BERTs use (appendix A).

    python benchmarks/word_views.py attention [--data DIR] [--out FILE]    # SGM, table 4
    python benchmarks/word_views.py importance [--data DIR] [--out FILE]   # BERT paper, appendix A

Both take package descriptions (``debtags``) and its 30 or 10 most frequent labels, with networks and training sets that are small
enough for a CPU. ``attention`` trains SGM, and compares the words it attends to with the words whose deletion changes the score.
``importance`` trains the multi-label and the sequence-generating model on the same encoder, leaves every word out, and compares
how many words carry the contributions.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers.report import machine
from polytag import Classifier, Corpus, LabelSet
from polytag.explain.explanation import Word

SHOWN, TOP = 3, 5
_SGM = {
    "encoder": "bilstm", "embedding": 100, "hidden": 64, "layers": 1, "decoder_size": 128, "max_length": 80, "epochs": 8,
    "encoder_rate": 0.005, "head_rate": 0.005, "batch_size": 32,
}  # fmt: skip
_BERT = {"max_length": 48, "epochs": 3, "batch_size": 8, "frozen_layers": 3, "head_rate": 0.005}


def read(data: Path, part: str, labels: LabelSet | int, most: int) -> Corpus:
    """Some documents of a part, with these or this number of frequent labels; those that have none of them are left out."""
    folder = data / "debtags"
    corpus = Corpus.read(folder / f"{part}.jsonl.xz", labels=LabelSet.read(folder / "labels.jsonl"))
    if isinstance(labels, int):
        order = corpus.labels.frequency_order(corpus.truth)[:labels]
        labels = LabelSet([corpus.labels[int(label)] for label in order])
    rows = list(zip(corpus.ids, corpus.texts, corpus.labels.decode(corpus.truth), strict=True))
    kept = [(name, text, [label for label in own if label in labels]) for name, text, own in rows]
    kept = [row for row in kept if row[2]][:most]
    names, texts, own = zip(*kept, strict=True)
    return Corpus.of(texts, own, ids=names, label_set=labels)


def top(words: Sequence[Word], count: int = TOP) -> list[Word]:
    """The words with the largest values."""
    return sorted(words, key=lambda word: -word.contribution)[:count]


def shown(words: Sequence[Word]) -> list[list[Any]]:
    """Words and rounded values."""
    return [[word.text, round(word.contribution, 4)] for word in words]


def interval(values: Sequence[float], seed: int = 0) -> dict[str, Any]:
    """The mean, and a 95% interval by bootstrap."""
    found: NDArray[Any] = np.asarray(values, dtype=float)
    again = found[np.random.default_rng(seed).integers(0, len(found), (2000, len(found)))].mean(axis=1)
    return {"mean": round(float(found.mean()), 4), "interval": np.round(np.quantile(again, [0.025, 0.975]), 4).tolist()}


def overlap(one: Sequence[Word], other: Sequence[Word]) -> float:
    """The share of words that two lists have in common, by their places in the text."""
    return len({word.start for word in one} & {word.start for word in other}) / max(1, len(one))


def attention(data: Path, documents: int) -> dict[str, Any]:
    """Where SGM attends when it generates each label, and what it needs for the label."""
    train = read(data, "train", 30, 3000)
    valid, test = read(data, "valid", train.labels, 400), read(data, "test", train.labels, 400)
    classifier = Classifier("sgm", {**_SGM, "seed": 0}).fit(train, valid)
    examples, needed, chance, between = list[dict[str, Any]](), list[float](), list[float](), list[float]()
    for name, text, own in zip(test.ids, test.texts, test.labels.decode(test.truth), strict=True):
        found = [one for one in classifier.explain(text, exact=True).labels if one.attention and len(one.words) >= 4 * TOP]
        if len(found) < 2 or len(needed) >= documents:
            continue
        looks = [top(one.attention or ()) for one in found]
        needed += [overlap(look, top(one.words)) for look, one in zip(looks, found, strict=True)]
        chance += [TOP / len(one.words) for one in found]
        between += [overlap(looks[0], look) for look in looks[1:]]
        if len(examples) < SHOWN and {one.label for one in found} <= set(own):
            rows = [
                {"label": one.label, "attention": shown(look), "contributions": shown(top(one.words))}
                for one, look in zip(found, looks, strict=True)
            ]
            examples.append({"id": name, "text": text, "true": list(own), "labels": rows})
    return {
        "paper": "SGM, table 4", "options": _SGM, "train_documents": len(train), "test": _f1(classifier, test),
        "explained_labels": len(needed),
        "attended_words_that_are_needed": interval(needed), "by_chance": interval(chance),
        "attended_words_that_two_labels_share": interval(between), "examples": examples,
    }  # fmt: skip


def importance(data: Path, documents: int) -> dict[str, Any]:
    """How many words carry the contributions, for the multi-label and the sequence-generating model."""
    train = read(data, "train", 10, 400)
    valid, test = read(data, "valid", train.labels, 60), read(data, "test", train.labels, 100)
    models = {name: Classifier(name, {**_BERT, "seed": 0}).fit(train, valid) for name in ("bert", "bert-sgm")}
    sums: dict[str, dict[str, list[float]]] = {name: {"words": [], "share": []} for name in models}
    examples: list[dict[str, Any]] = []
    texts = [text for text in test.texts if 4 * TOP <= len(text.split()) <= 50][:documents]
    for text in texts:
        label = models["bert"].scores([text]).top(1)[0][0][0]
        row: dict[str, Any] = {"text": text, "label": label}
        for name, classifier in models.items():
            words = classifier.explain(text, label, exact=True).labels[0].words
            strength = np.abs([word.contribution for word in words])
            share = strength / max(float(strength.sum()), 1e-12)
            sums[name]["words"].append(float(np.exp(-(share * np.log(np.maximum(share, 1e-12))).sum())))
            sums[name]["share"].append(float(np.sort(share)[-TOP:].sum()))
            row[name] = {"contributions": shown(top(words)), "predicted": classifier.predict([text])[0]}
        if len(examples) < SHOWN:
            examples.append(row)
    apart = np.array(sums["bert"]["words"]) - np.array(sums["bert-sgm"]["words"])
    return {
        "paper": "BERT paper, appendix A", "options": _BERT, "train_documents": len(train), "documents": len(texts),
        "test": {name: _f1(classifier, test) for name, classifier in models.items()},
        "effective_words": {name: interval(found["words"]) for name, found in sums.items()},
        "share_of_top_five": {name: interval(found["share"]) for name, found in sums.items()},
        "fewer_words_in_bert_sgm": interval(apart.tolist()), "examples": examples,
    }  # fmt: skip


def _f1(classifier: Classifier, corpus: Corpus) -> dict[str, Any]:
    return {"documents": len(corpus), "micro_f1": round(classifier.evaluate(corpus)["micro_f1"], 4)}


def main() -> None:
    """Train, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("attention", "importance"))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLYTAG_DATA", "../shared/data")))
    parser.add_argument("--documents", type=int, help="documents that are explained, 20; for attention labels, 40")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    if told.part == "attention":
        found = attention(told.data, told.documents or 40)
    else:
        found = importance(told.data, told.documents or 20)
    out = (
        told.out or Path("benchmarks/results") / {"attention": "sgm_table4.json", "importance": "bert_appendix_a.json"}[told.part]
    )
    about = {"command": f"python benchmarks/word_views.py {told.part}", "machine": machine()}
    out.write_text(json.dumps({**about, **found}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
