"""Type-ahead over label names: prefixes first, then starts of words, then any place; frequent labels first."""

from __future__ import annotations

import re
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
        """Join all names into one text, and remember where each of them starts."""
        self.labels = labels
        self.counts = [int(count) for count in counts]
        self._names = _Joined(labels.names)

    def find(self, query: str, limit: int) -> list[int]:
        """Numbers of labels that contain a query; an empty query finds the most frequent labels."""
        wanted = " ".join(query.split())[:_LONGEST].casefold()
        if not wanted:
            return self._by_count[:limit]
        number = self.labels.find(query.strip())
        found: dict[int, None] = {} if number is None else {number: None}
        for tier in self._tiers(wanted):
            found |= dict.fromkeys(sorted(tier - found.keys(), key=self._order))
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

    def _tiers(self, wanted: str) -> Iterator[set[int]]:
        word = re.escape(wanted)
        for pattern in (f"\n{word}", rf"(?<=[^\w\n]){word}", word):
            yield self._names.matches(pattern)
        yield self._descriptions.matches(rf"\b{word}")

    def _order(self, number: int) -> tuple[int, int]:
        return -self.counts[number], number

    @cached_property
    def _descriptions(self) -> _Joined:
        return _Joined([self.labels.descriptions.get(name, "") for name in self.labels.names])

    @cached_property
    def _by_count(self) -> list[int]:
        return sorted(range(len(self.labels)), key=self._order)

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

    def matches(self, pattern: str) -> set[int]:
        """The lines that a pattern matches."""
        return {bisect_right(self.starts, match.start()) - 1 for match in re.finditer(pattern, self.text)}
