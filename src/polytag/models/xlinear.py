"""XLinear: linear separators over a tree of labels, for label sets from thousands to half a million."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.linear.svm import Problem
from polytag.models.model import HeldOut, Model, Read, State, imported, param
from polytag.scores import Scores
from polytag.text.prepare import PREPARATIONS, prepare
from polytag.text.tfidf import Tfidf
from polytag.xmc.curve import STRAIGHT, curved, curved_rows, fit_curve
from polytag.xmc.estimate import announce, estimate, limit_of, tree_levels
from polytag.xmc.index import INDEXES, LabelTree, build_tree, instance_vectors, label_texts, label_vectors
from polytag.xmc.join import TextVectors, joined_rows
from polytag.xmc.rank import WORTH, Chunks, Forest
from polytag.xmc.train import NEGATIVES, Ranking, TreeTraining, positive_weights

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

_FEWEST = 20  # documents below which none are held out
_VECTORS = "polytag.nn.frozen:DocumentVectors"  # needs torch, as nothing else here does


@dataclass
class XLinear(Model):
    """One linear separator per label, found through a balanced tree of labels; the tree is searched with a beam."""

    c: float = param(0.5, "inverse regularisation strength", minimum=1e-6)
    trees: int = param(1, "trees, each from another seed; their probabilities are averaged", minimum=1, maximum=64)
    index: str = param("pifa", "what stands for a label: its text, its documents' words (pifa), or both", choices=INDEXES)
    document_encoder: str = param("", "encoder of the documents, whose vectors stand beside tf-idf: needs torch; empty for none")
    join_weight: float = param(0.5, "length of such a vector, less the mean of all, beside the words', which is 1", minimum=0)
    max_length: int = param(256, "most tokens that the encoder reads", minimum=4)
    label_encoder: str = param("minilm", "encoder of the labels' texts, if they are read: needs torch")
    branching: int = param(64, "children of an inner node of the tree", minimum=2, maximum=1024)
    max_leaf: int = param(100, "most labels that share a leaf", minimum=2, maximum=10_000)
    beam: int = param(10, "nodes of each level that are followed", minimum=1, maximum=10_000)
    candidates: int = param(100, "most labels that are scored per document", minimum=1, maximum=10_000)
    negatives: str = param(
        "teacher",
        "whom a label is told apart from: documents of its cluster; matcher: also those wrongly sent there",
        choices=NEGATIVES,
    )
    worth: str = param("l3-hinge", "what a margin is worth on the way down the tree", choices=tuple(WORTH))
    balance: float = param(0.1, "weight of a label's positives: (documents / positives) to this power", minimum=0, maximum=1)
    propensity: bool = param(False, "weigh positives by the inverse propensity of their label, which favours rare labels")
    prune: float = param(0.1, "weights smaller than this are dropped", minimum=0)
    half: bool = param(True, "whether weights are kept in half precision")
    tolerance: float = param(0.3, "largest violation at which the solver stops", minimum=1e-6)
    max_terms: int = param(500, "words that stand for a label in the index; 0 for all", minimum=0)
    holdout: float = param(
        0.1, "share of the documents held out for the decision when there is no validation file", minimum=0.001, maximum=0.5
    )
    refit: bool = param(True, "train once more on all documents after the decision was fitted on those held out")
    memory: float = param(0.0, "GiB that training may take; 0 for what is free", minimum=0)
    preprocess: str = param(
        "none", "none, clean (lower case, no punctuation) or numbers (clean, and all numbers alike)", choices=PREPARATIONS
    )
    max_words: int = param(0, "words of a text that are read; 0 for all", minimum=0)
    ngrams: int = param(1, "longest run of words that is a feature", minimum=1, maximum=5)
    min_df: int = param(2, "documents a word must occur in", minimum=1)
    max_features: int = param(500_000, "most frequent words and runs kept; 0 for all", minimum=0)
    lowercase: bool = param(True, "whether words are compared in lower case")
    sublinear: bool = param(True, "whether a word's count enters as 1 + log(count)")
    tfidf: Tfidf = field(init=False, repr=False, default_factory=Tfidf)
    forest: Forest | None = field(init=False, repr=False, default=None)
    vectors: TextVectors | None = field(init=False, repr=False, default=None)
    centre: NDArray[np.float32] | None = field(init=False, repr=False, default=None)
    curve: list[float] = field(init=False, repr=False, default_factory=lambda: list(STRAIGHT))

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train on a part, score the held-out part for the decision, and (``refit``) train again on everything."""
        corpus = train if valid is None else train.concat(valid)
        self.labels = corpus.labels
        seen, hidden = self._parts(len(train), len(corpus))
        problem = self._problem(corpus, seen, run)
        self._estimate(problem, 2 if self.refit and len(hidden) else 1, run)
        held, self.curve = None, list(STRAIGHT)
        if len(hidden):
            part = Problem(csr_array(problem.features[seen]), csr_array(problem.truth[seen]))
            self.forest = self.train_forest(part, run, "held/" if self.refit else "")
            held = self._held(csr_array(problem.features[hidden]), problem.truth[hidden], corpus.labels.names)
        if self.refit or not len(hidden):
            self.forest = self.train_forest(problem, run)
        return held

    def _parts(self, n_train: int, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Documents to train on, and documents to score for the decision: the validation documents, or some held out."""
        if n > n_train:
            return np.arange(n_train), np.arange(n_train, n)
        if n < _FEWEST:
            return np.arange(n), np.arange(0)
        hidden = np.random.default_rng(self.seed).random(n) < self.holdout
        return np.flatnonzero(~hidden), np.flatnonzero(hidden)

    def _problem(self, corpus: Corpus, seen: NDArray[np.int64], run: Run) -> Problem:
        """The tf-idf rows of all documents; the vocabulary comes from those that the model will be trained on."""
        encoder = imported(_VECTORS, "'document_encoder'") if self.document_encoder else None
        texts = prepare(corpus.texts, self.preprocess, self.max_words)
        learned = texts if self.refit or len(seen) == len(texts) else [texts[i] for i in seen]
        self.tfidf = self._vocabulary()
        rows = tfidf_rows(self.tfidf, texts, learned, run)
        self.vectors = self.centre = None
        if encoder is not None:
            made: TextVectors = encoder.pretrained(self.document_encoder, self.max_length)
            self.vectors = made
            state = run.stage("vectors", lambda: {"vectors": made.of(texts, "auto", "auto", run)})
            found = np.asarray(state["vectors"])
            self.centre = found[seen].mean(axis=0)
            rows = joined_rows(rows, found, self.centre, self.join_weight)
        return Problem(rows, corpus.truth)

    def rows(self, texts: Sequence[str]) -> csr_array:
        """What goes down the trees: the words, and beside them a vector if there is an encoder."""
        texts = prepare(texts, self.preprocess, self.max_words)
        words = self.tfidf.transform(texts)
        if self.vectors is None:
            return words
        assert self.centre is not None
        return joined_rows(words, self.vectors.of(texts, "auto", "auto"), self.centre, self.join_weight)

    def _estimate(self, problem: Problem, times: int, run: Run) -> None:
        """Say what so many trainings of the forest will take, and refuse what does not fit."""
        needed = estimate(
            self._words(problem), problem.truth, tree_levels(len(self.labels), self.branching, self.max_leaf),
            max_terms=self.max_terms, trees=self.trees, prune=self.prune,
            matcher=self.beam if self.negatives == "matcher" else 0, half=self.half,
            dense=0 if self.vectors is None else self.vectors.size, times=times,
        )  # fmt: skip
        announce(needed, limit_of(self.memory), run)

    def train_forest(self, problem: Problem, run: Run, where: str = "") -> Forest:
        """Every tree: its index, then its levels, each a stage of the run."""
        counts = np.bincount(problem.truth.indices, minlength=int(problem.truth.shape[1]))
        weights = positive_weights(counts, int(problem.truth.shape[0]), self.balance, self.propensity)
        rankers = []
        for number in run.track(range(self.trees), "trees"):
            name = f"{where}tree{number + 1}"
            tree = LabelTree.from_state(run.stage(f"{name}/index", partial(self._index, problem, number)))
            training = TreeTraining(problem, tree.by_frequency(counts), self._ranking(), weights)
            rankers.append(training.run(_stages(run, name)))
        return Forest(rankers)

    def _index(self, problem: Problem, number: int) -> State:
        """The tree of the labels; only their texts need an encoder, and so torch."""
        sparse = dense = None
        if self.index != "text":
            sparse = instance_vectors(self._words(problem), problem.truth, self.max_terms)
        if self.index != "pifa":
            from polytag.xmc.match import text_vectors

            dense = text_vectors(self.label_encoder, label_texts(self.labels), "", self.seed, "auto", "auto")
        return build_tree(label_vectors(sparse, dense), self.branching, self.max_leaf, self.seed + 1000 * number).state()

    def _words(self, problem: Problem) -> csr_array:
        """The features without the vectors that stand beside them."""
        return problem.features if self.vectors is None else csr_array(problem.features[:, : len(self.tfidf.keys)])

    def _ranking(self) -> Ranking:
        return Ranking(
            c=self.c, negatives=self.negatives, prune=self.prune, beam=self.beam, worth=self.worth, tolerance=self.tolerance,
            half=self.half, seed=self.seed,
        )  # fmt: skip

    def _held(self, rows: csr_array, truth: csr_array, names: Sequence[str]) -> HeldOut:
        """Scores of held-out documents, after the one curve from log odds to probabilities was fitted on them."""
        labels, logs = self.best_logs(rows, self.candidates, len(names))
        self.curve = fit_curve(labels, logs, truth, names)
        return HeldOut(truth, curved(labels, logs, self.curve, names))

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Probabilities of the best labels that the beam reaches, ``candidates`` at most."""
        return self.read(texts).best(k)

    def read(self, texts: Sequence[str]) -> TreeRead:
        """The texts as tf-idf rows."""
        self.require_fitted()
        return TreeRead(self, texts)

    def matched(self, texts: Sequence[str], truth: csr_array) -> tuple[Scores, csr_array]:
        """What the first tree finds above its separators of labels: scores of the best leaves, and the leaves of true labels."""
        self.require_fitted()
        assert self.forest is not None
        ranker, rows = self.forest.rankers[0], self.read(texts).rows
        levels = ranker.tree.levels(truth)
        leaves = levels[-2] if len(levels) > 1 else csr_array(np.ones((len(texts), 1), np.float32))
        names = [str(number) for number in range(int(leaves.shape[1]))]
        return Scores.candidates(*ranker.clusters(rows, min(self.beam, len(names)), self.worth), names, "margin"), leaves

    def scored_labels(self) -> int:
        """The candidates."""
        return min(self.candidates, len(self.labels))

    def best_logs(self, rows: csr_array, k: int, n_labels: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels of every document, and the logs of their probabilities.

        Several trees score the ``candidates`` of each, however many are asked for: their mean depends on all of them.
        """
        assert self.forest is not None
        width = min(max(k, self.candidates) if len(self.forest.rankers) > 1 else k, n_labels)
        labels, logs = self.forest.best(rows, width, self.beam, self.worth)
        return labels[:, :k], logs[:, :k]

    def _vocabulary(self) -> Tfidf:
        return Tfidf(self.ngrams, self.min_df, self.max_features, self.lowercase, self.sublinear)

    def state(self) -> State:
        """Vocabulary, trees and weights."""
        self.require_fitted()
        assert self.forest is not None
        joined = {} if self.vectors is None else {"vectors": self.vectors.state(), "centre": self.centre}
        return {"tfidf": self.tfidf.state(), "forest": self.forest.state(), "curve": self.curve, **joined}

    def restore(self, state: State) -> None:
        """Take back vocabulary, trees and weights, which stay mapped from the disk."""
        self.tfidf = self._vocabulary()
        self.tfidf.restore(state["tfidf"])
        self.forest = Forest.from_state(state["forest"])
        self.curve = [float(state["curve"][0]), float(state["curve"][1])]
        self.vectors = self.centre = None
        if self.document_encoder:
            encoder = imported(_VECTORS, "a model with 'document_encoder'")
            self.vectors = encoder.from_state(state["vectors"], self.max_length)
            self.centre = np.array(state["centre"], dtype=np.float32)
        first, size = self.forest.rankers[0], 0 if self.vectors is None else self.vectors.size
        if self.centre is not None and self.centre.shape != (size,):
            raise ValueError("its vectors have another size than their mean")
        words = len(self.tfidf.keys)
        if len(first.tree.order) != len(self.labels) or not words == len(self.tfidf.idf) == first.n_features - size:
            raise ValueError("its trees are about other labels or other words")


class TreeRead(Read):
    """Texts as rows that go down the trees."""

    def __init__(self, model: XLinear, texts: Sequence[str]) -> None:
        """Read the texts."""
        self.tree_model = model
        self.rows = model.rows(texts)

    def best(self, k: int | None = None) -> Scores:
        """Probabilities of the best labels that the beam reaches, ``candidates`` at most."""
        model = self.tree_model
        names, most = model.labels.names, model.scored_labels()
        return curved(*model.best_logs(self.rows, most if k is None else min(k, most), len(names)), model.curve, names)

    def given(self, labels: csr_array) -> Scores:
        """Probabilities of just these labels, whether the beam reaches them or not."""
        model = self.tree_model
        assert model.forest is not None
        return curved_rows(model.forest.given(self.rows, labels, model.worth), model.curve, model.labels.names)


def tfidf_rows(tfidf: Tfidf, texts: Sequence[str], learned: Sequence[str], run: Run) -> csr_array:
    """Rows of all texts, with the words of some of them; a stage of the run."""

    def make() -> State:
        tfidf.fit(learned)
        return {"tfidf": tfidf.state(), "features": tfidf.transform(texts)}

    state = run.stage("tfidf", make)
    tfidf.restore(state["tfidf"])
    return csr_array(state["features"])


def _stages(run: Run, name: str) -> Callable[[int, Callable[[], Chunks]], Chunks]:
    """Make the separators of each depth a stage of the run."""

    def stage(depth: int, make: Callable[[], Chunks]) -> Chunks:
        return Chunks.from_state(run.stage(f"{name}/depth{depth}", lambda: make().state()))

    return stage
