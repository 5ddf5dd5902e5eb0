"""What people say together about each text: its labels, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from polytag.corpus import Corpus
from polytag.errors import DataError
from polytag.formats.document import Document


@dataclass
class TextVerdict:
    """A text, and for each label who says that it belongs and who says that it does not; a later word replaces an earlier one."""

    text: str
    document: str
    said: dict[str, dict[str, bool]] = field(default_factory=dict)

    def hear(self, row: dict[str, Any]) -> None:
        """Take in one correction."""
        for names, belongs in ((row["accepted"], True), (row["added"], True), (row["removed"], False)):
            for label in names:
                self.said.setdefault(label, {})[row["user"]] = belongs

    @property
    def disputed(self) -> dict[str, dict[str, list[str]]]:
        """The labels that people disagree on, with who is for and who is against."""
        return {
            label: {side: sorted(user for user, says in votes.items() if says is (side == "for")) for side in ("for", "against")}
            for label, votes in self.said.items()
            if len(set(votes.values())) > 1
        }

    @property
    def labels(self) -> list[str]:
        """The labels that most people say belong; a tie does not belong."""
        return [label for label, votes in self.said.items() if 2 * sum(votes.values()) > len(votes)]


def verdicts(rows: Iterable[dict[str, Any]]) -> Iterator[TextVerdict]:
    """One verdict per text, from corrections that are ordered by text."""
    for _, group in groupby(rows, key=lambda row: row["text"]):
        own = list(group)
        verdict = TextVerdict(own[0]["text"], own[0]["document"] or f"correction-{own[0]['id']}")
        for row in own:
            verdict.hear(row)
        yield verdict


def documents_of_rows(rows: Iterable[dict[str, Any]], *, disputed: bool = False) -> Iterator[Document]:
    """The corrected texts; those that people disagree on are left out, or get what most people say."""
    for one in verdicts(rows):
        if disputed or not one.disputed:
            yield Document(one.document, one.text, tuple(one.labels))


def corpus_of(rows: Iterable[dict[str, Any]], *, disputed: bool = False) -> Corpus:
    """The corrected texts as a corpus."""
    found = list(documents_of_rows(rows, disputed=disputed))
    if not found:
        raise DataError("there are no corrections yet, or people disagree on all of them; correct some texts first")
    return Corpus.of_documents(found, where="corrections")
