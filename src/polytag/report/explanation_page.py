"""The page of an explanation: for each label its score, the text in colours, the strongest words, and what else is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from polytag.explain.explanation import COARSE, EXACT, SUM, Explanation, Reasons, Word
from polytag.report.markup import Element, details, element, figure, paragraph, shaded, strong, table
from polytag.report.page import Page, Section

MEANING = {
    SUM: "The score of a label is a sum: the bias, and what each word adds (blue) or takes away (orange, underlined).",
    EXACT: "Each word was left out once. Blue words raise the log-odds of the label, orange, underlined words lower it.",
    COARSE: "Phrases were left out first, then the words of the phrases that matter. Blue words raise the log-odds of the label, "
    "orange, underlined words lower it.",
}
_STRONGEST = 10  # words of a table
_LONG = 600  # characters of a neighbour that are shown


def explanation_page(found: Sequence[tuple[str | None, Explanation]], model: str) -> Page:
    """One section per label of a text; with several documents, their ids are in the titles."""
    page = Page("Why these labels", f"What the words of a text contribute to its labels, by the model {model}.")
    for name, explanation in found:
        before = f"{name}: " if name is not None else ""
        if not explanation.labels:
            nearest = f" The nearest is {explanation.best}." if explanation.best else ""
            part = page.section(f"{before}no label")
            part.add(f"No label was decided for this text.{nearest}", element("blockquote", explanation.text))
        for reasons in explanation.labels:
            _add(page.section(before + reasons.label), explanation, reasons)
    return page


def verdict(reasons: Reasons) -> str:
    """Whether a label was decided, and by how much it reaches or misses its threshold."""
    chance = f"Probability {reasons.probability:.3f}"
    if reasons.threshold is None:
        return f"{chance}; {'decided' if reasons.decided else 'not decided'} without a threshold."
    gap = reasons.score - reasons.threshold
    reached = f"{'reaches' if gap >= 0 else 'misses'} its threshold {reasons.threshold:.3f} by {abs(gap):.3f}"
    decided = "decided" if reasons.decided else "not decided"
    return f"{chance}; the score {reasons.score:.3f} {reached}: {decided}."


def pieces(text: str, words: Sequence[Word]) -> Iterator[tuple[str, Word | None]]:
    """The text in order, as words and what stands between them."""
    at = 0
    for word in words:
        if word.start > at:
            yield text[at : word.start], None
        if word.end > word.start >= at:
            yield text[word.start : word.end], word
        at = max(at, word.end)
    if at < len(text):
        yield text[at:], None


def _add(part: Section, explanation: Explanation, reasons: Reasons) -> None:
    part.add(paragraph(verdict(reasons), kind="good" if reasons.decided else "bad"))
    part.add(figure(_coloured(explanation.text, reasons.words), MEANING[explanation.method]))
    part.add(_strongest(reasons))
    if reasons.attention is not None:
        shown = _coloured(explanation.text, reasons.attention)
        part.add(details("Attention", figure(shown, "Where the network attends for this label; attention is no contribution.")))
    part.add(*_known(reasons.details))
    if reasons.near:
        rows = [(one.id, one.similarity, ", ".join(one.labels), _short(one.text)) for one in reasons.near]
        part.add(table(("document", "cosine", "labels", "text"), rows, f"Nearest documents with the label {reasons.label}"))


def _coloured(text: str, words: Sequence[Word]) -> Element:
    most = max((abs(word.contribution) for word in words), default=0.0) or 1.0
    inside = (
        piece if word is None else shaded(piece, word.contribution / most, f"{word.contribution:+.3f}")
        for piece, word in pieces(text, words)
    )
    return element("blockquote", *inside)


def _strongest(reasons: Reasons) -> Element:
    """The words that speak most for the label, then those that speak most against it; and the sum, if the score is one."""
    words = [*reasons.strongest(_STRONGEST), *reversed(reasons.strongest(_STRONGEST, against=True))]
    rows = [(word.text, f"{word.contribution:+.3f}") for word in words]
    if reasons.bias is not None and reasons.margin is not None:
        rows += [("(bias)", f"{reasons.bias:+.3f}"), ("(margin: bias and all words)", f"{reasons.margin:+.3f}")]
    return table(("word", "contribution"), rows, f"Strongest words for and against {reasons.label}")


def _known(known: Any) -> Iterator[Element]:
    """What else a model knows: tree, ensemble, chain, label set."""
    if known.get("path"):
        rows = [_level(level) for level in known["path"]]
        yield table(("level", "labels below", "such as", "probability", "words"), rows, "The path through the label tree")
    if known.get("parts"):
        parts = [
            (part["part"], part["weight"], part["probability"], part["weight"] * part["probability"]) for part in known["parts"]
        ]
        yield table(("part", "weight", "probability", "share"), parts, "The parts of the ensemble")
    if known.get("links"):
        links = [(link["label"], link["contribution"]) for link in known["links"]]
        yield table(("label", "contribution"), links, "Predicted labels that change this score")
    if known.get("set"):
        yield paragraph("The label is scored as part of the label set ", strong(", ".join(known["set"])), ".")


def _level(level: Any) -> tuple[str | float | None, ...]:
    words = ", ".join(f"{word['text']} {word['contribution']:+.2f}" for word in level["words"][:5])
    tree = f"tree {level['tree']}, " if "tree" in level else ""
    below, such = level["labels_below"], ", ".join(level["such_as"])
    return f"{tree}level {level['level']}", below, such, level["probability"], words or "by the network"


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."
