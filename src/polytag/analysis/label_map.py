"""The label map: labels as points in the plane, similar labels near each other (BERT+SGM, appendix B)."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from polytag.errors import ConfigError, DataError
from polytag.labels import LabelSet

log = logging.getLogger(__name__)
Method = Literal["auto", "umap", "tsne", "pca"]
METHODS = ("auto", "umap", "tsne", "pca")
_PACKAGES = {"umap": "umap", "tsne": "sklearn"}
_DIMENSIONS = 50  # of the vectors from which a projection starts
_WEIGHTS = 1000  # largest weights of a label that count; a linear separator has a long tail of small ones
_NEAR = 10  # neighbours that a projection looks at, and that its quality is measured with


@dataclass(frozen=True)
class LabelMap:
    """Places of labels. ``groups`` names the root of each label in the tree; ``kept`` is the share of neighbours kept.

    A label's ten nearest labels among all dimensions are its neighbours; those that are among the ten nearest in the plane
    are kept. ``left_out`` counts the labels without a vector and those beyond the most frequent ones.
    """

    names: tuple[str, ...]
    places: NDArray[np.float64]
    groups: tuple[str, ...]
    method: str
    kept: float
    left_out: int


def label_map(
    vectors: NDArray[Any] | csr_array,
    labels: LabelSet,
    counts: NDArray[Any],
    *,
    method: Method = "auto",
    most: int = 3000,
    seed: int = 0,
) -> LabelMap:
    """Project the vectors of the labels, one row each, to the plane; of many labels the most frequent ones.

    ``auto`` is t-SNE where scikit-learn is installed, and else principal components.
    """
    method = _available(method)
    if vectors.shape[0] != len(labels) or len(counts) != len(labels):
        raise ConfigError(
            f"there are {len(labels)} labels, {vectors.shape[0]} vectors and {len(counts)} counts; give one of each"
        )
    rows: csr_array = csr_array(vectors).astype(np.float64)
    rows.eliminate_zeros()
    order = np.argsort(-np.asarray(counts), kind="stable")
    chosen = np.sort(order[((np.diff(rows.indptr) > 0) & (np.asarray(counts) > 0))[order]][:most])
    if len(chosen) < 3:
        raise DataError(f"a map needs at least three labels with documents; there are {len(chosen)}")
    dense = _reduced(_unit_rows(_largest(rows[chosen])))
    places = {"umap": _umap, "tsne": _tsne, "pca": _pca}[method](dense, seed)
    roots = _roots(labels)
    names, groups = (tuple(source[j] for j in chosen.tolist()) for source in (labels.names, roots))
    return LabelMap(names, places, groups, method, _kept(dense, places), len(labels) - len(chosen))


def co_occurrence_vectors(truth: csr_array) -> csr_array:
    """Vectors from the documents alone: positive pointwise mutual information of each label with every label."""
    ones = csr_array((np.ones(truth.nnz), truth.indices, truth.indptr), shape=truth.shape)
    together = csr_array(ones.T @ ones).tocoo()
    counts = np.bincount(truth.indices, minlength=truth.shape[1])
    information = np.log(together.data * truth.shape[0] / (counts[together.row] * counts[together.col]))
    keep = information > 0
    return csr_array((information[keep], (together.row[keep], together.col[keep])), shape=together.shape)


def _available(method: str) -> Method:
    if method not in METHODS:
        raise ConfigError(f"there is no projection {method!r}; known: {', '.join(METHODS)}")
    if method == "auto":
        return "tsne" if importlib.util.find_spec("sklearn") else "pca"
    if method in _PACKAGES and importlib.util.find_spec(_PACKAGES[method]) is None:
        raise ConfigError(f"the projection {method!r} needs the extra 'report': pip install 'polytag[report]'; or take pca")
    return method  # type: ignore[return-value]


def _largest(rows: csr_array) -> csr_array:
    """The rows with their largest entries only."""
    for start, stop in pairwise(rows.indptr.tolist()):
        if stop - start > _WEIGHTS:
            sizes = np.abs(rows.data[start:stop])
            rows.data[start:stop][sizes < np.partition(sizes, -_WEIGHTS)[-_WEIGHTS]] = 0.0
    rows.eliminate_zeros()
    return rows


def _unit_rows(rows: csr_array) -> csr_array:
    norms = np.sqrt(np.asarray((rows * rows).sum(axis=1)).ravel())
    return csr_array(diags_array(1 / np.where(norms > 0, norms, 1.0)) @ rows)


def _reduced(rows: csr_array) -> NDArray[np.float64]:
    """The rows without their mean, in their main dimensions: exact, from the products of all pairs of rows."""
    products = (rows @ rows.T).toarray()
    centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
    values, vectors = np.linalg.eigh(centred)
    main = np.argsort(-values)[:_DIMENSIONS]
    return np.asarray(vectors[:, main] * np.sqrt(np.maximum(values[main], 0.0)))


def _pca(dense: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The two main dimensions; the sign of each is that of its largest entry, so that the map does not flip."""
    places = np.zeros((len(dense), 2))
    places[:, : min(2, dense.shape[1])] = dense[:, :2]
    largest = places[np.abs(places).argmax(axis=0), [0, 1]]
    return places * np.where(largest < 0, -1.0, 1.0)


def _tsne(dense: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(dense) - 1) / 3)
    found = TSNE(perplexity=perplexity, init=_start(dense), random_state=seed, n_jobs=1).fit_transform(dense)
    return np.asarray(found, dtype=np.float64)


def _start(dense: NDArray[np.float64]) -> NDArray[np.float32]:
    """Principal components, small, as t-SNE wants them."""
    places = _pca(dense, 0)
    return np.asarray(places / max(places[:, 0].std(), 1e-12) * 1e-4, dtype=np.float32)


def _umap(dense: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    with warnings.catch_warnings():  # of threads that a seed rules out, and of its dependencies
        warnings.simplefilter("ignore")
        from umap import UMAP

        near = min(15, len(dense) - 1)
        start = "spectral" if len(dense) > 50 else "random"  # its eigenvectors need some labels
        found = UMAP(n_neighbors=near, init=start, random_state=seed, n_jobs=1).fit_transform(dense)
    return np.asarray(found, dtype=np.float64)


def _kept(dense: NDArray[np.float64], places: NDArray[np.float64]) -> float:
    size = min(_NEAR, len(dense) - 1)
    before, after = _neighbours(dense, size), _neighbours(places, size)
    return float(np.mean([len(np.intersect1d(a, b)) / size for a, b in zip(before, after, strict=True)]))


def _neighbours(points: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    from scipy.spatial import cKDTree

    return np.asarray(cKDTree(points).query(points, size + 1)[1])[:, 1:]


def _roots(labels: LabelSet) -> Sequence[str]:
    """The root of every label in the tree; empty text without a tree."""
    if not labels.has_tree:
        return [""] * len(labels)
    root = np.arange(len(labels))
    parent = labels.parent_numbers
    for j in labels.topological_order():
        if parent[j] >= 0:
            root[j] = root[parent[j]]
    return [labels[int(j)] for j in root]
