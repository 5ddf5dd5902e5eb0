"""Encoders: any Hugging Face folder without a network, the packaged one only if it is the file we know, words with vectors."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from polytag.config.groups.encoder_settings import WordSettings
from polytag.config.groups.training_settings import TrainingSettings
from polytag.errors import ArtefactError, ConfigError, DataError
from polytag.nn.encoding import pretrained
from polytag.nn.encoding.bilstm_layer import BothWays
from polytag.nn.encoding.encoders import BiLSTM, Encoder, Transformer, build_encoder, pool
from polytag.nn.encoding.pretrained import describe_encoder, load_pretrained
from polytag.nn.training.optimiser import parameter_groups
from polytag.text.tokens import SubwordTokens, WordTokens
from toys import tiny_bert, toy_corpus

SIZES = WordSettings(vocabulary=100, embedding=6, hidden=5, layers=2)
TEXTS = toy_corpus(30).texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def loaded(folder: Path) -> tuple[SubwordTokens, Transformer]:
    tokens, description = describe_encoder(str(folder), [], SIZES, None)
    encoder = build_encoder(json.loads(json.dumps(description)))  # it must survive being saved
    load_pretrained(encoder, str(folder), tokens)
    assert isinstance(tokens, SubwordTokens) and isinstance(encoder, Transformer)
    return tokens, encoder.eval()


def test_a_folder_gives_the_states_that_hugging_face_gives(folder: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    tokens, encoder = loaded(folder)
    reference, tokeniser = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    inputs = tokeniser(TEXTS[:5], return_tensors="pt", padding=True)
    mask = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = reference(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
        found = encoder(inputs["input_ids"], mask)
    assert torch.allclose(found[mask], expected[mask], atol=1e-5)
    assert encoder.hidden == 32 and encoder.positions == 64 and tokens.pad == tokeniser.pad_token_id
    assert str(folder) not in json.dumps(describe_encoder(str(folder), [], SIZES, None)[1])


def test_a_missing_folder_and_a_broken_one_are_said_in_one_line(tmp_path: Path) -> None:
    for name in ("./nowhere", str(tmp_path)):
        with pytest.raises(ConfigError, match="encoder") as caught:
            describe_encoder(name, [], SIZES, None)
        assert "\n" not in str(caught.value)


def test_the_packaged_encoder_is_refused_when_its_file_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "model.safetensors"
    wrong.write_bytes(b"something else")
    with pytest.raises(ArtefactError, match="checksum"):
        pretrained.check_weights(wrong, pretrained._SHA256)
    monkeypatch.setattr(pretrained, "_SHA256", "0" * 64)
    with pytest.raises(ArtefactError, match="checksum"):
        pretrained.minilm_folder()


def test_the_packaged_encoder_is_found_without_importing_its_package() -> None:
    place = pretrained.minilm_folder()
    assert (place / "config.json").is_file() and (place / "tokenizer.json").is_file()


@pytest.mark.parametrize("name", ["words", "bilstm", "folder"])
def test_states_do_not_depend_on_padding(name: str, folder: Path) -> None:
    texts = TEXTS[:4]
    if name == "folder":
        tokens, encoder = describe_encoder(str(folder), texts, SIZES, None)[0], loaded(folder)[1]
    else:
        tokens, description = describe_encoder(name, texts, SIZES, None)
        encoder = build_encoder(description).eval()  # type: ignore[assignment]
    ids, offsets = tokens.encode(texts)
    longest = int(np.diff(offsets).max()) + 7
    batch = torch.full((len(texts), longest), tokens.pad)
    for row, (first, last) in enumerate(itertools.pairwise(offsets)):
        batch[row, : last - first] = torch.from_numpy(ids[first:last])
    mask = torch.arange(longest) < torch.from_numpy(np.diff(offsets))[:, None]
    with torch.no_grad():
        together = encoder(batch, mask)
        for row, n in enumerate(np.diff(offsets)):
            alone = encoder(batch[row : row + 1, :n], mask[row : row + 1, :n])
            assert torch.allclose(together[row, :n], alone[0], atol=1e-5)


def test_pooling_is_over_the_tokens_alone() -> None:
    states = torch.tensor([[[1.0], [2.0], [9.0]], [[-4.0], [9.0], [9.0]]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert pool(states, mask, "cls").tolist() == [[1], [-4]]
    assert pool(states, mask, "mean").tolist() == [[1.5], [-4]]
    assert pool(states, mask, "max").tolist() == [[2], [-4]]


class Head(torch.nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder, self.output = encoder, torch.nn.Linear(encoder.hidden, 3)


def rates(network: torch.nn.Module, settings: TrainingSettings) -> dict[str, tuple[float, float]]:
    return {
        name: (group["base"], group["weight_decay"]) for group in parameter_groups(network, settings) for name in group["names"]
    }


def test_rates_fall_by_layer_and_biases_are_not_decayed(folder: Path) -> None:
    network = Head(loaded(folder)[1])
    found = rates(network, TrainingSettings(encoder_rate=1.0, head_rate=7.0, layer_decay=0.5, weight_decay=0.1))
    assert found["output.weight"] == (7.0, 0.1) and found["output.bias"] == (7.0, 0.0)
    for name, (rate, decay) in found.items():
        if name.startswith("encoder.model.encoder.layer.1."):
            assert rate == 1.0
        elif name.startswith("encoder.model.encoder.layer.0."):
            assert rate == 0.5
        elif "embeddings" in name:
            assert rate == 0.25
        assert decay == (0.0 if name.endswith("bias") or "LayerNorm" in name else 0.1)
    assert len(found) == len(list(network.named_parameters()))


def test_layers_of_the_bilstm_are_told_apart() -> None:
    depths = BiLSTM(10, 4, 3, 2, 0.0).depths()
    assert depths["words.table.weight"] == 0 and len(depths) == 1 + 2 * 2 * 4
    assert depths["layers.0.right.weight_hh_l0"] == 1 and depths["layers.1.left.bias_ih_l0"] == 2


def same_weight(encoder: BiLSTM, name: str) -> torch.nn.Parameter:
    """What torch's bidirectional LSTM calls ``weight_ih_l0_reverse``, and so on."""
    kind, _, rest = name.partition("_l")
    number, _, side = rest.partition("_")
    layer = encoder.layers[int(number)]
    assert isinstance(layer, BothWays)
    return (layer.left if side else layer.right).get_parameter(f"{kind}_l0")


