"""LabelSet: ordered label names, with optional ids, descriptions and parents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import DataError, brief, suggestion
from polytag.formats.document import BadLine, label_name
from polytag.formats.inputs import checked_path
from polytag.formats.parsers import Records, json_records, opened, plain_lines, table_records
from polytag.formats.streams import stem_and_suffix, writing
from polytag.storage.schema import Items, Named, Table, Text, check

_LISTED = 20  # labels up to which an error message lists them all


def indicator(rows: Sequence[Sequence[int]] | Sequence[NDArray[Any]], n_labels: int) -> csr_array:
    """Label numbers per document as a sparse matrix of ones; numbers are sorted and deduplicated."""
    clean = [np.unique(np.asarray(row, dtype=np.int32)) for row in rows]
    indptr = np.zeros(len(clean) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in clean], out=indptr[1:])
    indices = np.concatenate(clean) if clean else np.empty(0, dtype=np.int32)
    return csr_array((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(clean), n_labels))


def indicator_of_pairs(documents: NDArray[Any], labels: NDArray[Any], shape: tuple[int, int]) -> csr_array:
    """Pairs of document and label numbers, in any order, as a sparse matrix of ones; duplicates count once."""
    found = csr_array((np.ones(len(documents), dtype=np.float32), (documents, labels)), shape=shape)
    found.sum_duplicates()
    found.data[:] = 1
    return found


LABELS = Table(
    {"names": Items(Text()), **dict.fromkeys(("ids", "descriptions", "parents"), Named(Text()))},
    optional=frozenset({"ids", "descriptions", "parents"}),
)
"""What a label set looks like when it is saved."""


class LabelSet:
    """Ordered label names, each with an optional id, description and parent."""

    def __init__(
        self,
        names: Iterable[str],
        *,
        ids: Mapping[str, str] | None = None,
        descriptions: Mapping[str, str] | None = None,
        parents: Mapping[str, str] | None = None,
    ) -> None:
        """Store the names in order; the mappings have names as keys, and a parent may be given by name or id."""
        self.names: tuple[str, ...] = _text_names(names)
        for what, table in (("ids", ids), ("descriptions", descriptions), ("parents", parents)):
            _check_table(what, table)
        self.ids = dict(ids or {})
        self.descriptions = {name: text for name, text in (descriptions or {}).items() if text}
        self._number = {name: i for i, name in enumerate(self.names)}
        if len(self._number) < len(self.names):
            name, count = Counter(self.names).most_common(1)[0]
            raise DataError(f"label {name!r} is listed {count} times; every label name must be unique")
        self._by_id = {identifier: self._number[name] for name, identifier in self.ids.items() if name in self._number}
        self.parents = {name: self._parent_name(name, parent) for name, parent in (parents or {}).items() if parent}

    def _parent_name(self, name: str, parent: str) -> str:
        number = self.find(parent)
        if number is None:
            raise DataError(f"label {name!r} has the parent {parent!r}, which is not in the label set; add it or drop the parent")
        return self.names[number]

    def __len__(self) -> int:
        """The number of labels."""
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in order."""
        return iter(self.names)

    def __getitem__(self, number: int) -> str:
        """The name of the label with this number."""
        return self.names[number]

    def __contains__(self, name: object) -> bool:
        """Whether a label with this name is in the set."""
        return name in self._number

    def __eq__(self, other: object) -> bool:
        """Whether names, ids, descriptions and parents are equal."""
        return isinstance(other, LabelSet) and self.to_records() == other.to_records()

    def __hash__(self) -> int:
        """Hash by the names."""
        return hash(self.names)

    def __repr__(self) -> str:
        """The size, and whether there is a tree."""
        return f"LabelSet({len(self)} labels{', tree' if self.has_tree else ''})"

    def find(self, label: str) -> int | None:
        """The number of a label, by name or id; None if there is no such label."""
        number = self._number.get(label)
        return self._by_id.get(label) if number is None else number

    def number(self, label: Any) -> int:
        """The number of a label, by name or id; the error of an unknown one suggests others."""
        found = self.find(label) if isinstance(label, str) else None
        if found is None:
            known = self.names if len(self) <= _LISTED else get_close_matches(str(label), self.names)
            hint = suggestion(str(label), known) if known else "`polytag predict --top 10` shows labels"
            raise DataError(f"there is no label {brief(label)} in this classifier; {hint}")
        return found

    # -- conversion to sparse matrices -----------------------------------------------------------------------------

    def encode(self, documents: Iterable[Iterable[str]], unknown: Counter[str] | None = None) -> csr_array:
        """Turn label names (or ids) per document into a sparse matrix of ones; unknown labels are counted, not kept."""
        rows: list[list[int]] = []
        for labels in documents:
            row = []
            for label in labels:
                number = self.find(label)
                if number is not None:
                    row.append(number)
                elif unknown is not None:
                    unknown[label] += 1
            rows.append(row)
        return indicator(rows, len(self))

    def decode(self, matrix: csr_array) -> list[list[str]]:
        """Turn a sparse matrix of predictions or truth back into names per document."""
        names, indices, indptr = self.names, matrix.indices, matrix.indptr
        return [[names[j] for j in indices[indptr[i] : indptr[i + 1]]] for i in range(matrix.shape[0])]

    # -- order and tree --------------------------------------------------------------------------------------------

    @property
    def has_tree(self) -> bool:
        """Whether any label has a parent."""
        return bool(self.parents)

    @cached_property
    def parent_numbers(self) -> NDArray[np.int64]:
        """For every label the number of its parent; -1 = no parent."""
        return np.array([self._number[self.parents[n]] if n in self.parents else -1 for n in self.names], dtype=np.int64)

    @cached_property
    def closure(self) -> csr_array:
        """Labels × labels: row j has j and all its ancestors."""
        parent = self.parent_numbers
        rows = []
        for j in range(len(self)):
            row, at = [j], int(parent[j])
            while at >= 0:
                if at == j:
                    raise DataError(f"the parents of label {self.names[j]!r} form a cycle; break it")
                if len(row) > len(self):
                    raise DataError(f"the ancestors of label {self.names[j]!r} form a cycle; break it")
                row.append(at)
                at = int(parent[at])
            rows.append(row)
        return indicator(rows, len(self))

    def close(self, matrix: csr_array) -> csr_array:
        """Add every ancestor of every label that a document has."""
        if not self.has_tree:
            return matrix
        closed = csr_array(matrix @ self.closure)
        closed.sort_indices()
        closed.data = np.ones_like(closed.data)
        return closed

    def topological_order(self) -> NDArray[np.int64]:
        """Depth-first order: every parent comes immediately before its subtree; siblings keep their order."""
        children: dict[int, list[int]] = {}
        for j, p in enumerate(self.parent_numbers.tolist()):
            children.setdefault(p, []).append(j)
        order: list[int] = []
        stack = children.get(-1, [])[::-1]
        while stack:
            j = stack.pop()
            order.append(j)
            stack.extend(children.get(j, [])[::-1])
        if len(order) < len(self):
            _ = self.closure  # raises an error that names a label of the cycle
        return np.array(order, dtype=np.int64)

    def frequency_order(self, matrix: csr_array) -> NDArray[np.int64]:
        """Most frequent label first; equally frequent labels keep their order."""
        counts = np.bincount(matrix.indices, minlength=len(self))
        return np.argsort(-counts, kind="stable")

    def union(self, other: LabelSet) -> LabelSet:
        """The labels of this set, then those only in the other; ids, descriptions and parents of this set take precedence."""
        names = [*self.names, *(name for name in other.names if name not in self)]
        return LabelSet(
            names,
            ids={**other.ids, **self.ids},
            descriptions={**other.descriptions, **self.descriptions},
            parents={**other.parents, **self.parents},
        )

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Names, ids, descriptions and parents as tables, which load faster than one record per label."""
        tables = {"ids": self.ids, "descriptions": self.descriptions, "parents": self.parents}
        return {"names": list(self.names), **{key: table for key, table in tables.items() if table}}

    @classmethod
    def from_state(cls, state: Any) -> LabelSet:
        """Restore what ``state`` returned, or the records of earlier artefacts."""
        if isinstance(state, list):
            return cls.from_records(state)
        check(LABELS, state, {}, "labels")
        return cls(**state)

    def to_records(self) -> list[dict[str, str]]:
        """One record per label, with the keys that it has."""
        extra = (("id", self.ids), ("description", self.descriptions), ("parent", self.parents))
        return [{"name": name, **{key: table[name] for key, table in extra if name in table}} for name in self.names]

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]], where: str = "labels") -> LabelSet:
        """Build a set from records with the key ``name`` and optionally ``id``, ``description`` and ``parent``."""
        return cls._of_lines(enumerate(records, start=1), where)

    @classmethod
    def _of_lines(cls, records: Records, where: str) -> LabelSet:
        """Build a set from records with their line numbers."""
        found: list[tuple[int, Any]] = list(records)  # one pass per key, for speed: there may be half a million labels
        for line, record in found:
            if isinstance(record, BadLine):
                raise DataError(f"{where}, line {line}: {record}")
        names = [_record_name(record, line, where) for line, record in found]
        tables = {
            key: {name: str(record[key]) for name, (_, record) in zip(names, found, strict=True) if record.get(key)}
            for key in ("id", "description", "parent")
        }
        return cls(names, ids=tables["id"], descriptions=tables["description"], parents=tables["parent"])

    @classmethod
    def read(cls, path: str | Path) -> LabelSet:
        """Read a label file: JSON lines, CSV or TSV with a header that has ``name``, or one plain name per line.

        JSON lines with ``uid`` and ``title`` instead are those of the Extreme Classification Repository. Its documents refer to a
        label by line number, from 0, which becomes the id.
        """
        where = str(checked_path(path))
        suffix = stem_and_suffix(where)[1]
        with opened(where) as stream:
            if suffix in (".jsonl", ".json", ".ndjson"):
                records = _named(json_records(stream, '{"name": "..."}'))
            elif suffix in (".csv", ".tsv"):
                records = table_records(stream, "," if suffix == ".csv" else "\t", where)
            else:
                records = plain_lines(stream)
            try:
                found = cls._of_lines(records, where)
            except DataError as error:
                raise error if where in str(error) else DataError(f"{where}: {error}") from None
        if not len(found):
            raise DataError(f"{where}: no labels; the file is empty")
        return found

    def write(self, path: str | Path) -> None:
        """Write the set as JSON lines."""
        with writing(path) as file:
            for record in self.to_records():
                file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _text_names(names: Any) -> tuple[str, ...]:
    """The names as a tuple, if all of them are text."""
    try:
        found = tuple(names)
    except TypeError:
        raise DataError(f"the label names are {brief(names)}; pass a list of str") from None
    if not set(map(type, found)) <= {str}:
        for number, name in enumerate(found):
            if not isinstance(name, str):
                raise DataError(f"label {number} is {brief(name)}, of type {type(name).__name__}; label names are text")
        found = tuple(map(str, found))
    return found


def _check_table(what: str, table: Any) -> None:
    """Raise unless a table of a label set has text as keys and values."""
    if table is None:
        return
    if not isinstance(table, Mapping):
        raise DataError(f"the {what} of a label set are {brief(table)}; pass a dict with label names as keys")
    if not set(map(type, table)) | set(map(type, table.values())) <= {str, type(None)}:
        for key, value in table.items():
            if not isinstance(key, str) or not isinstance(value, str | None):
                raise DataError(f"the {what} of a label set have {brief(key)}: {brief(value)}; names and values are text")


def _record_name(record: Mapping[str, Any], line: int, where: str) -> str:
    if not isinstance(record, Mapping):
        raise DataError(f"{where}, line {line}: {brief(record)} is not a label; expected an object with a 'name'")
    found = record.get("name")
    try:
        name = "" if found is None else label_name(found)
    except BadLine as bad:
        raise DataError(f"{where}, line {line}: {bad}") from None
    if not name or name.isspace():
        raise DataError(f"{where}, line {line}: a label needs a 'name'; found the keys {sorted(map(str, record))}")
    return name


def _named(records: Records) -> Records:
    """Labels with a title instead of a name: titles are made unique, and the number of the label becomes the id."""
    lines: list[tuple[int, Any]] = list(records)
    good = [record for _, record in lines if not isinstance(record, BadLine)]
    if any("name" in record for record in good) or not any({"uid", "title"} <= record.keys() for record in good):
        yield from lines
        return
    titles = [_title(record) for _, record in lines]
    counts = Counter(titles)
    for number, ((line, record), title) in enumerate(zip(lines, titles, strict=True)):
        # a title that is a number must not be confused with the id of another label
        plain = counts[title] == 1 and not title.isdigit()
        name = title if title and plain else f"{title} #{number}" if title else str(number)
        yield line, record if isinstance(record, BadLine) else {"name": name, "id": str(number)}


def _title(record: Any) -> str:
    return "" if isinstance(record, BadLine) else str(record.get("title") or "").strip()
