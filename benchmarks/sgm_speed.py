"""Training speed of SGM on one GPU, and the time of the parts of a step, with bert for comparison.

    python benchmarks/sgm_speed.py --data FOLDER --name after --out FILE [--variant streams] [--parts] [--check]
    python benchmarks/sgm_speed.py --data FOLDER --model bert --encoder FOLDER --name bert --out FILE

FOLDER contains train.jsonl.xz, valid.jsonl.xz and labels.jsonl. FILE collects one row per name. Another source tree of the same
layout is measured by ``PYTHONPATH=before/src python benchmarks/sgm_speed.py --name before ...``.

The first epochs, in which the steps are captured, do not count. ``--parts`` captures the parts of a step (encoder, loss, their
backward passes, the whole) as separate graphs. The times of their replays are GPU times without the host. ``--check`` compares
the loss and the gradients of one batch with those on a CPU. A ``--variant`` undoes or changes one optimisation.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_time import kernels, milliseconds
from lstm_speed import on_streams
from polytag.corpus import Corpus
from polytag.models.base.neural_model import NeuralModel
from polytag.models.model import model_class
from polytag.nn.training import devices
from polytag.nn.training.batch import Batch, Documents, Examples, batches, tokenise
from polytag.nn.training.devices import autocast, pick_device, pick_precision
from polytag.nn.training.loop import train
from polytag.nn.training.optimiser import make_optimiser
from polytag.nn.training.processes import Processes
from polytag.nn.training.step import EagerStep, Rows
from polytag.run import Run

LENGTH = 32  # padded lengths of captured steps are multiples of this


# -- the model, its documents and one batch --------------------------------------------------------------------------------


def begun(told: argparse.Namespace, corpus: Corpus, **options: Any) -> tuple[NeuralModel, Examples]:
    """A model with its initial weights, and its training data."""
    settings = {"seed": 1, "log_every": 10_000, "device": told.device, "epochs": told.epochs, **told.options, **options}
    model = model_class(told.model).build({**settings, "encoder": told.encoder} if told.encoder else settings)
    assert isinstance(model, NeuralModel)
    model.labels = corpus.labels
    taught = model._taught(corpus)
    model._begin(list(corpus.texts), taught)
    assert model.tokens is not None
    examples = Examples(tokenise(model.tokens, list(corpus.texts)), taught.truth, model._layout())
    counted = getattr(model, "label_multiple", 0)  # older source trees do not have it
    return model, examples._replace(label_multiple=counted) if counted else examples


def one_batch(model: NeuralModel, examples: Examples, device: torch.device, size: int) -> tuple[Documents, Rows]:
    """A batch of the shape that is most frequent in an epoch."""
    more: list[Any] = [examples.label_multiple] if getattr(examples, "label_multiple", 0) else []
    data = Documents(examples.tokens, examples.layout, device, examples.truth, LENGTH, *more)
    plan = [rows for rows in batches(data.lengths, size, np.random.default_rng(0)) if len(rows) == size]
    shapes = [(*data.shape(rows), *([data.most_labels(rows)] if more else [])) for rows in plan]
    shape = Counter(shapes).most_common(1)[0][0]
    rows = torch.from_numpy(plan[shapes.index(shape)]).to(device)
    return data, Rows(rows, shape[0], shape[1], 1.0, *shape[2:])


def gathered(data: Documents, part: Rows) -> Batch:
    """The batch itself."""
    return data.batch(part.rows, part.length, part.windows, *part[4:])


def quick(model: NeuralModel, device: torch.device) -> AbstractContextManager[None]:
    """The precision of float32 products in a training step; older source trees do not change it."""
    found: Callable[..., AbstractContextManager[None]] | None = getattr(devices, "quick_products", None)
    return nullcontext() if found is None else found(device, pick_precision(model.compute.precision, device))


# -- documents per second --------------------------------------------------------------------------------------------------


def speed(told: argparse.Namespace, corpus: Corpus, valid: Corpus) -> dict[str, Any]:
    """Documents per second of training after the first epochs, and the duration of an evaluation."""
    model, examples = begun(told, corpus)
    assert model.network is not None and model.tokens is not None
    begin, start, at, last = time.perf_counter(), 0.0, 0, 0
    losses: dict[int, list[Tensor]] = {}
    for step in train(model.network, examples, model._loss, model.setup(), Run()):
        if step.epoch >= told.warm and not start:
            _wait(told.device)
            start, at = time.perf_counter(), step.number
        last = step.number
        losses.setdefault(step.epoch, []).append(step.loss)
    _wait(told.device)
    end = time.perf_counter()
    held = tokenise(model.tokens, list(valid.texts))
    took = []
    for _ in range(2):
        before = time.perf_counter()
        value = model._value(model._held_out(held, valid), 0)
        took.append(time.perf_counter() - before)
    return {
        "documents_per_second": (last - at) * model.training.batch_size / (end - start),
        "step_ms": 1e3 * (end - start) / max(1, last - at),
        "seconds_to_warm_up": start - begin,
        "evaluation_seconds": took,
        "evaluated_documents": len(valid),
        "value": value,
        "losses": {epoch: float(torch.stack(each).float().mean()) for epoch, each in losses.items()},
    }


# -- parts of a step -------------------------------------------------------------------------------------------------------


def parts(told: argparse.Namespace, corpus: Corpus) -> dict[str, Any]:
    """Milliseconds of the parts of one step, and its longest kernels."""
    model, examples = begun(told, corpus)
    device, network = pick_device(told.device), model.network
    assert network is not None
    network.to(device).train()
    data, part = one_batch(model, examples, device, model.training.batch_size)
    dtype = pick_precision(model.compute.precision, device)
    settings = model.setup().training
    optimiser = make_optimiser(network, settings, device)
    step = EagerStep(network, model._loss, data, optimiser, Processes(told.device), clip=settings.clip, dtype=dtype)
    batch = gathered(data, part)

    def encode() -> Tensor:
        with autocast(device, dtype):
            found = network.get_submodule("encoder")(batch.ids, batch.mask)
        return found.float().square().mean()  # type: ignore[no-any-return]

    def loss() -> Tensor:
        with autocast(device, dtype):
            return model._loss(network, batch)

    def backward(forward: Callable[[], Tensor]) -> None:
        optimiser.zero_grad(set_to_none=True)
        forward().backward()  # type: ignore[no-untyped-call]

    with quick(model, device):
        found = {
            "gathering": milliseconds(lambda: gathered(data, part), device),
            "encoder forward": milliseconds(encode, device),
            "encoder forward, backward": milliseconds(lambda: backward(encode), device),
            "forward": milliseconds(loss, device),
            "forward, backward": milliseconds(lambda: backward(loss), device),
        }
    found["whole step"] = milliseconds(lambda: step([part]), device)
    found["decoder forward"] = found["forward"] - found["encoder forward"]
    found["decoder backward"] = found["forward, backward"] - found["encoder forward, backward"] - found["decoder forward"]
    found["encoder backward"] = found["encoder forward, backward"] - found["encoder forward"]
    found["clipping, optimiser"] = found["whole step"] - found["forward, backward"] - found["gathering"]
    shape = {"documents": len(part.rows), "length": part.length, "most_labels": part[4] if len(part) > 4 else None}
    optimiser.zero_grad(set_to_none=True)
    return {"shape": shape, "ms": found, **kernels(lambda: step([part]), device)}


# -- correctness -----------------------------------------------------------------------------------------------------------


def check(told: argparse.Namespace, corpus: Corpus) -> dict[str, Any]:
    """Loss and gradients of one batch without dropout: the relative difference from float32 on a CPU."""
    model, examples = begun(told, corpus, dropout=0.0, encoder_dropout=0.0)
    network = model.network
    assert network is not None
    network.train()
    found: dict[str, Any] = {}
    expected: dict[str, Tensor] = {}
    for name, device, precision in (("cpu", "cpu", "fp32"), ("fp32", told.device, "fp32"), ("auto", told.device, "auto")):
        place = pick_device(device)
        model.compute.precision = precision
        network.to(place)
        if isinstance(ranks := getattr(model, "ranks", None), Tensor):
            model.ranks = ranks.to(place)  # type: ignore[attr-defined]
        data, part = one_batch(model, examples, place, 16)
        network.zero_grad(set_to_none=True)
        with quick(model, place):
            with autocast(place, pick_precision(precision, place)):
                loss = model._loss(network, gathered(data, part))
            loss.backward()  # type: ignore[no-untyped-call]
        here = {key: p.grad.detach().cpu().double() for key, p in network.named_parameters() if p.grad is not None}
        expected = expected or here
        found[name] = {"loss": float(loss.detach())} | {
            side: _distance({k: v for k, v in here.items() if k.startswith(side)}, expected) for side in ("encoder", "decoder")
        }
    return found


def _distance(here: dict[str, Tensor], there: dict[str, Tensor]) -> float:
    """The norm of the difference, relative to the norm of the expected gradients."""
    off = sum(float((here[key] - there[key]).square().sum()) for key in here)
    return float((off / max(1e-30, sum(float(there[key].square().sum()) for key in here))) ** 0.5)


# -- variants --------------------------------------------------------------------------------------------------------------


def vary(name: str) -> None:
    """Change the computation; ``apart`` and ``streams`` run the directions of the BiLSTM in two calls."""
    from polytag.models.base.sequence_model import SequenceModel
    from polytag.nn.decoding import lstm_decoder
    from polytag.nn.encoding import bilstm_layer
    from polytag.nn.training import step

    def encode(self: Any, there: Tensor, back: Tensor, right: list[Tensor], left: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        def one() -> tuple[Tensor, Tensor]:
            return bilstm_layer._lstm(there, right, self.training)

        def other() -> tuple[Tensor, Tensor]:
            return bilstm_layer._lstm(back, left, self.training)

        (first, first_cell), (second, second_cell) = on_streams(one, other, back) if name == "streams" else (one(), other())
        return first, second, torch.cat([first_cell, second_cell], dim=1)

    if name in ("apart", "streams"):
        bilstm_layer.BothWays._encode = encode  # type: ignore[method-assign]
    elif name == "all-steps":
        SequenceModel.label_multiple = 0
    elif name == "exact-steps":
        SequenceModel.label_multiple = 1
    elif name == "fp32-products":
        step.quick_products = devices.quick_products = _unchanged  # type: ignore[attr-defined]
    elif name == "autograd":
        lstm_decoder.Repeated = _Plain  # type: ignore[attr-defined, assignment]
        lstm_decoder.energy = lambda q, k, v: torch.tanh(q[:, :, None] + k[:, None]) @ v  # type: ignore[attr-defined, assignment]
    else:
        raise SystemExit(f"there is no variant {name!r}")


@contextmanager
def _unchanged(device: torch.device, dtype: torch.dtype | None) -> Iterator[None]:
    yield


@dataclasses.dataclass
class _Plain:
    """A product; autograd computes the gradient of its weight at every step."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        found = x @ (self.weight.T if self.weight.ndim == 2 else self.weight)
        return found if self.bias is None else found + self.bias