@pytest.mark.parametrize("layers", [1, 3])
def test_the_bilstm_is_torchs_packed_one(layers: int) -> None:
    """States, and the gradients of every weight, for texts of many lengths, an empty one among them."""
    torch.manual_seed(layers)
    encoder = BiLSTM(50, 6, 5, layers, 0.0)
    lstm = torch.nn.LSTM(6, 5, layers, batch_first=True, bidirectional=True)
    lstm.load_state_dict({name: same_weight(encoder, name).detach() for name, _ in lstm.named_parameters()})
    lengths = torch.tensor([4, 11, 1, 0, 7, 11])
    mask = torch.arange(13) < lengths[:, None]  # two places more than the longest needs
    ids = torch.randint(2, 50, mask.shape) * mask
    packed = pack_padded_sequence(encoder.words(ids, mask), lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=13)
    found = encoder(ids, mask)
    assert torch.allclose(found, expected, atol=1e-5)
    blame = torch.randn_like(found)  # padding is blamed too, and must not pass it on
    names, weights = zip(*lstm.named_parameters(), strict=True)
    table = encoder.token_table().weight
    there = torch.autograd.grad(expected, [table, *weights], blame)
    here = torch.autograd.grad(found, [table, *(same_weight(encoder, name) for name in names)], blame)
    for name, a, b in zip(["table", *names], here, there, strict=True):
        assert torch.allclose(a, b, atol=1e-5), name


@pytest.mark.parametrize("embedding", [6, 128])  # inputs that a persistent kernel takes stay such ones
def test_what_the_layers_end_with_is_what_torchs_packed_ones_end_with(embedding: int) -> None:
    """Hidden and cell states of every layer and direction, with their gradients; padding changes no cell."""
    torch.manual_seed(0)
    encoder = BiLSTM(50, embedding, 5, 2, 0.0)
    lstm = torch.nn.LSTM(embedding, 5, 2, batch_first=True, bidirectional=True)
    lstm.load_state_dict({name: same_weight(encoder, name).detach() for name, _ in lstm.named_parameters()})
    lengths = torch.tensor([4, 11, 1, 7])
    mask = torch.arange(13) < lengths[:, None]
    ids = torch.randint(2, 50, mask.shape) * mask
    packed = pack_padded_sequence(encoder.words(ids, mask), lengths, batch_first=True, enforce_sorted=False)
    _, (hidden, cell) = lstm(packed)  # both (layers * directions, batch, size)
    expected = torch.cat([part[2 * layer + way] for layer in (0, 1) for part in (hidden, cell) for way in (0, 1)], dim=1)
    states, found = encoder.with_last(ids, mask)
    assert found.shape == (4, encoder.last_size) and torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(states, encoder(ids, mask), atol=1e-6)
    blame = torch.randn_like(found)
    names, weights = zip(*lstm.named_parameters(), strict=True)
    table = encoder.token_table().weight
    there = torch.autograd.grad(expected, [table, *weights], blame)
    here = torch.autograd.grad(found, [table, *(same_weight(encoder, name) for name in names)], blame)
    for name, a, b in zip(["table", *names], here, there, strict=True):
        assert torch.allclose(a, b, atol=1e-5), name


