"""Exported networks: scores equal to torch's, 8 bits that decide alike, and exports that are stale, damaged or impossible."""

from __future__ import annotations

import copy
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from conftest import Command
from polytag.classifier import Classifier
from polytag.cli.app import app
from polytag.errors import ArtefactError, ConfigError
from polytag.metrics.of_sets import micro_f1
from polytag.models.base.match_model import MatchModel
from polytag.models.base.neural_model import NeuralModel
from polytag.nn.export import onnx_export
from polytag.nn.export.onnx_export import export_network
from polytag.nn.export.onnx_network import ABOUT, NETWORK, OnnxNetwork, export_folder, fresh_export
from toys import tiny_bert, toy_corpus

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 16, "encoder_rate": 3e-3, "head_rate": 1e-2, "device": "cpu"}
TEXTS = [*toy_corpus(150, 5, most=30).texts, "", "cat " * 200]  # an empty one, and one longer than the encoder can read


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained bert in a folder, with its network exported in float32."""
    folder = tmp_path_factory.mktemp("run")
    encoder = tiny_bert(tmp_path_factory.mktemp("bert"))
    classifier = Classifier("bert", {**QUICK, "encoder": str(encoder)}).fit(toy_corpus(400), toy_corpus(60, 1))
    classifier.save(folder)
    classifier.model.export(folder / "model")
    return folder


@pytest.fixture(scope="module")
def int8(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with its network exported in 8 bits, by the command and in the place of the first export."""
    folder = tmp_path_factory.mktemp("int8") / "run"
    shutil.copytree(run, folder)
    told = CliRunner().invoke(app, ["export", str(folder), "--onnx", "--int8"])
    assert told.exit_code == 0 and told.stdout == "" and "exported in 8 bits" in told.stderr, told
    return folder


def network(classifier: Classifier) -> NeuralModel:
    """The model itself, or the one that finds its clusters."""
    model = classifier.model
    found = model.matcher if isinstance(model, MatchModel) else model
    assert isinstance(found, NeuralModel)
    return found


def loaded(run: Path) -> Classifier:
    """The classifier with its export in use."""
    classifier = Classifier.load(run)
    assert classifier.model.use_export(run / "model")
    return classifier


def in_torch(run: Path) -> Classifier:
    classifier = Classifier.load(run)
    network(classifier).exported = None
    return classifier


def silence(classifier: Classifier) -> None:
    """Make torch's network useless, so that scores can only come from the export."""
    found = network(classifier).network
    assert found is not None
    with torch.no_grad():
        for weight in found.parameters():
            weight.zero_()


def test_exported_scores_are_those_of_torch(run: Path) -> None:
    expected, classifier = in_torch(run).scores(TEXTS).matrix.toarray(), loaded(run)
    silence(classifier)
    found = classifier.scores(TEXTS).matrix.toarray()
    assert expected.std() > 0.1  # there is something to get wrong
    assert np.abs(found - expected).max() < 1e-3
    assert classifier.scores(TEXTS, k=2).top(2) == classifier.scores(TEXTS).top(2)


def test_eight_bits_decide_alike(run: Path, int8: Path) -> None:
    corpus, plain, coarse = toy_corpus(300, 7), in_torch(run), loaded(int8)
    silence(coarse)
    expected, found = (clf.decision.decide(clf.scores(corpus.texts), clf.labels) for clf in (plain, coarse))
    truth = corpus.with_labels(plain.labels).truth
    assert micro_f1(truth, expected) > 0.9
    assert abs(micro_f1(truth, found) - micro_f1(truth, expected)) < 0.005
    difference = np.abs(coarse.scores(TEXTS).matrix.toarray() - plain.scores(TEXTS).matrix.toarray()).max()
    assert 0 < difference < 0.03  # with all eight bits of the weights products overflow, and it would be .06 to .13


