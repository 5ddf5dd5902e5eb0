"""Corpus: documents with one LabelSet; reading, writing and splitting."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.errors import ConfigError, DataError, brief
from polytag.formats.column_choice import LOOKED_AT, announce
from polytag.formats.document import BadLine, Columns, Document, ReadOptions
from polytag.formats.document_files import Reader, write_documents
from polytag.formats.inputs import checked_labels, checked_texts, checked_weights
from polytag.formats.parsers import documents_of
from polytag.formats.splits import By, Rows, fold_rows, split_rows
from polytag.kernels.sparse_rows import stack_rows, without
from polytag.labels import LabelSet, indicator

log = logging.getLogger(__name__)
_HELD_OUT = 10  # without validation documents, one document in ten is held out


class HoldOut(NamedTuple):
    """Training documents, validation documents if there are any, and the row numbers of the latter.

    ``rows`` refers to the corpus that was divided; if validation documents were given, to both corpora, training first.
    """

    train: Corpus
    valid: Corpus | None
    rows: Rows


@dataclass(eq=False)
class Corpus:
    """Documents and their true labels: row i of ``truth`` (documents × labels) has the labels of ``texts[i]``.

    ``groups`` has the group of every document, if there are any; the empty name means no group. ``weights`` says how much every
    document counts, and ``unknown`` (documents × labels) has the pairs that nobody judged; None = all count 1, all are judged.
    ``soft`` (documents × labels) has probabilities that training learns in place of the true labels, such as those of a teacher.
    """

    ids: list[str]
    texts: list[str]
    labels: LabelSet
    truth: csr_array
    groups: list[str] | None = None
    weights: NDArray[np.float32] | None = None
    unknown: csr_array | None = None
    soft: csr_array | None = None

    # -- construction ----------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, path: str | Path, *, labels: LabelSet | str | Path | None = None, options: ReadOptions | None = None) -> Corpus:
        """Read a file; labels that are not in the given label set or label file are added at its end, with a warning."""
        label_set = LabelSet.read(labels) if isinstance(labels, str | Path) else _checked_set(labels)
        reader = Reader(path, options)
        documents = list(reader)
        if not documents:
            first = f"; the first: line {reader.examples[0][0]}: {reader.examples[0][1]}" if reader.examples else ""
            raise DataError(f"{path}: no documents{f', {reader.bad} bad lines{first}' if reader.bad else '; the file is empty'}")
        return cls.of_documents(documents, label_set=label_set, where=str(path))

    @classmethod
    def of(
        cls,
        texts: Iterable[str],
        labels: Iterable[Iterable[str]] | Any,
        *,
        ids: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        label_set: LabelSet | None = None,
        classes: Iterable[str] | None = None,
        weights: Iterable[float] | None = None,
        unknown: Iterable[Iterable[str]] | None = None,
    ) -> Corpus:
        """Build a corpus from plain lists: the texts, and the label names of each.

        ``weights`` says how much every text counts; ``unknown`` has the labels of every text that nobody judged.

        The labels may also be an indicator matrix of 0 and 1 (documents × labels): an array, a sparse matrix or a data frame.
        ``classes`` names its columns; a frame has names already.
        """
        texts, labelled = checked_texts(texts), checked_labels(labels, classes)
        label_set = _checked_set(label_set)
        if label_set is None and labelled.classes is not None:
            label_set = LabelSet(labelled.classes)
        id_list = [str(row) for row in range(1, len(texts) + 1)] if ids is None else _texts_of(ids, "ids")
        group_list = [None] * len(texts) if groups is None else _texts_of(groups, "groups")
        weight_list = [None] * len(texts) if weights is None else checked_weights(weights)
        unknown_list = [None] * len(texts) if unknown is None else checked_labels(unknown).rows
        lists: dict[str, Sequence[Any]] = {"labels": labelled.rows, "ids": id_list, "groups": group_list}
        lists |= {"weights": weight_list, "unknown": unknown_list}
        for what, found in lists.items():
            if len(found) != len(texts):
                raise DataError(f"{len(texts)} texts but {len(found)} {what}; give one for every text")
        rows = zip(id_list, texts, labelled.rows, group_list, weight_list, unknown_list, strict=True)
        documents = [Document(*row) for row in rows]
        return cls.of_documents(documents, label_set=label_set)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        text: str | Sequence[str] = (),
        labels: str | None = None,
        id: str | None = None,
        group: str | None = None,
        separator: str | None = None,
        label_set: LabelSet | None = None,
    ) -> Corpus:
        """Build a corpus from a data frame or a Hugging Face dataset; columns that are not named are detected."""
        names = getattr(frame, "column_names", None)
        names = getattr(frame, "columns", None) if names is None else names
        if names is None or callable(names):
            raise DataError(f"{brief(frame)} is not a frame; pass a pandas frame or a Hugging Face dataset, or use Corpus.of")
        if isinstance(names, dict):
            raise DataError(f"this is a dictionary of datasets ({', '.join(names)}); take one of them")
        columns = Columns(ReadOptions(text=text, labels=labels, id=id, group=group, separator=separator), True, "the frame")
        name, count = next(iter(Counter(names).most_common(1)), ("", 0))
        if count > 1:
            raise DataError(f"the frame has {count} columns {brief(name)}; rename all but one")
        columns.resolve([name for name in names if isinstance(name, str)])
        announce(columns, _first_rows(frame, names), "text='%s'")
        values = [_class_names(frame, name) if name == columns.label else frame[name] for name in columns.used]
        records = (dict(zip(columns.used, row, strict=True)) for row in zip(*values, strict=True))
        documents = []
        for row, found in documents_of(enumerate(records, start=1), columns):
            if isinstance(found, BadLine):
                raise DataError(f"the frame, row {row}: {found}")
            documents.append(found)
        return cls.of_documents(documents, label_set=label_set, where="the frame")

    @classmethod
    def of_documents(
        cls, documents: Sequence[Document], *, label_set: LabelSet | None = None, where: str = "the corpus"
    ) -> Corpus:
        """Build a corpus from documents; labels that are not in the label set are added at its end, sorted by name."""
        if not documents:
            raise DataError(f"{where}: no documents; give at least one")
        known = LabelSet(()) if label_set is None else label_set
        new = Counter(label for document in documents for label in document.labels if known.find(label) is None)
        if new:
            known = known.union(LabelSet(sorted(new)))
        if new and label_set is not None:
            shown = ", ".join(repr(name) for name, _ in new.most_common(3))
            log.warning("%s: added %d labels that the label set lacks (%d uses): %s", where, len(new), new.total(), shown)
        grouped = any(document.group for document in documents)
        corpus = cls(
            [document.id for document in documents],
            [document.text for document in documents],
            known,
            known.encode(document.labels for document in documents),
            [document.group or "" for document in documents] if grouped else None,
            *_judgement(documents, known, where),
        )
        if corpus.duplicate_ids:
            log.warning("%s: %d ids occur more than once; all documents are kept", where, len(corpus.duplicate_ids))
        return corpus

    # -- access ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.texts)

    def documents(self) -> Iterator[Document]:
        """Yield the documents."""
        none = itertools.repeat(None)
        groups = none if self.groups is None else self.groups
        weights = none if self.weights is None else self.weights.tolist()
        unknown = none if self.unknown is None else map(tuple, self.labels.decode(self.unknown))
        columns = zip(self.ids, self.texts, self.label_lists(), groups, weights, unknown, strict=False)
        for name, text, labels, *extra in columns:
            yield Document(name, text, tuple(labels), *extra)

    def label_lists(self) -> list[list[str]]:
        """The label names of every document."""
        return self.labels.decode(self.truth)

    @cached_property
    def duplicate_ids(self) -> dict[str, int]:
        """The ids of more than one document, with their counts."""
        return {name: count for name, count in Counter(self.ids).items() if count > 1}

    def fingerprint(self) -> str:
        """The sha256 of ids, texts and labels, which identifies the training data of a run."""
        digest = hashlib.sha256()
        for document in self.documents():
            judged: list[Any] = [] if document.weight is None else [document.weight]
            judged += [] if document.unknown is None else [sorted(document.unknown)]
            line = json.dumps([document.id, document.text, sorted(document.labels), *judged])
            digest.update(line.encode("ascii") + b"\n")
        return digest.hexdigest()

    @property
    def fewest_labels(self) -> int:
        """The minimum number of labels of a document; 0 without documents."""
        return int(np.diff(self.truth.indptr).min()) if len(self) else 0

    def require_trainable(self) -> None:
        """Raise unless at least two labels occur."""
        used = np.unique(self.truth.indices)
        if len(used) == 0:
            raise DataError("no labels at all: none of the documents has one; check the label column and the format")
        if len(used) == 1:
            name = self.labels[int(used[0])]
            raise DataError(f"one label only ({name!r}): a model needs at least two; check the label separator, or add labels")

    # -- derived corpora -------------------------------------------------------------------------------------------

    def write(self, path: str | Path, format: str | None = None) -> None:
        """Write the documents in the given format, or the one of the file's name."""
        write_documents(path, self.documents(), format)

    def subset(self, rows: Sequence[int] | NDArray[Any]) -> Corpus:
        """The documents with these row numbers, or of a mask, with the same label set."""
        numbers = self._row_numbers(rows)
        at = numbers.tolist()
        groups = None if self.groups is None else [self.groups[i] for i in at]
        weights = None if self.weights is None else self.weights[numbers]
        unknown = None if self.unknown is None else self.unknown[numbers]
        soft = None if self.soft is None else self.soft[numbers]
        ids, texts = [self.ids[i] for i in at], [self.texts[i] for i in at]
        return Corpus(ids, texts, self.labels, self.truth[numbers], groups, weights, unknown, soft)

    def _row_numbers(self, rows: Any) -> NDArray[np.int64]:
        try:
            chosen = np.asarray(rows)
        except ValueError:  # lists of different lengths
            chosen = np.empty((0, 0))
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "biu"):
            raise DataError(f"the rows are {brief(rows)}; pass row numbers, or a mask of True and False")
        if chosen.dtype == bool and len(chosen) != len(self):
            raise DataError(f"the mask has {len(chosen)} entries for {len(self)} documents; give one for every document")
        numbers = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        if len(numbers) and not -len(self) <= numbers.min() <= numbers.max() < len(self):
            raise DataError(f"there is no row {numbers.max()}; the rows are 0 to {len(self) - 1}")
        return numbers

    def with_labels(self, label_set: LabelSet) -> Corpus:
        """The same documents with another label set; labels that are not in it are dropped, with a warning."""
        if label_set is self.labels:
            return self
        if _checked_set(label_set) is None:
            raise ConfigError("the label set is None; pass a LabelSet")
        found = [label_set.find(name) for name in self.labels]
        number = np.array([-1 if at is None else at for at in found], dtype=np.int64)
        lost = number[self.truth.indices] < 0
        if lost.any():
            names = len(np.unique(self.truth.indices[lost]))
            log.warning("dropped %d labels (%d uses) that the label set lacks", names, int(lost.sum()))
        truth = _renumbered(self.truth, number, len(label_set))
        unknown = None if self.unknown is None else _renumbered(self.unknown, number, len(label_set))
        if unknown is not None:  # two names may become one, of which one is judged
            unknown = without(unknown, truth)
        soft = None if self.soft is None else _moved(self.soft, number, len(label_set))
        return Corpus(self.ids, self.texts, label_set, truth, self.groups, self.weights, unknown, soft)

    def concat(self, other: Corpus) -> Corpus:
        """These documents followed by the others, with the labels of both."""
        if not isinstance(other, Corpus):
            raise DataError(f"{brief(other)} is not a Corpus; make one with Corpus.of or Corpus.read")
        labels = self.labels if other.labels is self.labels else self.labels.union(other.labels)
        own, more = self.with_labels(labels), other.with_labels(labels)
        truth = _above(own.truth, more.truth)
        weights = unknown = groups = soft = None
        if own.weights is not None or more.weights is not None:
            weights = np.concatenate([_ones(part) if part.weights is None else part.weights for part in (own, more)])
        if own.unknown is not None or more.unknown is not None:
            unknown = _above(*(_none(part) if part.unknown is None else part.unknown for part in (own, more)))
        if own.soft is not None or more.soft is not None:
            soft = stack_rows([part.truth if part.soft is None else part.soft for part in (own, more)])
        if self.groups is not None or other.groups is not None:
            groups = [*(self.groups or [""] * len(self)), *(other.groups or [""] * len(other))]
        return Corpus([*self.ids, *other.ids], [*self.texts, *other.texts], labels, truth, groups, weights, unknown, soft)

    def split(self, *fractions: float, seed: int = 0, by: By = "random") -> list[Corpus]:
        """Parts with these fractions, as in ``split(0.8, 0.1, 0.1)``; documents keep their order."""
        parts = split_rows(by, fractions, len(self), self.truth, self.groups, seed)
        for fraction, rows in zip(fractions, parts, strict=True):
            if not len(rows):
                raise DataError(
                    f"the part of {fraction:g} would have no documents (of {len(self)}); make it larger, or add documents"
                )
        return [self.subset(rows) for rows in parts]

    def hold_out(self, valid: Corpus | None, seed: int = 0) -> HoldOut:
        """Training and validation documents; if none are given, a tenth of these documents, if there are at least ten."""
        if valid is not None:
            return HoldOut(self, valid, np.arange(len(self), len(self) + len(valid)))
        if len(self) < _HELD_OUT:
            return HoldOut(self, None, np.arange(0))
        train, held = split_rows("random", (1 - 1 / _HELD_OUT, 1 / _HELD_OUT), len(self), self.truth, self.groups, seed)
        return HoldOut(self.subset(train), self.subset(held), held)

    def folds(self, k: int, seed: int = 0, by: By = "random") -> list[tuple[Rows, Rows]]:
        """The k pairs of training rows and held-out rows; every document is held out exactly once."""
        return fold_rows(by, k, len(self), self.truth, self.groups, seed)


