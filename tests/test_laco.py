"""The model ``laco``: its equations in numpy, labels in blocks, the tasks beside it, what is switched off, and learning."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.models.bert import BertNetwork
from polytag.models.laco import Frame, Laco, LacoNetwork, OwnState
from polytag.nn.encoding.encoders import BiLSTM, Encoder, Transformer, WordEncoder
from polytag.nn.labels.cooccurrence import ConditionTask, PairTask
from polytag.nn.labels.cross_attention import LEAST, CrossAttention, GridAttention, SharedHead
from polytag.nn.labels.label_input import LabelPart, label_blocks
from polytag.nn.training.batch import Batch
from polytag.run import Run
from toys import DOCUMENTS, array, padded, shaken, tiny_bert, toy_corpus

LABELS = [[2, 3], [4], [5, 6, 7], [3], [8, 2]]  # the tokens of five labels
BARE = Frame(0, 0)
SMALL: dict[str, Any] = {
    "encoder": "words", "embedding": 32, "batch_size": 8, "epochs": 10, "encoder_rate": 0.02, "head_rate": 0.02, "window": 3,
    "device": "cpu", "precision": "fp32",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def part(room: int = 99, suffix: tuple[int, ...] = (), embedding: int = 0) -> LabelPart:
    return LabelPart(label_blocks([np.array(tokens) for tokens in LABELS], room, suffix, 0), embedding)


def some_network(encoder: Encoder, labels: LabelPart | None, frame: Frame = BARE, **other: Any) -> LacoNetwork:
    """A network in which nothing is zero or alike."""
    network = LacoNetwork(encoder, 5, labels, frame, 0.5)
    for name, module in other.items():
        setattr(network, name, module)
    torch.manual_seed(0)
    return shaken(network).eval()


def lively(**told: Any) -> LacoNetwork:
    """One with everything that there is, over an encoder whose tokens meet one another."""
    hidden = 6
    parts = {
        "cross": CrossAttention(hidden, 3, "mean"), "shared": SharedHead(hidden, 4, 0.1),
        "pairs": PairTask(hidden, 0, 2, 0.5), "condition": ConditionTask(hidden, 0, 1),
    }  # fmt: skip
    torch.manual_seed(1)
    return some_network(BiLSTM(9, 4, 3, 1, 0.0), part(**told), **parts)


# -- the input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bilstm", "bert"])
def test_what_is_read_is_the_text_and_right_behind_it_the_labels(kind: str, folder: Path) -> None:
    """The states are those of ``[CLS] text [SEP] labels [SEP]`` read alone, without padding, however far the batch is padded."""
    torch.manual_seed(0)
    encoder: Encoder = BiLSTM(9, 4, 3, 1, 0.0)
    if kind == "bert":
        model = Laco.build({"encoder": str(folder)})
        model.tokens, model.description = model._described([])
        encoder = model._encoder().eval()
    labels = part(suffix=(3,))
    ids, mask = padded(extra=6)
    with torch.no_grad():
        words, found = labels(encoder, ids, mask)
        for row, document in enumerate(DOCUMENTS):
            whole = torch.tensor([[*document, *(token for label in LABELS for token in label), 3]])
            segments = (torch.arange(whole.shape[1]) >= len(document)).long()[None]
            told = {"token_type_ids": segments, "attention_mask": torch.ones_like(whole)}
            if isinstance(encoder, Transformer):
                alone = encoder.model(input_ids=whole, **told).last_hidden_state[0]
            else:
                alone = encoder(whole, whole >= 0)[0]
            assert torch.allclose(words[row, : len(document)], alone[: len(document)], atol=1e-5)
            at = len(document)
            for label, tokens in enumerate(LABELS):
                assert torch.allclose(found[row, label], alone[at : at + len(tokens)].mean(dim=0), atol=1e-5)
                at += len(tokens)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 60), st.integers(0, 2))
def test_blocks_hold_every_token_of_every_label_once(lengths: list[int], room: int, ends: int) -> None:
    """In order, no label in two blocks, none wider than the room (or the longest label), and as few as any order-keeping cut."""
    pieces, start = [], 10
    for length in lengths:
        pieces.append(np.arange(start, start + length))
        start += length
    suffix = (3,) * ends
    blocks = label_blocks(pieces, room, suffix, 0)
    assert blocks.ids[blocks.owners >= 0].tolist() == np.concatenate(pieces).tolist()
    assert blocks.owners[blocks.owners >= 0].tolist() == np.repeat(np.arange(len(lengths)), lengths).tolist()
    assert blocks.ids.shape[1] <= max(room, max(lengths) + ends)
    sets = [set(row[row >= 0].tolist()) for row in blocks.owners]
    assert all(sets) and sum(map(len, sets)) == len(lengths)
    fewest, used = 1, 0
    for length in lengths:
        fewest, used = (fewest + 1, length) if used + length > max(room - ends, max(lengths)) else (fewest, used + length)
    assert len(blocks.ids) == fewest
    assert (blocks.mask.sum(axis=1) == (blocks.owners >= 0).sum(axis=1) + ends).all()


def test_where_tokens_do_not_meet_blocks_give_what_one_pass_gives() -> None:
    torch.manual_seed(0)
    encoder = WordEncoder(9, 6)
    whole, several = part(), part(room=3)
    assert len(whole.ids) == 1 and len(several.ids) == 3
    cross = CrossAttention(6, 3, "mean")
    one, many = (some_network(encoder, labels, cross=cross) for labels in (whole, several))
    many.load_state_dict(one.state_dict())
    assert torch.allclose(one(*padded()), many(*padded()), atol=1e-6)


def test_in_blocks_a_label_is_read_with_its_block_and_a_word_is_the_mean_over_blocks() -> None:
    torch.manual_seed(0)
    encoder = BiLSTM(9, 4, 3, 1, 0.0)
    blocks = part(room=3)
    ids, mask = padded()
    words, labels = blocks(encoder, ids, mask)
    groups = [[0, 1], [2], [3, 4]]
    alone = [LabelPart(label_blocks([np.array(LABELS[n]) for n in group], 99, (), 0))(encoder, ids, mask) for group in groups]
    assert torch.allclose(labels, torch.cat([part[1] for part in alone], dim=1), atol=1e-6)
    mean = torch.stack([part[0] for part in alone]).mean(dim=0)
    assert torch.allclose(words[mask], mean[mask], atol=1e-6)


def test_a_pooled_label_is_one_token_the_mean_of_its_words_embeddings() -> None:
    """It is read as a new token with that embedding would be, and teaches the embeddings of its words."""
    torch.manual_seed(0)
    encoder = BiLSTM(9, 4, 3, 1, 0.0)
    single = [np.zeros(1, dtype=np.int64)] * 5
    for room in (99, 2):
        blocks = label_blocks(single, room, (3,), 0)
        pooled, new = LabelPart(blocks, words=[np.array(tokens) for tokens in LABELS]), LabelPart(blocks, embedding=4)
        assert new.new is not None
        table = encoder.token_table().weight
        with torch.no_grad():
            new.new.copy_(torch.stack([table[tokens].mean(dim=0) for tokens in LABELS]))
        for found, expected in zip(pooled(encoder, *padded()), new(encoder, *padded()), strict=True):
            assert torch.allclose(found, expected, atol=1e-6)
    table.grad = None
    pooled(encoder, *padded())[1].sum().backward()
    assert table.grad is not None and bool((table.grad[8] != 0).any()), "token 8 stands in a label's name only"
    assert not list(pooled.parameters())


def test_new_tokens_stand_in_for_the_labels_and_are_learned() -> None:
    torch.manual_seed(0)
    encoder = BiLSTM(9, 4, 3, 1, 0.0)
    labels = LabelPart(label_blocks([np.zeros(1, dtype=np.int64)] * 5, 99, (), 0), embedding=4)
    ids, mask = padded()
    _, states = labels(encoder, ids, mask)
    states.sum().backward()
    assert labels.new is not None and labels.new.grad is not None and (labels.new.grad.abs().sum(dim=1) > 0).all()
    with torch.no_grad():
        row = torch.cat([encoder.token_table()(torch.tensor(DOCUMENTS[0])), labels.new])[None]
        alone = encoder.encode(row, torch.ones(1, row.shape[1], dtype=torch.bool))[0]
    assert torch.allclose(states[0], alone[len(DOCUMENTS[0]) :], atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_labels_apart_stand_where_neither_the_text_nor_other_labels_matter(kind: str, folder: Path) -> None:
    """The states are those of one input in which every label's tokens have the positions 1, 2, ... of the encoder."""
    if kind == "roberta":  # it counts positions from behind that of padding
        described = {
            "model_type": "roberta",
            "vocab_size": 40,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "intermediate_size": 32,
        }
        described |= {"num_attention_heads": 2, "max_position_embeddings": 66, "pad_token_id": 1, "type_vocab_size": 1}
        encoder = Transformer(described, 0.0).eval()
    else:
        model = Laco.build({"encoder": str(folder)})
        model.tokens, model.description = model._described([])
        made = model._encoder().eval()
        assert isinstance(made, Transformer)
        encoder = made
    blocks = label_blocks([np.array(tokens) for tokens in LABELS], 99, (3,), 0)
    ids, mask = padded(extra=2)
    first = 2 if kind == "roberta" else 0
    assert (encoder.first_position, encoder.positions) == (first, 64)
    with torch.no_grad():
        words, found = LabelPart(blocks, apart=True)(encoder, ids, mask)
        for row, document in enumerate(DOCUMENTS):
            whole = torch.tensor([[*document, *(token for label in LABELS for token in label), 3]])
            places = [*range(len(document)), *(1 + at for label in LABELS for at in range(len(label))), 4]
            told = {"position_ids": torch.tensor([places]) + first, "attention_mask": torch.ones_like(whole)}
            if kind == "bert":
                told["token_type_ids"] = (torch.arange(whole.shape[1]) >= len(document)).long()[None]
            alone = encoder.model(input_ids=whole, **told).last_hidden_state[0]
            at = len(document)
            assert torch.allclose(words[row, :at], alone[:at], atol=1e-5)
            for label, tokens in enumerate(LABELS):
                assert torch.allclose(found[row, label], alone[at : at + len(tokens)].mean(dim=0), atol=1e-5)
                at += len(tokens)


