"""The cost of encoding the labels with the text: documents per second in training, laco against bert, in one run on one GPU.

    python benchmarks/joint_cost.py --data DIR --encoder FOLDER --out benchmarks/results/joint_cost.json

The same documents of aapd, labels by name, the same limit of 320 tokens, batch 32, bf16, fused AdamW, steps captured as CUDA
graphs, the optimiser step included. Models take turns. The first epochs of a turn warm up, captures included; documents per
second count from there on. The table has the best turn of each model; the JSON has all turns.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from polytag.corpus import Corpus
from polytag.models.base.neural_model import NeuralModel
from polytag.models.model import model_class
from polytag.nn.training.batch import Examples, tokenise
from polytag.nn.training.loop import train
from polytag.run import Run

WARM = 2  # epochs: a shape is captured when it is seen for the second time
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {"pooling": "cls"}),
    "laco": ("laco", {}),
    "laco+plcp": ("laco", {"auxiliary": "plcp"}),
    "laco+clcp": ("laco", {"auxiliary": "clcp"}),
    "seqtag": ("seqtag", {}),
}


def speed(corpus: Corpus, name: str, told: argparse.Namespace) -> dict[str, float]:
    """Train one model and count documents per second after the first epochs."""
    kind, options = MODELS[name]
    sizes = {"encoder": told.encoder, "batch_size": told.batch_size, "epochs": WARM + told.epochs}
    model = model_class(kind).build({**options, **sizes, "log_every": 10_000, "device": told.device, "seed": 1})
    assert isinstance(model, NeuralModel)
    model.labels = corpus.labels
    model._begin(list(corpus.texts), corpus)
    assert model.tokens is not None and model.network is not None
    examples = Examples(tokenise(model.tokens, list(corpus.texts)), corpus.truth, model._layout())
    start, at, last = 0.0, 0, 0
    for step in train(model.network, examples, model._loss, model.setup(), Run()):
        if step.epoch >= WARM and not start:
            _wait(told.device)
            start, at = time.perf_counter(), step.number
        last = step.number
    _wait(told.device)
    seconds = time.perf_counter() - start
    lengths = examples.layout.lengths(examples.tokens.lengths)
    part = getattr(model.network, "labels", None)
    return {
        "documents_per_second": (last - at) * told.batch_size / seconds,
        "step_ms": 1e3 * seconds / (last - at),
        "tokens_per_document": float(lengths.mean()) + (0 if part is None else part.ids.shape[1]),
    }


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Take turns and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--models", default="bert,laco", help=", ".join(MODELS))
    parser.add_argument("--documents", type=int, default=6_400)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3, help="epochs that count")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    folder = told.data / "aapd"
    corpus = Corpus.read(folder / "train.jsonl.xz", labels=folder / "labels.jsonl").subset(range(told.documents))
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in told.models.split(",")}
    for _ in range(told.turns):
        for name, rows in turns.items():
            rows.append(speed(corpus, name, told))
            print(name, rows[-1], flush=True)
    best = {name: max(row["documents_per_second"] for row in rows) for name, rows in turns.items()}
    settings = f"--models {told.models} --turns {told.turns}"
    found = {
        "command": f"python benchmarks/joint_cost.py --data DIR --encoder FOLDER {settings} --out FILE",
        "gpu": torch.cuda.get_device_name() if told.device == "cuda" else "", "torch": torch.__version__,
        "documents": told.documents, "batch_size": told.batch_size, "documents_per_second": best,
        "times_slower_than_bert": {name: best["bert"] / value for name, value in best.items() if "bert" in best}, "turns": turns,
    }  # fmt: skip
    told.out.parent.mkdir(parents=True, exist_ok=True)
    told.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps({key: value for key, value in found.items() if key != "turns"}, indent=2))


if __name__ == "__main__":
    main()
