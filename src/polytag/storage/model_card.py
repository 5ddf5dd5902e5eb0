"""The model card: what an artefact was trained on, how good it is and where it ends, in Markdown.

The card is a function of the state that is saved. It has no date and no path, so that the same training gives the same card.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_SHOWN = 10  # labels that are listed
_FEW = 5  # training documents below which a label can hardly be learned
_RULES = {
    "auto": "not fitted: probabilities of 0.5 or more, or positive margins",
    "threshold": "one threshold for all labels",
    "per_label": "one threshold per label, shrunk towards a common one for rare labels",
    "top_k": "a fixed number of labels per document",
    "decoded": "the set that the model generates",
    "promise": "one threshold that keeps a promise",
}


def model_card(state: Mapping[str, Any]) -> str:
    """The text of ``README.md`` for the state of a classifier."""
    parts = (_head, _data, _labels, _quality, _decision, _limits, _use)
    return "\n".join(line for part in parts for line in (*part(state), "")).rstrip() + "\n"


def _head(state: Mapping[str, Any]) -> Iterator[str]:
    yield from ("---", "library_name: polytag", "pipeline_tag: text-classification", "---", "")
    model = state["state"]["model"] if state["model"] == "relabelled" else state["model"]
    yield f"# A {model} model for {_counted(len(_counts(state)), 'label')}"
    yield ""
    yield "Polytag's multi-label text classification: plain text in, label names out."


def _data(state: Mapping[str, Any]) -> Iterator[str]:
    training, counts = state["training"], _counts(state)
    documents = int(training["documents"])
    held = int(training.get("valid_documents", 0))
    rows = [("documents", f"{documents:,}")]
    if held:
        rows = [("documents", f"{documents:,}: {documents - held:,} for training, {held:,} for validation")]
    rows += [("labels per document", f"{counts.sum() / max(1, documents):.2f}")]
    reading = state.get("reading") or {}
    rows += [(f"column of {key}", _joined(reading[key])) for key in ("text", "labels") if reading.get(key)]
    yield from _section("Data", ("", ""), rows)


def _labels(state: Mapping[str, Any]) -> Iterator[str]:
    counts = _counts(state)
    names = _names(state["labels"])
    best = sorted(range(len(counts)), key=lambda label: (-counts[label], label))[:_SHOWN]
    yield from _section("Labels", ("label", "documents"), [(names[label], f"{counts[label]:,}") for label in best])
    if len(counts) > _SHOWN:
        yield f"and {_counted(len(counts) - _SHOWN, 'label')} with fewer documents."
    if isinstance(state["labels"], Mapping) and not {"parents", "several_parents"}.isdisjoint(state["labels"]):
        yield "Labels have parents."
    if state.get("edits"):
        yield from ("", "They were edited after training:", "")
        yield from (
            f"- {edit['edit']} {_few(edit['old'])}{' = ' if edit['old'] else ''}{_few(edit['new'])}" for edit in state["edits"]
        )


def _quality(state: Mapping[str, Any]) -> Iterator[str]:
    found = state["decision"]["report"].get("metrics")
    if not found and state.get("edits"):
        yield from ("## Quality", "", "The labels were edited after training, and nothing was measured since.")
        return
    if not found:
        yield from ("## Quality", "", "There were no held-out documents, so nothing was measured.")
        return
    rows = [(name, f"{value:.4f}") for name, value in found.items() if name != "documents"]
    yield from _section("Quality on held-out documents", ("metric", "value"), rows)
    yield ""
    yield f"Measured on {_counted(int(found['documents']), 'document')} that the weights were not trained on."
    if state["decision"]["rule"] in ("threshold", "per_label"):
        yield "The thresholds of each fifth were fitted on the other fifths."
    yield "These documents also chose the settings, so a test set is the stricter measure."


def _decision(state: Mapping[str, Any]) -> Iterator[str]:
    decision, report = state["decision"], state["decision"]["report"]
    rows = [("rule", _RULES[decision["rule"]]), ("fitted for", decision["optimise"])]
    if "cost_per_document" in report:
        fitted = f"least expected costs of mistakes, {report['cost_per_document']:.4g} per held-out document"
        rows = [("rule", "one threshold per label"), ("fitted for", fitted)]
    if decision.get("promise"):
        needs = report.get("labels_per_document")
        rows += [("promise", decision["promise"] + (f", with {needs:.1f} labels a document" if needs is not None else ""))]
    rows += [("labels per document, at least", str(decision["min_labels"]))]
    rows += [("ancestors of labels are added", "yes")] if decision["closed"] else []
    if "calibration_error" in report:
        rows += [("calibration error of the probabilities", f"{report['calibration_error']:.4f}")]
    yield from _section("Decision", ("", ""), rows)


def _limits(state: Mapping[str, Any]) -> Iterator[str]:
    counts = _counts(state)
    none, few = int((counts == 0).sum()), int(((counts > 0) & (counts < _FEW)).sum())
    yield from ("## Limits", "")
    yield "- It knows the labels of its training alone, and predicts no other."
    if none:
        yield f"- {_counted(none, 'label')} had no training document."
    if few:
        yield f"- {_counted(few, 'label')} had fewer than {_FEW} training documents, and can hardly be learned from them."
    yield "- The numbers hold for documents like those of the training. Evaluate it on documents from another source or time."
    if state["decision"].get("promise"):
        yield "- The promise holds on average over documents like the held-out ones, not for each document."
    yield "- Labels that people forgot in the training documents count as wrong there, and train the model to leave them out."
    yield "- The artefact has words of the training documents. Share it only if these may be shared."


def _use(state: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## How to load it", "", "```python", "from polytag import Classifier", "")
    yield from ('classifier = Classifier.load("model")  # the folder of this file', 'classifier.predict(["a text"])', "```")


# -- parts -------------------------------------------------------------------------------------------------------------


def _section(title: str, header: tuple[str, str], rows: list[tuple[str, str]]) -> Iterator[str]:
    yield from (f"## {title}", "", f"| {header[0]} | {header[1]} |", "|---|---|")
    yield from (f"| {_cell(name)} | {_cell(value)} |" for name, value in rows)


def _cell(text: str) -> str:
    """A text that cannot leave its cell, nor become markup."""
    plain = " ".join(str(text).split())  # a name that is no text is refused later, by what reads the state back
    for mark in ("\\", "|", "`", "*", "[", "]"):
        plain = plain.replace(mark, "\\" + mark)
    return plain.replace("<", "&lt;")


def _counts(state: Mapping[str, Any]) -> Any:
    return np.asarray(state["training"]["label_counts"])


def _names(labels: Any) -> list[str]:
    return list(labels["names"]) if isinstance(labels, Mapping) else [record["name"] for record in labels]


def _few(names: list[str]) -> str:
    """Some names of an edit."""
    return ", ".join(map(_cell, names[:_SHOWN])) + (" and more" if len(names) > _SHOWN else "")


def _joined(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(value)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
