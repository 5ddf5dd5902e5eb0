"""The report as a whole: which sections it has, in which order."""

from __future__ import annotations

from polytag.analysis.label_map import Method
from polytag.report.draft import Draft
from polytag.report.evidence import Evidence
from polytag.report.page import Page
from polytag.report.sections.audit_summary import add_audit
from polytag.report.sections.case_section import add_cases
from polytag.report.sections.document_quality import add_groups, add_trust
from polytag.report.sections.label_quality import add_labels
from polytag.report.sections.label_relations import add_map, add_relations
from polytag.report.sections.learning_progress import add_training
from polytag.report.sections.overview import add_comparison, add_summary


def composed(evidence: Evidence, *, interactive: bool | None = None, method: Method = "auto") -> Draft:
    """Everything that can be said about the evidence; sections that it does not suffice for are left out."""
    names = [run.name for run in evidence.runs]
    title = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    lead = (
        f"Tested on {len(evidence.ids):,} documents of {evidence.documents}." if evidence.documents else "Without test documents."
    )
    draft = Draft(Page(title, lead, "Written by polytag report. This page stands alone and loads nothing."), interactive)
    add_summary(draft, evidence)
    add_comparison(draft, evidence)
    add_training(draft, evidence)
    add_groups(draft, evidence)
    add_trust(draft, evidence)
    add_labels(draft, evidence)
    add_relations(draft, evidence)
    add_map(draft, evidence, method)
    add_cases(draft, evidence)
    add_audit(draft, evidence)
    draft.finished()
    return draft
