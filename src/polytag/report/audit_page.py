"""The audit of a corpus as a page that stands alone."""

from __future__ import annotations

from polytag.audit.findings import Audit, Suspect
from polytag.corpus import Corpus
from polytag.report.markup import Element, details, element, paragraph, shaded, table
from polytag.report.page import Page

Cell = Element | str | float | None
_CARDS, _ROWS, _LETTERS = 200, 200, 1500  # suspects with their text; rows of a table; letters of a text


def audit_page(corpus: Corpus, found: Audit) -> Page:
    """A page with one section per question; each says what its numbers mean."""
    lead = f"{found.documents:,} documents, {len(found.labels):,} labels, {found.assignments:,} labels given."
    page = Page("Audit of the labels", lead)
    part = page.section(
        "Suspect labels",
        "Labels that were probably given by mistake, or forgotten. No document was scored by a model that was trained on it. "
        "An error of 0.9 means: of ten such labels, about nine are expected to be wrong. Blue words speak for the label, orange "
        "underlined words against it.",
    )
    part.add(*(_card(corpus, suspect) for suspect in found.suspects[:_CARDS]))
    if len(found.suspects) > _CARDS:
        part.add(paragraph(f"{len(found.suspects) - _CARDS:,} more: write them to a .jsonl file.", kind="note"))
    _add_copies(page, found)
    _add_labels(page, found)
    return page


def _card(corpus: Corpus, suspect: Suspect) -> Element:
    """One suspect: the claim, the evidence, and the text to unfold."""
    claim = "was given" if suspect.given else "is missing"
    largest = max((abs(value) for _, value in suspect.words), default=1.0)
    words: list[Element | str] = []
    for word, value in suspect.words:
        words += [shaded(word, value / largest, f"{value:+.3f}"), " "]
    near = "; ".join(f"{name} ({value:.2f}, {'has' if has else 'lacks'} it)" for name, value, has in suspect.nearest)
    numbers = f"text {suspect.text:.3f}, other labels {max(suspect.context, 0):.2f}, similar documents {suspect.agreement:.2f}"
    own = corpus.truth.indices[corpus.truth.indptr[suspect.document] : corpus.truth.indptr[suspect.document + 1]]
    text = corpus.texts[suspect.document]
    return details(
        f"{suspect.error:.2f}  {suspect.id}: {suspect.label} {claim}",
        element("p", "Words: ", *words),
        paragraph(f"Probability of the label by {numbers}."),
        paragraph(f"Most similar documents: {near or 'none'}."),
        paragraph(f"Labels: {', '.join(corpus.labels.names[j] for j in own) or 'none'}."),
        paragraph(text[:_LETTERS] + (" ..." if len(text) > _LETTERS else ""), kind="note"),
    )


def _add_copies(page: Page, found: Audit) -> None:
    part = page.section(
        "Copies with different labels", "Documents with nearly the same text should have the same labels; these do not."
    )
    rows: list[list[Cell]] = [
        [*pair.ids, pair.similarity, ", ".join(pair.only_one), ", ".join(pair.only_other)] for pair in found.copies[:_ROWS]
    ]
    caption = f"{len(found.copies):,} pairs with a Jaccard similarity of at least 0.8"
    head = ("one", "other", "similarity", "only the first has", "only the second has")
    part.add(table(head, rows, caption) if rows else paragraph("None were found."))


def _add_labels(page: Page, found: Audit) -> None:
    names = found.labels
    part = page.section(
        "Labels that may mean the same",
        "Together: almost all documents have both or none. Instead: documents with the one read like documents with the other, "
        "as much as two halves of one label do.",
    )
    same: list[list[Cell]] = [[names[p.one], names[p.other], p.how, p.texts, p.overlap, p.names] for p in found.same[:_ROWS]]
    head = ("one", "other", "given", "texts", "overlap", "names")
    part.add(table(head, same, f"{len(found.same):,} pairs") if same else paragraph("None were found."))
    part = page.section(
        "Labels that cannot be learned",
        "A model ranks documents by these labels no better than a random order does. Merge them, describe them better, or give "
        "them to more documents.",
    )
    rows: list[list[Cell]] = [
        [names[u.label], u.documents, u.average_precision, u.chance, u.reason] for u in found.unlearnable[:_ROWS]
    ]
    heads = ("label", "documents", "average precision", "chance", "reason")
    part.add(table(heads, rows, f"{len(found.unlearnable):,} labels") if rows else paragraph("None were found."))
