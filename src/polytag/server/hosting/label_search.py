"""Type-ahead over label names: prefixes first, then starts of words, then any place; frequent labels first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polytag.labels import LabelSet

_LONGEST = 200  # characters of a query


class LabelSearch:
    """An index of the names, ids and descriptions of a label set; a query is one scan of compiled code."""

    def __init__(self, labels: LabelSet, counts: NDArray[Any]) -> None:
        """Join all names into one text, frequent labels first: a scan finds the best matches first and stops early."""
        self.labels = labels
        self.counts = [int(count) for count in counts]
        self._ranked = sorted(range(len(labels)), key=lambda number: (-self.counts[number], number))
        self._names = _Joined([labels[number] for number in self._ranked])

    def find(self, query: str, limit: int) -> list[int]:
        """Numbers of labels that contain a query; an empty query finds the most frequent labels."""
        wanted = " ".join(query.split())[:_LONGEST].casefold()
        if not wanted:
            return self._ranked[:limit]
        number = self.labels.find(query.strip())
        found: dict[int, None] = {} if number is None else {number: None}
        for line in self._lines(wanted):
            found[self._ranked[line]] = None
            if len(found) >= limit:
                break
        return list(found)[:limit]

    def children(self, parent: str | None) -> list[int]:
        """Numbers of the labels below a label, or of those without a parent."""
        return self._below.get(-1 if parent is None else self.labels.number(parent), [])

    def record(self, number: int) -> dict[str, Any]:
        """What is known of a label."""
        name = self.labels[number]
        found: dict[str, Any] = {"name": name, "count": self.counts[number]}
        tables = (("id", self.labels.ids), ("description", self.labels.descriptions), ("parent", self.labels.parents))
        found |= {key: table[name] for key, table in tables if name in table}
        if number in self._below:
            found["children"] = len(self._below[number])
        return found

    def _lines(self, wanted: str) -> Iterator[int]:
        """Lines with the query at their start, at the start of a word, at any place, or in the description."""
        yield from self._names.lines(f"\n{wanted}")
        yield from self._names.lines(wanted, words=True)
        yield from self._names.lines(wanted)
        yield from self._descriptions.lines(wanted, words=True)

    @cached_property
    def _descriptions(self) -> _Joined:
        return _Joined([self.labels.descriptions.get(self.labels[number], "") for number in self._ranked])

    @cached_property
    def _below(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number, parent in enumerate(np.asarray(self.labels.parent_numbers).tolist()):
            found.setdefault(parent, []).append(number)
        return found


class _Joined:
    """Texts as one, a line each."""

    def __init__(self, texts: Sequence[str]) -> None:
        lines = [" ".join(text.casefold().split()) for text in texts]
        self.text = "\n" + "\n".join(lines)
        self.starts: list[int] = np.cumsum([0, *(len(line) + 1 for line in lines[:-1])]).tolist()

    def lines(self, wanted: str, words: bool = False) -> Iterator[int]:
        """The lines that contain something, in order, each once; with ``words``, at the start of a word."""
        at = self.text.find(wanted)
        while at >= 0:
            before = self.text[at - 1]  # the text starts with a line break
            if not words or not (before.isalnum() or before == "_"):
                line = bisect_right(self.starts, at) - 1
                yield line
                at = self.starts[line + 1] - 1 if line + 1 < len(self.starts) else len(self.text)
            at = self.text.find(wanted, at + 1)
