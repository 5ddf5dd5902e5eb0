"""No training step asks the host anything, or it could not be captured as a CUDA graph: shown without a GPU.

Every operation of gathering a batch, forward, loss and backward is looked at. What would have to wait for the device, because
its result or its shape is a value that only the device knows, is refused; so are numbers that come from Python lists, which
would be copied over from the host once and stay what they were at every replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from polytag.config.settings import declared
from polytag.models.base.match_model import MatchModel
from polytag.models.base.neural_model import NeuralModel
from polytag.models.model import MODELS, Model, model_class
from polytag.nn.training.batch import Documents, tokenise
from polytag.nn.training.devices import autocast
from toys import tiny_bert, toy_corpus

ASKING = {
    "_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "_unique", "_unique2", "unique_dim",
    "unique_consecutive", "bincount", "repeat_interleave", "lift_fresh", "lift_fresh_copy", "_assert_async",
}  # fmt: skip


class Refusing(TorchDispatchMode):
    """Raises at operations that would ask the host; those of whose result nothing but the shape is new are let through."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        masks = isinstance(args[1], list | tuple) and any(_is_mask(at) for at in args[1]) if name.startswith("index") else False
        if name in ASKING or masks:
            raise AssertionError(f"{name} asks the host")
        return func(*args, **(kwargs or {}))


def _is_mask(at: Any) -> bool:
    return isinstance(at, torch.Tensor) and at.dtype in (torch.bool, torch.uint8)


def neural_models() -> list[str]:
    return [name for name in MODELS if issubclass(model_class(name), NeuralModel | MatchModel)]


JOINT = [
    {"auxiliary": "plcp"}, {"auxiliary": "clcp"}, {"auxiliary": "both", "shared": True}, {"joint": False}, {"cross": False},
    {"label_text": "new"}, {"label_text": "description"}, {"pooled": True}, {"block": 4}, {"loss": "focal"},
    {"positive_weight": 0.5},
]  # fmt: skip
TOLD = [(name, {}) for name in neural_models()] + [("laco", told) for told in JOINT] + [("seqtag", {"block": 4})]
TOLD += [("sgm", {"first_state": "layers"}), ("sgm", {"global_embedding": "none"})]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def network_of(model: Model) -> NeuralModel:
    """The model itself, or the one that finds its clusters."""
    found = model._new_matcher() if isinstance(model, MatchModel) else model
    assert isinstance(found, NeuralModel)
    return found


def one_step(model: NeuralModel, dtype: torch.dtype | None = None) -> dict[str, bool]:
    """Gathering, forward, loss and backward under watch; which parameters were reached."""
    corpus = toy_corpus(12)
    model.labels = corpus.labels  # of a network that finds clusters: every label a cluster
    taught = model._taught(corpus)
    model._begin(list(corpus.texts), taught)
    assert model.network is not None and model.tokens is not None
    device = torch.device("cpu")
    data = Documents(tokenise(model.tokens, list(corpus.texts)), model._layout(), device, taught.truth)
    rows = np.arange(8)
    length, windows = data.shape(rows)
    model.network.train()
    on_device = torch.from_numpy(rows)
    with Refusing():
        with autocast(device, dtype):
            loss = model._loss(model.network, data.batch(on_device, length, windows))
        loss.backward()
    assert bool(torch.isfinite(loss))
    return {name: weight.grad is not None for name, weight in model.network.named_parameters()}


@pytest.mark.parametrize(("name", "told"), TOLD, ids=lambda value: str(value))
def test_a_training_step_asks_the_host_nothing(name: str, told: dict[str, Any], folder: Path) -> None:
    pretrained = {"encoder": str(folder)} if declared(model_class(name))["encoder"].default == "minilm" else {}
    model = model_class(name).build({**told, **pretrained, "device": "cpu", "precision": "fp32"})
    reached = one_step(network_of(model))
    assert any(reached.values())


@pytest.mark.parametrize(("name", "told"), [row for row in TOLD if row[0] in ("laco", "seqtag")], ids=lambda value: str(value))
def test_nor_does_one_in_half_precision(name: str, told: dict[str, Any], folder: Path) -> None:
    """As on a GPU: products of matrices in bfloat16, and no two types that do not go together."""
    model = model_class(name).build({**told, "device": "cpu", "encoder": str(folder)})
    assert any(one_step(network_of(model), torch.bfloat16).values())


@pytest.mark.parametrize(
    "asking",
    [
        lambda x: x[x > 0].sum(),
        lambda x: x * float(x.detach().max()),
        lambda x: x * torch.tensor([1.0, 2.0, 3.0]),
        lambda x: x.index_put((x > 0,), torch.zeros(())),
    ],
)
def test_what_asks_the_host_is_noticed(asking: Any) -> None:
    """The watch is no stub: the usual mistakes are refused."""
    x = torch.randn(3, requires_grad=True)
    with Refusing(), pytest.raises(AssertionError, match="asks the host"):
        asking(x)
