"""How near labels' texts are to a document for an encoder as it came, and what laco's shared head makes of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.labels import LabelSet
from polytag.models.laco import Laco, LacoNetwork
from polytag.nn.labels.label_similarity import SCALE, Nearness
from polytag.run import Run
from toys import tiny_bert, toy_corpus

TRAIN, TEST = toy_corpus(60), toy_corpus(12, 1)
TEXTS = {name: f"{name} and something about it" for name in TRAIN.labels}
NEW = {"weather at sea": "storm wind and waves", "wheat": "harvest of grain"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("encoder"), texts=[*TRAIN.texts, *TEXTS.values(), *NEW.values()])


def described(corpus: Corpus) -> Corpus:
    return corpus.with_labels(LabelSet(list(corpus.labels), descriptions=TEXTS))


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "encoder": str(folder), "label_text": "description", "shared": True, "shared_size": 8, "epochs": 1, "batch_size": 16,
        "device": "cpu", "precision": "fp32", "encoder_rate": 1e-2, "head_rate": 1e-2, "dropout": 0.0, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def trained(folder: Path) -> Classifier:
    return Classifier("laco", options(folder)).fit(described(TRAIN), described(TEST))


@pytest.fixture
def classifier(trained: Classifier, tmp_path: Path) -> Classifier:
    """A copy that a test may change."""
    trained.save(tmp_path / "copy")
    return Classifier.load(tmp_path / "copy")


def network_of(classifier: Classifier) -> LacoNetwork:
    assert isinstance(classifier.model, Laco) and isinstance(classifier.model.network, LacoNetwork)
    return classifier.model.network


def near_of(classifier: Classifier) -> Nearness:
    near = network_of(classifier).near
    assert near is not None
    return near


def by_hand(folder: Path, texts: list[str]) -> np.ndarray:
    """Mean states of the encoder as it lies in its folder, each of length one."""
    tokeniser, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    model = model.half().float()  # an artefact keeps half precision
    rows = []
    for text in texts:
        with torch.no_grad():
            states = model(**tokeniser(text, return_tensors="pt", truncation=True, max_length=64)).last_hidden_state[0]
        rows.append((states.mean(dim=0) / states.mean(dim=0).norm()).numpy())
    return np.stack(rows)


def batch(classifier: Classifier, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    model = classifier.model
    assert isinstance(model, Laco) and model.tokens is not None
    ids, offsets = model.tokens.encode(texts)
    rows = [[*model.tokens.prefix, *ids[a:b], *model.tokens.suffix] for a, b in itertools.pairwise(offsets)]
    tensor = torch.full((len(rows), max(map(len, rows))), model.tokens.pad)
    for number, row in enumerate(rows):
        tensor[number, : len(row)] = torch.tensor(row)
    return tensor, torch.arange(tensor.shape[1]) < torch.tensor([[len(row)] for row in rows])


def test_it_is_the_scaled_cosine_by_the_untrained_encoder(folder: Path, classifier: Classifier) -> None:
    """Training has moved the network's own encoder far away by now."""
    classifier.add_labels(NEW)
    near, texts = near_of(classifier), TEST.texts[:6]
    found = near.of(near.documents(*batch(classifier, texts)), near.added).numpy()
    cosines = by_hand(folder, texts) @ by_hand(folder, list(NEW.values())).T
    assert found == pytest.approx(SCALE * (cosines - near.mean), abs=1e-3)
    frozen = near.frozen.encoder.state_dict()
    moved = [float((value - frozen[name]).abs().max()) for name, value in network_of(classifier).encoder.state_dict().items()]
    assert max(moved) > 0.01


def test_it_is_around_zero_in_training(folder: Path, trained: Classifier) -> None:
    cosines = by_hand(folder, TRAIN.texts) @ by_hand(folder, [TEXTS[name] for name in TRAIN.labels]).T
    assert near_of(trained).mean == pytest.approx(cosines.mean(), abs=1e-3)


