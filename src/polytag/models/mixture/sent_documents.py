"""Documents as states, for processes that train on them; documents that several of them use are sent once."""

from __future__ import annotations

from typing import Any

from scipy.sparse import csr_array

from polytag.corpus import Corpus
from polytag.labels import LabelSet
from polytag.storage.state_json import State
from polytag.work.workplace import Workplace


class SentDocuments:
    """The corpora that a workplace has."""

    def __init__(self, place: Workplace) -> None:
        """None at first."""
        self._place = place
        self._sent: dict[int, tuple[Any, Corpus]] = {}  # a corpus that is kept keeps its id

    def __call__(self, *corpora: Corpus | None) -> list[Any]:
        """What stands for corpora in jobs; None is left out."""
        for corpus in corpora:
            if corpus is not None and id(corpus) not in self._sent:
                self._sent[id(corpus)] = self._place.share(corpus_state(corpus)), corpus
        return [self._sent[id(corpus)][0] for corpus in corpora if corpus is not None]


def corpus_state(corpus: Corpus) -> State:
    """Documents with their labels as a state."""
    truth = {"indptr": corpus.truth.indptr, "indices": corpus.truth.indices, "data": corpus.truth.data}
    own: State = {"ids": list(corpus.ids), "texts": list(corpus.texts)}
    own |= {"groups": corpus.groups and list(corpus.groups), "weights": corpus.weights, "unknown": corpus.unknown}
    return {**own, "labels": corpus.labels.state(), "truth": truth}


def corpus_of(state: State, labels: LabelSet | None = None) -> Corpus:
    """Restore what ``corpus_state`` returned; ``labels`` if the label set is known already."""
    labels = labels or LabelSet.from_state(state["labels"])
    truth = state["truth"]
    shape = len(state["texts"]), len(labels)
    matrix = csr_array((truth["data"], truth["indices"], truth["indptr"]), shape=shape)
    return Corpus(state["ids"], state["texts"], labels, matrix, state["groups"], state["weights"], state["unknown"])


def corpora_of(train: State, *valid: State) -> tuple[Corpus, Corpus | None]:
    """Training documents, and validation documents if there are any, with one label set."""
    first = corpus_of(train)
    return first, corpus_of(valid[0], first.labels) if valid else None
