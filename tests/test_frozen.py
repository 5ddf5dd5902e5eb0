"""What xbert joins to tf-idf: the vectors of the encoder as it came, however far training moves the network's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ArtefactError, ConfigError
from polytag.metrics.of_rankings import ranking_metrics
from polytag.models.base.match_model import MatchModel
from polytag.models.xbert import XBert
from polytag.models.xlinear import XLinear
from polytag.models.xttention import Xttention
from polytag.nn.encoding.frozen_encoder import FrozenEncoder
from polytag.run import Run
from polytag.xmc.estimate import estimate, tree_levels
from polytag.xmc.match import BertMatch
from toys import tiny_bert, toy_corpus

QUICK: dict[str, Any] = {
    "epochs": 3, "batch_size": 16, "encoder_rate": 3e-3, "head_rate": 1e-2, "device": "cpu", "precision": "fp32", "clusters": 3,
}  # fmt: skip
TRAIN, TEST = toy_corpus(200), toy_corpus(40, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def fitted(folder: Path, **options: Any) -> XBert:
    model = XBert.build({**QUICK, "encoder": str(folder), "join": "frozen", **options})
    model.fit(TRAIN, None, Run())
    return model


def as_it_came(folder: Path, texts: list[str]) -> NDArray[np.float32]:
    """The mean of the states of every text by transformers alone, of length one."""
    tokeniser, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    for text in texts:
        with torch.no_grad():
            states = network(**tokeniser(text, return_tensors="pt")).last_hidden_state[0]
        found.append(states.mean(dim=0).numpy())
    return np.asarray(np.array(found) / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float32)


def vectors_of(model: MatchModel, texts: list[str]) -> NDArray[np.float32]:
    """What is joined to the words of every text."""
    joined: NDArray[np.float32] = model.encode(texts).rows[:, len(model.tfidf.keys) :].toarray()
    return joined


def expected(model: MatchModel, raw: NDArray[np.float32]) -> NDArray[np.float32]:
    assert model.centre is not None
    own = raw - model.centre
    return np.asarray(model.ranking.join_weight * own / np.linalg.norm(own, axis=1, keepdims=True))


def test_training_moves_the_network_but_not_what_is_joined(folder: Path) -> None:
    frozen, own = fitted(folder), fitted(folder, join="network")
    raw = as_it_came(folder, TEST.texts)
    np.testing.assert_allclose(vectors_of(frozen, TEST.texts), expected(frozen, raw), atol=5e-3 * frozen.ranking.join_weight)
    assert np.abs(vectors_of(own, TEST.texts) - expected(own, raw)).max() > 0.05, "the trained network's vectors are others"
    first, second = frozen.matcher.network, own.matcher.network
    assert isinstance(first, BertMatch) and isinstance(second, BertMatch)
    assert torch.equal(first.output.weight, second.output.weight), "the matcher is trained in the same way"


def test_it_is_kept_with_the_model(folder: Path) -> None:
    model = fitted(folder)
    state = model.state()
    assert {np.asarray(a).dtype for a in state["origin"]["weights"].values()} == {np.dtype(np.float16)}
    again = XBert.from_state(model.options(), model.labels, state)
    assert np.array_equal(again.score(TEST.texts).matrix.data, model.score(TEST.texts).matrix.data)
    less = dict(list(state["origin"]["weights"].items())[1:])
    with pytest.raises(ArtefactError, match="do not belong"):
        XBert.from_state(model.options(), model.labels, {**state, "origin": {**state["origin"], "weights": less}})


def test_an_encoder_that_is_not_trained_is_read_once(folder: Path) -> None:
    model = fitted(folder, frozen_layers=-1)
    assert model.frozen is None
    np.testing.assert_allclose(vectors_of(model, TEST.texts), expected(model, as_it_came(folder, TEST.texts)), atol=1e-4)
    assert fitted(folder, frozen_layers=-1, pooling="cls", epochs=1).frozen is not None, "its own vectors are not the mean"


@pytest.mark.parametrize("options", [{"encoder": "words"}, {"join": "none"}], ids=str)
def test_where_nothing_is_joined_there_are_words_alone(folder: Path, options: dict[str, Any]) -> None:
    model = fitted(folder, **options, epochs=1)
    assert model.frozen is None and model.centre is None and model.ranker is not None
    assert model.ranker.n_features == len(model.tfidf.keys) == model.encode(TEST.texts).rows.shape[1]


def test_a_network_can_be_exported_beside_frozen_vectors(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from polytag.classifier import Classifier

    classifier = Classifier("xbert", {**QUICK, "encoder": str(folder), "epochs": 1, "join": "frozen"}).fit(TRAIN, TEST)
    classifier.save(tmp_path / "run")
    before = classifier.scores(TEST.texts).matrix.toarray()
    loaded = Classifier.load(tmp_path / "run")
    assert isinstance(loaded.model, XBert)
    loaded.model.export(tmp_path / "run" / "model")
    assert loaded.model.use_export(tmp_path / "run" / "model")
    np.testing.assert_allclose(loaded.scores(TEST.texts).matrix.toarray(), before, atol=1e-3)


def test_vectors_depend_on_no_padding(folder: Path) -> None:
    frozen = FrozenEncoder.pretrained(str(folder))
    ids, mask = torch.tensor([[2, 7, 8, 3, 0, 0]]), torch.tensor([[True] * 4 + [False] * 2])
    with torch.inference_mode():
        short, long = frozen.vectors(ids[:, :4], mask[:, :4]), frozen.vectors(ids, mask)
    assert torch.allclose(short, long, atol=1e-5) and frozen.size == 32
    assert not any(parameter.requires_grad for parameter in frozen.encoder.parameters())


def test_the_estimate_counts_joined_vectors() -> None:
    from polytag.text.tfidf import Tfidf

    rows = Tfidf().fit(TRAIN.texts).transform(TRAIN.texts)
    levels = tree_levels(len(TRAIN.labels), 4, 4)
    sizes: dict[str, Any] = {"max_terms": 0, "trees": 1, "prune": 0.1, "matcher": 0, "half": True}
    without, joined = (estimate(rows, TRAIN.truth, levels, **sizes, dense=dense) for dense in (0, 384))
    assert joined.memory - without.memory > len(TRAIN) * 384 * 8 and joined.model > without.model
    assert joined.seconds > without.seconds


@pytest.mark.parametrize("join", ["network", "frozen", "none"])
def test_how_long_joined_vectors_will_be_is_known_before_training(
    folder: Path, join: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[int] = []

    def enough(*_: Any, dense: int, **__: Any) -> None:
        announced.append(dense)
        raise KeyboardInterrupt

    over_words = {"encoder": "bilstm", "hidden": 5, "embedding": 3, "join": join}
    with monkeypatch.context() as patched:
        patched.setattr("polytag.models.base.match_model.estimate", enough)
        for model in (XBert.build(over_words), Xttention.build({"dense": 7, "join": join})):
            with pytest.raises(KeyboardInterrupt):
                model.fit(TRAIN, None, Run())
        with pytest.raises(KeyboardInterrupt):
            fitted(folder, join=join)
    size = 0 if join == "none" else 32
    assert announced == ([10, 7, size] if join == "network" else [0, 0, size]), "words know nothing before they are trained"
    trained = fitted(folder, join=join, epochs=1)
    assert trained.encode(TEST.texts[:1]).rows.shape[1] == len(trained.tfidf.keys) + size


# -- the same vectors without a network that is trained ----------------------------------------------------------------


def test_a_tree_over_words_and_vectors(folder: Path) -> None:
    model = XLinear.build({"document_encoder": str(folder), "max_leaf": 3, "branching": 2, "refit": False})
    held = model.fit(TRAIN, TEST, Run())
    assert held is not None and model.forest is not None and model.centre is not None
    words = len(model.tfidf.keys)
    assert model.forest.rankers[0].n_features == words + 32
    rows = model.rows(TEST.texts)
    np.testing.assert_array_equal(rows[:, :words].toarray(), model.tfidf.transform(TEST.texts).toarray())
    raw = as_it_came(folder, TEST.texts)
    np.testing.assert_allclose(model.centre, as_it_came(folder, TRAIN.texts).mean(axis=0), atol=2e-3)
    own = (raw - model.centre) / np.linalg.norm(raw - model.centre, axis=1, keepdims=True)
    np.testing.assert_allclose(rows[:, words:].toarray(), model.ranking.join_weight * own, atol=5e-3)
    again = XLinear.from_state(model.options(), model.labels, model.state())
    assert np.array_equal(again.score(TEST.texts).matrix.data, model.score(TEST.texts).matrix.data)
    np.testing.assert_allclose(again.score(TEST.texts).matrix.toarray(), held.scores.matrix.toarray(), atol=1e-5)


def test_labels_that_only_vectors_can_tell_apart(tmp_path: Path) -> None:
    """Documents of words that are in no other document: tf-idf knows none of them, an encoder knows how they begin."""
    rng = np.random.default_rng(0)
    kinds = ["upper", "lower"] * 150
    texts = [f"the {kind}{''.join(rng.choice(list('bcdfg'), 8))}" for kind in kinds]
    folder = tiny_bert(tmp_path / "bert", texts=[*texts, *kinds * 5])
    train, test = (Corpus.of(texts[part], [[kind] for kind in kinds[part]]) for part in (slice(200), slice(200, None)))
    vectors = {"document_encoder": str(folder), "join_weight": 1.0}
    plain, joined = (XLinear.build({"refit": False, **told}) for told in ({}, vectors))
    for model in (plain, joined):
        model.fit(train, test, Run())
    exact = [ranking_metrics(test.truth, model.score(test.texts))["p@1"] for model in (plain, joined)]
    assert exact[0] < 0.6 and exact[1] > 0.75


def test_an_encoder_over_words_is_refused_by_a_tree() -> None:
    with pytest.raises(ConfigError, match="is not pretrained"):
        XLinear.build({"document_encoder": "words"}).fit(TRAIN, TEST, Run())


def test_a_mean_of_another_size_is_refused(folder: Path) -> None:
    model = XLinear.build({"document_encoder": str(folder), "refit": False})
    model.fit(TRAIN, TEST, Run())
    with pytest.raises(ValueError, match="another number of features"):
        XLinear.from_state(model.options(), model.labels, {**model.state(), "centre": np.zeros(3, np.float32)})


def test_without_torch_one_line_says_what_to_install(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Classifier("xlinear", {"document_encoder": str(folder), "refit": False}).fit(TRAIN, TEST).save(tmp_path)
    monkeypatch.delitem(sys.modules, "polytag.nn.encoding.frozen_encoder")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r"'document_encoder' needs the package 'torch'; install polytag\[nn\]"):
        XLinear.build({"document_encoder": str(folder)}).fit(TRAIN, TEST, Run())
    with pytest.raises(ArtefactError, match=r"a model with 'document_encoder' needs the package 'torch'; install polytag\[nn\]"):
        Classifier.load(tmp_path)
