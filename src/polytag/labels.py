"""LabelSet: ordered label names, with optional ids, notations, titles, descriptions, statuses and parents."""

from __future__ import annotations

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
from polytag.formats.label_files import read_labels, write_labels
from polytag.formats.parsers import Records
from polytag.storage.schema import Items, Named, Schema, Table, Text, check

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


_TEXTS = {"ids": "id", "notations": "notation", "descriptions": "description", "statuses": "status", "parents": "parent"}
_TABLES: dict[str, Schema] = {
    **dict.fromkeys(_TEXTS, Named(Text())),
    "several_parents": Named(Items(Text(), least=2)),
    "titles": Named(Named(Text())),
    "statements": Named(Items(Text())),
    "vocabulary": Items(Text()),
}
LABELS = Table({"names": Items(Text()), **_TABLES}, optional=frozenset(_TABLES))
"""What a label set looks like when it is saved; a label with several parents is in ``several_parents``, not in ``parents``."""


class LabelSet:
    """Ordered label names, each with an optional id, notation, description, status, titles in languages, and parents.

    ``parents`` has the first parent of a label, ``parents_of`` all of them. ``titles`` are names by language, first the language
    of the label's name. ``statements`` are further statements of a SKOS file about a label, and ``vocabulary`` those about none.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        ids: Mapping[str, str] | None = None,
        notations: Mapping[str, str] | None = None,
        descriptions: Mapping[str, str] | None = None,
        statuses: Mapping[str, str] | None = None,
        parents: Mapping[str, str | Sequence[str]] | None = None,
        titles: Mapping[str, Mapping[str, str]] | None = None,
        statements: Mapping[str, Sequence[str]] | None = None,
        vocabulary: Sequence[str] = (),
    ) -> None:
        """Store the names in order; the mappings have names as keys, and parents may be given by name or id."""
        self.names: tuple[str, ...] = _text_names(names)
        several = {} if not isinstance(parents, Mapping) else {n: p for n, p in parents.items() if isinstance(p, list | tuple)}
        single = parents if not several else {n: p for n, p in (parents or {}).items() if n not in several}
        texts = {"ids": ids, "notations": notations, "descriptions": descriptions, "statuses": statuses}
        for what, table in (*texts.items(), ("parents", single)):
            _check_table(what, table)
        for name, own in (titles or {}).items():
            _check_table(f"titles of {name!r}", own)
        for name, lines in (statements or {}).items():
            _text_names(lines if not isinstance(lines, str) else None, f"statements of {name!r}")
        self.ids = dict(ids or {})
        self.notations = {name: text for name, text in (notations or {}).items() if text}
        self.descriptions = {name: text for name, text in (descriptions or {}).items() if text}
        self.statuses = {name: text for name, text in (statuses or {}).items() if text}
        self.titles = {name: dict(own) for name, own in (titles or {}).items() if own}
        self.statements = {name: list(own) for name, own in (statements or {}).items() if own}
        self.vocabulary = list(vocabulary)
        self._number = {name: i for i, name in enumerate(self.names)}
        if len(self._number) < len(self.names):
            name, count = Counter(self.names).most_common(1)[0]
            raise DataError(f"label {name!r} is listed {count} times; every label name must be unique")
        self._by_id = {identifier: self._number[name] for name, identifier in self.ids.items() if name in self._number}
        one = {name: (self._parent_name(name, str(parent)),) for name, parent in (single or {}).items() if parent}
        more = {name: tuple(dict.fromkeys(self._parent_name(name, p) for p in some)) for name, some in several.items() if some}
        self.parents = {name: own[0] for name, own in (one | more).items()}
        self._several = {name: own for name, own in more.items() if len(own) > 1}

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
        """Whether names and everything else that is known of the labels are equal."""
        return isinstance(other, LabelSet) and self.state() == other.state()

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

    def parents_of(self, name: str) -> tuple[str, ...]:
        """All parents of a label."""
        return self._several.get(name) or ((self.parents[name],) if name in self.parents else ())

    @cached_property
    def parent_numbers(self) -> NDArray[np.int64]:
        """For every label the number of its first parent; -1 = no parent."""
        return np.array([self._number[self.parents[n]] if n in self.parents else -1 for n in self.names], dtype=np.int64)

    @cached_property
    def closure(self) -> csr_array:
        """Labels × labels: row j has j and all its ancestors."""
        rows: list[set[int]] = [{j} for j in range(len(self))]
        for j in self.topological_order().tolist():
            for parent in self.parents_of(self.names[j]):
                rows[j] |= rows[self._number[parent]]
        return indicator([list(row) for row in rows], len(self))

    def close(self, matrix: csr_array) -> csr_array:
        """Add every ancestor of every label that a document has."""
        if not self.has_tree:
            return matrix
        closed = csr_array(matrix @ self.closure)
        closed.sort_indices()
        closed.data = np.ones_like(closed.data)
        return closed

    def topological_order(self) -> NDArray[np.int64]:
        """Depth-first order: every label comes after its parents, in a tree immediately; siblings keep their order."""
        children: dict[int, list[int]] = {}
        left = np.zeros(len(self), dtype=np.int64)  # parents that are not in the order yet
        for j, name in enumerate(self.names):
            for parent in self.parents_of(name):
                children.setdefault(self._number[parent], []).append(j)
                left[j] += 1
        order: list[int] = []
        stack = np.flatnonzero(left == 0)[::-1].tolist()
        while stack:
            j = stack.pop()
            order.append(j)
            for child in children.get(j, [])[::-1]:
                left[child] -= 1
                if not left[child]:
                    stack.append(child)
        if len(order) < len(self):
            raise DataError(self._cycle(set(np.flatnonzero(left > 0).tolist())))
        return np.array(order, dtype=np.int64)

    def _cycle(self, left: set[int]) -> str:
        """The message about a cycle among these labels, each of which has a parent among them."""
        path, at = dict[int, None](), min(left)
        while at not in path:
            path[at] = None
            at = next(number for parent in self.parents_of(self.names[at]) if (number := self._number[parent]) in left)
        cycle = list(path)[list(path).index(at) :]
        shown = " -> ".join(repr(self.names[j]) for j in [*cycle[:_LISTED], at])
        return f"the parents of label {self.names[at]!r} form a cycle: {shown}; break it"

    def frequency_order(self, matrix: csr_array) -> NDArray[np.int64]:
        """Most frequent label first; equally frequent labels keep their order."""
        counts = np.bincount(matrix.indices, minlength=len(self))
        return np.argsort(-counts, kind="stable")

    def union(self, other: LabelSet) -> LabelSet:
        """The labels of this set, then those only in the other; what this set knows of a label takes precedence."""
        names = [*self.names, *(name for name in other.names if name not in self)]
        mine, theirs = self._tables(), other._tables()
        vocabulary = list(dict.fromkeys([*self.vocabulary, *other.vocabulary]))
        return LabelSet(names, vocabulary=vocabulary, **{key: {**theirs[key], **mine[key]} for key in mine})

    def _tables(self) -> dict[str, dict[str, Any]]:
        tables = {key: getattr(self, key) for key in (*_TEXTS, "titles", "statements")}
        return {**tables, "parents": {**self.parents, **self._several}}

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Names and tables of what is known of them, which load faster than one record per label."""
        tables: dict[str, Any] = {key: getattr(self, key) for key in (*_TEXTS, "titles", "statements", "vocabulary")}
        tables["parents"] = {name: parent for name, parent in self.parents.items() if name not in self._several}
        tables["several_parents"] = {name: list(own) for name, own in self._several.items()}
        return {"names": list(self.names), **{key: table for key, table in tables.items() if table}}

    @classmethod
    def from_state(cls, state: Any) -> LabelSet:
        """Restore what ``state`` returned, or the records of earlier artefacts."""
        if isinstance(state, list):
            return cls.from_records(state)
        check(LABELS, state, {}, "labels")
        parents = {**state.get("parents", {}), **state.get("several_parents", {})}
        return cls(**{key: value for key, value in state.items() if key != "several_parents"} | {"parents": parents})

    def to_records(self) -> list[dict[str, Any]]:
        """One record per label, with the keys that it has; several parents are a list under ``parents``."""
        extra = [(key, getattr(self, table)) for table, key in _TEXTS.items()]
        extra += [("titles", self.titles), ("statements", self.statements)]
        records = [{"name": name, **{key: table[name] for key, table in extra if name in table}} for name in self.names]
        for name, own in self._several.items():
            record = records[self._number[name]]
            del record["parent"]
            record["parents"] = list(own)
        return records

    @classmethod
    def from_records(
        cls, records: Iterable[Mapping[str, Any]], where: str = "labels", vocabulary: Sequence[str] = ()
    ) -> LabelSet:
        """Build a set from records with the key ``name`` and optionally what ``to_records`` writes."""
        return cls._of_lines(enumerate(records, start=1), where, vocabulary)

    @classmethod
    def _of_lines(cls, records: Records, where: str, vocabulary: Sequence[str] = ()) -> LabelSet:
        """Build a set from records with their line numbers."""
        found: list[tuple[int, Any]] = list(records)  # one pass per key, for speed: there may be half a million labels
        for line, record in found:
            if isinstance(record, BadLine):
                raise DataError(f"{where}, line {line}: {record}")
        names = [_record_name(record, line, where) for line, record in found]
        tables: dict[str, dict[str, Any]] = {
            table: {name: str(record[key]) for name, (_, record) in zip(names, found, strict=True) if record.get(key)}
            for table, key in _TEXTS.items()
        }
        for name, (line, record) in zip(names, found, strict=True):
            if not record.keys().isdisjoint(_NESTED):
                _take_nested(tables, name, record, f"{where}, line {line}")
        vocabulary = [*vocabulary, *(text for _, record in found for text in record.get("vocabulary") or ())]
        return cls(names, vocabulary=vocabulary, **tables)

    @classmethod
    def read(cls, path: str | Path, *, language: str | None = None) -> LabelSet:
        """Read a label file: JSON lines, SKOS, CSV or TSV with a header that has ``name``, or one plain name per line.

        SKOS is Turtle (.ttl), RDF/XML (.rdf, .xml) or N-Triples (.nt); a label's name is its preferred label in ``language``, by
        default the one that most concepts have. A TSV file without a header, as Annif has it, has URI, name and notation.
        JSON lines with ``uid`` and ``title`` instead are those of the Extreme Classification Repository. Its documents refer to a
        label by line number, from 0, which becomes the id.
        """
        where = str(checked_path(path))
        records, vocabulary = read_labels(where, language)
        try:
            found = cls._of_lines(records, where, vocabulary)
            if found.has_tree:
                found.topological_order()  # refuses a cycle
        except DataError as error:
            raise error if where in str(error) else DataError(f"{where}: {error}") from None
        if not len(found):
            raise DataError(f"{where}: no labels; the file is empty")
        return found

    def write(self, path: str | Path) -> None:
        """Write the set as JSON lines, as SKOS (.ttl, .rdf, .xml, .nt), or as Annif's table (.tsv)."""
        write_labels(str(checked_path(path)), self.to_records(), self.vocabulary)


_NESTED = frozenset({"parents", "titles", "statements", "vocabulary"})


def _take_nested(tables: dict[str, dict[str, Any]], name: str, record: Mapping[str, Any], where: str) -> None:
    """Add what a record has under keys with lists or tables."""
    for key, kind in (("parents", list), ("titles", Mapping), ("statements", list), ("vocabulary", list)):
        value = record.get(key)
        if value is None:
            continue
        inner = value.values() if isinstance(value, Mapping) else value
        if not isinstance(value, kind) or not all(isinstance(text, str) for text in inner):
            what = "a table of texts by language" if kind is Mapping else "a list of texts"
            raise DataError(f"{where}: {key!r} is {brief(value)}; it must be {what}")
        if key == "parents":
            own = [*([record["parent"]] if record.get("parent") else []), *value]
            tables["parents"] |= {name: own} if own else {}
        elif key != "vocabulary":
            tables.setdefault(key, {})[name] = value


def _text_names(names: Any, what: str = "label names") -> tuple[str, ...]:
    """The names as a tuple, if all of them are text."""
    try:
        found = tuple(names)
    except TypeError:
        raise DataError(f"the {what} are {brief(names)}; pass a list of str") from None
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