# -- the command -----------------------------------------------------------------------------------------------------------


def encoder_folder(source: str, place: Path) -> str:
    """A folder with an encoder; missing weights are drawn at random, which does not affect the speed."""
    from transformers import AutoConfig, AutoModel

    if not source or not Path(source).is_dir() or (Path(source) / "model.safetensors").exists():
        return source
    for file in Path(source).iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    AutoModel.from_config(AutoConfig.from_pretrained(source)).save_pretrained(place)
    return str(place)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def show(name: str, row: dict[str, Any]) -> None:
    """Print the row."""
    if "speed" in row:
        found = row["speed"]
        print(
            f"{name}: {found['documents_per_second']:,.0f} documents/s, {found['step_ms']:.2f} ms a step, evaluation of ", end=""
        )
        print(
            f"{found['evaluated_documents']} documents {found['evaluation_seconds'][-1]:.2f} s, value {found['value']:.4f}",
            end="",
        )
        print(", losses", " ".join(f"{loss:.3f}" for loss in found["losses"].values()))
    if "parts" in row:
        shape = row["parts"]["shape"]
        print(f"{name}: parts of a step, {shape}, {row['parts'].get('kernels')} kernels, {row['parts'].get('kernels_ms')} ms")
        for part, value in row["parts"]["ms"].items():
            print(f"  {part:28} {value:8.3f} ms")
        for kernel in row["parts"].get("longest", []):
            print(f"    {kernel['ms']:8.3f} ms {kernel['count']:5} x {kernel['name']}")
    if "check" in row:
        print(f"{name}: check {json.dumps(row['check'])}")