@pytest.mark.parametrize("last", [False, True])
def test_both_directions_in_one_call_are_both_directions(last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU computes, on the CPU: one LSTM of twice the size, its states, ends and gradients."""
    torch.manual_seed(1)
    encoder = BiLSTM(50, 6, 5, 2, 0.0)
    mask = torch.arange(9) < torch.tensor([4, 9, 1, 0])[:, None]
    ids = torch.randint(2, 50, mask.shape) * mask
    weights = list(encoder.parameters())

    def encoded() -> tuple[torch.Tensor, ...]:
        found = torch.cat([part.flatten(1) for part in encoder.with_last(ids, mask)], 1) if last else encoder(ids, mask)
        torch.manual_seed(2)
        return found, *torch.autograd.grad(found, weights, torch.randn_like(found))

    apart = encoded()
    monkeypatch.setattr(BothWays, "_encode", BothWays._in_one)
    for a, b in zip(apart, encoded(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("last", [False, True])
def test_the_bilstm_never_asks_the_host(last: bool) -> None:
    """On the device ``meta`` there are no values: whatever asked for one would raise. So a step can be captured."""
    encoder = BiLSTM(50, 6, 5, 2, 0.1).to("meta")
    ids = torch.zeros(3, 7, dtype=torch.long, device="meta")
    mask = torch.ones_like(ids, dtype=torch.bool)
    states, ends = encoder.with_last(ids, mask) if last else (encoder(ids, mask), None)
    (states.sum() + (0 if ends is None else ends.sum())).backward()
    assert encoder.capturable and states.shape == (3, 7, 10) and (ends is None or ends.shape == (3, 40))


@pytest.mark.parametrize(("frozen", "moving"), [(0, {0, 1, 2}), (1, {2}), (2, set()), (-1, set())])
def test_freezing_counts_layers_from_the_embeddings(frozen: int, moving: set[int], folder: Path) -> None:
    encoder = loaded(folder)[1]
    encoder.freeze(frozen)
    assert {depth for name, depth in encoder.depths().items() if encoder.get_parameter(name).requires_grad} == moving


def test_the_dropout_of_an_encoder_can_be_set(folder: Path) -> None:
    _, description = describe_encoder(str(folder), [], SIZES, 0.0)
    encoder = build_encoder(description)
    assert {m.p for m in encoder.modules() if isinstance(m, torch.nn.Dropout)} == {0.0}


@pytest.mark.parametrize("header", ["", "3 6\n"])
def test_pretrained_vectors_replace_the_rows_of_known_words(header: str, tmp_path: Path) -> None:
    tokens = WordTokens.fit(["cat dog", "cat bird"])
    encoder = build_encoder({"kind": "words", "vocabulary": tokens.size, "embedding": 6})
    before = encoder.token_table().weight.detach().clone()
    path = tmp_path / "vectors.txt"
    path.write_text(f"{header}Dog 1 2 3 4 5 6\nzebra 0 0 0 0 0 0\ncat 6 5 4 3 2 1\n")
    assert pretrained.load_vectors(encoder, tokens, str(path)) == 2
    after = encoder.token_table().weight.detach()
    number = {word: 2 + at for at, word in enumerate(tokens.words)}
    assert after[number["cat"]].tolist() == [6, 5, 4, 3, 2, 1] and after[number["dog"]].tolist() == [1, 2, 3, 4, 5, 6]
    assert (after[number["bird"]] == before[number["bird"]]).all()


def test_vectors_of_another_size_are_refused(tmp_path: Path) -> None:
    tokens = WordTokens.fit(["cat dog"])
    encoder = build_encoder({"kind": "words", "vocabulary": tokens.size, "embedding": 6})
    (tmp_path / "v.txt").write_text("cat 1 2\n")
    with pytest.raises(DataError, match="embedding=2"):
        pretrained.load_vectors(encoder, tokens, str(tmp_path / "v.txt"))


def word_tokeniser(words: int) -> Tokenizer:
    """A tokeniser with so many words, each of which is a letter."""
    made = Tokenizer(WordLevel({chr(97 + at): at for at in range(words)}, unk_token="a"))
    made.pre_tokenizer = Whitespace()
    return made


def test_truncation_and_padding_of_a_tokeniser_are_left_out() -> None:
    made = word_tokeniser(3)
    made.enable_truncation(2)
    made.enable_padding(length=4)
    ids, offsets = SubwordTokens(made.to_str()).encode(["a b c b a", "c"])
    assert [ids[start:stop].tolist() for start, stop in itertools.pairwise(offsets)] == [[0, 1, 2, 1, 0], [2]]


@pytest.mark.parametrize("words", [1, 2, 3])
def test_the_token_of_padding_is_one_of_the_tokeniser(words: int) -> None:
    text = word_tokeniser(words).to_str()
    assert SubwordTokens(text, words - 1).pad == words - 1
    for wrong in (words, -1):
        with pytest.raises(ArtefactError, match="pads with a token that it does not have"):
            SubwordTokens(text, wrong)


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The hub's client logs every attempt, to its own handler and to ours."""
    client = logging.getLogger("huggingface_hub.utils._http")
    before = client.getEffectiveLevel()

    def unreachable(*_: object, **__: object) -> None:
        client.warning("Retrying in 1s [Retry 1/5].")
        raise OSError("We couldn't connect\nto the hub")

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", unreachable)
    with pytest.raises(ConfigError, match=r"'owner/nothere' cannot be read \(We couldn't connect\); name a folder"):
        describe_encoder("owner/nothere", [], SIZES, None)
    assert "Retrying" not in caplog.text and client.getEffectiveLevel() == before
