"""Fine-tuning speed on one GPU: Polytag's loop against the Hugging Face Trainer, with the same batch sizes.

    python benchmarks/training_speed.py --data DIR --encoder FOLDER --out benchmarks/results/training_speed.json

Same encoder, same documents of aapd-even, at most 320 tokens, bf16, fused AdamW, the optimiser step included. All epochs but the
last warm up; documents per second are those of the last one. ``base`` is an encoder of the shape of BERT-base with random weights
and the tokeniser of FOLDER. ``outputs`` replaces the labels by that many random ones, as the matcher of xbert has them.
Another source tree is measured by ``PYTHONPATH=before/src python benchmarks/training_speed.py --only polytag --name before ...``.
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
from scipy.sparse import csr_array

from polytag.corpus import Corpus
from polytag.labels import LabelSet
from polytag.models.bert import Bert
from polytag.nn.training.batch import Examples, tokenise
from polytag.nn.training.loop import train
from polytag.run import Run

PEAK = {"NVIDIA H200": 989e12, "NVIDIA H100": 989e12, "NVIDIA A100": 312e12}  # dense bf16, by the vendor's datasheets


def flops_per_document(network: Any, lengths: Any) -> float:
    """Multiply-adds of forward and backward, padding not counted: 6 per weight and token, and attention's products."""
    weights = sum(p.numel() for n, p in network.named_parameters() if p.ndim == 2 and "embeddings" not in n)
    config = network.encoder.model.config
    attention = 12 * config.num_hidden_layers * config.hidden_size
    return float(np.mean(6 * weights * lengths + attention * lengths**2))


def ours(corpus: Corpus, encoder: str, batch_size: int, epochs: int, **more: Any) -> dict[str, Any]:
    """Our loop on the corpus."""
    settings = {"encoder": encoder, "batch_size": batch_size, "epochs": epochs, "max_length": 320, **more}
    model = Bert.build({**settings, "log_every": 10_000, "device": "cuda", "seed": 1})
    model.labels = corpus.labels
    start = time.perf_counter()
    model._begin(list(corpus.texts), corpus)
    assert model.tokens is not None and model.network is not None
    examples = Examples(tokenise(model.tokens, corpus.texts), corpus.truth, model._layout())
    torch.cuda.reset_peak_memory_stats()
    losses, began, at, seen, warm = [], 0.0, 0, 0, 0.0
    for step in train(model.network, examples, model._loss, model.setup(), Run()):
        losses.append(step.loss)
        if step.epoch >= epochs - 1 and not began:
            torch.cuda.synchronize()
            began, at, warm = time.perf_counter(), step.number, time.perf_counter() - start
        seen = step.number
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    speed = (seen - at) * batch_size / seconds
    work = flops_per_document(model.network, examples.layout.lengths(examples.tokens.lengths))
    peak = PEAK.get(torch.cuda.get_device_name(), float("nan"))
    curve = torch.stack(losses).float().cpu().numpy()
    return {
        "documents_per_second": speed, "step_ms": 1e3 * seconds / (seen - at), "share_of_peak": speed * work / peak,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30, "seconds_to_warm_up": warm,
        "loss": [float(curve[: len(curve) // epochs].mean()), float(curve[-len(curve) // epochs :].mean())],
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
    torch.cuda.reset_peak_memory_stats()

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
    seconds = times[-1] - times[-2]
    return {"documents_per_second": len(corpus) / seconds, "peak_gib": torch.cuda.max_memory_allocated() / 2**30}


def base_encoder(tokeniser: str, folder: Path) -> str:
    """An encoder of the shape of BERT-base, with random weights."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    BertModel(BertConfig()).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokeniser).save_pretrained(folder)
    return str(folder)


def many_outputs(corpus: Corpus, outputs: int) -> Corpus:
    """The documents with random labels, three each."""
    rng = np.random.default_rng(0)
    truth = csr_array(
        (np.ones(3 * len(corpus), np.float32), rng.integers(0, outputs, 3 * len(corpus)), np.arange(0, 3 * len(corpus) + 1, 3)),
        shape=(len(corpus), outputs),
    )
    truth.sum_duplicates()
    return Corpus(list(corpus.ids), list(corpus.texts), LabelSet([f"c{number}" for number in range(outputs)]), truth)


def main() -> None:
    """Measure what is asked for, and add it to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--only", default="polytag,trainer")
    parser.add_argument("--shapes", default="minilm,base,outputs")
    parser.add_argument("--sizes", default="32,256")
    parser.add_argument("--outputs", type=int, default=17_712)
    parser.add_argument("--settings", type=json.loads, default={"compile": "on"}, help="more settings of ours, as JSON")
    parser.add_argument("--name", default="polytag", help="name of our rows")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    folder = told.data / "aapd-even"
    corpus = Corpus.read(folder / "train.jsonl.xz", labels=folder / "labels.jsonl")
    found = json.loads(told.out.read_text()) if told.out.exists() else {"rows": {}}
    with tempfile.TemporaryDirectory() as place:
        for shape in told.shapes.split(","):
            encoder = base_encoder(told.encoder, Path(place) / "base") if shape == "base" else told.encoder
            for size in map(int, told.sizes.split(",")):
                part = corpus.subset(range(3_200 if size < 100 else 6_400))
                part = many_outputs(part, told.outputs) if shape == "outputs" else part
                for side in told.only.split(","):
                    if side == "trainer" and shape == "outputs":
                        continue
                    name = f"{shape} {size} {told.name if side == 'polytag' else side}"
                    row = ours(part, encoder, size, told.epochs, **told.settings) if side == "polytag" else None
                    found["rows"][name] = row or trainer(part, encoder, size, 2, True, 4)
                    print(name, found["rows"][name], flush=True)
                    write(told.out, found)


def write(path: Path, found: dict[str, Any]) -> None:
    """Write what was measured so far, with the speed-ups over the Trainer at the same batch size."""
    rows = found["rows"]
    speed = {name: row["documents_per_second"] for name, row in rows.items()}
    found["times_the_trainer"] = {
        name: speed[name] / speed[anchor]
        for name in rows
        if (anchor := " ".join([*name.split()[:2], "trainer"])) in rows and not name.endswith("trainer")
    }
    found |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
