"""Fine-tuning speed on one GPU: Polytag's loop, eager and captured, against the Hugging Face Trainer.

    python benchmarks/training_speed.py --data DIR --encoder FOLDER --out benchmarks/results/training_speed.json

Same encoder, same 12,800 documents of aapd, batch 32, at most 320 tokens, bf16, fused AdamW, the optimiser step included. Every
loop makes one epoch to warm up; documents per second count from there on.
"""

from __future__ import annotations

import argparse
import inspect
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polytag.corpus import Corpus
from polytag.models.bert import Bert
from polytag.nn.training.batch import tokenise
from polytag.nn.training.loop import Examples, train
from polytag.run import Run

PEAK = {"NVIDIA H200": 989e12, "NVIDIA H100": 989e12, "NVIDIA A100": 312e12}  # dense bf16, by the vendor's datasheets


def flops_per_document(network: Any, lengths: Any) -> float:
    """Multiply-adds of forward and backward, padding not counted: 6 per weight and token, and attention's products."""
    weights = sum(p.numel() for n, p in network.named_parameters() if p.ndim == 2 and "embeddings" not in n)
    config = network.encoder.model.config
    attention = 12 * config.num_hidden_layers * config.hidden_size
    return float(np.mean(6 * weights * lengths + attention * lengths**2))


def ours(corpus: Corpus, encoder: str, batch_size: int, epochs: int, graphs: bool) -> dict[str, Any]:
    """Our loop on the corpus; the first epoch warms up."""
    model = Bert.build(
        {
            "encoder": encoder,
            "batch_size": batch_size,
            "epochs": epochs,
            "graphs": graphs,
            "log_every": 10_000,
            "device": "cuda",
            "seed": 1,
        }
    )
    model.labels = corpus.labels
    model._begin(corpus.texts, corpus)
    assert model.tokens is not None and model.network is not None
    examples = Examples(tokenise(model.tokens, corpus.texts), corpus.truth, model._layout())
    losses, start, seen, at = [], 0.0, 0, 0
    for step in train(model.network, examples, model._loss, model.setup(), Run()):
        losses.append(step.loss)
        if step.epoch >= 1 and not start:
            torch.cuda.synchronize()
            start, at = time.perf_counter(), step.number
        seen = step.number
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    speed = (seen - at) * batch_size / seconds
    work = flops_per_document(model.network, examples.layout.lengths(examples.tokens.lengths))
    peak = PEAK.get(torch.cuda.get_device_name(), float("nan"))
    return {
        "documents_per_second": speed, "step_ms": 1e3 * seconds / (seen - at), "tflops": speed * work / 1e12,
        "share_of_peak": speed * work / peak, "losses": torch.stack(losses).float().cpu().tolist(),
    }  # fmt: skip


def trainer(corpus: Corpus, encoder: str, batch_size: int, epochs: int, grouped: bool, workers: int) -> dict[str, Any]:
    """The Hugging Face Trainer on the same documents, tokenised before the clock starts."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )
    from transformers.trainer_callback import TrainerCallback

    tokenizer = AutoTokenizer.from_pretrained(encoder)
    ids = tokenizer(corpus.texts, truncation=True, max_length=320)["input_ids"]
    targets = corpus.truth.toarray()
    data = [{"input_ids": i, "length": len(i), "labels": targets[r]} for r, i in enumerate(ids)]
    network = AutoModelForSequenceClassification.from_pretrained(
        encoder, num_labels=len(corpus.labels), problem_type="multi_label_classification", dtype=torch.float32
    )
    times: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            torch.cuda.synchronize()
            times.append(time.perf_counter())

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            torch.cuda.synchronize()
            times.append(time.perf_counter())

    known = inspect.signature(TrainingArguments.__init__).parameters
    grouping = {"group_by_length": True} if "group_by_length" in known else {"train_sampling_strategy": "group_by_length"}
    with tempfile.TemporaryDirectory() as folder:
        told = TrainingArguments(
            folder, per_device_train_batch_size=batch_size, num_train_epochs=epochs, bf16=True, optim="adamw_torch_fused",
            dataloader_num_workers=workers, report_to=[], save_strategy="no", logging_steps=10_000, disable_tqdm=True,
            **(grouping if grouped else {}),
        )  # fmt: skip
        Trainer(
            model=network, args=told, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer), callbacks=[Clock()]
        ).train()
    seconds = [b - a for a, b in zip(times[::2], times[1::2], strict=True)][1:]
    return {"documents_per_second": len(corpus) * len(seconds) / sum(seconds)}


def main() -> None:
    """Run everything once and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--documents", type=int, default=12_800)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    folder = told.data / "aapd"
    corpus = Corpus.read(folder / "train.jsonl.xz", labels=folder / "labels.jsonl").subset(range(told.documents))
    rows: dict[str, Any] = {}
    rows["trainer grouped, 4 workers 32"] = trainer(corpus, told.encoder, 32, told.epochs, True, 4)
    for size in (32, 256):
        for graphs in (False, True):
            name = f"polytag {'graphs' if graphs else 'eager'} {size}"
            rows[name] = ours(corpus, told.encoder, size, told.epochs, graphs)
            print(name, {key: value for key, value in rows[name].items() if key != "losses"}, flush=True)
    eager, captured = (np.array(rows[f"polytag {kind} 32"].pop("losses")) for kind in ("eager", "graphs"))
    for row in rows.values():
        row.pop("losses", None)
    last = slice(-200, None)
    found = {
        "command": "python benchmarks/training_speed.py --data DIR --encoder FOLDER --out FILE",
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "documents": told.documents, "rows": rows,
        "loss_eager": [float(eager[:200].mean()), float(eager[last].mean())],
        "loss_graphs": [float(captured[:200].mean()), float(captured[last].mean())],
        "largest_difference_of_smoothed_losses": float(np.abs(_smooth(eager) - _smooth(captured)).max()),
    }  # fmt: skip
    found["times_the_trainer"] = over_the_trainer(rows)
    told.out.parent.mkdir(parents=True, exist_ok=True)
    told.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def over_the_trainer(rows: dict[str, Any]) -> dict[str, float]:
    """The speed-up over the Trainer, of loops with its batch size only: larger batches would speed it up too."""
    trainer = next(name for name in rows if name.startswith("trainer"))
    same = [name for name in rows if name.split()[-1] == trainer.split()[-1]]
    return {name: rows[name]["documents_per_second"] / rows[trainer]["documents_per_second"] for name in same}


def _smooth(values: Any) -> Any:
    return np.convolve(values, np.ones(50) / 50, mode="valid")


if __name__ == "__main__":
    main()