@pytest.mark.parametrize("training", [True, False])
def test_the_shared_head_adds_to_it(classifier: Classifier, training: bool) -> None:
    """In training as it is; for labels that it never saw it counts half."""
    network, tokens = network_of(classifier), batch(classifier, TEST.texts[:4])
    near = near_of(classifier)
    near.known = near.texts(classifier.model._label_texts(classifier.labels.names))  # type: ignore[attr-defined]
    network.shared_only = True
    network.train(training)
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        joint = network.encode(*tokens)
        both, nearness = network.share(joint), near.of(near.documents(*tokens), near.known)
        network.near = None
        alone = network.share(network.encode(*tokens))
    assert float(nearness.std()) > 0.01 and torch.allclose(both, (1.0 if training else 0.5) * alone + nearness, atol=1e-4)


def test_added_labels_are_scored_with_it(classifier: Classifier) -> None:
    classifier.add_labels(NEW)
    with_it = classifier.scores(TEST.texts).matrix.toarray()
    near = near_of(classifier)
    network_of(classifier).near = None
    without = classifier.scores(TEST.texts).matrix.toarray()
    logit = lambda p: np.log(p / (1 - p))  # noqa: E731
    n = len(TRAIN.labels)
    assert with_it[:, :n] == pytest.approx(without[:, :n], abs=1e-6)
    nearness = near.of(near.documents(*batch(classifier, TEST.texts)), near.added).numpy()
    assert logit(with_it[:, n:]) - logit(without[:, n:]) / 2 == pytest.approx(nearness, abs=1e-3)


def test_labels_that_were_trained_cost_no_second_encoder(classifier: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    def documents(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(Nearness, "documents", documents)
    classifier.scores(TEST.texts[:2])
    classifier.add_labels(NEW)
    with pytest.raises(AssertionError):
        classifier.scores(TEST.texts[:2])


def test_it_is_saved_and_loaded(trained: Classifier, classifier: Classifier, tmp_path: Path) -> None:
    assert near_of(classifier).mean == near_of(trained).mean
    classifier.add_labels(NEW)
    classifier.save(tmp_path / "run")
    again = Classifier.load(tmp_path / "run")
    assert np.array_equal(again.scores(TEST.texts).matrix.data, classifier.scores(TEST.texts).matrix.data)


def test_an_artefact_from_before_it_can_be_read(trained: Classifier) -> None:
    model = trained.model
    assert isinstance(model, Laco)
    state = model.state()
    del state["near"]
    older = Laco.from_state(model.options(), model.labels, state)
    older.extend(LabelSet(NEW, descriptions=NEW))
    assert np.isfinite(older.score(TEST.texts).matrix.data).all()


def test_a_training_that_goes_on_keeps_the_encoder_as_it_came(folder: Path, classifier: Classifier) -> None:
    classifier.add_labels(NEW)
    later = Classifier("laco", options(folder, max_steps=1)).continue_from(classifier).fit(described(TRAIN))
    assert near_of(later).frozen is near_of(classifier).frozen
    assert len(near_of(later).known) == len(later.labels) == len(TRAIN.labels) + len(NEW)


@pytest.mark.parametrize("more", [{"near": False}, {"shared": False}, {"encoder": "words"}, {"label_text": "new"}], ids=repr)
def test_what_does_without_it(folder: Path, more: dict[str, Any]) -> None:
    model = Laco.build({**{**options(folder), **more, "max_steps": 1}})
    model.fit(described(TRAIN), None, Run())
    assert isinstance(model.network, LacoNetwork) and model.network.near is None and model.state()["near"] is None


def test_it_can_be_exported(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    classifier = Classifier("laco", options(folder, label_text="name", pooled=True, max_length=32)).fit(described(TRAIN))
    classifier.add_labels(NEW)
    classifier.save(tmp_path)
    expected = classifier.scores(TEST.texts).matrix.data
    Classifier.load(tmp_path).model.export(tmp_path / "model")  # type: ignore[attr-defined]
    exported = Classifier.load(tmp_path)
    assert isinstance(exported.model, Laco) and exported.model.exported is not None
    assert exported.scores(TEST.texts).matrix.data == pytest.approx(expected, abs=1e-4)
