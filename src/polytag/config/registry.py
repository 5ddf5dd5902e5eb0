"""The names of the models and their classes: a plain table with lazy import."""

from __future__ import annotations

import importlib
from typing import Any

from polytag.errors import ConfigError, brief, suggestion

MODELS = {
    "bert": "polytag.models.bert:Bert",
    "bert-sgm": "polytag.models.bert_sgm:BertSgm",
    "br": "polytag.models.binary_relevance:BinaryRelevance",
    "cc": "polytag.models.classifier_chain:ClassifierChain",
    "cnn": "polytag.models.cnn:Cnn",
    "cnn-rnn": "polytag.models.cnn_rnn:CnnRnn",
    "embed": "polytag.models.embed:Embed",
    "hmcn": "polytag.models.hmcn:Hmcn",
    "laco": "polytag.models.laco:Laco",
    "leam": "polytag.models.leam:Leam",
    "lp": "polytag.models.label_powerset:LabelPowerset",
    "lsan": "polytag.models.lsan:Lsan",
    "mixed": "polytag.models.mixed:Mixed",
    "nearest": "polytag.models.nearest:Nearest",
    "seq2seq": "polytag.models.seq2seq:Seq2Seq",
    "seqtag": "polytag.models.seqtag:Seqtag",
    "sgm": "polytag.models.sgm:Sgm",
    "xbert": "polytag.models.xbert:XBert",
    "xlinear": "polytag.models.xlinear:XLinear",
    "xttention": "polytag.models.xttention:Xttention",
}

WRAPPERS = {"relabelled": "polytag.models.base.relabelled:Relabelled"}
"""Models around a trained model, which are not trained themselves; artefacts name them too."""


def class_of(name: str) -> type[Any]:
    """The class of a model, by its name; imported on demand."""
    known = {**MODELS, **WRAPPERS}
    if not isinstance(name, str) or name not in known:
        raise ConfigError(f"there is no model {brief(name)}; {suggestion(str(name), list(MODELS))}")
    found = imported(known[name], f"the model {name!r}")
    assert isinstance(found, type)
    return found


def registered_name(cls: type[Any]) -> str | None:
    """The name under which a class is registered; None if it is not."""
    path = f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name, target in {**MODELS, **WRAPPERS}.items() if target == path), None)


def imported(path: str, who: str) -> Any:
    """The object at ``module:name``, imported on demand; the error of a missing package names ``who`` needs it."""
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "polytag":
            raise
        raise ConfigError(f"{who} needs the package {error.name!r}; install polytag[nn]") from None
