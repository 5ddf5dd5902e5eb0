"""What an audit of the labels found, in short."""

from __future__ import annotations

from collections import Counter

from polytag.report.data_table import DataTable, Rows
from polytag.report.draft import Draft
from polytag.report.evidence import Evidence
from polytag.report.markup import paragraph

_SHOWN = 30


def add_audit(draft: Draft, evidence: Evidence) -> None:
    """The most suspect labels, from the lines that ``polytag audit --out F.jsonl`` writes."""
    found = [(str(line["id"]), suspect) for line in evidence.audit for suspect in line["suspects"]]
    if not found:
        return
    found.sort(key=lambda pair: -float(pair[1]["error"]))
    given = sum(bool(suspect["given"]) for _, suspect in found)
    part = draft.section("Audit", "Labels of the documents that are probably wrong, found by scores that did not see them.")
    part.add(paragraph(f"{given:,} labels are suspected to be wrongly given, {len(found) - given:,} to be wrongly missing."))
    rows: Rows = [
        [name, str(one["label"]), "given" if one["given"] else "missing", float(one["error"]), _words(one)]
        for name, one in found[:_SHOWN]
    ]
    header = ["document", "label", "wrongly", "probability", "words that speak"]
    part.add(draft.long_table(DataTable(f"The {len(rows)} most suspect labels", header, rows)))
    most = Counter(str(one["label"]) for _, one in found).most_common(5)
    listed = ", ".join(f"{label} ({count:,})" for label, count in most)
    part.add(paragraph(f"Most often suspected: {listed}. Wrong labels make a model look worse than it is.", kind="note"))


def _words(suspect: dict[str, object]) -> str:
    words = suspect.get("words")
    return ", ".join(str(word["text"]) for word in words[:4]) if isinstance(words, list) else ""
