"""Classifier: a label set, a model, an optional calibration and a decision; the only object that is saved and loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from polytag.config.recipe import Recipe, build_model
from polytag.config.settings import effective
from polytag.corpus import Corpus
from polytag.decision.abstention import Abstention, automated, checked_share
from polytag.decision.calibration import Platt
from polytag.decision.decision import Decision
from polytag.decision.held_out_fit import Before, fit_on_held_out
from polytag.decision.predicted_sets import Prediction, predictions
from polytag.decision.rare_labels import calibrated
from polytag.editing.label_edits import apply_edits
from polytag.editing.new_labels import add_new_labels, learn_from
from polytag.errors import ConfigError, DataError, NotFittedError, brief
from polytag.explain.explanation import Explanation
from polytag.explain.judge import Judge
from polytag.explain.nearest import Neighbourhood
from polytag.formats.document import ReadOptions
from polytag.formats.inputs import checked_count, checked_mapping, checked_path, checked_texts, listed_texts, text_of
from polytag.kernels.sparse_rows import stack_rows, without
from polytag.labels import LabelSet
from polytag.metrics.of_outcomes import outcome_metrics
from polytag.metrics.outcome import Outcome, widen
from polytag.models.base.judgement import judged_only, warn_of_ignored
from polytag.models.base.saved_model import SavedModel, restoring, saved_state
from polytag.models.model import HeldOut, Model, model_name
from polytag.relabelling.edit import Edit
from polytag.run import Run
from polytag.scores import Scores
from polytag.storage.artefact import artefact_folder, read_artefact, write_artefact
from polytag.storage.model_card import model_card

log = logging.getLogger(__name__)
Item = TypeVar("Item")
_CELLS = 4_000_000  # maximum number of entries (documents x labels) of a batch
_MOST = 2_000  # maximum number of documents of a batch
_FIT = "fit takes fit(train, valid) with Corpus objects, or fit(texts, labels) with plain lists"
_PROMISED = 1_000  # labels per document that a promise looks at
_KEPT = 100  # labels per document that an evaluation keeps; metrics at k need far fewer


class Classifier:
    """Plain text in, label names out."""

    def __init__(self, model: str | Model | Recipe = "br", options: dict[str, Any] | None = None) -> None:
        """Take a model by name (with options), a model object, or a recipe; nothing is trained yet."""
        if isinstance(model, Model):
            if options:
                raise ConfigError("options go with a model's name; this model has its settings already")
            own = {name: value for name, value in effective(model.core).items() if name not in ("seed", "optimise")}
            self.recipe = Recipe(model_name(model.core), own, model.core.seed, model.core.optimise)
            self.model: Model = model
        else:
            if isinstance(model, Recipe) and options:
                raise ConfigError("options go with a model's name; this recipe has its settings already")
            told = {} if options is None else checked_mapping(options, "the options", "{'c': [1.0]}")
            self.recipe = model if isinstance(model, Recipe) else Recipe.named(model, told)
            self.model = build_model(self.recipe)
        self.labels = LabelSet(())
        self.calibration: Platt | None = None
        self.abstention: Abstention | None = None
        self.decision = Decision(optimise=self.recipe.optimise, closed=self.recipe.closed)
        self.training: dict[str, Any] = {}
        self.edits: list[Edit] = []
        self._earlier: Classifier | None = None

    def __repr__(self) -> str:
        """The name of the model, and whether it is trained."""
        state = f"{len(self.labels)} labels" if len(self.labels) else "not trained"
        return f"Classifier({self.recipe.model!r}, {state})"

    # -- training --------------------------------------------------------------------------------------------------

    def continue_from(self, earlier: Classifier) -> Self:
        """Let ``fit`` continue from a trained classifier of the same model: its weights and its labels, with new ones added."""
        if not isinstance(earlier, Classifier):
            raise ConfigError(f"{brief(earlier)} is not a Classifier; load the earlier one, as in Classifier.load('runs/first')")
        earlier._require_trained()
        if type(self.model) is not type(earlier.model.core):
            mine, other = self.recipe.model, earlier.recipe.model
            raise ConfigError(f"the earlier model is {other!r}, and {mine!r} cannot continue from it; train {other!r}")
        self.model.start_from(earlier.model.starting_point())
        self._earlier = earlier
        return self

    def fit(
        self,
        train: Corpus | Sequence[str],
        valid: Corpus | Sequence[Sequence[str]] | Any | None = None,
        run: Run | None = None,
        *,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """Train on a corpus (and a validation corpus), or on plain lists: ``fit(texts, labels)``.

        The labels may also be an indicator matrix, with ``classes`` as the names of its columns.
        """
        if not isinstance(run, Run | None):
            raise ConfigError(f"run is {brief(run)}; pass a Run, as in Run('runs/first')")
        if isinstance(train, Corpus):
            if not isinstance(valid, Corpus | None) or classes is not None:
                raise DataError(_FIT)
        else:
            if valid is None or isinstance(valid, Corpus):
                raise DataError(_FIT)
            train, valid = Corpus.of(train, valid, classes=classes), None
        train.require_trainable()
        if self._earlier is not None:
            train = train.with_labels(self._earlier.labels.union(train.labels))
        if valid is not None:
            labels = train.labels.union(valid.labels)
            train, valid = train.with_labels(labels), valid.with_labels(labels)
        run = run or Run()
        self.model, self.edits = self.model.core, []
        if self.recipe.promise:
            self.model.held_labels = _PROMISED
        warn_of_ignored(self.model, self.recipe.model, train, valid)
        self._complete(self.model.fit(train, valid, run), train, valid)
        run.log("decision", self.decision.report)
        return self

    @classmethod
    def of_trained(
        cls, model: Model, recipe: Recipe, held: HeldOut | None, train: Corpus, valid: Corpus | None, known: Platt | None = None
    ) -> Self:
        """A classifier of a trained model; ``held`` are its held-out scores, calibrated by ``known`` if that is given."""
        classifier = cls(recipe)
        classifier.model = model
        classifier._complete(held, train, valid)
        classifier.calibration = known or classifier.calibration
        return classifier

    def _complete(self, held: HeldOut | None, train: Corpus, valid: Corpus | None) -> None:
        """Count the training documents, and fit calibration and decision on held-out scores."""
        held = judged_only(held, train, valid)
        self.labels = self.model.labels
        counts = np.bincount(train.truth.indices, minlength=len(self.labels))
        if valid is not None:
            counts = counts + np.bincount(valid.truth.indices, minlength=len(self.labels))
        documents = len(train) + (0 if valid is None else len(valid))
        if self._earlier is not None:  # include the documents of the earlier training
            counts[: len(self._earlier.labels)] += np.asarray(self._earlier.training["label_counts"])
            documents += int(self._earlier.training["documents"])
        self.training = {"documents": documents, "label_counts": counts.astype(np.int64)}
        if valid is not None:
            self.training["valid_documents"] = len(valid)
        fewest = min(part.fewest_labels for part in (train, valid) if part is not None)
        if self._earlier is not None and self.model.steady:
            fewest = min(fewest, self._earlier.decision.min_labels)
        known = None if held is None else (held.scores, held.truth)
        fitted = fit_on_held_out(known, self.labels, self.recipe, self.model.rule, fewest, self._before(held), self.training)
        self.calibration, self.decision, self.abstention = fitted

    def _before(self, held: HeldOut | None) -> Before | None:
        """What an earlier training fitted, unless its documents are held out too."""
        earlier = self._earlier
        if held is None or earlier is None or not self.model.steady or held.truth.shape[0] >= int(self.training["documents"]):
            return None
        new = np.bincount(held.truth.indices, minlength=len(self.labels))
        share = np.clip(new / np.maximum(1, self.training["label_counts"]), 0, 1)
        return Before(earlier.calibration, earlier.decision, np.asarray(share, dtype=np.float64))

    def learn(self, texts: Sequence[str], labels: Sequence[Sequence[str]] | Any) -> Self:
        """Learn from a few more documents, such as corrections, in well under a second; labels may be new.

        Linear models can. Calibration and thresholds stay; those of new labels are the medians of the known ones.
        """
        self._require_trained()
        learn_from(self, Corpus.of(texts, labels))
        return self

    def add_labels(self, labels: LabelSet | Mapping[str, str], examples: Corpus | None = None) -> Self:
        """Add labels that were not in training, as ``{name: description}``; a description may be empty.

        They are scored by their texts, and by examples, if there are some: documents with labels that are added. ``embed`` and
        ``br`` can with ``keep_features=true``, ``laco`` with ``shared=true``, ``xbert`` and ``xttention`` always; others refuse.
        """
        self._require_trained()
        add_new_labels(self, labels, examples)
        return self

    # -- edits of labels -------------------------------------------------------------------------------------------

    def rename(self, names: Mapping[str, str]) -> Self:
        """Give labels other names, ``{old: new}``; all scores stay the same to the last bit."""
        return self._edit(Edit.renames(names))

    def merge(self, labels: Mapping[str, Sequence[str]], fit: Corpus | None = None) -> Self:
        """Merge labels, ``{new: [old, old]}``; the score is the probability that one of them applies (noisy-or)."""
        return self._edit(Edit.merges(labels), fit)

    def drop(self, labels: Sequence[str], fit: Corpus | None = None) -> Self:
        """Remove labels; their children become children of their parents."""
        return self._edit(Edit.drops(labels), fit)

    def split(self, labels: Mapping[str, Sequence[str]], fit: Corpus | None = None) -> Self:
        """Split labels, ``{old: [new, new]}``; all parts have the old scores until they are trained."""
        return self._edit(Edit.splits(labels), fit)

    def _edit(self, edits: list[Edit], fit: Corpus | None = None) -> Self:
        """Edit labels; with documents, thresholds of new labels, promises and sureness are fitted on them."""
        self._require_trained()
        apply_edits(self, edits, fit)
        return self

    # -- inference -------------------------------------------------------------------------------------------------

    def scores(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Scores of all labels, or of the k best ones; calibrated if the classifier is."""
        self._require_trained()
        texts = checked_texts(texts)
        k, rare = None if k is None else checked_count(k, len(self.labels)), self.recipe.favour_rare
        found = calibrated(self.model.score(texts, None if rare else k), self.calibration, rare, self.training)
        return found.best(k) if rare and k is not None else found

    def predict(self, texts: Sequence[str]) -> list[list[str]]:
        """The labels of every text, best first."""
        return [prediction.labels for _, prediction in self.stream((None, text) for text in listed_texts(texts))]

    def stream(
        self, documents: Iterable[tuple[Item, str]], top: int | None = None, ask: float | str | None = None
    ) -> Iterator[tuple[Item, Prediction]]:
        """Label any number of documents in constant memory: from pairs (item, text) to pairs (item, prediction).

        ``top`` is the number of best labels to predict, instead of the decided set. ``ask`` is the share of documents to leave to
        people, the least sure ones, or a goal for the others, as in ``precision=.95``; it sets ``Prediction.ask``.
        """
        self._require_trained()
        top = None if top is None else checked_count(top, len(self.labels), name="top")
        if isinstance(documents, str | bytes | Mapping) or not isinstance(documents, Iterable):
            raise DataError(f"the documents are {brief(documents)}; pass pairs (item, text), as in [('7', 'Fish quotas agreed')]")
        return self._stream(iter(documents), top, None if ask is None else self.asking(ask))

    def asking(self, ask: float | str) -> float:
        """The share of documents to leave to people: given as a number, or found for a goal such as ``precision=.95``."""
        if self.abstention is None:
            raise ConfigError(
                "this model does not know how sure it is, as it had no hold-out, is old, or has edited labels; train it again"
            )
        return self.abstention.share_for(ask) if isinstance(ask, str) and "=" in ask else checked_share(ask)

    def _stream(
        self, source: Iterator[tuple[Item, str]], top: int | None, ask: float | None
    ) -> Iterator[tuple[Item, Prediction]]:
        first = 0
        while batch := list(islice(source, self._batch())):
            rows = self.predictions(self.scores(checked_texts((text_of(pair) for pair in batch), first)), top, ask)
            for (item, _), prediction in zip(batch, rows, strict=True):
                yield item, prediction
            first += len(batch)

    def explain(
        self,
        text: str,
        labels: str | Sequence[str] | None = None,
        *,
        exact: bool = False,
        near: Corpus | None = None,
        neighbours: int = 3,
    ) -> Explanation:
        """Why a text has its labels, or these labels: what each word contributes, for the label and against it.

        Contributions of linear models are exact in any case. Of other models, ``exact`` leaves every word out; otherwise phrases
        are left out first. With a corpus, its nearest documents with the label are added (``neighbours``).
        """
        self._require_trained()
        text = checked_texts([text])[0]
        wanted = (
            None if labels is None else [self.labels.number(name) for name in ([labels] if isinstance(labels, str) else labels)]
        )
        judge = Judge(self.model, self.calibration, self.decision, self.recipe.favour_rare, self.training)
        found = judge.explain(text, wanted, exact=exact)
        return found if near is None else Neighbourhood(near).added_to(found, neighbours)

    def evaluate(
        self, corpus: Corpus | Sequence[str], labels: Any = None, *, classes: Any = None, ask: float | str | None = None
    ) -> dict[str, float]:
        """All metrics on a labelled corpus, or on plain lists: ``evaluate(texts, labels)``, as in ``fit``.

        Labels that were not in training count as missed. With ``ask``, as in ``stream``, there are metrics of the documents that
        are not left to people.
        """
        self._require_trained()
        if isinstance(corpus, Corpus) == (labels is not None) or (classes is not None and labels is None):
            raise DataError("evaluate takes evaluate(corpus) with a Corpus, or evaluate(texts, labels) with plain lists")
        if not isinstance(corpus, Corpus):
            corpus = Corpus.of(corpus, labels, classes=classes)
        share = None if ask is None else self.asking(ask)
        found = self.outcome(corpus)
        metrics = outcome_metrics(found, int(self.training["documents"]))
        if share is not None and self.abstention is not None and found.sureness is not None:
            metrics |= automated(found.truth, found.predicted, found.sureness, self.abstention.level(share))
        return metrics

    def outcome(self, corpus: Corpus) -> Outcome:
        """What metrics and analyses need: truth, predicted sets and the best scores of a corpus, over one label set."""
        self._require_trained()
        known = self.labels.union(corpus.labels)
        corpus = corpus.with_labels(known)
        predicted, kept, sure = [], [], []
        for start in range(0, len(corpus), self._batch()):
            scores = self.scores(corpus.texts[start : start + self._batch()])
            predicted.append(self.decision.decide(scores, self.labels))
            kept.append(scores.best(_KEPT))
            if self.abstention is not None:
                sure.append(self.abstention.sureness(scores, predicted[-1]))
        scores = Scores.stack(kept)
        wide = Scores(widen(scores.matrix, len(known)), known.names, scores.kind, scores.absent)
        counts = np.zeros(len(known), dtype=np.int64)
        counts[: len(self.labels)] = self.training["label_counts"]
        thresholds = None
        if self.decision.rule in ("threshold", "per_label", "promise"):
            thresholds = np.full(len(known), np.nan, dtype=np.float32)
            thresholds[: len(self.labels)] = self.decision.thresholds
        decided, unknown = widen(stack_rows(predicted), len(known)), corpus.unknown
        if unknown is not None:  # what nobody judged is neither right nor wrong
            decided, wide = without(decided, unknown), wide.without(unknown)
        sureness = np.concatenate(sure) if sure else None
        return Outcome(known, corpus.truth, decided, wide, counts, thresholds, sureness, corpus.weights, unknown)

    def predictions(self, scores: Scores, top: int | None = None, ask: float | None = None) -> Iterator[Prediction]:
        """What ``stream`` yields, from scores that are known; ``ask`` is a share of documents."""
        decided = None if top is not None and ask is None else self.decision.decide(scores, self.labels)
        asked = None
        if ask is not None and self.abstention is not None and decided is not None:
            asked = self.abstention.asked(scores, decided, ask)
        return predictions(scores, decided, top, asked)

    def _batch(self) -> int:
        return max(1, min(_MOST, _CELLS // max(1, self.model.scored_labels())))

    def _require_trained(self) -> None:
        if not len(self.labels):
            raise NotFittedError("this classifier was not trained yet; call fit, or load a trained one")

    def reading(self, options: ReadOptions | None = None) -> ReadOptions:
        """Reading options for this classifier; columns that are not given are those of the training documents."""
        options = ReadOptions() if options is None else options
        learned = {key: self.recipe.data.get("reading", {}).get(key) for key in ("text", "labels", "separator")}
        return replace(options, **{key: value for key, value in learned.items() if value and not getattr(options, key)})

    # -- files -----------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write the artefact to ``folder/model``; it replaces an earlier one only when it is complete and can be loaded."""
        self._require_trained()
        place = checked_path(folder) / "model"
        state = self.state()

        def check(saved: dict[str, Any]) -> None:
            with restoring(place):
                self.from_state(saved)

        write_artefact(place, state, check, model_card(state))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a trained classifier from a run or from its model folder."""
        place = artefact_folder(checked_path(folder))
        state = read_artefact(place)
        with restoring(place):
            classifier = cls.from_state(state)
        classifier.model.use_export(place)
        return classifier

    def state(self) -> dict[str, Any]:
        """Everything that is saved."""
        return saved_state(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Restore what ``state`` returned."""
        saved = SavedModel.from_state(state)
        classifier = cls(saved.model)
        data = {"reading": state["reading"]} if state["reading"] else {}
        classifier.recipe = replace(classifier.recipe, data=data, **state["recipe"])
        classifier.labels, classifier.calibration = saved.model.labels, saved.calibration
        classifier.decision = Decision.from_state(state["decision"])
        classifier.abstention = Abstention.from_state(state.get("abstention"))
        classifier.training, classifier.edits = state["training"], [Edit.from_record(record) for record in state.get("edits", ())]
        return classifier
