"""Active learning: the order of texts to label is by uncertainty, and copies of a chosen text come last."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from polytag.analysis.labelling_order import labelling_order, uncertainty
from polytag.scores import Scores


def test_uncertainty_is_the_summed_entropy_and_margins_are_log_odds() -> None:
    chances = np.array([[0.5, 0.9], [0.01, 0.99]])
    by_hand = -(chances * np.log(chances) + (1 - chances) * np.log(1 - chances)).sum(axis=1)
    found = uncertainty(Scores.full(chances, ["a", "b"], "probability"))
    margins = uncertainty(Scores.full(np.log(chances / (1 - chances)), ["a", "b"], "margin"))
    np.testing.assert_allclose(found, by_hand, rtol=1e-5)
    np.testing.assert_allclose(margins, by_hand, rtol=1e-5)


def test_without_diversity_the_order_is_that_of_uncertainty() -> None:
    rng = np.random.default_rng(0)
    unsure, rows = rng.random(50), csr_array(np.eye(50, dtype=np.float32))
    assert labelling_order(unsure, rows, 20, 0.0).tolist() == np.argsort(-unsure, kind="stable")[:20].tolist()


def test_copies_of_a_chosen_text_are_chosen_last() -> None:
    """Of five copies of the least sure text one is chosen; then texts that share nothing with it."""
    rows = csr_array(np.vstack([np.tile([[1.0, 0, 0, 0]], (5, 1)), np.eye(4)[1:]]).astype(np.float32))
    chosen = labelling_order(np.array([5.0] * 5 + [3.0, 2.0, 1.0]), rows, 4)
    assert chosen.tolist() == [0, 5, 6, 7]
    assert len(set(labelling_order(np.ones(8), rows, 8).tolist())) == 8
