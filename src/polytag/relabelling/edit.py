"""An edit of a label set: labels are renamed, merged, dropped or split; the tree follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from polytag.errors import DataError, brief
from polytag.formats.label_uris import uri_of
from polytag.labels import LabelSet
from polytag.storage.schema import Items, Number, Table, Text

_RECORDED = 100  # names of an edit that the history keeps
_SHOWN = 3  # names of an edit that a line shows
KINDS = ("rename", "merge", "drop", "split", "add")
EDITS = Items(
    Table(
        {"edit": Text(KINDS), "old": Items(Text()), "new": Items(Text()), "more": Number(0, 2**31 - 1)},
        optional=frozenset({"more"}),
    )
)
"""What the history of a classifier's labels looks like when it is saved."""


@dataclass(frozen=True)
class Edit:
    """``old`` labels become ``new`` ones: renamed one by one, merged into one, dropped, or one split into several."""

    kind: str
    old: tuple[str, ...]
    new: tuple[str, ...] = ()
    more: int = 0

    @classmethod
    def renames(cls, names: Any) -> list[Self]:
        """From ``{old: new}``; all at once, so that two labels can swap their names."""
        table = _table(names, "rename", "{'old': 'new'}")
        return [cls("rename", tuple(table), tuple(_text(new) for new in table.values()))]

    @classmethod
    def merges(cls, groups: Any) -> list[Self]:
        """From ``{new: [old, old]}``."""
        table = _table(groups, "merge", "{'new': ['one', 'other']}")
        return [cls("merge", _texts(old), (new,)) for new, old in table.items()]

    @classmethod
    def drops(cls, names: Any) -> list[Self]:
        """From a list of names."""
        return [cls("drop", _texts([names] if isinstance(names, str) else names))]

    @classmethod
    def splits(cls, labels: Any) -> list[Self]:
        """From ``{old: [new, new]}``."""
        table = _table(labels, "split", "{'old': ['one', 'other']}")
        return [cls("split", (old,), _texts(new)) for old, new in table.items()]

    def __str__(self) -> str:
        """The edit in one line, as in ``merge 'a', 'b' = 'c'``; a few of many names."""
        return f"{self.kind} {' = '.join(self._listed(names) for names in (self.old, self.new) if names)}"

    def _listed(self, names: tuple[str, ...]) -> str:
        left = len(names) - _SHOWN + (self.more if len(names) == _RECORDED else 0)
        return ", ".join(map(repr, names[:_SHOWN])) + (f" and {left} more" if left > 0 else "")

    def recorded(self) -> Self:
        """The edit for the history: with at most 100 names of labels, and the number of further ones."""
        more = max(len(self.old), len(self.new)) - _RECORDED
        return self if more <= 0 else replace(self, old=self.old[:_RECORDED], new=self.new[:_RECORDED], more=more)

    def record(self) -> dict[str, Any]:
        """The entry of the history."""
        more = {"more": self.more} if self.more else {}
        return {"edit": self.kind, "old": list(self.old), "new": list(self.new), **more}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Restore what ``record`` returned."""
        return cls(record["edit"], tuple(record["old"]), tuple(record["new"]), record.get("more", 0))


class Edited(NamedTuple):
    """A label set after edits, the numbers of the old labels that each label comes from, and the edits with names only."""

    labels: LabelSet
    sources: list[tuple[int, ...]]
    edits: list[Edit]


def edited(labels: LabelSet, *edits: Edit) -> Edited:
    """Make edits of one kind at once; children of a label that goes away go to what takes its place, or to its parents."""
    numbers = [[labels.number(name) for name in edit.old] for edit in edits]
    edits = tuple(
        Edit(edit.kind, tuple(labels[number] for number in old), tuple(map(_checked_name, edit.new)))
        for edit, old in zip(edits, numbers, strict=True)
    )
    _check(labels, edits)
    records = labels.to_records()
    rows: dict[int, list[tuple[dict[str, Any], tuple[int, ...]]]] = {}  # what takes the place of old labels
    moved: dict[str, tuple[str, ...]] = {}
    for edit, old in zip(edits, numbers, strict=True):
        new = _new_records(edit, [records[number] for number in old])
        moved |= _moved(labels, edit)
        if edit.kind == "rename":
            rows |= {number: [(record, (number,))] for number, record in zip(old, new, strict=True)}
        else:
            rows |= {number: [] for number in old}
            rows[min(old)] = [(record, tuple(sorted(old))) for record in new]
    kept = [row for number, record in enumerate(records) for row in rows.get(number, [(record, (number,))])]
    gone = (records[number] for edit, old in zip(edits, numbers, strict=True) if edit.kind != "rename" for number in old)
    lost = {uri_of(record) for record in gone}
    lost -= {uri_of(record) for record, _ in kept} if lost else set()
    found = LabelSet.from_records(
        [_settled(record, moved, lost) for record, _ in kept],
        vocabulary=[line for line in labels.vocabulary if not any(f"<{uri}>" in line for uri in lost)],
    )
    if found.has_tree:
        found.topological_order()  # refuses a cycle
    return Edited(found, [sources for _, sources in kept], list(edits))


def _check(labels: LabelSet, edits: Sequence[Edit]) -> None:
    """Raise unless the edits are possible."""
    if not edits or not all(edit.old for edit in edits):
        raise DataError(f"there is no label to {edits[0].kind if edits else 'edit'}; name at least one")
    kind = edits[0].kind
    for names in ([name for edit in edits for name in edit.old], [name for edit in edits for name in edit.new]):
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise DataError(f"the label {twice!r} is named twice in one {kind}; name it once")
    for edit in edits:
        what = ", ".join(map(repr, edit.old[:3]))
        if kind == "merge" and len(edit.old) < 2:
            raise DataError(f"a merge needs at least two labels, not {what} alone; to change a name, rename it")
        if kind == "split" and len(edit.new) < 2:
            raise DataError(f"a split of {what} needs at least two new labels; to change a name, rename it")
    going = {name for edit in edits for name in edit.old}
    if kind == "drop" and len(going) >= len(labels):
        raise DataError("no label would be left; keep at least one")
    if taken := next((name for edit in edits for name in edit.new if name in labels and name not in going), None):
        hint = "merge it too" if kind == "merge" else "choose another name, or merge the two"
        raise DataError(f"the label {taken!r} exists already; {hint}")


def _new_records(edit: Edit, old: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of the new labels; one that keeps the name of an old label keeps all that is known of it."""
    if edit.kind == "rename":
        return [_renamed(record, name) for record, name in zip(old, edit.new, strict=True)]
    known = {record["name"]: record for record in old}
    parents = list(dict.fromkeys(parent for record in old for parent in _parents(record)))
    return [{**known.get(name, {"name": name}), "parent": "", "parents": parents} for name in edit.new]


