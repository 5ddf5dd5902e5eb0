"""The model xttention: the network against numpy, the paper's sizes, and a corpus that it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from polytag.classifier import Classifier
from polytag.config.groups.training_settings import TrainingSettings
from polytag.models.xttention import Xttention
from polytag.nn.encoding.encoders import BiLSTM, WordEncoder, build_encoder
from polytag.nn.training.optimiser import make_optimiser
from polytag.xmc.match import AttentionMatch
from test_xbert import FAST, planted, precision

SMALL: dict[str, Any] = {**FAST, "heads": 4, "attention_size": 16, "dense": 64}


def network(heads: int = 3, *, norm: bool = False) -> AttentionMatch:
    torch.manual_seed(1)
    return AttentionMatch(WordEncoder(12, 5), 4, heads=heads, attention=6, dense=7, dropout=0.5, norm=norm).eval()


@pytest.mark.parametrize("norm", [False, True])
def test_the_network_is_its_equations(norm: bool) -> None:
    """A = softmax(W_s2 tanh(W_s1 H)), v = vec(H A^T), a hidden layer with ReLU, and a linear output; padding has no say."""
    one = network(norm=norm)
    weights = {name: value.detach().numpy().astype(np.float64) for name, value in one.named_parameters()}
    ids = torch.tensor([[2, 3, 4, 5], [6, 7, 0, 0]])
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    expected = []
    for words in ([2, 3, 4, 5], [6, 7]):
        states = weights["encoder.table.weight"][words].T  # H (hidden, T)
        fit = weights["second.weight"] @ np.tanh(weights["first.weight"] @ states)  # (r, T)
        attention = np.exp(fit) / np.exp(fit).sum(axis=1, keepdims=True)
        views = (states @ attention.T).T.reshape(-1)  # heads one after the other
        hidden = weights["dense.weight"] @ views + weights["dense.bias"]
        if norm:
            hidden = (hidden - hidden.mean()) / np.sqrt(hidden.var() + 1e-5)
        expected.append(weights["output.weight"] @ np.maximum(0, hidden) + weights["output.bias"])
    assert one(ids, mask).detach().numpy() == pytest.approx(np.array(expected), abs=1e-5)
    shares = one.attend(one.encoder(ids, mask), mask)
    assert shares.shape == (2, 3, 4) and torch.allclose(shares.sum(dim=2), torch.ones(2, 3))
    assert (shares[1, :, 2:] == 0).all()


def test_heads_look_at_different_words() -> None:
    one = network(heads=2)
    ids, mask = torch.tensor([[2, 3, 4, 5]]), torch.ones(1, 4, dtype=torch.bool)
    first, second = one.attend(one.encoder(ids, mask), mask)[0]
    assert not torch.allclose(first, second)


def test_the_sizes_are_those_of_the_paper() -> None:
    model = Xttention()
    sizes = {"embedding": 8, "hidden": model.words.hidden, "layers": model.words.layers}
    made = model._match_network(build_encoder({"kind": "bilstm", "vocabulary": 10, "dropout": 0.0, **sizes}), 9)
    assert isinstance(made, AttentionMatch) and isinstance(made.encoder, BiLSTM)
    assert made.encoder.hidden == 2 * 512 and made.first.out_features == 350 and made.second.out_features == 30
    assert made.dense.in_features == 30 * 1024 and made.dense.out_features == 2000 and made.output.in_features == 2000


def test_units_over_tens_of_thousands_of_inputs_stay_alive() -> None:
    torch.manual_seed(0)
    one = AttentionMatch(WordEncoder(200, 1024), 50, heads=30, attention=8, dense=100, dropout=0.0, norm=False)
    optimiser = make_optimiser(one, TrainingSettings(encoder_rate=1e-3, head_rate=1e-3), torch.device("cpu"))
    ids = torch.randint(2, 200, (256, 10))
    mask, truth = torch.ones_like(ids, dtype=torch.bool), torch.zeros(256, 50)
    truth[torch.arange(256), ids[:, 0] % 50] = 1
    for start in range(0, 40 * 32, 32):
        rows = torch.arange(start, start + 32) % 256
        optimiser.zero_grad()
        functional.binary_cross_entropy_with_logits(one(ids[rows], mask[rows]), truth[rows]).backward()
        optimiser.step()
    assert float((one.document(ids, mask) > 0).any(dim=0).float().mean()) > 0.9


@pytest.mark.parametrize(("scaled", "share"), [(True, 256 / (30 * 1024)), (False, 1.0)])
def test_the_hidden_layer_has_the_papers_learning_rate_if_it_is_not_scaled(scaled: bool, share: float) -> None:
    model = Xttention.build({"scaled_rate": scaled})
    sizes = {"embedding": 8, "hidden": model.words.hidden, "layers": model.words.layers}
    made = model._match_network(build_encoder({"kind": "bilstm", "vocabulary": 10, "dropout": 0.0, **sizes}), 9)
    assert isinstance(made, AttentionMatch)
    optimiser = make_optimiser(made, TrainingSettings(head_rate=1e-3), torch.device("cpu"))
    rates = {id(weight): group["lr"] for group in optimiser.param_groups for weight in group["params"]}
    assert rates[id(made.dense.weight)] == pytest.approx(1e-3 * share)


def test_learns_planted_topics() -> None:
    train, test = planted(600, 0), planted(150, 1)
    classifier = Classifier("xttention", {**SMALL, "encoder": "bilstm", "hidden": 24, "epochs": 10}).fit(train)
    assert isinstance(classifier.model, Xttention)
    assert precision(classifier.model, test) > 0.85
