"""Prediction with a fine-tuned encoder on one GPU, beside the pipeline of transformers and a compiled encoder.

    python benchmarks/gpu_prediction.py --data DIR --encoder FOLDER --out benchmarks/results/gpu_prediction.json

All sides have the same texts, at most 320 tokens, batches of 256, and bf16. Tokenisation counts. The pipeline has its own order
of texts; the compiled encoder, as a user of sentence-transformers would run it, sorts them by length, and takes the mean of the
states and a linear layer. The weights are those of the encoder, and the head is random: speed does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from polytag.corpus import Corpus
from polytag.models.bert import Bert

LENGTH, BATCH = 320, 256


def polytag_side(corpus: Corpus, encoder: str) -> Callable[[Sequence[str]], Any]:
    """Our model's scores of all labels."""
    model = Bert.build({"encoder": encoder, "max_length": LENGTH, "device": "cuda", "seed": 1})
    model.labels = corpus.labels
    model._begin(list(corpus.texts[:100]), corpus)
    assert model.network is not None
    model.network.eval()
    return lambda texts: model.score(list(texts))


def pipeline_side(corpus: Corpus, encoder: str) -> Callable[[Sequence[str]], Any]:
    """The text classification pipeline."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    tokeniser = AutoTokenizer.from_pretrained(encoder)
    network = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=len(corpus.labels), dtype=torch.bfloat16)
    made = pipeline("text-classification", model=network, tokenizer=tokeniser, device=0, top_k=None, function_to_apply="sigmoid")
    return lambda texts: made(list(texts), batch_size=BATCH, truncation=True, max_length=LENGTH)


def compiled_side(corpus: Corpus, encoder: str) -> Callable[[Sequence[str]], Any]:
    """A compiled encoder, mean pooling and a linear layer."""
    from transformers import AutoModel, AutoTokenizer

    tokeniser = AutoTokenizer.from_pretrained(encoder)
    network = AutoModel.from_pretrained(encoder, dtype=torch.bfloat16).cuda().eval()
    network.compile(dynamic=True)
    head = torch.nn.Linear(network.config.hidden_size, len(corpus.labels), device="cuda", dtype=torch.bfloat16)

    @torch.inference_mode()
    def predict(texts: Sequence[str]) -> list[Any]:
        order = sorted(range(len(texts)), key=lambda at: -len(texts[at]))
        found: list[Any] = [None] * len(texts)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            given = tokeniser(
                [texts[at] for at in rows], padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"
            ).to("cuda")
            states = network(**given).last_hidden_state
            mask = given["attention_mask"][..., None]
            scores = torch.sigmoid(head((states * mask).sum(1) / mask.sum(1))).float().cpu().numpy()
            for at, row in zip(rows, scores, strict=True):
                found[at] = row
        return found

    return predict


def main() -> None:
    """Measure all sides in turn, three times each, after one call that warms up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--documents", type=int, default=6_400)
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    folder = told.data / "aapd-even"
    corpus = Corpus.read(folder / "train.jsonl.xz", labels=folder / "labels.jsonl").subset(range(told.documents))
    sides = {"polytag": polytag_side, "pipeline": pipeline_side, "compiled encoder": compiled_side}
    ready = {name: side(corpus, told.encoder) for name, side in sides.items()}
    for predict in ready.values():
        predict(corpus.texts)
    times: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(3):
        for name, predict in ready.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            predict(corpus.texts)
            torch.cuda.synchronize()
            times[name].append(time.perf_counter() - start)
    rows = {name: {"documents_per_second": told.documents / sorted(each)[1], "seconds": each} for name, each in times.items()}
    found = {"documents": told.documents, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    told.out.parent.mkdir(parents=True, exist_ok=True)
    told.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
