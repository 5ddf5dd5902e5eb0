"""How far LACO's attention differs from word to word, before and after some training steps, for several forms of it.

    python benchmarks/attention_spread.py --data DIR --out benchmarks/results/attention_spread.json [--steps 60] [--seeds 0,1]

A probe on a sample of the training and validation documents of one corpus, small enough for a CPU. ``variation`` is the standard
deviation of the word weights of a text divided by their mean. ``distance`` is that of the document vector from the plain mean of
the word states, relative to the mean's norm; a sum is first divided by the sum of its weights. Both are means over documents.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from polytag import Classifier, Corpus, LabelSet
from polytag.decision.decision import Decision
from polytag.metrics.of_sets import evaluate
from polytag.models.laco import Laco, LacoNetwork
from polytag.nn.training.batch import Documents, tokenise
from polytag.run import Run

FORMS: dict[str, dict[str, Any]] = {
    "words, dot, mean (the default)": {},
    "words, cosine, mean": {"similarity": "cosine"},
    "grid, cosine, units (the authors')": {"filter": "grid", "similarity": "cosine", "aggregate": "units", "channels": 54},
}
KEPT = ("micro_f1", "macro_f1", "subset_accuracy", "micro_precision", "micro_recall")


@torch.inference_mode()
def spread(model: Laco, texts: list[str]) -> dict[str, float]:
    """Variation of the weights, and distance of the document vector from the plain mean."""
    network = model.network
    assert isinstance(network, LacoNetwork) and network.cross is not None and model.tokens is not None
    network.eval()
    data = Documents(tokenise(model.tokens, texts), model._layout(), torch.device("cpu"))
    batch = data.batch(torch.arange(len(texts)), model._layout().max_length)
    joint = network.encode(batch.ids, batch.mask)
    inside = joint.mask.float()
    count = inside.sum(dim=1).clamp(min=1)
    weights = torch.tanh(network.cross.fit(joint.words, joint.mask, joint.labels).amax(dim=1)) * inside  # (batch, length)
    mean = weights.sum(dim=1) / count
    deviation = (((weights - mean[:, None]) ** 2 * inside).sum(dim=1) / count).sqrt()
    states = functional.normalize(joint.words, dim=2) if network.cross.aggregate == "units" else joint.words
    document = (weights[..., None] * states).sum(dim=1) / weights.sum(dim=1, keepdim=True).clamp(min=1e-6)
    plain = (inside[..., None] * states).sum(dim=1) / count[:, None]
    apart = (document - plain).norm(dim=1) / plain.norm(dim=1)
    found = {"weight": mean.mean(), "variation": (deviation / mean.clamp(min=1e-6)).mean(), "distance": apart.mean()}
    return {name: float(value) for name, value in found.items()}


def probe(form: str, seed: int, parts: list[Corpus], told: argparse.Namespace) -> dict[str, Any]:
    """Train for some steps; measure before and after."""
    train, valid = parts
    options = {
        "max_length": told.max_length,
        "max_steps": told.steps,
        "batch_size": 16,
        "label_text": "new",
        "encoder_rate": 2e-4,
    }
    options |= {"device": "cpu", "precision": "fp32", "warmup": 0.1, "seed": seed, "epochs": 100, **FORMS[form]}
    begun = Laco.build(options)
    begun.labels = train.labels
    begun._begin(train.texts, train)
    row: dict[str, Any] = {"form": form, "seed": seed, "before": spread(begun, valid.texts[:100])}
    classifier = Classifier("laco", options)
    start = time.perf_counter()
    classifier.fit(train, valid, Run())
    assert isinstance(classifier.model, Laco)
    row |= {"seconds": round(time.perf_counter() - start), "after": spread(classifier.model, valid.texts[:100])}
    scores = classifier.scores(valid.texts)
    half = Decision("threshold", thresholds=np.full(1, 0.5, dtype=np.float32))
    for name, decision in (("as Polytag decides", classifier.decision), ("at 0.5", half)):
        found = evaluate(valid.truth, decision.decide(scores, classifier.labels), scores)
        row[f"valid {name}"] = {key: round(found[key], 4) for key in KEPT}
    return row


def main() -> None:
    """Probe every form with every seed, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="aapd-even")
    parser.add_argument("--documents", type=int, default=1200)
    parser.add_argument("--valid", type=int, default=400)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--max-length", type=int, default=48)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    folder = told.data / told.corpus
    labels = LabelSet.read(folder / "labels.jsonl")
    rng = np.random.default_rng(0)
    parts = []
    for name, most in (("train", told.documents), ("valid", told.valid)):
        corpus = Corpus.read(folder / f"{name}.jsonl.xz", labels=labels)
        parts.append(corpus.subset(rng.permutation(len(corpus))[:most]))
    about = {key: getattr(told, key) for key in ("corpus", "documents", "valid", "steps", "max_length")}
    rows: list[dict[str, Any]] = []
    for seed in map(int, told.seeds.split(",")):
        for form in FORMS:
            rows.append(probe(form, seed, parts, told))
            told.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(rows[-1]), flush=True)


if __name__ == "__main__":
    main()
