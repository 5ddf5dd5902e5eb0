"""The model ``bert-sgm``: algorithm 1 over a Hugging Face encoder that is trained with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polytag.classifier import Classifier
from polytag.models.bert_sgm import BertSgm
from polytag.nn.decoding.lstm_decoder import LstmDecoder
from polytag.run import Run
from toys import tiny_bert, toy_corpus

FAST: dict[str, Any] = {
    "batch_size": 16, "encoder_rate": 3e-3, "head_rate": 1e-2, "label_embedding": 16, "device": "cpu", "precision": "fp32",
    "max_length": 40, "encoder_dropout": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bert(tmp_path_factory.mktemp("encoder")))


def test_it_is_algorithm_1_unless_told_otherwise(folder: str) -> None:
    trained = BertSgm.build({**FAST, "encoder": folder, "epochs": 1})
    trained.fit(toy_corpus(32, 0), None, Run())
    decoder = getattr(trained.network, "decoder", None)
    assert isinstance(decoder, LstmDecoder)
    s = decoder.settings
    assert (s.attention, s.query, s.first_state, s.size, s.global_embedding, s.mask) == ("dot", "old", "cls", 32, "none", True)
    assert not hasattr(decoder, "energy") and decoder.init.in_features == 32


def test_it_learns_and_its_encoder_with_it(folder: str) -> None:
    train, test = toy_corpus(240, 0), toy_corpus(80, 2)
    classifier = Classifier("bert-sgm", {**FAST, "encoder": folder, "epochs": 8}).fit(train, toy_corpus(60, 1))
    decoded = classifier.model.score(test.texts).decoded
    assert decoded is not None
    assert (np.abs((decoded - test.truth).toarray()).sum(axis=1) == 0).mean() > 0.6  # a set by chance: below .1
    still = Classifier("bert-sgm", {**FAST, "encoder": folder, "epochs": 1, "encoder_rate": 0.0, "head_rate": 0.0}).fit(train)
    first, last = (c.model.state()["weights"] for c in (still, classifier))
    moved = [name for name in first if name.startswith("encoder.") and np.abs(first[name] - last[name]).max() > 1e-4]
    assert sum(name.endswith("query.weight") for name in moved) == 2, "both layers"


@pytest.mark.parametrize("options", [{"attention": "additive"}, {"global_embedding": "adaptive", "query": "new"}], ids=str)
def test_attention_and_global_embedding_are_options(folder: str, options: dict[str, Any]) -> None:
    trained = BertSgm.build({**FAST, **options, "encoder": folder, "epochs": 10})
    trained.fit(toy_corpus(240, 0), None, Run())
    test = toy_corpus(60, 2)
    decoded = trained.score(test.texts).decoded
    assert decoded is not None and np.abs((decoded - test.truth).toarray()).sum() / test.truth.nnz < 0.35


def test_it_comes_back_from_its_files(folder: str, tmp_path: Path) -> None:
    classifier = Classifier("bert-sgm", {**FAST, "encoder": folder, "epochs": 1}).fit(toy_corpus(40, 0))
    classifier.save(tmp_path)
    texts = toy_corpus(20, 3).texts
    one, two = classifier.model.score(texts), Classifier.load(tmp_path).model.score(texts)
    assert np.array_equal(one.matrix.data, two.matrix.data)
    assert one.decoded is not None and two.decoded is not None and np.array_equal(one.decoded.indices, two.decoded.indices)


def test_low_precision_is_for_the_encoder_only(folder: str) -> None:
    """States are carried from step to step in float32, whatever the matrix products of the encoder are computed in."""
    trained = BertSgm.build({**{**FAST, "precision": "bf16"}, "encoder": folder, "epochs": 1})
    trained.fit(toy_corpus(40, 0), None, Run())
    seen: list[torch.dtype] = []
    decoder = getattr(trained.network, "decoder", None)
    assert isinstance(decoder, LstmDecoder)
    decoder.dropout.register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    trained.score(["cat and tea"])
    assert set(seen) == {torch.float32}
