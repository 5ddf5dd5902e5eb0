"""Saving, logging and loading a classifier as an MLflow model."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polytag.classifier import Classifier
from polytag.config.registry import MODELS
from polytag.errors import ArtefactError, ConfigError, DataError, brief
from polytag.formats.inputs import checked_path
from polytag.storage.artefact import polytag_version

try:
    import mlflow
    import pandas
    from mlflow.models import Model, ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema
except ImportError:
    raise ConfigError("polytag.mlflow needs mlflow and pandas; install polytag[mlflow]") from None

LOADER = "polytag.mlflow"  # MLflow imports this module and calls its _load_pyfunc
FLAVOUR = "polytag"
_PLAIN = ("br", "cc", "lp", "xlinear")  # models that need no torch


def save_model(classifier: Classifier, path: str | Path, mlflow_model: Any = None) -> None:
    """Write a trained classifier to a new folder, as an MLflow model of the flavours ``polytag`` and ``python_function``.

    ``mlflow_model`` is what MLflow itself passes when it logs a model.
    """
    if not isinstance(classifier, Classifier):
        raise ConfigError(f"{brief(classifier)} is not a Classifier; load one, as in Classifier.load('runs/first')")
    place = checked_path(path)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ConfigError(f"{place} exists; name another folder for the MLflow model")
    model = Model() if mlflow_model is None else mlflow_model
    model.add_flavor(FLAVOUR, polytag=polytag_version(), data="data/model", model=classifier.recipe.model)
    with tempfile.TemporaryDirectory() as folder:
        classifier.save(folder)
        mlflow.pyfunc.save_model(
            path=str(place),
            loader_module=LOADER,
            data_path=str(Path(folder, "model")),
            mlflow_model=model,
            signature=_signature(),
            pip_requirements=_requirements(classifier),
        )


def log_model(classifier: Classifier, name: str = "model", registered_model_name: str | None = None) -> Any:
    """Log a trained classifier to the active run of MLflow, or to a new one; returns MLflow's description of the model."""
    return Model.log(
        artifact_path=None,
        flavor=sys.modules[LOADER],
        name=name,
        registered_model_name=registered_model_name,
        classifier=classifier,
    )


def load_model(uri: str | Path) -> Classifier:
    """The classifier of an MLflow model: a folder, or an address such as ``runs:/.../model`` or ``models:/...``."""
    try:
        folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=str(uri)))
        flavours = Model.load(str(folder)).flavors
    except (mlflow.exceptions.MlflowException, OSError) as error:
        raise ArtefactError(f"{uri}: not an MLflow model ({brief(str(error), 200)}); name its folder or address") from None
    if FLAVOUR not in flavours:
        raise ArtefactError(f"{uri} is an MLflow model of another flavour ({', '.join(flavours)}); save it with polytag.mlflow")
    return Classifier.load(folder / flavours[FLAVOUR]["data"])


class PyfuncModel:
    """What ``mlflow.pyfunc.load_model`` wraps: texts in, a frame with ``labels`` and ``scores`` out."""

    def __init__(self, classifier: Classifier) -> None:
        """Take the classifier."""
        self.classifier = classifier

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Label texts: a frame with the column ``text`` or one column, a list or a series; ``top`` asks for the k best labels."""
        top = int((params or {}).get("top") or 0) or None
        found = [prediction for _, prediction in self.classifier.stream(((None, text) for text in _texts(model_input)), top)]
        return pandas.DataFrame({"labels": [each.labels for each in found], "scores": [each.scores for each in found]})


def _load_pyfunc(path: str) -> PyfuncModel:
    """Load the classifier of a model's data folder; MLflow calls this."""
    return PyfuncModel(Classifier.load(path))


def _texts(given: Any) -> list[Any]:
    if isinstance(given, pandas.DataFrame):
        if "text" not in given and given.shape[1] != 1:
            names = ", ".join(map(str, given.columns))
            raise DataError(f"the frame has no column 'text' among ({names}); rename the column with the texts")
        given = given["text"] if "text" in given else given.iloc[:, 0]
    return [given] if isinstance(given, str) else list(given)


def _signature() -> ModelSignature:
    labels, scores = ColSpec(Array(DataType.string), "labels"), ColSpec(Array(DataType.double), "scores")
    return ModelSignature(
        inputs=Schema([ColSpec(DataType.string, "text")]),
        outputs=Schema([labels, scores]),
        params=ParamSchema([ParamSpec("top", DataType.long, 0)]),
    )


def _requirements(classifier: Classifier) -> list[str]:
    """What an environment needs: this version, with torch if the model, or a part of it, is a network."""
    names = {classifier.recipe.model, *(str(part.get("model", "")) for part in _parts(classifier))} & set(MODELS)
    extras = "mlflow" if names <= {*_PLAIN, "mixed"} else "mlflow,nn"
    version = polytag_version()
    return [f"polytag[{extras}]" + ("" if version == "unknown" else f"=={version}")]


def _parts(classifier: Classifier) -> list[dict[str, Any]]:
    return list(classifier.model.described_parts()) if classifier.model.composite else []
