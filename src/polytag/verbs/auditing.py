"""``polytag audit`` as functions: from a corpus to findings, and from findings to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from polytag.audit.findings import Audit, Suspect, audit, proposals
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.formats.document import ReadOptions
from polytag.formats.streams import stem_and_suffix, writing
from polytag.run import Run

_PAGES, _LINES = (".html", ".htm"), (".jsonl", ".ndjson")


def audit_file(
    path: Path, labels: Path | None, out: Path | None, options: ReadOptions, *, seed: int = 0, suspects: int
) -> tuple[Corpus, Audit]:
    """Read a corpus, audit it, and write the findings as the ending of ``out`` says."""
    kind = None if out is None else _kind(out)
    corpus = Corpus.read(path, labels=labels, options=options)
    found = audit(corpus, Run(), seed=seed, suspects=suspects)
    if out is not None and kind == "page":
        from polytag.report.audit_page import audit_page

        audit_page(corpus, found).write(out)
    elif out is not None:
        write_lines(corpus, found, out)
    return corpus, found


def _kind(out: Path) -> str:
    suffix = out.suffix.lower()
    if suffix in _PAGES:
        return "page"
    if stem_and_suffix(out)[1] in _LINES:
        return "lines"
    raise ConfigError(f"{out}: the findings are written as .jsonl or .html; name such a file")


def write_lines(corpus: Corpus, found: Audit, out: Path) -> None:
    """Write one line per document, the most suspect first; the file is a corpus again.

    ``labels`` are the current ones. Whoever agrees with ``proposed`` moves it there.
    """
    proposed = proposals(corpus, found.suspects)
    reasons: dict[int, list[Suspect]] = {}
    for suspect in found.suspects:
        reasons.setdefault(suspect.document, []).append(suspect)
    order = [*reasons, *(row for row in range(len(corpus)) if row not in reasons)]
    documents = list(corpus.documents())
    with writing(out) as file:
        for row in order:
            document = documents[row]
            line: dict[str, Any] = {"id": document.id, "text": document.text, "labels": list(document.labels)}
            if document.group:
                line["group"] = document.group
            if row in proposed:
                line["proposed"] = proposed[row]
            if row in reasons:
                line["suspects"] = [suspect_record(suspect) for suspect in reasons[row]]
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def suspect_record(suspect: Suspect) -> dict[str, Any]:
    """A suspect as JSON values, without the document."""
    return {
        "label": suspect.label,
        "given": suspect.given,
        "error": round(suspect.error, 4),
        "text": round(suspect.text, 4),
        "context": round(suspect.context, 4),
        "agreement": round(suspect.agreement, 4),
        "words": [{"text": word, "contribution": round(value, 4)} for word, value in suspect.words],
        "nearest": [{"id": name, "similarity": value, "has_label": has} for name, value, has in suspect.nearest],
    }


def audit_record(found: Audit) -> dict[str, Any]:
    """Everything that was found, as JSON values."""
    names = found.labels
    return {
        "documents": found.documents,
        "labels": len(names),
        "assignments": found.assignments,
        "suspects": [{"id": suspect.id, **suspect_record(suspect)} for suspect in found.suspects],
        "copies": [
            {"ids": list(pair.ids), "similarity": pair.similarity, "only_first": pair.only_one, "only_second": pair.only_other}
            for pair in found.copies
        ],
        "same_labels": [{**pair._asdict(), "one": names[pair.one], "other": names[pair.other]} for pair in found.same],
        "unlearnable": [{**one._asdict(), "label": names[one.label]} for one in found.unlearnable],
    }
