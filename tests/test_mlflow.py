"""A classifier as an MLflow model: the same predictions, nothing pickled, also in an environment made for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Toy
from polytag.classifier import Classifier
from polytag.errors import ArtefactError, ConfigError, DataError

mlflow = pytest.importorskip("mlflow")
pandas = pytest.importorskip("pandas")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def saved(br: Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from polytag.mlflow import save_model

    folder = tmp_path_factory.mktemp("mlflow") / "tagger"
    save_model(br, folder)
    return folder


def test_pyfunc_predicts_as_the_classifier_does(saved: Path, br: Classifier, toy: Toy) -> None:
    """Frames, lists and series; the k best labels with a parameter."""
    model = mlflow.pyfunc.load_model(str(saved))
    found = model.predict(pandas.DataFrame({"text": toy.test.texts}))
    expected = [prediction for _, prediction in br.stream((None, text) for text in toy.test.texts)]
    assert found["labels"].tolist() == [each.labels for each in expected]
    assert found["scores"].tolist() == [each.scores for each in expected]
    best = model.predict(pandas.DataFrame({"text": toy.test.texts[:2]}), params={"top": 3})
    assert best["labels"].tolist() == [[name for name, _ in row] for row in br.scores(toy.test.texts[:2], 3).top(3)]
    inner = model._model_impl
    for given in (toy.test.texts, pandas.Series(toy.test.texts), pandas.DataFrame({"anything": toy.test.texts})):
        assert inner.predict(given)["labels"].tolist() == found["labels"].tolist()
    with pytest.raises(DataError, match="no column 'text' among"):
        inner.predict(pandas.DataFrame({"a": ["x"], "b": ["y"]}))


def test_nothing_is_pickled_and_the_flavour_says_what_it_is(saved: Path) -> None:
    files = [path for path in saved.rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix in (".pkl", ".pickle", ".joblib", ".cloudpickle")]
    about = (saved / "MLmodel").read_text()
    assert "loader_module: polytag.mlflow" in about and "model: br" in about
    needed = (saved / "requirements.txt").read_text()
    assert "polytag[mlflow]" in needed and "nn" not in needed
    assert (saved / "data" / "model" / "README.md").is_file()


def test_it_is_logged_to_a_run_and_loaded_from_there(br: Classifier, toy: Toy, tmp_path: Path) -> None:
    from polytag.mlflow import load_model, log_model

    pytest.importorskip("sqlalchemy")  # MLflow 3 keeps runs in a database, or in files where asked to
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'runs.db'}")
    try:
        mlflow.create_experiment("polytag", artifact_location=(tmp_path / "artifacts").as_uri())
        mlflow.set_experiment("polytag")
        with mlflow.start_run():
            info = log_model(br, "tagger")
        again = load_model(info.model_uri)
    except Exception as error:  # MLflow's smaller package cannot keep runs at all
        if "mlflow-skinny" in str(error) or isinstance(error, ModuleNotFoundError):
            pytest.skip(f"this MLflow keeps no runs: {error}")
        raise
    assert again.predict(toy.test.texts) == br.predict(toy.test.texts)


def test_a_loaded_one_is_a_classifier(saved: Path, br: Classifier, toy: Toy) -> None:
    from polytag.mlflow import load_model

    again = load_model(saved)
    assert (again.scores(toy.test.texts).matrix != br.scores(toy.test.texts).matrix).nnz == 0


@pytest.mark.parametrize("given", ["br", None, 7])
def test_only_a_classifier_is_saved(given: Any, tmp_path: Path) -> None:
    from polytag.mlflow import save_model

    with pytest.raises(ConfigError, match="is not a Classifier"):
        save_model(given, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_mistakes_are_one_line(saved: Path, br: Classifier, tmp_path: Path) -> None:
    from polytag.mlflow import load_model, save_model

    with pytest.raises(ConfigError, match="exists; name another folder"):
        save_model(br, saved)
    with pytest.raises(ArtefactError, match="not an MLflow model") as error:
        load_model(tmp_path)
    assert "\n" not in str(error.value)
    other = tmp_path / "other"
    other.mkdir()
    (other / "MLmodel").write_text("flavors:\n  sklearn:\n    data: model.pkl\n")
    with pytest.raises(ArtefactError, match="another flavour"):
        load_model(other)


@pytest.mark.services
def test_it_loads_in_a_fresh_environment_and_predicts_the_same(tmp_path: Path) -> None:
    """A new virtual environment with this package and MLflow alone, as the model's requirements name them."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from mlflow_environment import Unavailable, measure
    finally:
        sys.path.remove(str(BENCHMARKS))
    try:
        found = measure(tmp_path, documents=200)
    except Unavailable as error:
        pytest.skip(str(error))
    assert found["same_labels"] and found["same_scores"] and not found["torch_imported"]
