"""Optimal completion distillation: targets against brute force over all completions, the loss by hand, roll-outs, training."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from polytag.classifier import Classifier  # noqa: E402
from polytag.errors import ConfigError  # noqa: E402
from polytag.nn.decoding.label_sequences import IGNORE, inputs_for  # noqa: E402
from polytag.nn.decoding.lstm_decoder import Decoder, LstmDecoder, LstmSettings  # noqa: E402
from polytag.nn.decoding.optimal_completion import completion_loss, completion_targets, rolled_out  # noqa: E402
from quick import OPTIONS  # noqa: E402
from toys import toy_corpus  # noqa: E402

LABELS = 4


def best_next(prefix: tuple[int, ...], truth: set[int]) -> set[int]:
    """All tokens with which a completion of the prefix may begin that ends with the fewest wrong and missing labels.

    Of completions that end with the same set, the shortest counts; a label that is there already makes a sequence longer.
    """
    costs: dict[int, tuple[int, int]] = {}
    for length in range(LABELS + 1):
        for more in itertools.permutations(range(LABELS), length):
            first = more[0] if more else LABELS
            cost = len(({*prefix} | {*more}) ^ truth), length
            costs[first] = min(costs.get(first, (99, 99)), cost)
    least = min(costs.values())
    return {token for token, cost in costs.items() if cost == least}


def test_the_targets_are_the_optimal_next_labels_of_every_prefix() -> None:
    for truth in itertools.chain.from_iterable(itertools.combinations(range(LABELS), size) for size in range(LABELS + 1)):
        targets = torch.zeros(1, LABELS)
        targets[0, list(truth)] = 1
        for drawn in itertools.permutations(range(LABELS), 3):
            sequence = torch.tensor([[*drawn, LABELS, IGNORE]])
            found = completion_targets(sequence, targets)[0]
            for step in range(4):
                optimal = best_next(drawn[:step], set(truth))
                expected = np.array([1 / len(optimal) if token in optimal else 0 for token in range(LABELS + 1)])
                assert np.allclose(found[step].numpy(), expected)
            assert not found[4].any()


def test_the_loss_is_the_cross_entropy_of_the_targets() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 5)
    sequence = torch.tensor([[2, 0, 4], [4, IGNORE, IGNORE]])
    logits[0, 1:, 2] = float("-inf")  # generated already
    targets = torch.tensor([[1.0, 1, 0, 0], [0, 0, 0, 1]])
    log_p = torch.log_softmax(logits, dim=2)
    by_hand = -(log_p[0, 0, :2].mean() + log_p[0, 1, :2].mean() + log_p[0, 2, 1] + log_p[1, 0, 3]) / 2
    assert torch.isclose(completion_loss(logits, sequence, targets), by_hand)
    smooth = completion_loss(logits, sequence, targets, 0.2)
    spread = -(log_p[0, 0].mean() + log_p[0, 1, [0, 1, 3, 4]].mean() + log_p[0, 2, [0, 1, 3, 4]].mean() + log_p[1, 0].mean()) / 2
    assert torch.isclose(smooth, 0.8 * by_hand + 0.2 * spread)


class Fixed(Decoder):
    """A decoder that always says the same."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__(len(logits) - 1)
        self.fixed = torch.tensor(logits)

    def _start(self, states: Any, mask: Any, last: Any = None) -> tuple[Any, tuple[Any, ...]]:
        return None, ()

    def _step(self, previous: Any, seen: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        return self.fixed.expand(*previous.shape, -1), ()


def test_sequences_are_drawn_from_the_decoders_distribution() -> None:
    torch.manual_seed(0)
    decoder = Fixed([1.0, 0.0, -1.0, 0.5])
    found = rolled_out(decoder, torch.zeros(20_000, 1, 1), torch.ones(20_000, 1, dtype=torch.bool), None, 4)
    shares = torch.bincount(found[:, 0], minlength=4) / len(found)
    assert torch.allclose(shares, torch.softmax(decoder.fixed, 0), atol=0.015)
    ended = (found == 3).any(dim=1)
    assert ended.all()  # after three labels only <eos> is left
    after = (found == 3).cumsum(dim=1) - (found == 3).long() > 0
    assert (found[after] == IGNORE).all() and (found[~after] >= 0).all()
    labels = torch.where(found < 3, found, -1)
    assert all(len({*row} - {-1}) == sum(label >= 0 for label in row) for row in labels[:200].tolist())  # none twice


def test_gradients_reach_the_decoder_through_its_own_sequences() -> None:
    torch.manual_seed(0)
    decoder = LstmDecoder(8, LABELS, LstmSettings(size=8, embedding=6, attention_size=5, first_state="mean"))
    states, mask = torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)
    sequence = rolled_out(decoder, states, mask, None, LABELS + 1)
    assert not sequence.requires_grad
    logits = decoder.teacher(states, mask, inputs_for(sequence, LABELS))
    completion_loss(logits, sequence, torch.eye(3, LABELS)).backward()
    assert all(torch.isfinite(weight.grad).all() for weight in decoder.parameters() if weight.grad is not None)
    assert decoder.output.weight.grad is not None and decoder.output.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("model", ["sgm", "seq2seq"])
def test_models_learn_sets_without_an_order(model: str) -> None:
    train, test = toy_corpus(160), toy_corpus(60, seed=1)
    options = {**OPTIONS[model], "targets": "completion", "epochs": 15}
    clf = Classifier(model, options).fit(train, toy_corpus(40, seed=2))
    assert clf.evaluate(test)["micro_f1"] > 0.85
    with pytest.raises(ConfigError, match="'order' has no effect"):
        Classifier(model, {**options, "order": "random"})
