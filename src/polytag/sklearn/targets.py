"""The forms of scikit-learn's ``y``: an indicator matrix, lists of labels, or one label per text."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from polytag.errors import DataError, brief
from polytag.formats.inputs import is_indicator
from polytag.labels import indicator

Form = Literal["indicator", "sparse", "lists", "single"]


@dataclass
class Targets:
    """The form of ``y``, its classes as they were given, and their names as text."""

    form: Form
    classes: NDArray[Any]
    names: list[str]
    documents: int

    def __len__(self) -> int:
        """The number of documents."""
        return self.documents

    @classmethod
    def of(cls, y: Any) -> Targets:
        """Look at ``y``."""
        y = _plain(y)
        if issparse(y) or getattr(y, "ndim", 1) == 2:
            columns = getattr(y, "columns", None)
            classes = np.arange(y.shape[1]) if columns is None else np.asarray(columns)
            return cls("sparse" if issparse(y) else "indicator", classes, [str(name) for name in classes], y.shape[0])
        rows = _rows(y)
        if any(isinstance(row, list | tuple | set | frozenset | np.ndarray) for row in rows):
            known = sorted({label for row in rows for label in row}, key=str)
            classes = np.empty(len(known), dtype=object)
            classes[:] = known
            return cls("lists", classes, [str(label) for label in known], len(rows))
        from sklearn.utils.multiclass import check_classification_targets

        check_classification_targets(y)  # continuous targets are an error
        classes = np.unique(np.asarray(y))
        if len(classes) < 2:
            raise DataError(f"one class only ({brief(classes.tolist()[0])}); a classifier needs at least two")
        return cls("single", classes, [str(label) for label in classes], len(rows))

    def encoded(self, y: Any) -> csr_array:
        """The labels of ``y`` as a sparse matrix of ones over the classes; unknown labels are errors."""
        y = _plain(y)
        if issparse(y) or getattr(y, "ndim", 1) == 2:
            found = csr_array(y.to_numpy() if hasattr(y, "to_numpy") else y).astype(np.float32)
            if found.shape[1] != len(self.classes):
                raise DataError(f"y has {found.shape[1]} columns, and training had {len(self.classes)}; keep the columns")
            found.eliminate_zeros()
            found.sort_indices()
            return found
        number = {label: at for at, label in enumerate(self.classes.tolist())}
        rows = [row if isinstance(row, list | tuple | set | frozenset | np.ndarray) else [row] for row in _rows(y)]
        try:
            return indicator([[number[label] for label in row] for row in rows], len(self.classes))
        except KeyError as error:
            raise DataError(f"the label {brief(error.args[0])} was not in training; leave it out") from None

    def indicator(self, y: Any) -> Any:
        """An indicator matrix to train on."""
        y = _plain(y)
        return y if self.form in ("indicator", "sparse") and not hasattr(y, "columns") else self.encoded(y)

    def decoded(self, sets: csr_array) -> Any:
        """Predicted sets in the form of ``y``."""
        if self.form == "sparse":
            return sets.astype(np.int64)
        if self.form == "indicator":
            return sets.toarray().astype(np.int64)
        found = np.empty(sets.shape[0], dtype=object)
        found[:] = [self.classes[row].tolist() for row in np.split(sets.indices, sets.indptr[1:-1])]
        return found


def _rows(y: Any) -> list[Any]:
    return list(y.tolist() if hasattr(y, "tolist") else y)


def _plain(y: Any) -> Any:
    """Rows of 0 and 1 as a matrix, one column as a list of labels, other things as they are."""
    if not hasattr(y, "tolist") and hasattr(y, "__array__") and not hasattr(y, "columns"):
        y = np.asarray(y)
    if isinstance(y, list | tuple) and is_indicator(y):
        y = np.array(y)
    if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1 and not issparse(y):
        from sklearn.exceptions import DataConversionWarning

        warnings.warn("A column-vector y was passed when a 1d array was expected", DataConversionWarning, stacklevel=4)
        y = (y.iloc[:, 0] if hasattr(y, "iloc") else y[:, 0]).tolist()
    return y
