"""What xbert and xttention share: an index of the labels, a network that finds clusters, separators that rank within them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.linear.svm import Problem
from polytag.models.match_read import MatchRead
from polytag.models.model import HeldOut, State, model_name, param
from polytag.models.neural_model import NeuralModel, Reading
from polytag.models.xlinear import tfidf_rows
from polytag.nn.batch import Batch, Documents, TokenArrays, tokenise
from polytag.nn.devices import autocast, pick_device, pick_precision
from polytag.nn.embedding import read_documents
from polytag.nn.frozen import FrozenEncoder
from polytag.nn.losses import LOSSES
from polytag.nn.pretrained import WORD_ENCODERS
from polytag.scores import Scores
from polytag.text.prepare import prepare
from polytag.text.tfidf import Tfidf
from polytag.xmc.curve import STRAIGHT, curved, fit_curve
from polytag.xmc.estimate import Level, announce, estimate, limit_of
from polytag.xmc.index import INDEXES, LabelTree, cluster_tree, instance_vectors, label_texts, label_vectors
from polytag.xmc.join import joined_rows
from polytag.xmc.match import (
    SQUARED_HINGE,
    Matched,
    MatchNetwork,
    WithVector,
    best_clusters,
    log_chances,
    match_quality,
    softened,
    squared_hinge,
    text_vectors,
)
from polytag.xmc.power import precision_by_power
from polytag.xmc.rank import WORTH, Chunks, TreeRanker
from polytag.xmc.sizes import beam_width, cluster_count
from polytag.xmc.train import NEGATIVES, Ranking, TreeTraining, positive_weights

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

JOINS = ("network", "frozen", "none")
_CELLS = 8_000_000  # documents x clusters that are scored at once


@dataclass
class MatchModel(NeuralModel):
    """Labels in clusters; a network finds the clusters of a document, linear separators rank the labels in them.

    P(label | x) = P(cluster | x)^power P(label | x, cluster): X-BERT's equation 1 with a power of 1, where every label stands in
    one cluster. A power below 1 makes up for a network that is too sure of itself; clusters outside of the beam, whose
    separators know no such documents, are not helped by it. A subclass says what the network is; its outputs are the clusters.
    """

    long: str = param("head", "what is read of longer texts", choices=("head", "head+tail"))
    loss: str = param("bce", "bce, focal, asymmetric or squared-hinge, over the clusters", choices=(*LOSSES, SQUARED_HINGE))
    index: str = param("pifa", "what stands for a label: its text, its documents' words (pifa), or both", choices=INDEXES)
    label_encoder: str = param("", "encoder of the labels' texts; empty: that of the documents, before it is trained")
    clusters: int = param(
        0, "clusters of labels; 0: one for 4 labels, but 1,000 (or all labels) to 10,000, or one for 60", minimum=0
    )
    beam: int = param(
        0,
        "clusters of a document whose labels are ranked; 0: enough for 400 labels, but 10 to 100",
        minimum=0,
        maximum=10_000,
    )
    candidates: int = param(100, "most labels that are scored per document", minimum=1, maximum=10_000)
    negatives: str = param(
        "matcher",
        "whom a label is told apart from: documents of its cluster; matcher: also those wrongly sent there",
        choices=NEGATIVES,
    )
    join: str = param(
        "network",
        "whose vector of a document stands beside tf-idf in ranking: the network's, the encoder's as it came (frozen), or none",
        choices=JOINS,
    )
    join_weight: float = param(0.5, "length of that vector, less the mean of all, beside the words', which is 1", minimum=0)
    power: float = param(0.0, "power of P(cluster | x) in equation 1; 0: chosen on held-out documents", minimum=0)
    worth: str = param("l3-hinge", "what a separator's margin is worth", choices=tuple(WORTH))
    c: float = param(0.3, "inverse regularisation strength of the separators", minimum=1e-6)
    balance: float = param(0.1, "weight of a label's positives: (documents / positives) to this power", minimum=0, maximum=1)
    propensity: bool = param(False, "weigh positives by the inverse propensity of their label, which favours rare labels")
    prune: float = param(0.03, "separators' weights smaller than this are dropped", minimum=0)
    half: bool = param(True, "whether separators' weights are kept in half precision")
    tolerance: float = param(0.3, "largest violation at which the solver of the separators stops", minimum=1e-6)
    max_terms: int = param(500, "words that stand for a label in the index; 0 for all", minimum=0)
    refit: bool = param(True, "train the separators once more, on all documents, after the decision was fitted on those held out")
    memory: float = param(0.0, "GiB that training may take; 0 for what is free", minimum=0)
    ngrams: int = param(1, "longest run of words that is a feature of the separators", minimum=1, maximum=5)
    min_df: int = param(2, "documents a feature must occur in", minimum=1)
    max_features: int = param(500_000, "most frequent features kept; 0 for all", minimum=0)
    lowercase: bool = param(True, "whether words are compared in lower case by the separators")
    sublinear: bool = param(True, "whether a word's count enters as 1 + log(count)")
    tfidf: Tfidf = field(init=False, repr=False, default_factory=Tfidf)
    ranker: TreeRanker | None = field(init=False, repr=False, default=None)
    curve: list[float] = field(init=False, repr=False, default_factory=lambda: list(STRAIGHT))
    exponent: float = field(init=False, repr=False, default=1.0)
    centre: NDArray[np.float32] | None = field(init=False, repr=False, default=None)
    origin: FrozenEncoder | None = field(init=False, repr=False, default=None)
    cluster_set: LabelSet = field(init=False, repr=False, default=LabelSet(()))

    # -- training --------------------------------------------------------------------------------------------------

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Index, match, rank: each a stage of the run. Without validation documents a tenth of the others takes their place."""
        self.labels, self.cluster_set = train.labels, LabelSet(())
        train, valid = train.held_apart(valid, self.seed)
        corpus = train if valid is None else train.concat(valid)
        words = self._words(corpus, len(train), run)
        learned = csr_array(words[: len(train)])
        self.origin = FrozenEncoder.pretrained(self.encoder) if self._joins() == "frozen" else None
        self._estimate(words, corpus.truth, 2 if self.refit and valid is not None else 1, run)
        tree = LabelTree.from_state(run.stage("index", partial(self._index, learned, train.truth)))
        tree = tree.by_frequency(np.bincount(train.truth.indices, minlength=len(self.labels)))
        self._fit_matcher(tree, corpus, len(train), run)
        found = self._candidates(corpus.texts, run)
        self.centre = None if found.vectors is None else found.vectors[: len(train)].mean(axis=0)
        held, self.curve, self.exponent = None, list(STRAIGHT), self.power or 1.0
        if valid is not None:
            part = self._joined(learned, found.rows(0, len(train)).vectors)
            self.ranker = self._ranker(Problem(part, train.truth), tree, found.rows(0, len(train)), run, "held-ranker")
            hidden = found.rows(len(train), len(corpus))
            held = self._held(self._joined(csr_array(words[len(train) :]), hidden.vectors), hidden, valid.truth, run)
        if valid is None or self.refit:
            self.ranker = self._ranker(Problem(self._joined(words, found.vectors), corpus.truth), tree, found, run, "ranker")
        return held

    def _words(self, corpus: Corpus, learned: int, run: Run) -> csr_array:
        """The tf-idf rows of all documents; the vocabulary comes from those that the separators will be trained on."""
        texts = prepare(corpus.texts, self.preprocess, self.max_words)
        self.tfidf = self._vocabulary()
        return tfidf_rows(self.tfidf, texts, texts if self.refit else texts[:learned], run)

    def _estimate(self, words: csr_array, truth: csr_array, times: int, run: Run) -> None:
        """Say what training the separators so many times will take, and refuse what does not fit."""
        count = self._count()
        needed = estimate(
            words, truth, [Level(count, -(-len(self.labels) // count))], max_terms=self.max_terms, trees=1, prune=self.prune,
            matcher=self.searched() if self.negatives == "matcher" else 0, half=self.half, dense=self._dense(), times=times,
        )  # fmt: skip
        announce(needed, limit_of(self.memory), run, "beside the network, training")

    def _dense(self) -> int:
        """How long the vectors will be that are joined; 0 for none."""
        if self.origin is not None:
            return self.origin.size
        return self._width() if self._joins() == "network" else 0

    @abstractmethod
    def _width(self) -> int:
        """How long the network's vector of a document will be."""

    def _count(self) -> int:
        """How many clusters there are."""
        return min(self.clusters or cluster_count(len(self.labels)), len(self.labels))

    def searched(self) -> int:
        """How many clusters of a document are looked into."""
        count = len(self.cluster_set) or self._count()
        return min(self.beam or beam_width(len(self.labels), count), count)

    def _index(self, features: csr_array, truth: csr_array) -> State:
        """Clusters of labels that are alike (3.2)."""
        sparse = dense = None
        if self.index != "text":
            sparse = instance_vectors(features, truth, self.max_terms)
        if self.index != "pifa":
            name = self.label_encoder or self.encoder
            dense = text_vectors(name, label_texts(self.labels), self.vectors, self.seed, self.device, self.precision)
        return cluster_tree(label_vectors(sparse, dense), self._count(), self.seed).state()

    def _fit_matcher(self, tree: LabelTree, corpus: Corpus, learned: int, run: Run) -> None:
        """Train the network on the clusters that hold a label of a document (3.3)."""
        truth = tree.levels(corpus.truth)[0]
        self.cluster_set = LabelSet(str(number) for number in range(truth.shape[1]))
        rows = np.arange(len(corpus))
        train = replace(corpus.subset(rows[:learned]), labels=self.cluster_set, truth=csr_array(truth[:learned]))
        valid = None
        if learned < len(corpus):
            valid = replace(corpus.subset(rows[learned:]), labels=self.cluster_set, truth=csr_array(truth[learned:]))
        self._fit_network(train, valid, run)

    def _candidates(self, texts: Sequence[str], run: Run) -> Matched:
        """What the trained network finds for the documents themselves."""
        prepared = prepare(texts, self.preprocess, self.max_words)

        def make() -> State:
            n, beam = len(prepared), self.searched()
            clusters, logs = np.empty((n, beam), dtype=np.int32), np.empty((n, beam), dtype=np.float32)
            vectors = self._no_vectors(n)
            for rows, found, documents in self.match(prepared, run):
                clusters[rows], logs[rows] = best_clusters(found, beam)
                if vectors is not None:
                    vectors[rows] = documents
            return {"clusters": clusters, "logs": logs, "vectors": vectors}

        state = run.stage("candidates", make)
        vectors = None if state["vectors"] is None else np.asarray(state["vectors"])
        return Matched(np.asarray(state["clusters"]), np.asarray(state["logs"]), vectors)

    def _ranker(self, problem: Problem, tree: LabelTree, found: Matched, run: Run, stage: str) -> TreeRanker:
        """Separators of the labels within their clusters (3.4)."""
        n, n_labels = int(problem.truth.shape[0]), int(problem.truth.shape[1])
        counts = np.bincount(problem.truth.indices, minlength=n_labels)
        settings = Ranking(
            c=self.c, negatives=self.negatives, prune=self.prune, tolerance=self.tolerance, half=self.half, seed=self.seed
        )
        training = TreeTraining(problem, tree, settings, positive_weights(counts, n, self.balance, self.propensity))
        reached = np.array(found.clusters) if self.negatives == "matcher" else None
        chunks = Chunks.from_state(run.stage(stage, lambda: training.leaves(reached).state()))
        return TreeRanker(tree, [Chunks.none(len(self.cluster_set)), chunks], int(problem.features.shape[1]))

    def _held(self, rows: csr_array, found: Matched, truth: csr_array, run: Run) -> HeldOut:
        """Scores of held-out documents, after the power and the one curve to probabilities were fitted on them."""
        names, ranker = self.labels.names, self.ranker
        assert ranker is not None
        leaves, logs = np.array(found.clusters), np.array(found.logs)

        def ranked(power: float) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
            return ranker.best_below(rows, leaves, logs * np.float32(power), self.scored_labels(), self.worth)

        if not self.power:
            reached = precision_by_power(ranked, truth, names)
            self.exponent = max(reached, key=lambda power: reached[power])
            run.log("power", {"powers": list(reached), "precision": list(reached.values()), "chosen": self.exponent})
        labels, values = ranked(self.exponent)
        self.curve = fit_curve(labels, values, truth, names)
        return HeldOut(truth, curved(labels, values, self.curve, names))

    # -- the network, whose outputs are clusters -------------------------------------------------------------------

    def _outputs(self) -> LabelSet:
        return self.cluster_set

    def _held_out(self, arrays: TokenArrays, valid: Corpus) -> HeldOut:
        """The best clusters alone, chosen on the device: all of them would keep the host busy after every epoch."""
        return HeldOut(valid.truth, self._score(arrays, self.searched()))

    def _watched(self) -> str:
        return "cluster_recall"

    def _value(self, held: HeldOut, least: int) -> float:
        return match_quality(held.scores, held.truth, self.searched())

    def _label_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.loss == SQUARED_HINGE:
            return squared_hinge(logits.float(), targets, self.weights)
        return super()._label_loss(logits, targets)

    def _read(self, network: torch.nn.Module, batch: Batch) -> Reading:
        return Reading(torch.exp(log_chances(self._logits(network, batch), self.loss)))

    def match(
        self, prepared: Sequence[str], run: Run | None = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32] | None]]:
        """Some documents after the other: their numbers, log P(cluster | x) (documents, clusters), and vectors to join."""
        assert self.tokens is not None and self.network is not None
        device = pick_device(self.device)
        self.network.to(device)
        data = Documents(tokenise(self.tokens, prepared, run), self._layout(), device, multiple=self.pad_multiple)
        joins, origin = self._joins(), None if self.origin is None else self.origin.to(device)
        network: Any = self._reader(device)
        if joins == "network" and isinstance(network, MatchNetwork):  # what was exported gives vectors by itself
            network = WithVector(network)
        with torch.inference_mode(), autocast(device, pick_precision(self.precision, device)):
            for rows, batch in read_documents(data, self._rows_at_once()):
                outputs = network(batch.ids, batch.mask)
                found = log_chances(outputs[:, : len(self.cluster_set)], self.loss).cpu().numpy()
                vectors = outputs[:, len(self.cluster_set) :] if joins == "network" else None
                vectors = vectors if origin is None else origin.vectors(batch.ids, batch.mask)
                yield rows, found, None if vectors is None else _unit(vectors)

    def _joins(self) -> str:
        """What is joined: an encoder over words, which knows nothing before it is trained, has no frozen vectors."""
        return "none" if self.join == "frozen" and self.encoder in WORD_ENCODERS else self.join

    def _vector_size(self) -> int:
        """How long the vectors of documents are that are joined; 0 for none."""
        assert isinstance(self.network, MatchNetwork)
        return self.origin.size if self.origin is not None else self.network.size if self._joins() == "network" else 0

    def _no_vectors(self, n: int) -> NDArray[np.float32] | None:
        """Room for the vectors of documents, if they are needed."""
        size = self._vector_size()
        return np.empty((n, size), dtype=np.float32) if size else None

    def _joined(self, words: csr_array, vectors: NDArray[np.float32] | None) -> csr_array:
        """Rows to rank by: the words, then what tells a document's vector from the others'."""
        if vectors is None:
            return words
        assert self.centre is not None
        return joined_rows(words, vectors, self.centre, self.join_weight)

    # -- scoring ---------------------------------------------------------------------------------------------------

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Probabilities of the best labels in the clusters that were found, ``candidates`` at most."""
        self.require_fitted()
        size = max(1, _CELLS // len(self.cluster_set))
        return Scores.stack([self.read(texts[at : at + size]).best(k) for at in range(0, max(1, len(texts)), size)])

    def read(self, texts: Sequence[str]) -> MatchRead:
        """The texts as the network and tf-idf see them."""
        self.require_fitted()
        prepared = prepare(texts, self.preprocess, self.max_words)
        logs = np.empty((len(prepared), len(self.cluster_set)), dtype=np.float32)
        vectors = self._no_vectors(len(prepared))
        for rows, found, documents in self.match(prepared):
            logs[rows] = softened(found, self.exponent, self.searched())
            if vectors is not None:
                vectors[rows] = documents
        return MatchRead(self, texts, logs, self._joined(self.tfidf.transform(prepared), vectors))

    def matched(self, texts: Sequence[str], truth: csr_array) -> tuple[Scores, csr_array]:
        """What the network finds: scores of the clusters, and the clusters of true labels."""
        size = max(1, _CELLS // len(self.cluster_set))
        names, parts = self.cluster_set.names, []
        for at in range(0, max(1, len(texts)), size):
            logs = self.read(texts[at : at + size]).logs
            parts.append(Scores.candidates(*best_clusters(logs, self.searched()), names, "margin"))
        assert self.ranker is not None
        return Scores.stack(parts), self.ranker.tree.levels(truth)[0]

    def scored_labels(self) -> int:
        """The candidates."""
        return min(self.candidates, len(self.labels))

    def kept_per_text(self) -> int:
        """What the network says of every cluster, and the candidates."""
        return len(self.cluster_set) + self.scored_labels()

    # -- files -----------------------------------------------------------------------------------------------------

    def start_from(self, other: Self) -> NoReturn:
        """Refuse: new labels would need new clusters."""
        raise ConfigError(f"{model_name(self)!r} cannot go on from an earlier run, whose clusters are others; train it again")

    def _to_export(self) -> torch.nn.Module:
        """The network, with its vectors if they are joined."""
        network = super()._to_export()
        assert isinstance(network, MatchNetwork)
        return WithVector(network) if self._joins() == "network" else network

    def state(self) -> State:
        """The network, the clusters, the vocabulary and the separators."""
        self.require_fitted()
        assert self.ranker is not None
        own = {"tree": self.ranker.tree.state(), "chunks": self.ranker.chunks[1].state(), "curve": self.curve}
        origin = None if self.origin is None else self.origin.state()
        joined = {"exponent": self.exponent, "centre": self.centre, "origin": origin}
        return {**super().state(), "tfidf": self.tfidf.state(), **own, **joined}

    def restore(self, state: State) -> None:
        """Build everything again; compiled code trusts that the parts fit together."""
        tree, chunks = LabelTree.from_state(state["tree"]), Chunks.from_state(state["chunks"])
        if len(tree.starts) != 2 or len(tree.order) != len(self.labels):
            raise ValueError("its clusters are about other labels")
        self.cluster_set = LabelSet(str(number) for number in range(len(tree.starts[1]) - 1))
        super().restore(state)
        self.tfidf = self._vocabulary()
        self.tfidf.restore(state["tfidf"])
        if len(self.tfidf.keys) != len(self.tfidf.idf):
            raise ValueError("its vocabulary is damaged")
        self.origin = FrozenEncoder.from_state(state["origin"]) if self._joins() == "frozen" else None
        size = self._vector_size()
        self.centre = np.array(state["centre"], dtype=np.float32) if size else None
        if self.centre is not None and self.centre.shape != (size,):
            raise ValueError("its vectors have another size than their mean")
        n_features = len(self.tfidf.keys) + size
        chunks.check(tree.starts[1], n_features)
        self.ranker = TreeRanker(tree, [Chunks.none(len(self.cluster_set)), chunks], n_features)
        self.curve, self.exponent = [float(state["curve"][0]), float(state["curve"][1])], float(state["exponent"])

    def _vocabulary(self) -> Tfidf:
        return Tfidf(self.ngrams, self.min_df, self.max_features, self.lowercase, self.sublinear)


def _unit(vectors: Tensor) -> NDArray[np.float32]:
    """Vectors of length one, as tf-idf rows are."""
    found: NDArray[np.float32] = torch.nn.functional.normalize(vectors.float(), dim=1).cpu().numpy()
    return found