# -- equations 1 to 3 --------------------------------------------------------------------------------------------------


def omega(cross: CrossAttention, h_d: NDArray[Any], h_y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Eq. 1 and the function of eq. 2, word by word: the weights, and those by each label alone."""
    m = h_d @ h_y.T  # (words, labels)
    if cross.similarity == "cosine":
        m = m / np.linalg.norm(h_d, axis=1)[:, None] / np.linalg.norm(h_y, axis=1)
    else:
        m = m / np.sqrt(h_d.shape[1])
    if isinstance(cross, GridAttention):
        fit = grid(m, array(cross.weight)[:, 0], array(cross.bias))
        return np.tanh(fit.max(axis=1)), np.tanh(fit).T
    filters, bias = array(cross.weight)[0, 0], float(array(cross.bias)[0])
    before = (len(filters) - 1) // 2
    seen = np.zeros_like(m)
    for i in range(len(m)):
        for k, weight in enumerate(filters):
            if 0 <= i + k - before < len(m):
                seen[i] += weight * m[i + k - before]
    fit = np.maximum(0, seen + bias)
    return np.tanh(fit.max(axis=1)), np.tanh(fit).T


def grid(m: NDArray[Any], filters: NDArray[Any], bias: NDArray[Any]) -> NDArray[Any]:
    """The maximum over the channels, after ReLU, of filters over words and labels (words, labels), cell by cell."""
    window = filters.shape[1]
    before = (window - 1) // 2
    fit = np.zeros_like(m)
    for i, j in np.ndindex(*m.shape):
        seen = bias.copy()
        for a, b in np.ndindex(window, window):  # b: words, a: labels
            if 0 <= i + b - before < m.shape[0] and 0 <= j + a - before < m.shape[1]:
                seen = seen + filters[:, a, b] * m[i + b - before, j + a - before]
        fit[i, j] = max(0.0, float(seen.max()))
    return fit


@pytest.mark.parametrize("window", [1, 3, 4])
@pytest.mark.parametrize("aggregate", ["mean", "sum", "units"])
@pytest.mark.parametrize(
    ("extra", "similarity", "filters"), [(0, "dot", 0), (5, "dot", 0), (5, "cosine", 0), (5, "cosine", 3), (0, "dot", 2)]
)
def test_the_network_is_its_equations(window: int, aggregate: str, extra: int, similarity: str, filters: int) -> None:
    """However much is padded: the expected values know of no padding, and of no first or last token."""
    torch.manual_seed(0)
    frame = Frame(1, 1)
    how = 6, window, aggregate, similarity
    cross, shared = GridAttention(*how, filters) if filters else CrossAttention(*how), SharedHead(6, 4, 0.0)
    network = some_network(BiLSTM(9, 4, 3, 1, 0.0), part(), frame, cross=cross, shared=shared)
    ids, mask = padded(extra)
    joint = network.encode(ids, mask)
    found, apart = array(network.classify(joint)), array(network.share(joint, joint.labels))
    for row, document in enumerate(DOCUMENTS):
        h_d, h_y = array(joint.words)[row, 1 : max(1, len(document) - 1)], array(joint.labels)[row]
        weights, each = omega(cross, h_d, h_y) if len(h_d) else (np.zeros(0), np.zeros((5, 0)))
        if aggregate == "mean":
            weights, each = ((w + LEAST) / (w + LEAST).sum(axis=-1, keepdims=True) for w in (weights, each))
        if aggregate == "units":
            h_d = h_d / np.linalg.norm(h_d, axis=1, keepdims=True)
        c, views = weights @ h_d, each @ h_d
        assert found[row] == pytest.approx(array(network.output.weight) @ c + array(network.output.bias), abs=1e-4)
        for label in range(5):
            d, y = views[label], h_y[label]
            hidden = array(shared.document.weight) @ d + array(shared.document.bias) + array(shared.label.weight) @ y
            hidden = np.maximum(0, hidden + array(shared.both.weight) @ (d * y))
            assert apart[row, label] == pytest.approx(
                float(array(shared.score.weight)[0] @ hidden + array(shared.score.bias)[0]), abs=1e-4
            )


def test_without_joint_embedding_labels_have_vectors_and_the_encoder_reads_the_text_alone() -> None:
    torch.manual_seed(0)
    encoder = BiLSTM(9, 4, 3, 1, 0.0)
    network = some_network(encoder, None, cross=CrossAttention(6, 3, "mean"))
    ids, mask = padded()
    joint = network.encode(ids, mask)
    assert torch.equal(joint.words, encoder(ids, mask)) and network.vectors is not None
    assert all(torch.equal(joint.labels[row], network.vectors) for row in range(3))


def test_without_both_it_is_bert_on_the_first_token() -> None:
    model = Laco.build({"encoder": "words", "embedding": 6, "joint": False, "cross": False, "dropout": 0.0})
    model.tokens, model.description = model._described(["red green blue cat"])
    network = model._network(5)
    assert isinstance(network, LacoNetwork)
    twin = BertNetwork(model._encoder(), 5, "cls", 0.0)
    twin.load_state_dict(network.state_dict())  # the same weights, no more and no fewer
    ids, mask = padded()
    assert torch.equal(network.eval()(ids % 5, mask), twin.eval()(ids % 5, mask))


def test_without_cross_attention_the_first_token_decides() -> None:
    network = some_network(BiLSTM(9, 4, 3, 1, 0.0), part())
    joint = network.encode(*padded())
    assert torch.allclose(network(*padded()), network.output(joint.first))


def test_a_text_that_fits_no_label_is_the_mean_of_its_words_and_still_teaches() -> None:
    """Were it zero, no document would differ from another, and nothing below would ever be told so."""
    cross = CrossAttention(6, 3, "mean")
    torch.nn.init.constant_(cross.bias, -100.0)
    torch.manual_seed(0)
    words, labels = torch.randn(2, 7, 6, requires_grad=True), torch.randn(2, 5, 6)
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    document = cross(words, mask, labels)
    expected = torch.stack([words[0].mean(dim=0), words[1, :4].mean(dim=0)])
    assert torch.allclose(document, expected, atol=1e-6)
    assert torch.allclose(cross.views(words, mask, labels), expected[:, None].expand(-1, 5, -1), atol=1e-6)
    (gradients,) = torch.autograd.grad(document.square().sum(), words)
    assert bool((gradients[mask].abs().sum(dim=1) > 0).all())


def test_some_steps_at_the_default_rate_do_not_turn_the_filter_round() -> None:
    """States as large as a BERT's, all alike in part; the worst gradients there are: each step makes every weight smaller."""
    torch.manual_seed(0)
    cross = CrossAttention(384, 10, "mean")
    words, labels = (torch.randn(1, count, 384) * 0.3 + torch.randn(384) * 0.3 for count in (40, 20))
    labels += words.mean(dim=1, keepdim=True)
    mask = torch.ones(1, 40, dtype=torch.bool)
    before = float(cross.fit(words, mask, labels).amax(dim=1).min().detach())
    optimiser = torch.optim.AdamW(cross.parameters(), lr=Laco().training.head_rate)
    for _ in range(50):
        optimiser.zero_grad()
        cross.fit(words, mask, labels).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert float(cross.fit(words, mask, labels).amax(dim=1).min().detach()) > 0.5 * before > 0


def test_cosines_tell_words_apart_where_dot_products_of_long_states_do_not() -> None:
    torch.manual_seed(0)
    words, labels, mask = 12 * torch.randn(1, 30, 64), 12 * torch.randn(1, 9, 64), torch.ones(1, 30, dtype=torch.bool)
    weights = {
        how: torch.tanh(CrossAttention(64, 1, "mean", how).fit(words, mask, labels).amax(dim=1)) for how in ("dot", "cosine")
    }
    assert float(weights["dot"].std().detach()) < 1e-3 < 0.05 < float(weights["cosine"].std().detach())


def spread(cross: CrossAttention, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The weights of the words of one text."""
    mask = torch.ones(1, words.shape[1], dtype=torch.bool)
    return torch.tanh(cross.fit(words, mask, labels).amax(dim=1))[0].detach()


@pytest.mark.parametrize("seed", range(5))
def test_a_word_that_matches_a_label_weighs_more_than_one_that_does_not(seed: int) -> None:
    """From the start, with the authors' attention; with the default, all words of a text weigh nearly the same."""
    torch.manual_seed(seed)
    hidden, window, matching = 384, 10, slice(38, 43)
    labels = 0.6 * torch.randn(1, 54, hidden)
    words = 0.6 * torch.randn(1, 80, hidden)
    words[0, matching] = labels[0, 7] + 0.2 * torch.randn(5, hidden)
    far = torch.ones(80, dtype=torch.bool)
    far[matching.start - window : matching.stop + window] = False
    weights = spread(GridAttention(hidden, window, "units", "cosine", 54), words, labels)
    assert float(weights[matching].min()) > 2 * float(weights[far].mean()), "each of them"
    assert float(weights[matching].min()) > float(weights[far].max())
    even = spread(CrossAttention(hidden, window, "mean", "dot"), words, labels)
    assert float(weights.std() / weights.mean()) > 3 * float(even.std() / even.mean())


def test_a_labels_own_state_is_added_to_what_the_document_says() -> None:
    network = some_network(BiLSTM(9, 4, 3, 1, 0.0), part(), cross=CrossAttention(6, 3, "mean"), own=OwnState(6, 5))
    joint = network.encode(*padded())
    assert network.own is not None
    found = array(network(*padded()))
    rows, states = (array(network.own.all) + array(network.own.each)) / np.sqrt(6), array(joint.labels)
    network.own = None
    expected = array(network(*padded())) + np.einsum("lh,dlh->dl", rows, states)
    assert found == pytest.approx(expected, abs=1e-5)


# -- equation 7 ---------------------------------------------------------------------------------------------------------


def test_the_loss_is_equation_7() -> None:
    network = lively()
    ids, mask = padded()
    targets = torch.tensor([[1.0, 1, 0, 1, 0], [1, 0, 1, 0, 0], [0, 0, 0, 0, 1]])
    batch = Batch(torch.arange(3), ids, mask, targets)
    model = Laco.build({"alpha": 0.3, "shared_weight": 0.7})
    torch.manual_seed(2)
    found = model._loss(network, batch)
    joint = network.encode(ids, mask)
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    torch.manual_seed(2)
    assert network.pairs is not None and network.condition is not None
    expected = bce(network.classify(joint), targets) + 0.3 * network.pairs(joint.labels, targets)
    expected = expected + 0.7 * network.condition(joint.labels, targets)
    expected = expected + 0.7 * bce(network.share(joint, joint.labels), targets)
    assert torch.allclose(found, expected, atol=1e-6)


def test_a_step_never_asks_the_host(folder: Path) -> None:
    """On the device ``meta`` there are no values: whatever asked for one would raise. So a step can be captured."""
    bert = Laco.build({"encoder": str(folder)})
    bert.tokens, bert.description = bert._described([])
    over_bert = some_network(bert._encoder(), part(room=4, suffix=(3,)), Frame(1, 1), cross=CrossAttention(32, 10, "mean"))
    for network in (lively(room=4), over_bert):
        network.train().to("meta")
        ids = torch.zeros(3, 8, dtype=torch.long, device="meta")
        batch = Batch(ids[:, 0], ids, ids == 0, torch.ones(3, 5, device="meta"))
        Laco()._loss(network, batch).backward()
        assert network(ids, ids == 0).shape == (3, 5)


# -- the whole model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"label_text": "new", "auxiliary": "plcp", "own_state": True, "similarity": "cosine", "places": "apart"},
        {"label_text": "description", "block": 4},
        {"joint": False, "auxiliary": "clcp", "auxiliary_size": 8, "known": 2},
        {"auxiliary": "both", "shared": True, "aggregate": "sum", "head_rate": 0.005},
        {"filter": "grid", "similarity": "cosine", "aggregate": "units", "auxiliary": "plcp", "pair_loss": "mean", "epochs": 20},
    ],
    ids=repr,
)
def test_it_learns_and_comes_back_from_its_artefact(options: dict[str, Any], tmp_path: Path) -> None:
    described = {"animals": "cat dog horse", "boats": "ferry canoe sail", "cities": "paris oslo lima", "drinks": "tea milk juice"}
    labels = LabelSet(described, descriptions=described)
    train = toy_corpus(150)
    train = Corpus.of(train.texts, train.label_lists(), label_set=labels)
    classifier = Classifier("laco", {**SMALL, **options}).fit(train)
    test = toy_corpus(80, 2)
    assert classifier.evaluate(test)["micro_f1"] > 0.9
    classifier.save(tmp_path)
    again = Classifier.load(tmp_path)
    assert (again.scores(test.texts).matrix.data == classifier.scores(test.texts).matrix.data).all()