def main() -> None:
    """Measure one row, print it and add it to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.jsonl.xz, valid.jsonl.xz and labels.jsonl")
    parser.add_argument("--model", default="sgm")
    parser.add_argument("--options", type=json.loads, default={}, help="settings of the model, as JSON")
    parser.add_argument("--encoder", default="", help="for bert: a folder; missing weights are drawn at random")
    parser.add_argument("--name", required=True, help="name of the row")
    parser.add_argument(
        "--variant", action="append", default=[], help="apart, streams, all-steps, exact-steps, fp32-products, autograd"
    )
    parser.add_argument("--documents", type=int, default=12_800)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--warm", type=int, default=4, help="first epochs, which do not count")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    for name in told.variant:
        vary(name)
    labels = next(told.data.glob("labels.jsonl*"))
    corpus = Corpus.read(told.data / "train.jsonl.xz", labels=labels)
    corpus = corpus.subset(range(min(told.documents, len(corpus))))
    row: dict[str, Any] = {"model": told.model, "options": told.options, "variants": told.variant, "torch": torch.__version__}
    if torch.cuda.is_available():
        row |= {"gpu": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as place:
        told.encoder = encoder_folder(told.encoder, Path(place))
        if told.check:
            row["check"] = check(told, corpus)
        if told.parts:
            row["parts"] = parts(told, corpus)
        if not told.no_speed:
            row["speed"] = speed(told, corpus, Corpus.read(told.data / "valid.jsonl.xz", labels=labels))
    rows = json.loads(told.out.read_text()) if told.out.exists() else {}
    told.out.parent.mkdir(parents=True, exist_ok=True)
    told.out.write_text(json.dumps({**rows, told.name: row}, indent=1) + "\n")
    show(told.name, row)


if __name__ == "__main__":
    main()
