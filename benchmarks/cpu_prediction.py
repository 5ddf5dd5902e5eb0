"""Prediction on a CPU: Polytag in torch, in ONNX Runtime and in 8 bits, against the Hugging Face text-classification pipeline.

    python benchmarks/cpu_prediction.py [--data DIR] [--documents N] [--run RUN] [--out FILE]

All of them read the same documents of reuters' test part with the same encoder, at most 320 tokens of each, from texts to labels.
The pipeline has the batch size that is fastest on a part of the documents in this very run; where the processor multiplies in
bf16, it is measured with bf16 weights too. Rounds alternate between the methods, and the median counts. Without --run the network
is trained for a few steps only, for speed does not depend on quality. Rows are kept by processor and by ONEDNN_MAX_CPU_ISA, which
hides instructions from torch (AVX2: neither VNNI nor bf16); ONNX Runtime cannot be told, so its rows are left out then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from peers.report import machine
from polytag import Classifier, Corpus, LabelSet
from polytag.metrics.of_sets import micro_f1
from polytag.models.base.neural_model import NeuralModel
from polytag.nn.encoding.pretrained import minilm_folder
from polytag.nn.export import onnx_export
from polytag.nn.training.devices import multiplies_in_bf16
from polytag.storage.artefact import artefact_folder

LENGTH, BATCH_SIZES, TRIED = 320, (1, 8, 32), 48
METHODS = ("torch float32", "torch", "onnx float32", "onnx int8", "onnx int8, all bits")
HIDDEN = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
Predict = Callable[[list[str]], Any]


def trained(folder: Path, out: Path, steps: int) -> Path:
    """A bert classifier on the packaged encoder, trained for a few steps on short pieces of the documents."""
    labels = LabelSet.read(folder / "labels.jsonl")
    train, valid = (Corpus.read(folder / f"{name}.jsonl.xz", labels=labels) for name in ("train", "valid"))
    options = {
        "max_steps": steps,
        "max_length": 64,
        "device": "cpu",
        "pooling": "cls",
        "encoder_rate": 3e-4,
        "head_rate": 1e-2,
        "epochs": 1,
    }
    classifier = Classifier("bert", options).fit(train.subset(range(32 * steps)), valid.subset(range(200)))
    classifier.model.max_length = LENGTH  # type: ignore[attr-defined]
    classifier.save(out)
    return out


def prepared(run: Path, method: str, own: Path) -> Classifier:
    """The classifier of a run with its network in torch or exported; in torch, ``auto`` chooses the precision unless named."""
    shutil.copytree(run, own)  # an export is read more than once
    classifier = Classifier.load(own)
    model = classifier.model
    assert isinstance(model, NeuralModel)
    if method.startswith("torch"):
        model.exported = None
        model.compute.precision = "fp32" if method.endswith("float32") else "auto"
        return classifier
    onnx_export.SEVEN_BITS = not method.endswith("all bits")
    model.export(artefact_folder(own), int8="int8" in method)
    assert model.use_export(artefact_folder(own))
    return classifier


def pipeline(classifier: Classifier, batch_size: int, dtype: torch.dtype = torch.float32) -> Predict:
    """The Hugging Face pipeline over the same weights; its head has a dense layer more, on one token, which costs nothing."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers import pipeline as make

    model = classifier.model
    assert isinstance(model, NeuralModel) and model.network is not None
    folder, weights = str(minilm_folder()), model.network.state_dict()
    network = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(classifier.labels), problem_type="multi_label_classification", dtype=torch.float32
    )
    own = {name.removeprefix("encoder.model."): tensor for name, tensor in weights.items() if name.startswith("encoder.model.")}
    missing, extra = network.base_model.load_state_dict(own, strict=False)
    assert not extra and all("pooler" in name for name in missing), (missing, extra)
    network.classifier.load_state_dict({name: weights[f"output.{name}"] for name in ("weight", "bias")})
    tokeniser = AutoTokenizer.from_pretrained(folder)
    pipe = make("text-classification", model=network.eval().to(dtype), tokenizer=tokeniser, device="cpu")

    def predict(texts: list[str]) -> Any:
        return pipe(
            texts, top_k=None, function_to_apply="sigmoid", batch_size=batch_size, truncation=True, max_length=LENGTH
        )  # fmt: skip

    return predict


