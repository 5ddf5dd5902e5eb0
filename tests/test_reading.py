"""A network arranged for reading gives what the network itself gives, from the same weights, with less work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from polytag.config.groups.encoder_settings import WordSettings
from polytag.models.bert import Bert, BertNetwork
from polytag.nn.encoding.encoders import Transformer
from polytag.nn.encoding.inference import FirstTokenLayer, for_inference
from polytag.nn.encoding.pretrained import describe_encoder
from toys import tiny_bert

IDS = torch.tensor([[2, 7, 8, 9, 3], [2, 5, 3, 0, 0]])
MASK = torch.tensor([[True] * 5, [True, True, True, False, False]])


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tiny_bert(tmp_path_factory.mktemp("bert"))
    _, description = describe_encoder(str(folder), [], WordSettings(10, 4, 4, 1), None)
    model = Bert.build({"pooling": "cls"})
    model.description = description
    torch.manual_seed(1)
    made = model._network(3)
    for parameter in made.parameters():  # the first weights are so small that a layer more or less would hardly be seen
        nn.init.normal_(parameter, std=0.3)
    return made.eval()


@torch.no_grad()
def test_the_outputs_are_the_same_and_the_top_layer_gives_one_state(network: BertNetwork) -> None:
    reader: Any = for_inference(network)
    assert isinstance(reader.encoder.model.encoder.layer[-1], FirstTokenLayer)
    assert reader.encoder(IDS, MASK).shape[1] == 1 and network.encoder(IDS, MASK).shape[1] == IDS.shape[1]
    assert torch.allclose(reader(IDS, MASK), network(IDS, MASK), atol=1e-5)


@torch.no_grad()
def test_the_weights_are_shared_and_the_network_stays_as_it_was(network: BertNetwork) -> None:
    names = list(network.state_dict())
    reader = for_inference(network)
    before = reader(IDS, MASK)
    network.output.weight.mul_(2)
    assert list(network.state_dict()) == names
    assert not torch.allclose(before, reader(IDS, MASK), atol=1e-5)
    assert torch.allclose(reader(IDS, MASK), network(IDS, MASK), atol=1e-5)


def test_a_network_that_reads_all_states_is_left_alone(network: BertNetwork) -> None:
    encoder = network.encoder
    assert isinstance(encoder, Transformer)
    for other in (BertNetwork(encoder, 3, "mean", 0.1), nn.Linear(2, 2)):
        assert for_inference(other) is other


def test_a_layer_of_another_shape_is_left_alone(tmp_path: Path) -> None:
    from transformers import DistilBertConfig

    config = DistilBertConfig(vocab_size=20, dim=8, n_layers=2, n_heads=2, hidden_dim=16, max_position_embeddings=32)
    made = BertNetwork(Transformer(config.to_dict(), None), 3, "cls", 0.1).eval()
    assert for_inference(made) is made
