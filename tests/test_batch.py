"""Batches hold every document once, waste little on padding, and say on the device what plain Python says on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polytag.labels import indicator
from polytag.nn.training.batch import Documents, Layout, TokenArrays, batches, bucket, inference_batches, tokenise
from polytag.run import Run
from polytag.text.tokens import SubwordTokens, WordTokens, tokens_from_state
from toys import tiny_bert, toy_corpus

CPU = torch.device("cpu")


def arrays_of(documents: list[list[int]]) -> TokenArrays:
    offsets = np.concatenate([[0], np.cumsum([len(d) for d in documents])]).astype(np.int64)
    return TokenArrays(np.array([token for d in documents for token in d], dtype=np.int32), offsets)


def pieces(document: list[int], layout: Layout) -> list[list[int]]:
    """What an encoder should read of a document, in plain Python."""
    room = layout.max_length - len(layout.prefix) - len(layout.suffix)
    if layout.long == "head" or len(document) <= room:
        cut = [document[:room]]
    elif layout.long == "head+tail":
        head = room // 4
        cut = [document[:head] + document[len(document) - (room - head) :]]
    else:
        cut = [document[:room]]
        begin = 0
        while begin + room < len(document) and len(cut) < layout.max_windows:
            begin += max(1, room - layout.overlap)
            cut.append(document[begin : begin + room])
    return [[*layout.prefix, *piece, *layout.suffix] for piece in cut]


documents = st.lists(st.lists(st.integers(10, 99), min_size=1, max_size=25), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    documents=documents,
    long=st.sampled_from(["head", "head+tail", "windows"]),
    max_length=st.integers(4, 12),
    overlap=st.integers(0, 3),
    framed=st.booleans(),
    multiple=st.sampled_from([1, 4]),
)
@example([[*range(10, 17)], [10, 11, 12, 13]], "windows", 4, 1, False, 1)  # the second has only the overlap in a second window
@example([[*range(10, 20)], [10, 11]], "windows", 4, 2, False, 1)  # no longer than the overlap, and encoded all the same
@example([[*range(10, 20)], [10]], "windows", 6, 3, True, 4)
def test_a_gathered_batch_is_what_python_cuts(
    documents: list[list[int]], long: str, max_length: int, overlap: int, framed: bool, multiple: int
) -> None:
    layout = Layout(max_length, long, overlap, 4, (1,) if framed else (), (2,) if framed else (), 0)
    data = Documents(arrays_of(documents), layout, CPU, multiple=multiple)
    rows = np.arange(len(documents))[::-1].copy()
    batch = data.batch(torch.from_numpy(rows), *data.shape(rows))
    ids = batch.ids if batch.ids.ndim == 3 else batch.ids[:, None]
    mask = batch.mask if batch.mask.ndim == 3 else batch.mask[:, None]
    for row, own_ids, own_mask in zip(rows, ids, mask, strict=True):
        expected = pieces(documents[row], layout)
        found = [piece[use].tolist() for piece, use in zip(own_ids, own_mask, strict=True) if use.any()]
        assert found == expected
        assert (own_ids[0][~own_mask[0]] == 0).all()
    assert data.windows.tolist() == [len(pieces(d, layout)) for d in documents]
    assert data.lengths.tolist() == [max(map(len, pieces(d, layout))) for d in documents]


@given(st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=8))
def test_targets_are_the_rows_of_the_truth(rows: list[set[int]]) -> None:
    truth = indicator([sorted(row) for row in rows], 7)
    data = Documents(arrays_of([[1]] * len(rows)), Layout(4), CPU, truth)
    wanted = np.arange(len(rows))[::-1].copy()
    targets = data.batch(torch.from_numpy(wanted), 1).targets
    assert targets is not None
    assert np.array_equal(targets.numpy(), truth.toarray()[wanted])


def test_labels_of_a_batch_are_counted_where_somebody_asks() -> None:
    """Rounded up to a multiple, but never beyond the most that any document has; at least one."""
    truth = indicator([[0], [0, 1, 2], [], [0, 1, 2, 3, 4], [1, 2]], 7)
    arrays = arrays_of([[1]] * 5)
    each = [[0], [1], [2], [3], [4], [0, 1, 4], [0, 1, 2, 3]]
    for multiple, expected in ((0, [0] * 7), (1, [1, 3, 1, 5, 2, 3, 5]), (2, [2, 4, 1, 5, 2, 4, 5])):
        data = Documents(arrays, Layout(4), CPU, truth, label_multiple=multiple)
        assert [data.most_labels(np.array(rows)) for rows in each] == expected
    assert data.batch(torch.tensor([0]), 1, 1, data.most_labels(np.array([0]))).most_labels == 2
    assert Documents(arrays, Layout(4), CPU, label_multiple=2).most_labels(np.array([0])) == 0


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 5))
def test_every_document_is_in_one_batch(n: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    plan = batches(rng.integers(1, 100, n), size, rng)
    assert sorted(np.concatenate(plan).tolist()) == list(range(n))
    assert len(plan) >= -(-n // size) and max(map(len, plan)) <= size
    assert len(plan) == -(-n // size)  # the loop counts its steps by this


def test_batches_differ_between_epochs_and_are_not_in_order_of_length() -> None:
    lengths = np.random.default_rng(0).integers(5, 300, 2000)
    first, second = (batches(lengths, 32, np.random.default_rng([0, epoch])) for epoch in (0, 1))
    assert [b.tolist() for b in first] != [b.tolist() for b in second]
    longest = [int(lengths[b].max()) for b in first]
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.5


@pytest.mark.parametrize("multiple", [1, 16])
def test_padding_waste_is_below_a_tenth_on_lengths_like_those_of_abstracts(multiple: int) -> None:
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.gamma(5.5, 38, 10_000).astype(int) + 12, 320)  # mean about 215 subwords, as abstracts have

    def waste(plan: list[Any]) -> float:
        """The share of all places in the batches that is padding."""
        places = sum(len(rows) * bucket(int(lengths[rows].max()), multiple, 320) for rows in plan)
        return 1 - sum(int(lengths[rows].sum()) for rows in plan) / places

    random = [rng.permutation(10_000)[at : at + 32] for at in range(0, 10_000, 32)]
    assert waste(batches(lengths, 32, rng)) < 0.1 < waste(random)


@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 500))
def test_a_bucket_is_never_shorter_than_the_batch(length: int, multiple: int, most: int) -> None:
    found = bucket(length, multiple, most)
    assert found >= length and (found % multiple == 0 or found in (length, most)) and found - length < multiple


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 9), st.integers(1, 200))
def test_inference_batches_are_bounded(cost: list[int], rows: int, most: int) -> None:
    plan = inference_batches(np.array(cost, dtype=np.int64), rows, most)
    assert sorted(np.concatenate(plan).tolist() if plan else []) == list(range(len(cost)))
    for batch in plan:
        assert len(batch) <= rows and (len(batch) == 1 or len(batch) * max(cost[i] for i in batch) <= most)


def test_words_are_numbered_by_frequency_and_unknown_ones_are_one() -> None:
    tokens = WordTokens.fit(["b b a", "B a c!", "İstanbul"], 3)
    assert tokens.words[:2] == ["b", "a"] and tokens.size == 5
    ids, offsets = tokens.encode(["A zebra, b", "", "..."])
    assert ids.tolist() == [3, 1, 2, 1, 1] and offsets.tolist() == [0, 3, 4, 5]
    again = tokens_from_state(tokens.state())
    texts = ["a b c İstanbul"]
    assert again.encode(texts)[0].tolist() == tokens.encode(texts)[0].tolist()


def test_subwords_are_those_of_the_tokeniser_without_what_stands_around_them(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(tiny_bert(tmp_path))
    tokens = SubwordTokens((tmp_path / "tokenizer.json").read_text(), reference.pad_token_id)
    texts = [*toy_corpus(20).texts, "", "unseen wörds \ud800 here"]
    ids, offsets = tokens.encode(texts)
    for text, first, last in zip(texts[:-1], offsets[:-1], offsets[1:], strict=False):
        assert [*tokens.prefix, *ids[first:last].tolist(), *tokens.suffix] == reference(text)["input_ids"]
    again = tokens_from_state(tokens.state())
    assert (again.encode(texts)[0] == ids).all() and again.prefix == tokens.prefix and again.pad == 0


def test_tokens_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = WordTokens.fit(["a b"])
    with Run(tmp_path) as run:
        first = tokenise(tokens, ["a b", "b"], run)
    monkeypatch.setattr(WordTokens, "encode", lambda self, texts: pytest.fail("tokenised again"))
    with Run(tmp_path, resume=True) as run:
        again = tokenise(tokens, ["a b", "b"], run)
        assert again.ids.tolist() == first.ids.tolist() and again.offsets.tolist() == first.offsets.tolist()
        with pytest.raises(pytest.fail.Exception):
            tokenise(tokens, ["a b", "c"], run)