def _judgement(
    documents: Sequence[Document], labels: LabelSet, where: str
) -> tuple[NDArray[np.float32] | None, csr_array | None]:
    """The weights and the pairs that nobody judged, if any document has them; labels that no document has are left out."""
    weights = unknown = None
    if any(document.weight is not None for document in documents):
        weights = np.array([1.0 if d.weight is None else d.weight for d in documents], dtype=np.float32)
    if any(document.unknown for document in documents):
        names = [[name for name in document.unknown or () if labels.find(name) is not None] for document in documents]
        unknown = labels.encode(names)
        truth = labels.encode(document.labels for document in documents)
        if (both := csr_array(unknown.multiply(truth))).nnz:
            row = int(np.flatnonzero(np.diff(both.indptr))[0])
            name = labels[int(both.indices[0])]
            raise DataError(f"{where}, document {documents[row].id!r}: {name!r} is both a label and unknown; remove it from one")
    return weights, unknown if unknown is not None and unknown.nnz else None


def _renumbered(pairs: csr_array, number: NDArray[np.int64], size: int) -> csr_array:
    """The same pairs with other label numbers, of which there are ``size``; -1 drops a label."""
    labels = number[pairs.indices]
    row = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    keep = labels >= 0
    flat = np.unique(row[keep] * max(size, 1) + labels[keep])  # sorted, unique: two names may become one
    row, labels = np.divmod(flat, max(size, 1))
    indptr = np.searchsorted(row, np.arange(pairs.shape[0] + 1))
    return csr_array((np.ones(len(labels), dtype=np.float32), labels.astype(np.int32), indptr), shape=(pairs.shape[0], size))


