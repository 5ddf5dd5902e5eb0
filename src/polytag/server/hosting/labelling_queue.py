"""The queue "most useful to label next": unlabelled texts, ordered by uncertainty and diversity."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polytag.analysis.labelling_order import labelling_order, uncertainty
from polytag.formats.document import Document
from polytag.server.hosting.hosted_model import HostedModel
from polytag.server.problem import Problem
from polytag.text.tfidf import Tfidf

_BATCH = 500


class LabellingQueue:
    """Unlabelled texts, and how unsure the last version was of each."""

    def __init__(self, documents: Sequence[Document] = ()) -> None:
        """Keep the texts; they are scored when somebody asks."""
        self.documents = list({document.text: document for document in documents if document.text.strip()}.values())
        self._unsure: tuple[tuple[str, str], NDArray[np.float64]] | None = None
        self._rows: Any = None
        self._lock = threading.Lock()

    def next(self, model: HostedModel, labelled: Collection[str], limit: int) -> list[dict[str, Any]]:
        """The texts that are most useful to label, without those that were labelled since."""
        if not self.documents:
            raise Problem(409, "the service knows no unlabelled texts; start it with --pool FILE")
        with self._lock:
            unsure = self._uncertainties(model)
            left = np.flatnonzero([document.text not in labelled for document in self.documents])
            if self._rows is None:
                texts = [document.text for document in self.documents]
                self._rows = Tfidf().fit(texts).transform(texts)
            chosen = left[labelling_order(unsure[left], self._rows[left], limit)]
        found = [(self.documents[number], float(unsure[number])) for number in chosen.tolist()]
        return [{"id": document.id, "text": document.text, "uncertainty": value} for document, value in found]

    def _uncertainties(self, model: HostedModel) -> NDArray[np.float64]:
        key = (model.name, model.version)
        if self._unsure is None or self._unsure[0] != key:
            texts = [document.text for document in self.documents]
            parts = [uncertainty(model.classifier.scores(texts[at : at + _BATCH])) for at in range(0, len(texts), _BATCH)]
            self._unsure = key, np.concatenate(parts)
        return self._unsure[1]
