"""XLinear: linear separators over a label tree, for thousands to half a million labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.config.groups.encoder_settings import EncoderSettings
from polytag.config.groups.learning_settings import LearningSettings
from polytag.config.groups.search_settings import TREE_BEAM, SearchSettings
from polytag.config.groups.solver_settings import HoldOutSettings, SolverSettings
from polytag.config.groups.text_settings import TextSettings, TfidfSettings
from polytag.config.groups.tree_settings import RankSettings, TreeSettings
from polytag.config.registry import imported
from polytag.decision.candidate_curve import CURVE, STRAIGHT, curved, curved_rows, fit_curve, log_odds
from polytag.errors import ConfigError
from polytag.linear.svm import Problem
from polytag.models.base.attribution import Attribution
from polytag.models.base.kept_rows import KEPT, KeptRows, require_known_first, require_same
from polytag.models.model import Encoded, HeldOut, Model, State, group, param
from polytag.scores import Scores
from polytag.storage.schema import Array, Schema, Sizes, Table
from polytag.text.preprocess import prepare
from polytag.text.term_rows import TermRows
from polytag.text.tfidf import TFIDF, Tfidf, tfidf_rows
from polytag.text.word_shares import word_shares
from polytag.work.workplace import HERE, Workplace
from polytag.xmc.estimate import announce, estimate, limit_of, tree_levels
from polytag.xmc.index import LabelTree, build_tree, instance_tree, label_index
from polytag.xmc.joined_features import TextVectors, joined_rows
from polytag.xmc.rank import Chunks, Forest, TreeRanker, forest_schema
from polytag.xmc.tree_path import described, log_probability, mean_probability, path_to, step_of
from polytag.xmc.tree_training import Ranking, TreeTraining, shared_rows, tree_weights

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

_FEWEST = 20  # with fewer documents, none are held out
_VECTORS = "polytag.nn.encoding.frozen_encoder:DocumentVectors"  # imported on demand, because it needs torch


@dataclass
class XLinear(Model):
    """Linear separators at the nodes of a balanced label tree, which is searched with a beam."""

    judged: ClassVar[tuple[str, ...]] = ("weights", "unknown")
    continuable: ClassVar[bool] = True
    divided: ClassVar[str] = "pieces"

    tree: TreeSettings = group(TreeSettings, without=("clusters",))
    search: SearchSettings = group(SearchSettings, without=("length_penalty",), limits={"beam": (1, 10_000)}, beam=TREE_BEAM)
    ranking: RankSettings = group(RankSettings, without=("join",), unless={"join_weight": {"document_encoder": ("",)}})
    document_encoder: str = param("", "encoder of the documents, whose vectors are joined with tf-idf; needs torch; empty = none")
    encoding: EncoderSettings = group(
        EncoderSettings, without=("encoder", "long", "overlap", "max_windows", "window_pooling", "pooling"),
        unless={"max_length": {"document_encoder": ("",)}}, max_length=256,
    )  # fmt: skip
    solver: SolverSettings = group(SolverSettings, one=("c",), c=[0.5], balance=0.1, prune=0.1)
    held_out: HoldOutSettings = group(HoldOutSettings, without=("folds",))
    learning: LearningSettings = group(LearningSettings)
    texts: TextSettings = group(TextSettings)
    features: TfidfSettings = group(TfidfSettings, one=("ngrams",), ngrams=[1], max_features=500_000)
    tfidf: Tfidf = field(init=False, repr=False, default_factory=Tfidf)
    forest: Forest | None = field(init=False, repr=False, default=None)
    vectors: TextVectors | None = field(init=False, repr=False, default=None)
    centre: NDArray[np.float32] | None = field(init=False, repr=False, default=None)
    kept: KeptRows | None = field(init=False, repr=False, default=None)
    start: XLinear | None = field(init=False, repr=False, default=None)
    curve: list[float] = field(init=False, repr=False, default_factory=lambda: list(STRAIGHT))

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train without the held-out documents, score those for the decision, and (``refit``) train again on all documents."""
        corpus, n_train = train if valid is None else train.concat(valid), len(train)
        self.labels, earlier = corpus.labels, self._earlier_rows(corpus)
        if earlier is not None:
            n_train += len(earlier)
        seen, hidden = self._parts(n_train, len(corpus) + (0 if earlier is None else len(earlier)))
        problem = self._problem(corpus, seen, run) if earlier is None else self._problem_on(corpus, earlier, seen, run)
        self._estimate(problem, 2 if self.held_out.refit and len(hidden) else 1, run)
        held, self.curve = None, list(STRAIGHT)
        if len(hidden):
            part = problem.rows(seen)
            self.forest = self.train_forest(part, run, "held/" if self.held_out.refit else "")
            scores = self._held(csr_array(problem.features[hidden]), problem.truth[hidden], corpus.labels.names)
            held = HeldOut(problem.truth[hidden], scores, hidden if earlier is None else None)
        if self.held_out.refit or not len(hidden):
            self.forest = self.train_forest(problem, run)
        return held

    def _parts(self, n_train: int, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The training documents and the held-out documents: those of validation, or a random share."""
        if n > n_train:
            return np.arange(n_train), np.arange(n_train, n)
        if n < _FEWEST:
            return np.arange(n), np.arange(0)
        hidden = np.random.default_rng(self.seed).random(n) < self.held_out.holdout
        return np.flatnonzero(~hidden), np.flatnonzero(hidden)

    def _problem(self, corpus: Corpus, seen: NDArray[np.int64], run: Run) -> Problem:
        """The tf-idf rows of all documents, and their vectors if any; the vocabulary comes from the training documents."""
        encoder = imported(_VECTORS, "'document_encoder'") if self.document_encoder else None
        texts = prepare(corpus.texts, self.texts.preprocess, self.texts.max_words)
        learned = texts if self.held_out.refit or len(seen) == len(texts) else [texts[i] for i in seen]
        self.tfidf = Tfidf.of(self.features, self.features.ngrams[0])
        rows = tfidf_rows(self.tfidf, texts, learned, run)
        self.vectors = self.centre = self.kept = None
        found = None
        if encoder is not None:
            made: TextVectors = encoder.pretrained(self.document_encoder, self.encoding.max_length)
            self.vectors = made
            state = run.stage("vectors", lambda: {"vectors": made.of(texts, "auto", "auto", run)})
            found = np.asarray(state["vectors"])
            self.centre = found[seen].mean(axis=0)
            rows = joined_rows(rows, found, self.centre, self.ranking.join_weight)
        if self.learning.keep_features:
            self.kept = KeptRows(corpus.truth, TermRows.of(texts, self.tfidf), found)
        return Problem.of(rows, corpus)

    # -- learning on -----------------------------------------------------------------------------------------------

    def start_from(self, other: Self) -> None:
        """Let ``fit`` train on the kept rows of a trained model too; its words and labels stay."""
        other.require_fitted()
        if other.kept is None:
            raise ConfigError(
                "this 'xlinear' kept no features of its documents; train it with --keep-features, then it can learn on"
            )
        require_same(self, other, ("document_encoder",))
        require_same(self.texts, other.texts, ("preprocess", "max_words"))
        require_same(self.features, other.features, ("ngrams", "lowercase", "sublinear"))
        self.start = other

    def _earlier_rows(self, corpus: Corpus) -> KeptRows | None:
        """The rows of the earlier model, if there is one."""
        if self.start is None:
            return None
        require_known_first(corpus.labels, self.start.labels)
        return self.start.kept

    def _problem_on(self, corpus: Corpus, earlier: KeptRows, seen: NDArray[np.int64], run: Run) -> Problem:
        """The rows of earlier and new documents, with a vocabulary and a centre that are chosen again."""
        assert self.start is not None and earlier.terms is not None
        texts = prepare(corpus.texts, self.texts.preprocess, self.texts.max_words)
        self.vectors = self.start.vectors
        found = None if self.vectors is None else self.vectors.of(texts, "auto", "auto", run)
        kept = earlier.joined(KeptRows(corpus.truth, TermRows.of(texts, self.start.tfidf), found))
        assert kept.terms is not None
        self.tfidf = kept.terms.vocabulary(self.start.tfidf, texts)
        rows = kept.terms.weighted(self.tfidf)
        if kept.vectors is not None:
            self.centre = kept.vectors[seen].mean(axis=0)
            rows = joined_rows(rows, kept.vectors, self.centre, self.ranking.join_weight)
        self.kept = kept if self.learning.keep_features else None
        return Problem(rows, kept.truth)

    def rows(self, texts: Sequence[str]) -> csr_array:
        """The features of texts: tf-idf, joined with the document vector if there is an encoder."""
        texts = prepare(texts, self.texts.preprocess, self.texts.max_words)
        words = self.tfidf.transform(texts)
        if self.vectors is None:
            return words
        assert self.centre is not None
        return joined_rows(words, self.vectors.of(texts, "auto", "auto"), self.centre, self.ranking.join_weight)

    def _estimate(self, problem: Problem, times: int, run: Run) -> None:
        """Log the estimated cost of training the forest ``times`` times, and raise if memory is too small."""
        needed = estimate(
            self._words(problem), problem.truth, tree_levels(len(self.labels), self.tree.branching, self.tree.max_leaf),
            max_terms=self.tree.max_terms, trees=self.tree.trees, prune=self.solver.prune,
            matcher=self.search.beam if self.ranking.negatives == "matcher" else 0, half=self.ranking.half,
            dense=0 if self.vectors is None else self.vectors.size, times=times,
        )  # fmt: skip
        announce(needed, limit_of(self.ranking.memory), run)

    def train_forest(self, problem: Problem, run: Run, where: str = "") -> Forest:
        """Train every tree: its index, then its levels, each a stage of the run."""
        counts = np.bincount(problem.truth.indices, minlength=int(problem.truth.shape[1]))
        weights = tree_weights(problem, self.solver, self.ranking)
        settings = Ranking.of(self.solver, self.ranking, self.search.beam, self.seed)
        place = run.workplace
        rows = shared_rows(problem, place)

        def ranker(number: int) -> TreeRanker:
            name = f"{where}tree{number + 1}"
            tree = LabelTree.from_state(run.stage(f"{name}/index", partial(self._index, problem, number, place, rows)))
            training = TreeTraining(problem, tree.by_frequency(counts), settings, weights, place, rows)
            return training.run(_stages(run, name))

        side_by_side = 1 if place is HERE else self.tree.trees  # here, threads share the nodes of one tree
        with ThreadPoolExecutor(side_by_side) as pool:
            found = pool.map(ranker, range(self.tree.trees)) if side_by_side > 1 else map(ranker, range(self.tree.trees))
            return Forest(list(run.track(found, "trees", self.tree.trees)))

    def _index(self, problem: Problem, number: int, place: Workplace, rows: Any) -> State:
        """The label tree; only label texts need an encoder, and thus torch."""
        seed = self.seed + 1000 * number
        if self.tree.index == "pifa" and self.vectors is None:
            job = {name: getattr(self.tree, name) for name in ("max_terms", "document_weight", "branching", "max_leaf")}
            truth = place.share({"truth": problem.truth})
            return place.submit(
                instance_tree, {**job, "seed": seed}, rows, truth, threads=place.threads(self.tree.trees)
            ).result()
        vectors = label_index(self.tree, self._words(problem), problem.truth, self.labels, self._encode_labels)
        return build_tree(vectors, self.tree.branching, self.tree.max_leaf, seed).state()

    def _encode_labels(self, texts: list[str]) -> NDArray[np.float32]:
        encode = imported("polytag.xmc.match:text_vectors", "'index'")
        found: NDArray[np.float32] = encode(self.tree.label_encoder, texts, seed=self.seed)
        return found

    def _words(self, problem: Problem) -> csr_array:
        """The tf-idf features, without the document vectors."""
        return problem.features if self.vectors is None else csr_array(problem.features[:, : len(self.tfidf.keys)])

    def _held(self, rows: csr_array, truth: csr_array, names: Sequence[str]) -> Scores:
        """Fit the calibration curve on held-out documents, and return their scores."""
        labels, logs = self.best_logs(rows, self.search.candidates, len(names))
        self.curve = fit_curve(labels, logs, truth, names)
        return curved(labels, logs, self.curve, names)

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Probabilities of the best labels within the beam, at most ``candidates``."""
        return self.encode(texts).best(self.clipped(k))

    def encode(self, texts: Sequence[str]) -> EncodedRows:
        """Compute the features of texts."""
        self.require_fitted()
        return EncodedRows(self, texts)

    def attribute(self, text: str, labels: NDArray[np.int64], *, exact: bool = False) -> Attribution:
        """Contributions of the words to the calibrated log-odds, and the path to each label with the words at each level.

        A node's margin is a sum over the words. What follows is not linear; there the words share the difference to an empty text
        in the same proportions. Document vectors are no sum over words; then words are left out.
        """
        self.require_fitted()
        if self.vectors is not None:
            return super().attribute(text, labels, exact=exact)
        assert self.forest is not None
        found = word_shares(self.tfidf, text, self.texts)
        row = csr_array(found.shares.sum(axis=0).reshape(1, -1))
        sums, details = [], list[dict[str, Any]]()
        for label in labels.tolist():
            trees = [
                [step_of(ranker, turn, found.shares, row) for turn in path_to(ranker, label)] for ranker in self.forest.rankers
            ]
            logs = mean_probability([log_probability(steps, self.ranking.worth) for steps in trees])
            sums.append(logs.through(*(self._log_odds(value) for value in (logs.value, logs.empty))))
            levels = [(tree, step) for tree, steps in enumerate(trees, start=1) for step in steps]
            names, worth = self.labels.names, self.ranking.worth
            details.append({"path": [{"tree": tree, **described(step, found.spans, names, worth)} for tree, step in levels]})
        values = np.stack([one.shares for one in sums], axis=1) if sums else np.zeros((len(found.spans), 0))
        return Attribution(found.spans, values, np.array([one.empty for one in sums]), details)

    def _log_odds(self, log: float) -> float:
        """The calibrated log-odds of a log-probability."""
        return float(self.curve[0] * log_odds(np.array(log)) + self.curve[1])

    def matched(self, texts: Sequence[str], truth: csr_array) -> tuple[Scores, csr_array]:
        """Scores of the best leaves of the first tree, and the leaves of the true labels."""
        self.require_fitted()
        assert self.forest is not None
        ranker, rows = self.forest.rankers[0], self.encode(texts).rows
        levels = ranker.tree.levels(truth)
        leaves = levels[-2] if len(levels) > 1 else csr_array(np.ones((len(texts), 1), np.float32))
        names = [str(number) for number in range(int(leaves.shape[1]))]
        return Scores.candidates(
            *ranker.clusters(rows, min(self.search.beam, len(names)), self.ranking.worth), names, "margin"
        ), leaves

    def scored_labels(self) -> int:
        """The number of candidates."""
        return min(self.search.candidates, len(self.labels))

    def best_logs(self, rows: csr_array, k: int, n_labels: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The k best labels of every document, and their log-probabilities.

        With several trees, each scores ``candidates`` labels even if k is smaller: the mean depends on all of them.
        """
        assert self.forest is not None
        width = min(max(k, self.search.candidates) if len(self.forest.rankers) > 1 else k, n_labels)
        labels, logs = self.forest.best(rows, width, self.search.beam, self.ranking.worth)
        return labels[:, :k], logs[:, :k]

    def state(self) -> State:
        """The vocabulary, the trees and the weights."""
        self.require_fitted()
        assert self.forest is not None
        joined = {} if self.vectors is None else {"vectors": self.vectors.state(), "centre": self.centre}
        kept = {} if self.kept is None else {"kept": self.kept.state()}
        return {"tfidf": self.tfidf.state(), "forest": self.forest.state(), "curve": self.curve, **joined, **kept}

    def schema(self) -> Table:
        """Vocabulary, trees and curve; with an encoder, its parts and the mean vector."""
        forest = forest_schema(half=self.ranking.half)
        fields: dict[str, Schema] = {"tfidf": TFIDF, "forest": forest, "curve": CURVE, "kept": KEPT}
        if self.document_encoder:
            encoder = imported("polytag.nn.encoding.frozen_encoder:DOCUMENT_VECTORS", "a model with 'document_encoder'")
            fields |= {"vectors": encoder, "centre": Array(("float32",), ("dense",))}
        return Table(fields, optional=frozenset({"kept"}), rules=(_features_fit,))

    def restore(self, state: State) -> None:
        """Restore the vocabulary, the trees and the weights, which stay memory-mapped."""
        self.tfidf = Tfidf.of(self.features, self.features.ngrams[0])
        self.tfidf.restore(state["tfidf"])
        self.forest = Forest.from_state(state["forest"])
        self.curve = [float(value) for value in state["curve"]]
        self.kept = KeptRows.from_state(state["kept"]) if "kept" in state else None
        self.vectors = self.centre = None
        if self.document_encoder:
            encoder = imported(_VECTORS, "a model with 'document_encoder'")
            self.vectors = encoder.from_state(state["vectors"], self.encoding.max_length)
            self.centre = np.array(state["centre"], dtype=np.float32)
            if self.vectors is not None and self.vectors.size != len(self.centre):
                raise ValueError("its vectors and their mean have different sizes")


def _features_fit(state: State, sizes: Sizes) -> None:
    """The trees use the words, then the numbers of a vector."""
    if sizes["features"] != sizes["words"] + sizes.get("dense", 0):
        raise ValueError("its trees have another number of features than its vocabulary")


class EncodedRows(Encoded):
    """Texts as feature rows, from which the trees score labels."""

    def __init__(self, model: XLinear, texts: Sequence[str]) -> None:
        """Compute the rows."""
        super().__init__(model, texts)
        self.tree_model = model
        self.rows = model.rows(texts)

    def best(self, k: int | None = None) -> Scores:
        """Probabilities of the best labels within the beam, at most ``candidates``."""
        model = self.tree_model
        names, most = model.labels.names, model.scored_labels()
        return curved(*model.best_logs(self.rows, most if k is None else min(k, most), len(names)), model.curve, names)

    def given(self, labels: csr_array) -> Scores:
        """Probabilities of exactly these labels, within the beam or not."""
        model = self.tree_model
        assert model.forest is not None
        return curved_rows(model.forest.given(self.rows, labels, model.ranking.worth), model.curve, model.labels.names)


def _stages(run: Run, name: str) -> Callable[[int, Callable[[], Chunks]], Chunks]:
    """Make the separators of each depth a stage of the run."""

    def stage(depth: int, make: Callable[[], Chunks]) -> Chunks:
        return Chunks.from_state(run.stage(f"{name}/depth{depth}", lambda: make().state()))

    return stage