def fitted(folder: Path, **options: Any) -> Laco:
    """A model over the tiny BERT, which has 64 positions, that learned nothing."""
    still = {"encoder_rate": 0.0, "head_rate": 0.0, "epochs": 1, "max_steps": 1, "device": "cpu", "precision": "fp32"}
    corpus = toy_corpus(20, most=60)
    names = {name: f"{name} of some big red and green old kind" for name in corpus.labels}
    model = Laco.build({"encoder": str(folder), **{**still, **options}})
    model.fit(Corpus.of(corpus.texts, corpus.label_lists(), label_set=LabelSet(names, descriptions=names)), None, Run())
    return model


@pytest.mark.parametrize(
    ("options", "blocks", "text"),
    [
        ({"max_length": 40, "label_text": "new"}, 1, 40),
        ({"max_length": 64, "label_text": "new"}, 1, 48),  # the text gives way
        ({"max_length": 40, "label_text": "description"}, 4, None),
    ],
)
def test_text_and_labels_share_the_encoders_positions(
    options: dict[str, Any], blocks: int, text: int | None, folder: Path
) -> None:
    model = fitted(folder, **options)
    assert isinstance(model.network, LacoNetwork) and model.network.labels is not None
    ids, layout = model.network.labels.ids, model._layout()
    assert layout.max_length + ids.shape[1] <= 64 and layout.max_length <= options["max_length"]
    assert text is None or layout.max_length == text or layout.max_length + ids.shape[1] == 64
    assert (len(ids) > 1) == (blocks > 1)
    assert np.isfinite(model.score(["cat " * 200, ""]).matrix.data).all()