def _renamed(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    titles = record.get("titles")
    own = {} if not titles else {"titles": {**titles, next(iter(titles)): name}}  # the first is in the language of the name
    return {**record, "name": name, **own}


def _moved(labels: LabelSet, edit: Edit) -> dict[str, tuple[str, ...]]:
    """What takes the place of each old label as a parent: the new labels, or the nearest ancestors that are left."""
    if edit.kind == "rename":
        return {old: (new,) for old, new in zip(edit.old, edit.new, strict=True)}
    if edit.kind != "drop":
        return dict.fromkeys(edit.old, edit.new)
    gone = set(edit.old)
    found: dict[str, tuple[str, ...]] = {}
    for name in edit.old:
        above, seen = dict[str, None](), {name}
        waiting = list(labels.parents_of(name))
        while waiting:
            parent = waiting.pop(0)
            if parent not in gone:
                above[parent] = None
            elif parent not in seen:
                seen.add(parent)
                waiting += labels.parents_of(parent)
        found[name] = tuple(above)
    return found


def _settled(record: dict[str, Any], moved: Mapping[str, tuple[str, ...]], lost: set[str]) -> dict[str, Any]:
    """A record with parents that exist, and without statements that point to labels that do not."""
    parents, statements = _parents(record), record.get("statements", [])
    if statements and lost:
        record = {**record, "statements": [text for text in statements if not text.endswith(tuple(f"<{uri}>" for uri in lost))]}
    if moved.keys().isdisjoint(parents):
        return record
    found = dict.fromkeys(target for parent in parents for target in moved.get(parent, (parent,)))
    found.pop(record["name"], None)
    return {**record, "parent": "", "parents": list(found)}


def _parents(record: Mapping[str, Any]) -> list[str]:
    return [record["parent"]] if record.get("parent") else list(record.get("parents") or ())


def _table(given: Any, verb: str, example: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise DataError(f"the labels to {verb} are {brief(given)}; pass a dict such as {example}")
    return {_text(name): value for name, value in given.items()}


def _texts(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise DataError(f"the labels are {brief(given)}; pass a list of names")
    return tuple(map(_text, given))


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise DataError(f"a label is {brief(name)}, of type {type(name).__name__}; label names are text")
    return name


def _checked_name(name: str) -> str:
    if not name or name.isspace():
        raise DataError(f"a new label is {brief(name)}; a label needs a name")
    return name
