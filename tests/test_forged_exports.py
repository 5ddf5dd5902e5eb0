"""Forged exports: an ONNX folder that no export wrote, with correct checksums, is refused in one line, whatever is wrong."""

from __future__ import annotations

import copy
import json
import multiprocessing
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polytag.classifier import Classifier
from polytag.errors import ArtefactError
from polytag.models.base.neural_model import NeuralModel
from polytag.nn.export.onnx_network import ABOUT, DESCRIPTION, NETWORK, OnnxNetwork
from polytag.storage.artefact import file_digest
from toys import toy_corpus

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

TEXTS = ["a cat", "", "dog cat cow"]
OPTIONS = {"encoder": "words", "embedding": 8, "epochs": 1, "batch_size": 8, "device": "cpu", "precision": "fp32"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an export."""
    folder = tmp_path_factory.mktemp("exported")
    classifier = Classifier("bert", OPTIONS).fit(toy_corpus(24))
    classifier.save(folder)
    classifier.model.export(folder / "model")
    return folder


@pytest.fixture
def run(exported: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(exported, tmp_path / "run"))


def refused(run: Path, line: str) -> None:
    """The classifier is refused when it is loaded or when it predicts, in one line."""
    with pytest.raises(ArtefactError, match=line) as caught:
        Classifier.load(run).predict(TEXTS)
    assert len(str(caught.value).splitlines()) == 1 and "export again, or remove the folder" in str(caught.value)


# -- the description ---------------------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "nothing": None, "true": True, "-1": -1, "0": 0, "3": 3, "2.0": 2.0, "2^64": 2**64, "10^400": 10**400, "1e308": 1e308,
    "nan": float("nan"), "infinite": float("inf"), "text": "2", "a list": [2], "a table": {"format": 2},
}  # fmt: skip
FITS = {("int8", "true"), ("polytag", "text")}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", DESCRIPTION.fields)
def test_a_description_with_a_wrong_value_is_refused(run: Path, name: str, value: str) -> None:
    path = run / "onnx" / ABOUT
    path.write_text(json.dumps({**json.loads(path.read_text()), name: VALUES[value]}))
    if (name, value) in FITS:
        Classifier.load(run).predict(TEXTS)
    elif (name, value) == ("artefact", "text"):  # of another model: that is no forgery
        assert network_of(Classifier.load(run)).exported is None
    elif (name, value) == ("sha256", "text"):
        refused(run, r"model\.onnx is missing or was changed")
    else:
        refused(run, r"export\.json does not describe an export")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "2", '"text"', "{}", '{"format": 2}', "[" * 100_000, '{"a": ' * 30_000, "\udcff", "1" * 5000],
    ids=lambda text: ascii(text[:12]),
)  # fmt: skip
def test_a_description_that_is_no_table_is_refused(run: Path, text: str) -> None:
    (run / "onnx" / ABOUT).write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(run, r"export\.json does not describe an export")


@pytest.mark.parametrize("name", DESCRIPTION.fields)
def test_a_description_with_a_value_missing_or_too_many_is_refused(run: Path, name: str) -> None:
    path = run / "onnx" / ABOUT
    about = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in about.items() if key != name}))
    refused(run, r"export\.json does not describe an export")
    path.write_text(json.dumps({**about, f"{name}2": 1}))
    refused(run, r"export\.json does not describe an export")


def test_an_export_of_an_older_version_is_not_used(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    (run / "onnx" / ABOUT).write_text('{"format": 1}')
    assert network_of(Classifier.load(run)).exported is None and "made by an older version" in caplog.text


def test_a_folder_in_the_place_of_the_network_is_refused(run: Path) -> None:
    (run / "onnx" / NETWORK).unlink()
    refused(run, r"model\.onnx is missing")
    (run / "onnx" / NETWORK).mkdir()
    refused(run, r"model\.onnx is missing")


# -- the network -------------------------------------------------------------------------------------------------------


def graph(columns: int = 4, kind: str = "FLOAT", rank: int = 2, name: str = "ids", ids: str = "INT64", more: Any = ()) -> Any:
    """A network that gives these many columns, each 0."""
    helper, types = onnx.helper, onnx.TensorProto
    output = [helper.make_tensor(at, types.INT64, [1], [value]) for at, value in (("axis", 0), ("columns", columns))]
    nodes = [
        helper.make_node("Shape", [name], ["rows"], start=0, end=1),
        helper.make_node("Concat", ["rows", *["columns"] * (rank - 1)], ["sizes"], axis=0),
        helper.make_node("ConstantOfShape", ["sizes"], ["logits"], value=helper.make_tensor("v", getattr(types, kind), [1], [0])),
        *more,
    ]
    inputs = [helper.make_tensor_value_info(name, getattr(types, ids), ["a", "b"])]
    outputs = [helper.make_tensor_value_info("logits", getattr(types, kind), [None] * rank)]
    made = helper.make_graph(nodes, "g", inputs, outputs, output)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def forge(run: Path, content: bytes) -> None:
    """Put another network in place, with its checksum."""
    path = run / "onnx" / NETWORK
    path.write_bytes(content)
    about = path.with_name(ABOUT)
    about.write_text(json.dumps({**json.loads(about.read_text()), "sha256": file_digest(path)}))


def outside(run: Path) -> bytes:
    """A network whose weights are those of a file in another folder."""
    np.zeros((100, 4), dtype=np.float32).tofile(run / "weights")
    made = graph(more=[onnx.helper.make_node("Identity", ["w"], ["unused"])])
    weights = made.graph.initializer.add(name="w", data_type=1, dims=[100, 4], data_location=1)
    for key, value in (("location", "../weights"), ("offset", "0"), ("length", "1600")):
        weights.external_data.add(key=key, value=value)
    return bytes(made.SerializeToString())


def failing(run: Path) -> bytes:
    """A network that looks right and cannot be computed: it reshapes its ids to a size that they do not have."""
    made = graph()
    del made.graph.node[2:]
    made.graph.initializer.append(onnx.helper.make_tensor("seven", 7, [2], [7, 4]))
    made.graph.node.append(onnx.helper.make_node("Cast", ["ids"], ["numbers"], to=1))
    made.graph.node.append(onnx.helper.make_node("Reshape", ["numbers", "seven"], ["logits"]))
    return bytes(made.SerializeToString())


FORGED: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "nothing": (lambda run: b"", "cannot be opened"),
    "noise": (lambda run: bytes(range(256)) * 8, "cannot be opened"),
    "cut short": (lambda run: (run / "onnx" / NETWORK).read_bytes()[:-100], "cannot be opened"),
    "a label too few": (lambda run: graph(3).SerializeToString(), "has not one output for each of 4 labels"),
    "a label too many": (lambda run: graph(5).SerializeToString(), "has not one output for each of 4 labels"),
    "no labels": (lambda run: graph(0).SerializeToString(), "has not one output for each of 4 labels"),
    "10^17 labels": (lambda run: graph(10**17).SerializeToString(), "cannot be computed"),
    "a negative number of labels": (lambda run: graph(-1).SerializeToString(), "cannot be computed"),
    "three dimensions": (lambda run: graph(rank=3).SerializeToString(), "does not turn token ids into scores"),
    "doubles": (lambda run: graph(kind="DOUBLE").SerializeToString(), "does not turn token ids into scores"),
    "text": (lambda run: graph(ids="STRING").SerializeToString(), "does not turn token ids into scores"),
    "another name": (lambda run: graph(name="x").SerializeToString(), "does not turn token ids into scores"),
    "an operation that fails": (failing, "cannot be computed"),
    "weights of another folder": (outside, "cannot be opened"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_network_that_no_export_wrote_is_refused(run: Path, forged: str) -> None:
    made, line = FORGED[forged]
    forge(run, made(run))
    refused(run, line)


def test_the_command_line_says_it_in_one_line(run: Path) -> None:
    forge(run, graph(3).SerializeToString())
    (run / "x.txt").write_text("a cat\n")
    command = [sys.executable, "-m", "polytag", "-q", "predict", str(run), str(run / "x.txt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1) and "one output for each of 4 labels" in done.stderr


def test_what_is_forged_here_would_be_taken_if_it_fitted(run: Path) -> None:
    forge(run, graph().SerializeToString())
    assert np.all(Classifier.load(run).scores(TEXTS).matrix.toarray() == 0.5)


# -- copies ------------------------------------------------------------------------------------------------------------


def network_of(classifier: Classifier) -> NeuralModel:
    assert isinstance(classifier.model, NeuralModel)
    return classifier.model


def test_an_open_export_is_copied_and_used_in_forked_processes(run: Path) -> None:
    """What is open belongs to one process: a copy, and a process that was forked from this one, open it again."""
    classifier = Classifier.load(run)
    expected = classifier.scores(TEXTS).matrix.toarray()
    assert isinstance(network_of(classifier).exported, OnnxNetwork)
    assert np.array_equal(copy.deepcopy(classifier).scores(TEXTS).matrix.toarray(), expected)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found = pool.apply_async(classifier.predict, (TEXTS,)).get(timeout=60)
    assert found == classifier.predict(TEXTS)