def seconds(predict: Predict, texts: list[str]) -> float:
    """How long it takes to label the texts."""
    start = time.perf_counter()
    predict(texts)
    return time.perf_counter() - start


def measure(run: Path, corpus: Corpus, test: Corpus, rounds: int, place: Path) -> dict[str, Any]:
    """Documents per second of every method on some documents, and how well each agrees with float32 in torch on all."""
    ours = {name: prepared(run, name, place / name) for name in METHODS if name.startswith("torch") or not HIDDEN}
    part = corpus.texts[:: max(1, len(corpus) // TRIED)]
    pipes = {size: pipeline(ours["torch float32"], size) for size in BATCH_SIZES}
    tried = {size: len(part) / seconds(pipe, part) for size, pipe in pipes.items() if pipe(part[:2])}
    best = max(tried, key=lambda size: tried[size])
    methods: dict[str, Predict] = {"pipeline": pipes[best], **{name: clf.predict for name, clf in ours.items()}}
    if multiplies_in_bf16():
        methods["pipeline, bf16 weights"] = pipeline(ours["torch float32"], best, torch.bfloat16)
    times: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, predict in methods.items():
            times[name].append(seconds(predict, corpus.texts))
            print(f"{name}: {len(corpus) / times[name][-1]:.1f} documents/s", flush=True)
    speed = {name: len(corpus) / median(found) for name, found in times.items()}
    return {
        "pipeline_batch_size": best, "pipeline_documents_per_second_by_batch_size": tried, "seconds": times,
        "documents_per_second": speed, "times_the_pipeline": {name: speed[name] / speed["pipeline"] for name in methods},
        "agreement": agreement(ours, test),
    }  # fmt: skip


def agreement(ours: dict[str, Classifier], corpus: Corpus) -> dict[str, Any]:
    """How far exported scores are from torch's, and micro-F1 of every method's label sets."""
    scores = {name: clf.scores(corpus.texts) for name, clf in ours.items()}
    sets = {name: clf.decision.decide(scores[name], clf.labels) for name, clf in ours.items()}
    truth = corpus.with_labels(ours["torch float32"].labels).truth
    return {
        name: {
            "micro_f1_with_torch_as_truth": float(micro_f1(sets["torch float32"], sets[name])),
            "micro_f1": float(micro_f1(truth, sets[name])),
            "largest_difference_of_scores": float(abs(scores[name].matrix - scores["torch float32"].matrix).max()),
        }
        for name in ours
    }


def main() -> None:
    """Run everything once and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLYTAG_DATA", "../shared/data")))
    parser.add_argument("--documents", type=int, default=0, help="evenly spaced documents of the test part; 0 for all")
    parser.add_argument("--run", type=Path, help="a bert run on the packaged encoder, trained on reuters")
    parser.add_argument("--steps", type=int, default=40, help="training steps where no run is given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu_prediction.json"))
    told = parser.parse_args()
    about, folder = machine(), told.data / "reuters"
    test = Corpus.read(folder / "test.jsonl.xz", labels=LabelSet.read(folder / "labels.jsonl"))
    count = min(told.documents or len(test), len(test))
    corpus = test.subset([row * len(test) // count for row in range(count)])
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        run = told.run or trained(folder, place / "run", told.steps)
        found = measure(run, corpus, test, told.rounds, place)
    told_options = (("run", told.run and "RUN"), ("documents", told.documents), ("rounds", told.rounds))
    options = "".join(f" --{key} {value}" for key, value in told_options if value)
    row = {
        "machine": about, "hidden_from_torch": HIDDEN, "bf16": multiplies_in_bf16(), "threads": torch.get_num_threads(),
        "packages": {name: version(name) for name in ("torch", "transformers", "onnxruntime", "tokenizers")},
        "documents": count, "of": len(test), "max_length": LENGTH, "trained_steps": None if told.run else told.steps, **found,
    }  # fmt: skip
    known = json.loads(told.out.read_text(encoding="utf-8"))["rows"] if told.out.exists() else []
    others = [one for one in known if _kind(one) != _kind(row)]
    result = {"command": f"python benchmarks/cpu_prediction.py{options}", "rows": [*others, row]}
    told.out.parent.mkdir(parents=True, exist_ok=True)
    told.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(row, indent=2))


def _kind(row: dict[str, Any]) -> tuple[str, str]:
    return row["machine"]["cpu"], row["hidden_from_torch"]


if __name__ == "__main__":
    main()
