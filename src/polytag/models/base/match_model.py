"""The base class of xbert and xttention: a label index, a network as the matcher, separators that rank within clusters."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.encoder_settings import WORD_ENCODERS, EncoderSettings, WordSettings
from polytag.config.groups.loss_settings import LossSettings
from polytag.config.groups.search_settings import SearchSettings
from polytag.config.groups.solver_settings import HoldOutSettings, SolverSettings
from polytag.config.groups.text_settings import TextSettings, TfidfSettings
from polytag.config.groups.training_settings import ComputeSettings, TrainingSettings
from polytag.config.groups.tree_settings import RankSettings, TreeSettings
from polytag.decision.candidate_curve import CURVE, STRAIGHT, curved, fit_curve
from polytag.errors import ConfigError
from polytag.kernels.sparse_rows import without
from polytag.labels import LabelSet
from polytag.linear.svm import Problem
from polytag.models.base.attribution import Attribution
from polytag.models.base.cluster_matcher import ClusterMatcher, EncodedMatch, Ranked, cluster_set, match_encoding
from polytag.models.base.match_quality import precision_by_power
from polytag.models.base.text_match import texts_of
from polytag.models.model import Examples, Extension, HeldOut, Model, State, group, model_name, param
from polytag.nn.encoding.encoders import Encoder
from polytag.nn.encoding.frozen_encoder import FROZEN, FrozenEncoder
from polytag.scores import Scores
from polytag.storage.schema import Anything, Array, Number, Optional, Schema, Table
from polytag.text.preprocess import prepare
from polytag.text.tfidf import TFIDF, Tfidf, tfidf_rows
from polytag.text.word_shares import WordShares, word_shares
from polytag.xmc.estimate import Level, announce, estimate, limit_of
from polytag.xmc.index import TREE, LabelTree, cluster_tree, label_index
from polytag.xmc.joined_features import joined_rows
from polytag.xmc.match import Matched, MatchNetwork, apply_power, best_clusters, text_vectors
from polytag.xmc.rank import Chunks, TreeRanker, chunks_schema, clusters_fit
from polytag.xmc.tree_path import described, path_to, step_of
from polytag.xmc.tree_training import Ranking, TreeTraining, tree_weights
from polytag.xmc.widened_clusters import TextMargins, placed, widened

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

log = logging.getLogger(__name__)
_CELLS = 8_000_000  # documents x clusters that are scored at once
_FITTED = 3_000, 400  # documents and labels that the margin of texts of labels is fitted on, at most


@dataclass
class MatchModel(Model):
    """Clusters of labels; a network matches the clusters of a document, linear separators rank the labels in them.

    P(label | x) = P(cluster | x)^power P(label | x, cluster). With a power of 1 this is X-BERT's equation 1, as every label is in
    one cluster. A power below 1 corrects an overconfident network. It applies to clusters within the beam only, because the
    separators were trained on no other documents. A subclass builds the network; its outputs are the clusters.
    """

    exportable: ClassVar[bool] = True
    divided: ClassVar[str] = "processes"
    judged: ClassVar[tuple[str, ...]] = ("weights", "unknown")

    tree: TreeSettings = group(TreeSettings, without=("trees", "branching", "max_leaf"), label_encoder="")
    search: SearchSettings = group(SearchSettings, without=("length_penalty",))
    ranking: RankSettings = group(RankSettings, negatives="matcher")
    power: float = param(0.0, "exponent of P(cluster | x) in equation 1; 0 = chosen on held-out documents", minimum=0)
    solver: SolverSettings = group(SolverSettings, one=("c",), c=[0.3], balance=0.1, prune=0.03)
    held_out: HoldOutSettings = group(HoldOutSettings, without=("folds", "holdout"))
    texts: TextSettings = group(TextSettings)
    features: TfidfSettings = group(TfidfSettings, one=("ngrams",), ngrams=[1], max_features=500_000)
    encoding: EncoderSettings = match_encoding()
    words: WordSettings = group(WordSettings)
    training: TrainingSettings = group(TrainingSettings)
    objective: LossSettings = group(LossSettings)
    compute: ComputeSettings = group(ComputeSettings)
    matcher: ClusterMatcher = field(init=False, repr=False, default_factory=ClusterMatcher)
    tfidf: Tfidf = field(init=False, repr=False, default_factory=Tfidf)
    ranker: TreeRanker | None = field(init=False, repr=False, default=None)
    curve: list[float] = field(init=False, repr=False, default_factory=lambda: list(STRAIGHT))
    exponent: float = field(init=False, repr=False, default=1.0)
    centre: NDArray[np.float32] | None = field(init=False, repr=False, default=None)
    frozen: FrozenEncoder | None = field(init=False, repr=False, default=None)
    text_margins: TextMargins | None = field(init=False, repr=False, default=None)

    @abstractmethod
    def _match_network(self, encoder: Encoder, n_clusters: int) -> MatchNetwork:
        """Build the network on an encoder."""

    @abstractmethod
    def _width(self) -> int:
        """The size of the network's document vector, before the network is built."""

    # -- training --------------------------------------------------------------------------------------------------

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Index, match, rank: each a stage of the run. Without validation documents, a tenth of the documents is held out."""
        self.labels = train.labels
        parts = train.hold_out(valid, self.seed)
        train, valid = parts.train, parts.valid
        corpus = train if valid is None else train.concat(valid)
        self.matcher = self._new_matcher()
        words = self._words(corpus, len(train), run)
        learned = csr_array(words[: len(train)])
        self.frozen = FrozenEncoder.pretrained(self.encoding.encoder) if self._joins() == "frozen" else None
        self._estimate(words, corpus.truth, 2 if self.held_out.refit and valid is not None else 1, run)
        tree = LabelTree.from_state(run.stage("index", partial(self._index, learned, train.truth)))
        tree = tree.by_frequency(np.bincount(train.truth.indices, minlength=len(self.labels)))
        self._fit_matcher(tree, corpus, len(train), run)
        found = self._candidates(corpus.texts, run)
        self.centre = None if found.vectors is None else found.vectors[: len(train)].mean(axis=0)
        held, self.curve, self.exponent = None, list(STRAIGHT), self.power or 1.0
        if valid is not None:
            part = self._joined(learned, found.rows(0, len(train)).vectors)
            self.ranker = self._ranker(Problem.of(part, train), tree, found.rows(0, len(train)), run, "held-ranker")
            hidden = found.rows(len(train), len(corpus))
            rows = self._joined(csr_array(words[len(train) :]), hidden.vectors)
            held = HeldOut(valid.truth, self._held(rows, hidden, valid.truth, run), parts.rows)
        if valid is None or self.held_out.refit:
            self.ranker = self._ranker(Problem.of(self._joined(words, found.vectors), corpus), tree, found, run, "ranker")
        self.text_margins = self._fit_text_margins(words, found, corpus.truth, tree)
        return held

    def _new_matcher(self) -> ClusterMatcher:
        """The untrained matcher, with its share of the settings."""
        matcher = ClusterMatcher(
            self.seed, self.optimise, self.texts, self.encoding, self.words, self.training, self.objective, self.compute
        )
        matcher.make = self._match_network
        matcher.with_vector = self._joins() == "network"
        return matcher

    def _words(self, corpus: Corpus, learned: int, run: Run) -> csr_array:
        """The tf-idf rows of all documents; the vocabulary comes from the training documents of the separators."""
        texts = prepare(corpus.texts, self.texts.preprocess, self.texts.max_words)
        self.tfidf = Tfidf.of(self.features, self.features.ngrams[0])
        return tfidf_rows(self.tfidf, texts, texts if self.held_out.refit else texts[:learned], run)

    def _estimate(self, words: csr_array, truth: csr_array, times: int, run: Run) -> None:
        """Log the estimated cost of training the separators ``times`` times, and raise if memory is too small."""
        count = self._count()
        dense = self.frozen.size if self.frozen is not None else self._width() if self._joins() == "network" else 0
        needed = estimate(
            words, truth, [Level(count, -(-len(self.labels) // count))], max_terms=self.tree.max_terms, trees=1,
            prune=self.solver.prune, matcher=self.searched() if self.ranking.negatives == "matcher" else 0,
            half=self.ranking.half, dense=dense, times=times,
        )  # fmt: skip
        announce(needed, limit_of(self.ranking.memory), run, "in addition to the network, training")

    def _count(self) -> int:
        """The number of clusters."""
        return len(self.matcher.labels) or self.tree.cluster_count(len(self.labels))

    def searched(self) -> int:
        """The number of clusters of a document whose labels are ranked."""
        return self.search.cluster_beam(len(self.labels), self._count())

    def _index(self, features: csr_array, truth: csr_array) -> State:
        """Clusters of similar labels (3.2)."""
        if self._count() == len(self.labels):
            log.info(
                "each of the %d clusters is one label, so 'index' has no effect, and models that differ in it alone differ by "
                "chance; set 'clusters' to fewer", self._count(),
            )  # fmt: skip
        encoder = self.tree.label_encoder or self.encoding.encoder
        compute = self.compute.device, self.compute.precision
        encode = partial(text_vectors, encoder, vectors=self.words.vectors, seed=self.seed, compute=compute)
        return cluster_tree(label_index(self.tree, features, truth, self.labels, encode), self._count(), self.seed).state()

    def _fit_matcher(self, tree: LabelTree, corpus: Corpus, learned: int, run: Run) -> None:
        """Train the network; the true clusters of a document are those of its labels (3.3)."""
        truth = tree.levels(corpus.truth)[0]
        clusters = cluster_set(int(truth.shape[1]))
        self.matcher.beam = self.search.cluster_beam(len(self.labels), len(clusters))
        rows = np.arange(len(corpus))
        if corpus.unknown is not None:  # a cluster with a true label is judged
            corpus = replace(corpus, unknown=without(tree.levels(corpus.unknown)[0], truth))
        train = replace(corpus.subset(rows[:learned]), labels=clusters, truth=csr_array(truth[:learned]))
        valid = None
        if learned < len(corpus):
            valid = replace(corpus.subset(rows[learned:]), labels=clusters, truth=csr_array(truth[learned:]))
        self.matcher.fit(train, valid, run)

    def _candidates(self, texts: Sequence[str], run: Run) -> Matched:
        """The clusters that the trained network matches for all documents of training."""
        prepared = prepare(texts, self.texts.preprocess, self.texts.max_words)

        def make() -> State:
            n, beam = len(prepared), self.searched()
            clusters, logs = np.empty((n, beam), dtype=np.int32), np.empty((n, beam), dtype=np.float32)
            vectors = self._no_vectors(n)
            for rows, found, documents in self.matcher.match(prepared, self.frozen, run):
                clusters[rows], logs[rows] = best_clusters(found, beam)
                if vectors is not None:
                    vectors[rows] = documents
            return {"clusters": clusters, "logs": logs, "vectors": vectors}

        state = run.stage("candidates", make)
        vectors = None if state["vectors"] is None else np.asarray(state["vectors"])
        return Matched(np.asarray(state["clusters"]), np.asarray(state["logs"]), vectors)

    def _ranker(self, problem: Problem, tree: LabelTree, found: Matched, run: Run, stage: str) -> TreeRanker:
        """Train the separators of the labels within their clusters (3.4)."""
        settings = Ranking.of(self.solver, self.ranking, self.search.beam, self.seed)
        training = TreeTraining(problem, tree, settings, tree_weights(problem, self.solver, self.ranking), run.workplace)
        reached = np.array(found.clusters) if self.ranking.negatives == "matcher" else None
        chunks = Chunks.from_state(run.stage(stage, lambda: training.leaves(reached).state()))
        return TreeRanker(tree, [Chunks.none(self._count()), chunks], int(problem.features.shape[1]))

    def _held(self, rows: csr_array, found: Matched, truth: csr_array, run: Run) -> Scores:
        """Fit the power and the calibration curve on held-out documents, and return their scores."""
        names, ranker = self.labels.names, self.ranker
        assert ranker is not None
        leaves, logs = np.array(found.clusters), np.array(found.logs)

        def ranked(power: float) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
            return ranker.best_below(rows, leaves, logs * np.float32(power), self.scored_labels(), self.ranking.worth)

        if not self.power:
            reached = precision_by_power(ranked, truth, names)
            self.exponent = max(reached, key=lambda power: reached[power])
            run.log("power", {"powers": list(reached), "precision": list(reached.values()), "chosen": self.exponent})
        labels, values = ranked(self.exponent)
        self.curve = fit_curve(labels, values, truth, names)
        return curved(labels, values, self.curve, names)

    def _fit_text_margins(self, words: csr_array, found: Matched, truth: csr_array, tree: LabelTree) -> TextMargins | None:
        """Fit the margins of documents and texts of labels, as if some labels had not been trained."""
        rng = np.random.default_rng(self.seed)
        some = rng.permutation(int(words.shape[0]))[: _FITTED[0]]
        labels = np.sort(rng.permutation(np.unique(truth.indices))[: _FITTED[1]])
        texts = self.encode([texts_of(self.labels)[0][label] for label in labels.tolist()]).rows
        rows = self._joined(csr_array(words[some]), None if found.vectors is None else found.vectors[some])
        return TextMargins.fit(rows, found.clusters[some], csr_array(truth[some]), tree, labels, texts)

    def extend(self, labels: LabelSet, examples: Examples | None = None) -> Extension:
        """Place labels in the clusters that the network matches with their texts and examples; separators come from these."""
        self.require_fitted()
        if self.text_margins is None or self.ranker is None:
            raise ConfigError(f"this {model_name(self)!r} cannot compare texts of labels with documents; train it again")
        shown = None if examples is None else (self.encode(examples.texts), csr_array(examples.truth.T))
        rows, clusters = placed(self.encode(texts_of(labels)[0]), shown)
        counts = np.zeros(len(labels)) if shown is None else np.diff(shown[1].indptr)
        self.ranker = widened(self.ranker, clusters, rows, [self.text_margins[int(count > 0)] for count in counts])
        self.labels = self.labels.union(labels)
        return Extension()

    def start_from(self, other: Self) -> NoReturn:
        """Raise: new labels would need new clusters."""
        raise ConfigError(f"{model_name(self)!r} cannot continue an earlier run, which has different clusters; train it again")

    # -- document vectors ------------------------------------------------------------------------------------------

    def _joins(self) -> str:
        """The vectors to join; an encoder over words is not pretrained and has no frozen vectors."""
        return "none" if self.ranking.join == "frozen" and self.encoding.encoder in WORD_ENCODERS else self.ranking.join

    def _vector_size(self) -> int:
        """The size of the joined document vectors; 0 if there are none."""
        if self.frozen is not None:
            return self.frozen.size
        return self.matcher.vector_size if self._joins() == "network" else 0

    def _no_vectors(self, n: int) -> NDArray[np.float32] | None:
        """A buffer for document vectors, if they are needed."""
        size = self._vector_size()
        return np.empty((n, size), dtype=np.float32) if size else None

    def _joined(self, words: csr_array, vectors: NDArray[np.float32] | None) -> csr_array:
        """The features for ranking: tf-idf, then the centred document vector."""
        if vectors is None:
            return words
        assert self.centre is not None
        return joined_rows(words, vectors, self.centre, self.ranking.join_weight)

    # -- scoring ---------------------------------------------------------------------------------------------------

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Probabilities of the best labels in the matched clusters, at most ``candidates``."""
        self.require_fitted()
        size, k = max(1, _CELLS // self._count()), self.clipped(k)
        return Scores.stack([self.encode(texts[at : at + size]).best(k) for at in range(0, max(1, len(texts)), size)])

    def encode(self, texts: Sequence[str]) -> EncodedMatch:
        """Encode texts by the network and tf-idf."""
        self.require_fitted()
        prepared = prepare(texts, self.texts.preprocess, self.texts.max_words)
        logs = np.empty((len(prepared), self._count()), dtype=np.float32)
        vectors = self._no_vectors(len(prepared))
        for rows, found, documents in self.matcher.match(prepared, self.frozen):
            logs[rows] = apply_power(found, self.exponent, self.searched())
            if vectors is not None:
                vectors[rows] = documents
        assert self.ranker is not None
        how = Ranked(self.ranker, self.curve, self.ranking.worth, self.searched(), self.scored_labels())
        return EncodedMatch(self, texts, logs, self._joined(self.tfidf.transform(prepared), vectors), how)

    def attribute(self, text: str, labels: NDArray[np.int64], *, exact: bool = False) -> Attribution:
        """By leaving words out; with the cluster of each label, and the words that its separator uses inside the cluster."""
        found = super().attribute(text, labels, exact=exact)
        encoded, shares = self.encode([text]), word_shares(self.tfidf, text, self.texts)
        return replace(found, details=[{"path": self._path(encoded, shares, label)} for label in labels.tolist()])

    def _path(self, encoded: EncodedMatch, shares: WordShares, label: int) -> list[dict[str, Any]]:
        assert self.ranker is not None
        cluster, turn = path_to(self.ranker, label)
        step = step_of(self.ranker, turn, shares.shares, encoded.rows)
        names, number = self.labels.names, turn.parent
        such = [names[one] for one in cluster.labels[:3].tolist()]
        match = {"level": 1, "labels_below": len(cluster.labels), "such_as": such}
        last = described(step, shares.spans, names, self.ranking.worth)
        return [{**match, "probability": float(np.exp(encoded.logs[0, number]))}, last]

    def matched(self, texts: Sequence[str], truth: csr_array) -> tuple[Scores, csr_array]:
        """Scores of the matched clusters, and the clusters of the true labels."""
        size = max(1, _CELLS // self._count())
        names, parts = self.matcher.labels.names, []
        for at in range(0, max(1, len(texts)), size):
            logs = self.encode(texts[at : at + size]).logs
            parts.append(Scores.candidates(*best_clusters(logs, self.searched()), names, "margin"))
        assert self.ranker is not None
        return Scores.stack(parts), self.ranker.tree.levels(truth)[0]

    def scored_labels(self) -> int:
        """The number of candidates."""
        return min(self.search.candidates, len(self.labels))

    def kept_per_text(self) -> int:
        """The scores of all clusters and of the candidates."""
        return self._count() + self.scored_labels()

    # -- files -----------------------------------------------------------------------------------------------------

    def export(self, artefact: Path, *, int8: bool = False) -> Path:
        """Write the network as ONNX into the artefact that this model was loaded from; return the folder."""
        self.require_fitted()
        return self.matcher.export(artefact, int8=int8)

    def use_export(self, artefact: Path) -> bool:
        """Match on the CPU with the ONNX export of this artefact, if there is one; return whether there is."""
        return self.matcher.use_export(artefact)

    def state(self) -> State:
        """The network, the clusters, the vocabulary and the separators."""
        self.require_fitted()
        assert self.ranker is not None
        own = {"tree": self.ranker.tree.state(), "chunks": self.ranker.chunks[1].state(), "curve": self.curve}
        frozen = None if self.frozen is None else self.frozen.state()
        joined = {"exponent": self.exponent, "centre": self.centre, "origin": frozen}
        if self.text_margins is not None:
            own["text_margins"] = self.text_margins.state()
        return {**self.matcher.state(), "tfidf": self.tfidf.state(), **own, **joined}

    def schema(self) -> Table:
        """The network, the clusters, the vocabulary and the separators; those that are joined also have a mean vector."""
        joins = self._joins()
        centre = Optional(Anything(type(None))) if joins == "none" else Array(("float32",), ("dense",))
        origin = FROZEN if joins == "frozen" else Optional(Anything(type(None)))
        own: dict[str, Schema] = {
            "tfidf": TFIDF,
            "tree": TREE,
            "chunks": chunks_schema(half=self.ranking.half),
            "curve": CURVE,
            "exponent": Number(0, 1e3, whole=False),
            "text_margins": Array(("float64",), (2, 2)),
        }
        fields: dict[str, Schema] = {**self.matcher.schema().fields, **own, "centre": centre, "origin": origin}
        return Table(fields, optional=frozenset({"text_margins"}), rules=(clusters_fit,))

    def restore(self, state: State) -> None:
        """Build everything again."""
        tree, chunks = LabelTree.from_state(state["tree"]), Chunks.from_state(state["chunks"])
        self.matcher = self._new_matcher()
        self.matcher.labels = cluster_set(len(tree.starts[1]) - 1)
        self.matcher.restore(state)
        self.tfidf = Tfidf.of(self.features, self.features.ngrams[0])
        self.tfidf.restore(state["tfidf"])
        self.frozen = FrozenEncoder.from_state(state["origin"]) if self._joins() == "frozen" else None
        size = self._vector_size()
        self.centre = np.array(state["centre"], dtype=np.float32) if size else None
        if self.centre is not None and len(self.centre) != size:
            raise ValueError("its vectors and their mean have different sizes")
        self.ranker = TreeRanker(tree, [Chunks.none(self._count()), chunks], len(self.tfidf.keys) + size)
        self.curve, self.exponent = [float(value) for value in state["curve"]], float(state["exponent"])
        self.text_margins = TextMargins.from_state(state["text_margins"]) if "text_margins" in state else None