def _moved(values: csr_array, number: NDArray[np.int64], size: int) -> csr_array:
    """The same values with other label numbers; -1 drops a label. Of two labels that become one, the larger value counts."""
    row = np.repeat(np.arange(values.shape[0]), np.diff(values.indptr))
    labels = number[values.indices]
    order = np.lexsort((-values.data, labels, row))
    order = order[labels[order] >= 0]
    key = row[order] * max(size, 1) + labels[order]
    order = order[np.unique(key, return_index=True)[1]]
    indptr = np.searchsorted(row[order], np.arange(values.shape[0] + 1))
    return csr_array((values.data[order], labels[order].astype(np.int32), indptr), shape=(values.shape[0], size))


def _above(one: csr_array, other: csr_array) -> csr_array:
    """The rows of both, which have the same columns."""
    indices = np.concatenate([one.indices, other.indices])
    indptr = np.concatenate([one.indptr, one.nnz + other.indptr[1:]])
    shape = (one.shape[0] + other.shape[0], one.shape[1])
    return csr_array((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=shape)


def _ones(corpus: Corpus) -> NDArray[np.float32]:
    return np.ones(len(corpus), dtype=np.float32)


def _none(corpus: Corpus) -> csr_array:
    return indicator([[]] * len(corpus), len(corpus.labels))


def _checked_set(labels: Any) -> LabelSet | None:
    if labels is not None and not isinstance(labels, LabelSet):
        raise ConfigError(f"{brief(labels)} is not a LabelSet; make one, as in LabelSet(['a', 'b']), or name a label file")
    return labels


def _texts_of(values: Any, what: str) -> list[str]:
    """Ids or groups as text; numbers are formatted."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise DataError(f"the {what} are {brief(values)}; pass a list with one for every text")
    return ["" if value is None else str(value) for value in values]


def _first_rows(frame: Any, names: Iterable[Any]) -> list[dict[str, Any]]:
    """Some rows of a frame; columns whose names are no text are left out."""
    named = [name for name in names if isinstance(name, str)]
    cells = [list(itertools.islice(frame[name], LOOKED_AT)) for name in named]
    return [dict(zip(named, row, strict=True)) for row in zip(*cells, strict=True)]


def _class_names(frame: Any, column: str) -> Any:
    """A label column; class numbers of a Hugging Face dataset are replaced by their names."""
    feature = (getattr(frame, "features", None) or {}).get(column)
    names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    if not names:
        return frame[column]
    cells = (cell if isinstance(cell, list | tuple) else [cell] for cell in frame[column])
    return [[names[number] for number in cell if number is not None and number >= 0] for cell in cells]  # -1 = no label
