"""The model ``bert``: its equation, its scores, long documents, and an artefact that needs nothing beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polytag.classifier import Classifier
from polytag.labels import LabelSet
from polytag.metrics.of_rankings import ranking_metrics
from polytag.models.base.neural_model import NeuralModel
from polytag.models.bert import Bert, BertNetwork
from polytag.nn.encoding.encoders import Encoder, WordEncoder
from polytag.nn.training.batch import Batch
from polytag.run import Run
from toys import encoder_sizes, tiny_bert, toy_corpus

QUICK: dict[str, Any] = {
    "epochs": 4,
    "batch_size": 16,
    "encoder_rate": 3e-3,
    "head_rate": 1e-2,
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def trained(folder: Path) -> Classifier:
    return Classifier("bert", {**QUICK, "encoder": str(folder)}).fit(toy_corpus(400), toy_corpus(60, 1))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_head_is_a_linear_layer_on_the_pooled_states(pooling: str) -> None:
    torch.manual_seed(0)
    network = BertNetwork(WordEncoder(9, 4), 3, pooling, 0.5).eval()
    ids, mask = torch.tensor([[2, 3, 4], [5, 0, 0]]), torch.tensor([[True, True, True], [True, False, False]])
    table, w, b = (p.detach().numpy() for p in (network.encoder.token_table().weight, network.output.weight, network.output.bias))
    rows = [table[[2, 3, 4]], table[[5]]]
    pooled = np.array([row[0] if pooling == "cls" else row.mean(axis=0) for row in rows])
    found = network(ids, mask).detach().numpy()
    assert found == pytest.approx(pooled @ w.T + b, abs=1e-6)


def test_labels_that_nobody_has_do_not_hold_back_the_others() -> None:
    train, valid, test = toy_corpus(400), toy_corpus(60, 2), toy_corpus(100, 1)
    labels = LabelSet([*train.labels, *(f"unused {number}" for number in range(5000))])
    options = {**QUICK, "encoder": "words", "embedding": 16, "epochs": 8, "encoder_rate": 1e-2}
    classifier = Classifier("bert", options).fit(train.with_labels(labels), valid.with_labels(labels))
    assert ranking_metrics(test.with_labels(labels).truth, classifier.scores(test.texts))["p@1"] > 0.9


def test_epsilon_shrinks_as_the_gradients_of_a_mean_over_many_outputs_do() -> None:
    model = Bert.build({"epsilon": 1e-6})
    assert model.setup().training.epsilon == 1e-6
    for count, expected in ((90, 1e-6), (100, 1e-6), (1000, 1e-7), (50_000, 2e-9)):
        model.labels = LabelSet(str(number) for number in range(count))
        assert model.setup().training.epsilon == pytest.approx(expected)


def test_probabilities_are_the_sigmoid_of_the_logits(trained: Classifier) -> None:
    model = trained.model
    assert isinstance(model, Bert) and model.network is not None and model.tokens is not None
    ids = model.tokens.encode(["a cat in paris"])[0]
    row = torch.tensor([[*model.tokens.prefix, *ids.tolist(), *model.tokens.suffix]])
    with torch.no_grad():
        logits = model.network(row, torch.ones_like(row, dtype=torch.bool))
    assert model.score(["a cat in paris"]).matrix.data == pytest.approx(1 / (1 + np.exp(-logits.numpy()[0])), abs=1e-5)


def test_a_hugging_face_folder_is_fine_tuned_and_learns(trained: Classifier) -> None:
    found = trained.evaluate(toy_corpus(100, 2))
    assert found["micro_f1"] > 0.9
    assert trained.scores(["a cat"]).kind == "probability"


def test_scores_do_not_depend_on_the_neighbours(trained: Classifier) -> None:
    texts = [*toy_corpus(40, 3).texts, "cat", ""]
    together = trained.scores(texts).matrix.toarray()
    alone = np.concatenate([trained.scores([text]).matrix.toarray() for text in texts])
    assert together == pytest.approx(alone, abs=1e-5)


def test_the_k_best_are_the_best_of_all(trained: Classifier) -> None:
    texts = toy_corpus(20, 3).texts
    full, best = trained.scores(texts), trained.scores(texts, 2)
    assert (best.ranked(2)[0] == full.ranked(2)[0]).all() and best.matrix.nnz == 40


def test_an_artefact_needs_neither_the_folder_nor_the_hub(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "encoder"))
    classifier = Classifier("bert", {**QUICK, "encoder": str(copy), "epochs": 1}).fit(toy_corpus(60))
    classifier.save(tmp_path / "run")
    shutil.rmtree(copy)
    texts = toy_corpus(20, 3).texts
    again = Classifier.load(tmp_path / "run")
    assert (again.scores(texts).matrix.data == classifier.scores(texts).matrix.data).all()
    assert {p.suffix for p in (tmp_path / "run" / "model").iterdir()} == {".json", ".safetensors", ".md"}


def test_same_seed_same_scores_and_another_seed_others(folder: Path) -> None:
    def data(seed: int) -> Any:
        options = {**QUICK, "encoder": str(folder), "epochs": 1, "seed": seed}
        return Classifier("bert", options).fit(toy_corpus(60)).scores(["a cat with tea"]).matrix.data

    torch.rand(3)  # what others drew does not matter
    assert (data(0) == data(0)).all() and (data(0) != data(1)).any()


def test_frozen_layers_do_not_move_and_the_others_do(folder: Path) -> None:
    def weights(frozen: int, steps: int) -> dict[str, Any]:
        model = Bert.build({**QUICK, "encoder": str(folder), "frozen_layers": frozen, "max_steps": steps})
        model.fit(toy_corpus(60), None, Run())
        return dict(model.state()["weights"])

    depths = Bert.build({**QUICK, "encoder": str(folder), "max_steps": 1})
    depths.fit(toy_corpus(60), None, Run())
    encoder = getattr(depths.network, "encoder", None)
    assert isinstance(encoder, Encoder)
    layer = encoder.depths()
    one, many = weights(1, 1), weights(1, 5)
    for name, array in one.items():
        number = layer.get(name.removeprefix("encoder."), 9)
        assert (array == many[name]).all() == (number <= 1), name


@pytest.mark.parametrize("long", ["head+tail", "windows"])
@pytest.mark.parametrize("encoder", ["folder", "bilstm"])
def test_what_stands_at_the_end_of_a_long_document_is_read(long: str, encoder: str, folder: Path) -> None:
    corpus = toy_corpus(200, most=30)
    short = {**encoder_sizes(str(folder) if encoder == "folder" else "bilstm", 16, 8), "max_length": 16}
    options = {**QUICK, **short, "epochs": 1}
    texts = ["the " * 20 + end for end in ("cat", "paris")]
    head, other = (
        Classifier("bert", {**options, "long": how}).fit(corpus).scores(texts).matrix.toarray() for how in ("head", long)
    )
    assert (head[0] == head[1]).all() and (other[0] != other[1]).any()


@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_the_logits_of_windows_are_pooled(pooling: str) -> None:
    class Sums(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return (ids * mask).sum(dim=1, keepdim=True).float()

    ids = torch.tensor([[[1, 2], [5, 5], [9, 0]], [[4, 1], [0, 0], [0, 0]]])
    mask = torch.tensor([[[1, 1], [1, 1], [1, 0]], [[1, 1], [0, 0], [0, 0]]]).bool()
    model = Bert.build({"window_pooling": pooling})
    found = NeuralModel._logits(model, Sums(), Batch(torch.arange(2), ids, mask, None))
    assert found.tolist() == ([[10], [5]] if pooling == "max" else [[pytest.approx(22 / 3)], [5]])


@pytest.mark.parametrize(
    "options", [{"loss": "focal"}, {"loss": "asymmetric"}, {"positive_weight": 0.5}, {"smoothing": 0.1}, {"schedule": "cosine"}]
)
def test_every_loss_learns(options: dict[str, Any]) -> None:
    quick = {**QUICK, "encoder": "words", "embedding": 16, "pooling": "max", "encoder_rate": 3e-2, "head_rate": 3e-2}
    classifier = Classifier("bert", {**quick, **options}).fit(toy_corpus(300))
    assert classifier.evaluate(toy_corpus(100, 2))["micro_f1"] > 0.9


def test_a_handful_of_documents_is_enough_to_train() -> None:
    quick = {**QUICK, "encoder": "words", "embedding": 8}
    assert len(Classifier("bert", quick).fit(["a", "b", ""], [["x"], ["y"], ["x", "y"]]).scores(["a"])) == 1
