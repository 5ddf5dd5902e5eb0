"""Whether explanations are true, and how fast they are.

    python benchmarks/explain.py deletion [--data DIR] [--models br,sgm] [--documents 200] [--out FILE]
    python benchmarks/explain.py planted [--out FILE]
    python benchmarks/explain.py speed [--data DIR] [--out FILE]

``deletion``: a model is trained on ``reuters``; for 200 test documents its best label is explained. Then the one to five words
with the highest contributions are deleted, or as many random words (five draws). Networks are small or see few documents, so
that they train on a CPU. ``planted``: a label applies only if two words occur; how often attention and contributions put both
first. ``speed``: seconds to explain all decided labels of a text of 200 words, with the packaged encoder
(phrases first, or every word), and with linear separators of 600 labels (``debtags``). Each part keeps the rows of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers.report import machine
from polytag import Classifier, Corpus, LabelSet
from polytag.explain.explanation import Word

MOST = 5  # words that are deleted
DRAWS = 5  # random sets of words
_FEW, _JUDGED = 2000, 500  # models with at most this number of training documents are evaluated on some test documents only
_WORDS = {"encoder": "words", "embedding": 100, "encoder_rate": 0.005, "head_rate": 0.005, "max_length": 256, "batch_size": 32}
_MINILM = {"max_length": 48}
PLANTED = ("copper", "strike")
FILLER = ["the", "a", "of", "and", "to", "in", "is", "that", "it", "for", "with", "on", "as", "by"]
_TOY = {"encoder": "words", "embedding": 32, "batch_size": 16, "encoder_rate": 0.02, "head_rate": 0.02, "label_embedding": 16}
PLANTED_OPTIONS: dict[str, dict[str, Any]] = {
    "bert-sgm": {**_TOY, "epochs": 12},
    "laco": {**{key: value for key, value in _TOY.items() if key != "label_embedding"}, "epochs": 12},
    "sgm": {**_TOY, "epochs": 20, "decoder_size": 32, "attention_size": 16, "first_state": "mean"},
}
MODELS: dict[str, tuple[int, dict[str, Any]]] = {  # training documents (0 = all) and settings
    "br": (0, {"ngrams": [2]}),
    "cc": (0, {}),
    "lp": (0, {}),
    "xlinear": (0, {}),
    "embed": (600, _MINILM),
    "bert": (400, {**_MINILM, "epochs": 3, "batch_size": 16, "frozen_layers": 3}),
    "cnn": (3000, {**_WORDS, "epochs": 6}),
    "sgm": (1500, {**_WORDS, "max_length": 128, "epochs": 8, "decoder_size": 128, "first_state": "mean", "beam": 1}),
    "laco": (1500, {**_WORDS, "max_length": 128, "epochs": 6, "similarity": "cosine"}),
    "xbert": (3000, {**_WORDS, "epochs": 6, "clusters": 16, "beam": 4}),
    "mixed": (3000, {"parts": ["br", "cnn"], "settings": {"br": {"ngrams": [1]}, "cnn": {**_WORDS, "epochs": 6}}}),
}


def read(data: Path, name: str, part: str) -> Corpus:
    """A part of a corpus."""
    folder = data / name
    return Corpus.read(folder / f"{part}.jsonl.xz", labels=LabelSet.read(folder / "labels.jsonl"))


def without(text: str, words: list[Word]) -> str:
    """The text without some of its words."""
    for word in sorted(words, key=lambda word: -word.start):
        text = text[: word.start] + text[word.end :]
    return text


def curve(classifier: Classifier, text: str, label: int, order: list[Word]) -> NDArray[np.float64]:
    """By how much the log-odds of a label fall if the first 1 to 5 words of an order are deleted."""
    texts = [text, *(without(text, order[:count]) for count in range(1, MOST + 1))]
    found = classifier.model.margins_of(texts, np.array([label]))[:, 0]
    found = np.maximum(found, found[np.isfinite(found)].min(initial=0.0) - 1)  # a label set that is no candidate any more
    return np.asarray(found[0] - found[1:])


def deletion(classifier: Classifier, texts: list[str], seed: int = 0) -> dict[str, Any]:
    """Deletion curves of the best label of every text: by contributions, at random and, where there is any, by attention."""
    rng, curves = np.random.default_rng(seed), dict[str, list[NDArray[np.float64]]]()
    started = time.perf_counter()
    for text in texts:
        name = classifier.scores([text]).top(1)[0][0][0]
        label = classifier.labels.find(name)
        assert label is not None
        reasons = classifier.explain(text, name).labels[0]
        orders = {"contributions": sorted(reasons.words, key=lambda word: -word.contribution)}
        if reasons.attention:
            orders["attention"] = sorted(reasons.attention, key=lambda word: -word.contribution)
        for kind, order in orders.items():
            curves.setdefault(kind, []).append(curve(classifier, text, label, order))
        draws = [[reasons.words[at] for at in rng.permutation(len(reasons.words))[:MOST]] for _ in range(DRAWS)]
        curves.setdefault("random", []).append(np.mean([curve(classifier, text, label, draw) for draw in draws], axis=0))
    table = {kind: np.stack(rows) for kind, rows in curves.items() if len(rows) == len(texts)}
    return {
        **summary(table, rng),
        "seconds": round(time.perf_counter() - started, 1),
        "attended": len(curves.get("attention", [])),
    }


def summary(table: dict[str, NDArray[np.float64]], rng: np.random.Generator) -> dict[str, Any]:
    """Means of the curves; the difference after five words with a 95% interval by bootstrap, and how often it is positive."""
    apart = table["contributions"][:, -1] - table["random"][:, -1]
    again = np.mean(apart[rng.integers(0, len(apart), (2000, len(apart)))], axis=1)
    return {
        "curves": {kind: np.round(rows.mean(axis=0), 4).tolist() for kind, rows in table.items()},
        "difference": round(float(apart.mean()), 4),
        "interval": [round(float(value), 4) for value in np.quantile(again, [0.025, 0.975])],
        "larger_in": round(float((apart > 0).mean()), 4),
    }


def trained(name: str, data: Path) -> tuple[Classifier, dict[str, Any]]:
    """A model, trained on some documents of ``reuters``."""
    count, options = MODELS[name]
    train, valid = read(data, "reuters", "train"), read(data, "reuters", "valid")
    if count:
        train, valid = train.subset(np.arange(min(count, len(train)))), valid.subset(np.arange(min(200, len(valid))))
    started = time.perf_counter()
    classifier = Classifier(name, {**options, "seed": 0}).fit(train, valid)
    about = {"model": name, "train_documents": len(train), "options": options}
    return classifier, {**about, "train_seconds": round(time.perf_counter() - started, 1)}


def deletion_rows(names: list[str], data: Path, documents: int) -> dict[str, Any]:
    """One row per model."""
    rows = {}
    test = read(data, "reuters", "test")
    texts = [text for text in test.texts if len(text.split()) >= 4 * MOST][:documents]
    for name in names:
        classifier, about = trained(name, data)
        asked = test.subset(np.arange(min(_JUDGED, len(test)))) if about["train_documents"] <= _FEW else test
        quality = classifier.evaluate(asked)["micro_f1"]
        about |= {"test_documents": len(asked), "test_micro_f1": round(quality, 4), "documents": len(texts)}
        rows[name] = {**about, **deletion(classifier, texts)}
        print(name, json.dumps(rows[name]), flush=True)
    return rows


def planted_corpus(count: int, seed: int) -> Corpus:
    """Texts of any length; the label ``both`` applies if and only if both planted words occur."""
    rng, texts, labels = np.random.default_rng(seed), list[str](), list[list[str]]()
    for number in range(count):
        present = [(True, True), (True, False), (False, True), (False, False), (True, True)][number % 5]
        words = [
            *rng.choice(FILLER, int(rng.integers(3, 10))),
            *(word for word, here in zip(PLANTED, present, strict=True) if here),
        ]
        texts.append(" ".join(map(str, rng.permutation(words))))
        labels.append(["any", *["both"] * all(present), *["neither"] * (not any(present))])
    return Corpus.of(texts, labels)


def planted(names: list[str]) -> dict[str, Any]:
    """The share of documents with the label in which both words come first, by contributions and by attention."""
    train, valid, test = planted_corpus(300, 1), planted_corpus(50, 2), planted_corpus(40, 3)
    rows = {}
    for name in names:
        classifier = Classifier(name, {**PLANTED_OPTIONS[name], "seed": 0}).fit(train, valid)
        first: dict[str, list[bool]] = {"contributions": [], "attention": []}
        for text in (text for text in test.texts if all(word in text.split() for word in PLANTED)):
            reasons = classifier.explain(text, "both").labels[0]
            for kind, words in (("contributions", reasons.words), ("attention", reasons.attention)):
                best = sorted(words or (), key=lambda word: -word.contribution)[:2]
                first[kind] += [{word.text for word in best} == set(PLANTED)] if words else []
        shares = {kind: {"documents": len(found), "both_first": sum(found)} for kind, found in first.items()}
        rows[name] = {"micro_f1": round(classifier.evaluate(test)["micro_f1"], 4), **shares}
        print(name, json.dumps(rows[name]), flush=True)
    return rows


def timed(classifier: Classifier, text: str, exact: bool, rounds: int) -> dict[str, Any]:
    """Seconds to explain all decided labels, on the clock and of the processor; the first round is not counted.

    On a shared machine the clock also counts what others do. With two threads on two idle cores, the clock shows at least half of
    the processor's seconds.
    """
    found, times = classifier.explain(text, exact=exact), list[tuple[float, float]]()
    for _ in range(rounds):
        started, used = time.perf_counter(), time.process_time()
        classifier.explain(text, exact=exact)
        times.append((time.perf_counter() - started, time.process_time() - used))
    about = {"method": found.method, "labels": len(found.labels), "all_labels": len(classifier.labels)}
    clock, processor = zip(*times, strict=True)
    seconds = {"seconds": median(clock), "fastest": min(clock), "processor_seconds": median(processor)}
    return {**about, "words": len(text.split()), **{key: round(value, 4) for key, value in seconds.items()}}


def speed(data: Path, rounds: int) -> dict[str, Any]:
    """Times of a fine-tuned packaged encoder and of linear separators, for one text of 200 words."""
    train, valid = read(data, "debtags", "train"), read(data, "debtags", "valid")
    text = " ".join(" ".join(train.texts[:40]).split()[:200])
    linear = Classifier("br", {"c": [1.0], "ngrams": [2]}).fit(train, valid)
    few = train.subset(np.arange(200))
    network = Classifier("bert", {"epochs": 1, "max_steps": 5, "max_length": 256}).fit(few, valid.subset(np.arange(50)))
    network.decision.rule, network.decision.k = "top_k", 4  # as many labels as a document of this corpus has
    return {
        "br": timed(linear, text, False, 5 * rounds),
        "bert, phrases first": timed(network, text, False, rounds),
        "bert, every word": timed(network, text, True, rounds),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("deletion", "planted", "speed"))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLYTAG_DATA", "../shared/data")))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/explain.json"))
    told = parser.parse_args()
    known: dict[str, Any] = json.loads(told.out.read_text(encoding="utf-8")) if told.out.exists() else {}
    if told.part == "speed":
        rows = speed(told.data, told.rounds)
    elif told.part == "planted":
        rows = planted(list(PLANTED_OPTIONS))
    else:
        rows = {**known.get("deletion", {}).get("rows", {}), **deletion_rows(told.models.split(","), told.data, told.documents)}
    known[told.part] = {"command": f"python benchmarks/explain.py {told.part}", "machine": machine(), "rows": rows}
    told.out.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
