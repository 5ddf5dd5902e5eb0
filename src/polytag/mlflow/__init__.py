"""An MLflow flavour: a trained classifier as an MLflow model, loaded by this module; nothing is pickled."""

from polytag.mlflow.flavour import _load_pyfunc, load_model, log_model, save_model

__all__ = ["_load_pyfunc", "load_model", "log_model", "save_model"]
