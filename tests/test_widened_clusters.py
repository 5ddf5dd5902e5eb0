"""Labels that are added to models over clusters: the fitted margin, the grown tree, whole models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.kernels.sparse_rows import unit_rows
from polytag.models.xbert import XBert
from polytag.xmc.rank import TreeRanker
from polytag.xmc.tree_path import log_worth
from polytag.xmc.widened_clusters import TextMargin, pairs_of, widened
from test_rank import dense_weights
from test_text_separators import KNOWN, NEW, OPAQUE, THINGS, all_documents, documents, few, quality
from test_xbert import FAST


@pytest.fixture(scope="module")
def trained() -> Classifier:
    return Classifier("xbert", {**FAST, "clusters": 6, "beam": 3}).fit(all_documents())


@pytest.fixture
def classifier(trained: Classifier, tmp_path: Path) -> Classifier:
    trained.save(tmp_path / "copy")
    return Classifier.load(tmp_path / "copy")


def ranker_of(classifier: Classifier) -> TreeRanker:
    assert isinstance(classifier.model, XBert) and classifier.model.ranker is not None
    return classifier.model.ranker


def test_the_margin_has_the_least_squared_hinge() -> None:
    rng = np.random.default_rng(0)
    similar, true = rng.random(300), rng.random(300) < 0.3
    similar[true] += 0.4
    sign = np.where(true, 1.0, -1.0)

    def loss(w: np.ndarray) -> float:
        return float((np.maximum(0, 1 - sign * (w[0] * similar + w[1])) ** 2).sum() + 1e-3 * (w**2).sum())

    best = minimize(loss, np.zeros(2)).x
    assert TextMargin.fit(similar, true) == pytest.approx(best, abs=1e-3)


def test_pairs_are_labels_in_matched_clusters(trained: Classifier) -> None:
    tree, rng = ranker_of(trained).tree, np.random.default_rng(1)
    rows, directions = csr_array(rng.random((5, 7))), csr_array(rng.random((3, 7)))
    clusters = np.stack([rng.permutation(6)[:2] for _ in range(5)]).astype(np.int32)
    truth, labels = csr_array((rng.random((5, len(KNOWN))) < 0.4).astype(np.float32)), np.array([2, 5, 11])
    similar, true = pairs_of(rows, clusters, truth, tree, labels, directions)
    wanted = [
        (rows.toarray()[d] @ directions.toarray()[at], truth.toarray()[d, label] > 0)
        for d in range(5) for at, label in enumerate(labels) if tree.leaf_of[label] in clusters[d]
    ]  # fmt: skip
    found = sorted(zip(similar.tolist(), true.tolist(), strict=True))
    assert [pair[0] for pair in found] == pytest.approx([pair[0] for pair in sorted(wanted)])
    assert [pair[1] for pair in found] == [pair[1] for pair in sorted(wanted)]


@given(st.integers(0, 99), st.integers(1, 5))
def test_a_grown_tree_keeps_every_separator(trained: Classifier, seed: int, count: int) -> None:
    before, rng = ranker_of(trained), np.random.default_rng(seed)
    clusters = rng.integers(0, 6, count)
    table = rng.normal(size=(count, before.n_features)) * (rng.random((count, before.n_features)) < 0.2)
    after = widened(before, clusters, csr_array(table.astype(np.float32)), [TextMargin(2.0, -0.5)] * count)
    assert sorted(after.tree.order.tolist()) == list(range(len(KNOWN) + count))
    leaves = after.tree.leaf_of
    assert (leaves[: len(KNOWN)] == before.tree.leaf_of).all() and (leaves[len(KNOWN) :] == clusters).all()
    (old, _), (new, bias) = (dense_weights(one, 1) for one in (before, after))
    by_label = {int(label): new[:, at] for at, label in enumerate(after.tree.order)}
    for at, label in enumerate(before.tree.order.tolist()):
        assert (by_label[label] == old[:, at]).all()
    assert (bias[after.tree.order >= len(KNOWN)] == -0.5).all()
    for number in range(count):
        assert by_label[len(KNOWN) + number][: before.n_features] == pytest.approx(2 * table[number], abs=5e-3)


def test_known_labels_keep_their_scores_and_new_ones_are_equation_1(classifier: Classifier) -> None:
    test = documents(60, 3, THINGS).texts
    model = classifier.model
    assert isinstance(model, XBert)
    model.change({"beam": 100})
    ask = csr_array(np.ones((len(test), len(KNOWN)), dtype=np.float32))
    before = model.encode(test).given(ask).matrix.toarray()
    classifier.add_labels(NEW)
    encoded = model.encode(test)
    assert model.text_margins is not None and model.ranker is not None
    ask = csr_array(np.ones((len(test), len(model.labels)), dtype=np.float32))
    after = model.encode(test).given(ask).matrix.toarray()
    assert (after[:, : len(KNOWN)] == before).all()
    texts = unit_rows(model.encode([f"{name}. {said}" for name, said in NEW.items()]).rows)
    clusters = model.encode([f"{name}. {said}" for name, said in NEW.items()]).logs.argmax(axis=1)
    margins = model.text_margins.alone.slope * (encoded.rows @ texts.T).toarray() + model.text_margins.alone.bias
    wanted = encoded.logs[:, clusters] + log_worth(margins, model.ranking.worth)
    found = model.ranker.given(encoded.rows, ask, model.ranking.worth, encoded.logs).toarray()[:, len(KNOWN) :]
    assert found == pytest.approx(wanted, abs=0.02)  # weights are saved in half precision


def test_new_labels_are_found_by_texts_and_by_examples(classifier: Classifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "run")
    by_text = Classifier.load(tmp_path / "run").add_labels(NEW)
    names: dict[str, Any] = dict.fromkeys(OPAQUE.values(), "")
    by_name = Classifier.load(tmp_path / "run").add_labels(names)
    by_examples = Classifier.load(tmp_path / "run").add_labels(names, few(4))
    assert quality(by_text) > 0.4
    assert quality(by_name, OPAQUE) < 0.2 < 0.4 < quality(by_examples, OPAQUE)
    by_text.save(tmp_path / "added")
    test = documents(50, 5, THINGS)
    assert Classifier.load(tmp_path / "added").predict(test.texts) == by_text.predict(test.texts)


def test_an_artefact_without_the_margin_is_refused_in_one_line(classifier: Classifier) -> None:
    assert isinstance(classifier.model, XBert)
    classifier.model.text_margins = None
    with pytest.raises(ConfigError, match="cannot compare texts of labels with documents; train it again"):
        classifier.add_labels(NEW)
    assert isinstance(documents(1, 0, THINGS), Corpus) and len(classifier.labels) == len(KNOWN)
