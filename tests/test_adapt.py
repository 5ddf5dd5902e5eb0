"""Continued pre-training: what is hidden, the losses against numpy, a loss that falls, a folder that models load, resuming."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from polytag.classifier import Classifier  # noqa: E402
from polytag.config.groups.encoder_settings import WordSettings  # noqa: E402
from polytag.errors import ConfigError, DataError  # noqa: E402
from polytag.nn.encoding.encoders import WordEncoder, build_encoder  # noqa: E402
from polytag.nn.encoding.pretrained import describe_encoder, load_pretrained  # noqa: E402
from polytag.nn.training.batch import TokenArrays  # noqa: E402
from polytag.nn.unlabelled.objectives import (  # noqa: E402
    Hiding,
    MaskedNetwork,
    in_pieces,
    masked_loss,
    pair_loss,
    random_part,
    words_loss,
)
from polytag.transfer.adaptation import Adaptation, adapt  # noqa: E402
from toys import shaken, tiny_bert, toy_corpus  # noqa: E402

MASK, FIRST, LAST = 1, 2, 3
PHRASES = ("the cat sat on a mat", "many boats sail to oslo", "tea with milk and juice", "some dogs run after horses")
TEXTS = [" ".join(PHRASES[(number * step) % 4] for step in (1, 2, 3)) for number in range(240)]  # a word tells its neighbours


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"), texts=TEXTS, vocabulary=150)


def hidden_batch(share: float = 0.15) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    lengths = torch.randint(3, 60, (400,))
    place = torch.arange(60)
    ids = torch.randint(4, 50, (400, 60))
    ids[:, 0] = FIRST
    ids = torch.where(place == lengths[:, None] - 1, LAST, ids)
    mask = place < lengths[:, None]
    return ids.masked_fill(~mask, 0), mask, Hiding(MASK, (FIRST, LAST, 0), 50, share).hide(ids.masked_fill(~mask, 0), mask)


def test_a_share_of_the_tokens_is_chosen_and_most_of_them_are_hidden() -> None:
    ids, mask, hidden = hidden_batch()
    content = (mask.sum(dim=1) - 2).numpy()
    assert (hidden.counted.sum(dim=1).numpy() == np.ceil(np.float32(0.15) * content.astype(np.float32))).all()
    changed = hidden.ids != ids
    chosen = torch.zeros_like(mask).scatter(1, hidden.places, hidden.counted)
    assert not (changed & ~chosen).any() and not (chosen & ~mask).any()  # nothing else changes, and padding is never chosen
    assert not (chosen & ((ids == FIRST) | (ids == LAST))).any()
    shown = hidden.ids[chosen]
    kept = float((hidden.ids[chosen] == ids[chosen]).float().mean())
    assert abs(float((shown == MASK).float().mean()) - 0.8) < 0.03 and abs(kept - 0.1) < 0.03
    assert (hidden.tokens[hidden.counted] == ids.gather(1, hidden.places)[hidden.counted]).all()


def test_the_loss_is_the_cross_entropy_of_the_chosen_tokens() -> None:
    torch.manual_seed(1)
    network = shaken(MaskedNetwork(WordEncoder(50, 8), np.ones(50, dtype=np.int64))).double()
    ids, mask, _ = hidden_batch()
    hiding = Hiding(MASK, (FIRST, LAST, 0), 50)
    torch.manual_seed(2)
    found = float(masked_loss(network, ids, mask, hiding).detach())
    torch.manual_seed(2)
    hidden = hiding.hide(ids, mask)
    states = network.encoder(hidden.ids, mask).detach()
    each = []
    for row in range(len(ids)):
        for place, token, counted in zip(hidden.places[row], hidden.tokens[row], hidden.counted[row], strict=True):
            if counted:
                logits = network.logits(states[row, place]).detach().numpy()
                each.append(math.log(np.exp(logits).sum()) - logits[int(token)])
    assert math.isclose(found, float(np.mean(each)), rel_tol=1e-5)


def test_pairs_are_nearer_to_themselves_than_to_others() -> None:
    """Without dropout both vectors are the same; the loss is that of the similarities of all texts."""
    torch.manual_seed(3)
    network = shaken(MaskedNetwork(WordEncoder(50, 8), np.ones(50, dtype=np.int64)))
    ids, mask, _ = hidden_batch()
    ids, mask = ids[:12], mask[:12]
    states = (network.encoder(ids, mask) * mask[..., None]).sum(dim=1).detach().double().numpy()
    unit = states / np.linalg.norm(states, axis=1, keepdims=True)
    similar = unit @ unit.T / 0.05
    expected = np.mean([math.log(np.exp(row - row.max()).sum()) + row.max() - row[at] for at, row in enumerate(similar)])
    assert math.isclose(float(pair_loss(network, ((ids, mask), (ids, mask))).detach()), expected, rel_tol=1e-4)


def test_words_are_those_of_the_whole_text_by_their_rarity() -> None:
    """Against numpy: the vectors are of a part, the words of all of the text; a word counts once, special tokens do not."""
    torch.manual_seed(3)
    counts = np.arange(50) * 10
    counts[:4] = 0
    network = shaken(MaskedNetwork(WordEncoder(50, 8), counts))
    ids, mask, _ = hidden_batch()
    ids, mask = ids[:12], mask[:12]
    torch.manual_seed(4)
    found = float(words_loss(network, ids, mask).detach())
    torch.manual_seed(4)
    shown, kept = random_part(ids, mask)
    states, each = network.encoder(shown, kept).detach(), []
    share = (counts + 0.5) / (counts.sum() + 25)
    for row in range(12):
        words = sorted({int(token) for token in ids[row][mask[row]] if token > 3})
        weight = -np.log(share[words]) / -np.log(share[words]).sum()
        for vector in (states[row][kept[row]].mean(dim=0), states[row, 0]):
            logits = network.logits(vector).detach().double().numpy()
            each.append(-(weight * (logits[words] - math.log(np.exp(logits).sum()))).sum())
    assert math.isclose(found, float(np.mean(each)), rel_tol=1e-4)


def test_long_texts_are_cut_into_pieces_without_losing_a_token() -> None:
    arrays = TokenArrays(np.arange(47, dtype=np.int32), np.array([0, 5, 5, 30, 47], dtype=np.int64))
    found = in_pieces(arrays, 10, least=6)
    pieces = [found.ids[a:b].tolist() for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True)]
    expected = [[*range(5)], [], [*range(5, 15)], [*range(15, 25)], [*range(30, 40)], [*range(40, 47)]]
    assert pieces == expected  # 25 to 29 is shorter than six tokens


def test_a_part_of_a_text_starts_at_the_front_and_tells_nothing_of_another_part() -> None:
    """Contiguous tokens behind the first one. Its size and place are independent of those of a second part."""
    torch.manual_seed(0)
    lengths = 1 + torch.arange(4_000) % 41
    mask = torch.arange(41) < lengths[:, None]
    ids = torch.arange(41).repeat(4_000, 1) + 100
    (found, kept), (again, _) = random_part(ids, mask), random_part(ids, mask)
    assert bool((found[:, 0] == 100).all()) and bool(kept[:, 0].all()), "the first token stays"
    sizes, starts = kept.sum(dim=1) - 1, found[:, 1] - 101
    for row in range(200):
        part = found[row, 1 : 1 + int(sizes[row])]
        assert part.tolist() == list(range(101 + int(starts[row]), 101 + int(starts[row]) + len(part)))
        assert bool((part < 100 + lengths[row]).all()), "padding is in no part"
    long = lengths == 41
    assert 8 <= int(sizes[long].min()) < int(sizes[long].max()) <= 24
    other = again[long, 1] - 101
    assert abs(float(torch.corrcoef(torch.stack([starts[long], other]).double())[0, 1])) < 0.3


@pytest.mark.parametrize("objective", ["masked", "words", "both", "pairs", "parts"])
def test_the_loss_falls_and_models_take_the_folder(encoder: Path, tmp_path: Path, objective: str) -> None:
    settings = Adaptation(objective, epochs=6, batch_size=16, rate=2e-3, max_length=32, device="cpu", precision="fp32")
    found = adapt(TEXTS, str(encoder), tmp_path / "adapted", settings)
    least = 0.1 if objective == "parts" else 0.2  # parts of a short text share few words
    assert found.after < found.before - least and found.steps == 6 * math.ceil(228 / 16)
    corpus = toy_corpus(60)
    options = {"encoder": str(tmp_path / "adapted"), "epochs": 1, "device": "cpu", "precision": "fp32"}
    assert len(Classifier("bert", options).fit(corpus).predict(corpus.texts[:2])) == 2
    one, other = (_weights(str(folder)) for folder in (encoder, tmp_path / "adapted"))
    assert one.keys() == other.keys() and any(not torch.equal(one[name], other[name]) for name in one)


def _weights(folder: str) -> dict[str, Any]:
    tokens, description = describe_encoder(folder, (), WordSettings(), None)
    network = build_encoder(description)
    load_pretrained(network, folder, tokens)
    return dict(network.state_dict())


def test_an_interrupted_adaptation_ends_with_the_same_weights(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Adaptation(epochs=2, batch_size=32, rate=1e-3, max_length=32, device="cpu", precision="fp32")
    whole = adapt(TEXTS, str(encoder), tmp_path / "whole", settings)
    from polytag.nn.training import loop

    original, count = loop._Training._one, 0

    def stopped(self: Any, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 9:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(loop._Training, "_one", stopped)
    with pytest.raises(KeyboardInterrupt):
        adapt(TEXTS, str(encoder), tmp_path / "parts", settings)
    again = adapt(TEXTS, str(encoder), tmp_path / "parts", settings, resume=True)
    assert again == whole and count > 9
    one, other = _weights(str(tmp_path / "whole")), _weights(str(tmp_path / "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not list((tmp_path / "parts").glob(".encoder-*"))


def test_what_cannot_be_adapted_is_refused(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not pretrained"):
        adapt(TEXTS, "words", tmp_path / "no", Adaptation())
    with pytest.raises(DataError, match="too few"):
        adapt(TEXTS[:3], str(encoder), tmp_path / "no", Adaptation())
    bad = {"objective": "next"}, {"share": 1.0}, {"device": "tpu"}, {"objective": "pairs", "batch_size": 1}
    for wrong in (*bad, {"batch_size": 1}, {"objective": "parts", "share": 0.3}):
        with pytest.raises(ConfigError, match="--"):
            Adaptation(**wrong)  # type: ignore[arg-type]


def test_the_objective_is_that_of_the_pre_training(encoder: Path, tmp_path: Path) -> None:
    """An encoder that was saved with the layer for hidden tokens goes on with them; one without it had another training."""
    other = tmp_path / "masked"
    shutil.copytree(encoder, other)
    config = json.loads((other / "config.json").read_text())
    assert not config["architectures"][0].endswith("ForMaskedLM")
    (other / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}))
    settings = Adaptation(max_length=32, device="cpu", precision="fp32")
    found = [adapt(TEXTS[:40], str(one), tmp_path / f"{one.name}-out", settings).objective for one in (encoder, other)]
    assert found == ["parts", "masked"]
    adapted = [tmp_path / f"{one.name}-out" for one in (encoder, other)]
    again = [adapt(TEXTS[:40], str(one), tmp_path / f"{one.name}-again", settings) for one in adapted]
    assert [one.objective for one in again] == ["parts", "masked"]  # as the adaptation before, whose layer is not kept
    named = dataclasses.replace(settings, objective="words")
    assert adapt(TEXTS[:40], str(other), tmp_path / "named", named).objective == "words"
    with pytest.raises(ConfigError, match="hides no tokens"):
        adapt(TEXTS, str(encoder), tmp_path / "no", dataclasses.replace(settings, share=0.3))


def test_the_verb_writes_an_encoder(polytag: Any, encoder: Path, tmp_path: Path) -> None:
    toy_corpus(60).write(tmp_path / "texts.jsonl")
    told = polytag("adapt", tmp_path / "texts.jsonl", "--encoder", encoder, "--device", "cpu", "--out", tmp_path / "new")
    assert told.code == 0 and "before" in told.err and (tmp_path / "new" / "model.safetensors").exists()
    wrong = polytag("adapt", tmp_path / "texts.jsonl", "--encoder", "bilstm", "--out", tmp_path / "no")
    assert wrong.code == 2 and wrong.err.count("\n") == 1