def test_a_description_that_no_block_can_hold_is_cut_with_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        model = fitted(folder, label_text="description", block=6)
    assert "4 labels are truncated to 5 tokens" in caplog.text
    assert isinstance(model.network, LacoNetwork) and model.network.labels is not None
    assert len(model.network.labels.ids) == 4 and len(model.network.labels.place) == 4


def test_the_same_labels_in_more_blocks_cost_more_rows_and_nothing_else(folder: Path) -> None:
    one, more = fitted(folder, label_text="new"), fitted(folder, label_text="new", block=2)
    assert isinstance(one.network, LacoNetwork) and isinstance(more.network, LacoNetwork)
    assert one.network.labels is not None and more.network.labels is not None
    assert (len(one.network.labels.ids), len(more.network.labels.ids)) == (1, 4)
    assert {name: w.shape for name, w in one.network.state_dict().items()} == {
        name: w.shape for name, w in more.network.state_dict().items()
    }


def test_an_export_reads_no_padding_and_uneven_blocks_are_refused(folder: Path, tmp_path: Path) -> None:
    """Attention in ONNX knows no mask: a single block is trimmed to its labels, which changes no score."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    still = {"epochs": 1, "max_steps": 1, "device": "cpu", "precision": "fp32", "encoder": str(folder), "max_length": 24}
    beyond = {"places": "apart", "similarity": "cosine", "own_state": True}
    classifier = Classifier("laco", {**still, **beyond}).fit(toy_corpus(20))
    assert isinstance(classifier.model, Laco) and isinstance(classifier.model.network, LacoNetwork)
    part_of = classifier.model.network.labels
    assert part_of is not None and len(part_of.ids) == 1 and not part_of.mask.all(), "or there is nothing to trim"
    with torch.no_grad():
        classifier.model.network.encoder.token_table().weight[0] = 40.0  # whoever read padding would say something else
    classifier.save(tmp_path)
    texts = toy_corpus(9, 3).texts
    expected = classifier.scores(texts).matrix.data
    classifier.model.export(tmp_path / "model")
    exported = Classifier.load(tmp_path)
    assert isinstance(exported.model, Laco) and exported.model.exported is not None
    assert exported.scores(texts).matrix.data == pytest.approx(expected, abs=1e-5)
    uneven = Classifier("laco", {**still, "block": 8}).fit(toy_corpus(20))
    uneven.save(tmp_path / "uneven")
    with pytest.raises(ConfigError, match="blocks of different lengths"):
        assert isinstance(uneven.model, Laco)
        uneven.model.export(tmp_path / "uneven" / "model")