def test_matrix_products_are_done_in_whole_numbers_and_attention_in_one_operation(run: Path, int8: Path) -> None:
    import onnx

    plain, coarse = ([node.op_type for node in onnx.load(f / "onnx" / NETWORK).graph.node] for f in (run, int8))
    assert plain.count("MultiHeadAttention") == coarse.count("MultiHeadAttention") == 2  # layers
    assert plain.count("Gelu") == coarse.count("Gelu") == 2 and "Erf" not in plain
    assert plain.count("MatMul") + plain.count("Gemm") >= 2 * 6 + 1  # query, key, value, output, and two more; the labels
    assert coarse.count("MatMulInteger") >= 2 * 6
    assert "MatMul" not in coarse


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cnn", {"filters": 8, "embedding": 16}),
        ("leam", {"embedding": 16}),
        ("lsan", {"encoder": "words", "embedding": 16}),
        ("lsan", {"encoder": "bilstm", "embedding": 16, "hidden": 8, "layers": 2}),
        ("xbert", {"encoder": "words", "embedding": 16, "join": "none"}),
        ("xbert", {"encoder": "words", "embedding": 16, "join": "network", "join_weight": 3.0}),
        ("xttention", {"embedding": 16, "hidden": 8, "heads": 3, "attention_size": 4, "dense": 12, "join": "network"}),
        ("bert", {"encoder": "words", "embedding": 16, "pooling": "max", "long": "windows", "max_length": 8, "overlap": 2}),
    ],
)  # fmt: skip
def test_other_networks_can_be_exported(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    classifier = Classifier(name, {**QUICK, "epochs": 1, **options}).fit(toy_corpus(80), toy_corpus(20, 1))
    classifier.save(tmp_path)
    expected = classifier.scores(TEXTS).matrix.toarray()
    classifier.model.export(tmp_path / "model")
    exported = loaded(tmp_path)
    silence(exported)
    assert np.abs(exported.scores(TEXTS).matrix.toarray() - expected).max() < 1e-3


def test_a_network_that_the_exporter_cannot_follow_is_refused(tmp_path: Path) -> None:
    options = {**QUICK, "epochs": 1, "filters": 8, "embedding": 16, "convolutions": 2}
    classifier = Classifier("cnn", options).fit(toy_corpus(80), toy_corpus(20, 1))
    classifier.save(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be exported to ONNX.*predict with torch"):
        classifier.model.export(tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def changed(network: torch.nn.Module, change: float) -> torch.nn.Module:
    """A copy of the network with something added to its last weights."""
    network = copy.deepcopy(network)
    with torch.no_grad():
        list(network.parameters())[-1].add_(change)
    return network


@pytest.mark.parametrize("change", [0.05, float("nan")])
def test_an_export_that_does_not_compute_what_torch_does_is_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: float
) -> None:
    shutil.copytree(run / "model", tmp_path / "run" / "model")
    trace = onnx_export._trace
    monkeypatch.setattr(onnx_export, "_trace", lambda network, path: trace(changed(network, change), path))
    found = network(in_torch(run)).network
    assert found is not None
    with pytest.raises(ConfigError, match=r"the exported network's scores differ from torch's by .*; predict with torch"):
        export_network(found, tmp_path / "run" / "model")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["model"]


def test_weights_in_eight_bits_use_seven_of_them(int8: Path) -> None:
    """Two products of eight bits do not fit into the 16 bits in which processors without VNNI add them."""
    import onnx

    weights = [onnx.numpy_helper.to_array(t).astype(int) for t in onnx.load(int8 / "onnx" / NETWORK).graph.initializer
               if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 2]  # fmt: skip
    assert len(weights) >= 2 * 6
    assert all(60 <= np.abs(each).max() <= 64 for each in weights)


@pytest.mark.parametrize(
    ("activation", "fused"),
    [
        ("gelu", True),
        ("gelu_python", True),
        ("gelu_new", False),
        ("gelu_pytorch_tanh", False),
        ("gelu_fast", False),
        ("relu", False),
    ],
)
def test_only_the_exact_gelu_becomes_one_operation(activation: str, fused: bool) -> None:
    """The others approximate it, by less than the comparison with torch would notice."""
    from transformers.activations import ACT2FN

    encoder = torch.nn.Sequential(torch.nn.Linear(2, 2), ACT2FN[activation])
    onnx_export._fuse_gelu(encoder)
    assert isinstance(encoder[1], onnx_export._Gelu) is fused


@pytest.mark.parametrize(("approximate", "fused"), [("none", True), ("tanh", False)])
def test_only_the_exact_gelu_of_torch_becomes_one_operation(approximate: str, fused: bool) -> None:
    encoder = torch.nn.Sequential(torch.nn.GELU(approximate))
    onnx_export._fuse_gelu(encoder)
    assert isinstance(encoder[0], onnx_export._Gelu) is fused


def test_an_export_of_another_model_is_not_used(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(run, tmp_path / "run")
    assert fresh_export(tmp_path / "run" / "model") == (tmp_path / "run" / "onnx" / NETWORK).resolve()
    classifier = Classifier.load(tmp_path / "run")
    classifier.training = {**classifier.training, "documents": 1}
    classifier.save(tmp_path / "run")
    assert not Classifier.load(tmp_path / "run").model.use_export(tmp_path / "run" / "model")
    assert "made from another model" in caplog.text


def test_an_export_can_be_switched_off_and_training_again_forgets_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = loaded(run)
    classifier.fit(toy_corpus(40, 3), toy_corpus(20, 4))
    assert network(classifier).exported is None
    monkeypatch.setenv("POLYTAG_ONNX", "0")
    assert not classifier.model.use_export(run / "model")


def test_other_precision_than_float32_stays_with_torch(run: Path) -> None:
    model = network(loaded(run))
    model.compute.precision = "bf16"
    assert model._inference_module(torch.device("cpu")) is model.network
    model.compute.precision = "auto"
    assert isinstance(model._inference_module(torch.device("cpu")), OnnxNetwork)


def test_a_damaged_export_is_noticed(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    classifier = loaded(tmp_path / "run")
    path = tmp_path / "run" / "onnx" / NETWORK
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(ArtefactError, match=r"model\.onnx.*changed.*export again"):
        classifier.scores(["a cat"])
    path.with_name(ABOUT).write_text("{}")
    with pytest.raises(ArtefactError, match=r"export\.json does not describe"):
        fresh_export(tmp_path / "run" / "model")


def test_the_command_leaves_one_export_and_nothing_else(run: Path, int8: Path) -> None:
    for folder, coarse in ((run, False), (int8, True)):
        assert json.loads((folder / "onnx" / ABOUT).read_text())["int8"] is coarse
        assert sorted(p.name for p in (folder / "onnx").iterdir()) == [ABOUT, NETWORK]
        assert sorted(p.name for p in folder.iterdir()) == ["model", "onnx"]


def test_what_cannot_be_exported(polytag: Command, run: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no network to export" in polytag("export", run_folder, "--onnx").complaint
    assert not (run_folder / "onnx").exists()
    assert "--onnx" in polytag("export", run).complaint
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "onnxruntime" else find(name, *rest))
    assert "'onnxruntime'; install polytag[export]" in polytag("export", run, "--onnx").complaint
    assert fresh_export(run / "model") is None


def test_a_folder_that_is_no_export_is_left_alone(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "model", tmp_path / "run" / "model")
    (tmp_path / "run" / "onnx").mkdir()
    found = network(in_torch(run)).network
    assert found is not None
    with pytest.raises(ConfigError, match="is not an export"):
        export_network(found, tmp_path / "run" / "model")
    assert export_folder(tmp_path / "best") == (tmp_path / "best-onnx").resolve()


def test_the_inputs_of_a_comparison_have_padding(run: Path) -> None:
    """Each document is two tokens shorter than the one before, and none is empty."""
    found = network(in_torch(run)).network
    assert found is not None
    for documents, length in ((3, 16), (4, 4)):
        ids, mask = onnx_export._sample(found, documents, length)
        assert ids.shape == mask.shape == (documents, length) and mask[:, 0].all()
        assert mask.sum(dim=1).tolist() == [max(1, length - 2 * number) for number in range(documents)]


def test_a_model_with_edited_labels_is_exported_and_scores_alike(run: Path, tmp_path: Path) -> None:
    edited = Classifier.load(run)
    first, second, *_ = edited.labels
    edited.merge({"both": [first, second]}).save(tmp_path)
    plain = Classifier.load(tmp_path)
    assert not plain.model.use_export(tmp_path / "model"), "the export of the old run is not taken along"
    expected = plain.scores(TEXTS).matrix.toarray()
    plain.model.export(tmp_path / "model")
    found = loaded(tmp_path).scores(TEXTS)
    assert "both" in found.names
    np.testing.assert_allclose(found.matrix.toarray(), expected, atol=2e-3)


def test_the_service_computes_with_the_export(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with an export is served by ONNX Runtime, also in batches of several requests; its answers are torch's."""
    pytest.importorskip("msgspec")
    from polytag.server.hosting.hosted_model import PLAIN, HostedModel

    served = HostedModel.load(run)
    assert isinstance(network(served.classifier).exported, OnnxNetwork)
    monkeypatch.setenv("POLYTAG_ONNX", "0")
    plain = HostedModel.load(run)
    assert network(plain.classifier).exported is None
    texts = TEXTS[:40]
    for one, other in zip(served.predict(texts, [PLAIN] * 40), plain.predict(texts, [PLAIN] * 40), strict=True):
        assert one.labels == other.labels
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)
