"""``polytag report`` as functions: from runs and test documents to a page, tables and pictures."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from polytag.analysis.label_map import Method
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.decision.decision import Decision
from polytag.errors import ConfigError, DataError, PolytagError, file_error
from polytag.formats.document import ReadOptions
from polytag.formats.streams import reading
from polytag.metrics.of_outcomes import outcome_metrics
from polytag.report.composition import composed
from polytag.report.data_table import latex_of, markdown_of
from polytag.report.draft import Draft
from polytag.report.evidence import Evidence, RunEvidence
from polytag.run import Run, read_log
from polytag.storage.artefact import artefact_folder
from polytag.storage.atomic_text import replace_text
from polytag.verbs.inspection import describe_classifier
from polytag.verbs.training import DataPlan

log = logging.getLogger(__name__)
SUFFIXES = (".html", ".htm", ".md", ".tex")


def report_runs(
    runs: Sequence[str | Path],
    test: str | Path | None,
    outputs: Sequence[Path],
    *,
    pictures: Path | None = None,
    audit: Path | None = None,
    options: ReadOptions | None = None,
    interactive: bool | None = None,
    method: Method = "auto",
    seed: int = 0,
) -> Draft:
    """Write the report of some runs: the page to ``.html``, its tables to ``.md`` or ``.tex``, its pictures to a folder."""
    for path in outputs:
        if path.suffix.lower() not in SUFFIXES:
            raise ConfigError(f"{path}: a report ends in .html, its tables in .md or .tex; name such a file")
    lines = [] if audit is None else _audit_lines(audit)
    evidence = replace(gathered(runs, test, options=options, seed=seed), audit=lines)
    draft = composed(evidence, interactive=interactive, method=method)
    for path in outputs:
        write_report(draft, path)
    if pictures is not None:
        draft.write_pictures(pictures)
    return draft


def _audit_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of an audit that have suspects."""
    found = []
    try:
        with reading(path) as file:
            for number, line in enumerate(file, 1):
                record = json.loads(line) if line.strip() else {}
                if not isinstance(record, dict) or "id" not in record:
                    raise ValueError(number)
                if record.get("suspects"):
                    found.append(record)
    except OSError as error:
        raise file_error(path, error) from error
    except ValueError:
        raise DataError(f"{path} has no lines of an audit; write it by 'polytag audit CORPUS --out {path.name}'") from None
    return found


def write_report(draft: Draft, path: Path) -> None:
    """Write the page, or its tables, as the ending of the file says."""
    if path.suffix.lower() in (".html", ".htm"):
        draft.page.write(path)
        return
    text = markdown_of if path.suffix.lower() == ".md" else latex_of
    try:
        replace_text(path, text(draft.page.title, draft.tables))
    except OSError as error:
        raise file_error(path, error) from error


def gathered(
    runs: Sequence[str | Path], test: str | Path | None, *, options: ReadOptions | None = None, seed: int = 0
) -> Evidence:
    """Load every run and let it label the test documents."""
    if not runs:
        raise ConfigError("there is no run to report on; name the folder of at least one")
    names, found, corpus = _names(runs), [], None
    for name, folder in Run().track(list(zip(names, runs, strict=True)), "runs"):
        classifier = Classifier.load(folder)
        if test is not None and corpus is None:
            corpus = Corpus.read(test, labels=classifier.labels, options=classifier.reading(options))
        found.append(_evidence(name, folder, classifier, corpus))
    found, labels = _aligned(found)
    train = None if labels is None else _training_labels(runs[-1], labels)
    ids, texts = ([], []) if corpus is None else (corpus.ids, corpus.texts)
    return Evidence(found, "" if test is None else Path(test).name, ids, texts, train, seed=seed)


def _names(runs: Sequence[str | Path]) -> list[str]:
    """The name of each run's folder; folders of the same name get that of the folder above, or a number."""
    folders = [artefact_folder(run).resolve() for run in runs]
    folders = [folder.parent if folder.name == "model" else folder for folder in folders]
    counts = Counter(folder.name for folder in folders)
    names = [folder.name if counts[folder.name] == 1 else f"{folder.parent.name}/{folder.name}" for folder in folders]
    return [name if names.count(name) == 1 else f"{name} ({at})" for at, name in enumerate(names, 1)]


def _evidence(name: str, folder: str | Path, classifier: Classifier, corpus: Corpus | None) -> RunEvidence:
    around = artefact_folder(folder).parent
    base = RunEvidence(
        name, describe_classifier(classifier, folder), classifier.labels, np.asarray(classifier.training["label_counts"]),
        read_log(around), _train_seconds(around), vectors=classifier.model.label_vectors(),
    )  # fmt: skip
    if corpus is None:
        return base
    outcome = classifier.outcome(corpus)
    decision = classifier.decision
    plain = Decision("auto", decision.optimise, decision.min_labels, decision.closed).decide(outcome.scores, outcome.labels)
    documents = int(classifier.training["documents"])
    metrics, simple = (outcome_metrics(outcome, documents, sets) for sets in (outcome.predicted, plain))
    return replace(base, outcome=outcome, plain=plain, metrics=metrics, plain_metrics=simple)


def _train_seconds(folder: Path) -> float | None:
    try:
        found: dict[str, Any] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        return float(found["train_seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _aligned(found: list[RunEvidence]) -> tuple[list[RunEvidence], Any]:
    """The runs with outcomes over one label set, and that label set."""
    outcomes = [run.outcome for run in found if run.outcome is not None]
    if not outcomes:
        return found, None
    labels = outcomes[0].labels
    for outcome in outcomes[1:]:
        labels = labels.union(outcome.labels)
    return [replace(run, outcome=outcome.over(labels)) for run, outcome in zip(found, outcomes, strict=True)], labels


def _training_labels(run: str | Path, labels: Any) -> csr_array | None:
    """The labels of the training documents, if these are still where the run found them."""
    recipe = artefact_folder(run).parent / "recipe.toml"
    try:
        plan = DataPlan.of(Recipe.read(recipe), None, None, None, ReadOptions())
        train, valid = plan.read()
        corpus = train if valid is None else train.concat(valid)
    except (PolytagError, OSError) as error:
        log.warning("the training documents are not read, so sets of labels are not counted: %s", error)
        return None
    known = labels.union(corpus.labels)
    truth = corpus.with_labels(known).truth
    return csr_array(truth[:, : len(labels)])
