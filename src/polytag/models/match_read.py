"""Texts that a network with clusters for outputs has read, ready to be asked about labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.models.model import Read
from polytag.scores import Scores
from polytag.xmc.curve import curved, curved_rows
from polytag.xmc.match import best_clusters

if TYPE_CHECKING:
    from polytag.models.match_model import MatchModel


class MatchRead(Read):
    """Texts that the network has read: weighed log P(cluster | x) of all clusters, and rows to rank by."""

    def __init__(self, model: MatchModel, texts: Sequence[str], logs: NDArray[np.float32], rows: csr_array) -> None:
        """Take what was read."""
        super().__init__(model, texts)
        self.matcher, self.logs, self.rows = model, logs, rows

    def best(self, k: int | None = None) -> Scores:
        """Probabilities of the best labels in the clusters that were found (equation 1), ``candidates`` at most."""
        model, names = self.matcher, self.matcher.labels.names
        assert model.ranker is not None
        most = model.scored_labels()
        clusters, logs = best_clusters(self.logs, model.searched())
        found = model.ranker.best_below(self.rows, clusters, logs, most if k is None else min(k, most), model.worth)
        return curved(*found, model.curve, names)

    def given(self, labels: csr_array) -> Scores:
        """Probabilities of just these labels, whether their clusters are among the best or not."""
        model = self.matcher
        assert model.ranker is not None
        return curved_rows(model.ranker.given(self.rows, labels, model.worth, self.logs), model.curve, model.labels.names)
