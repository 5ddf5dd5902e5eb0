"""The ensemble of the BERT paper (3.3 and algorithm 2), generalised to any number of any models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from polytag.config.groups.solver_settings import HoldOutSettings
from polytag.config.retired import carried_over
from polytag.config.settings import declared, effective
from polytag.errors import ConfigError, suggestion
from polytag.labels import LabelSet, indicator
from polytag.models.base.attribution import Attribution, scores_of
from polytag.models.mixture.finished_run import FinishedRun, Trained, learned_from_valid, part_of_run
from polytag.models.mixture.parallel_training import Training, train_parts
from polytag.models.mixture.part import PART, EncodedPart, FixedScores, LabelScorer, MemberScores, Part, scores_candidates_only
from polytag.models.mixture.weights import columns_of, even_weights, fit_weights
from polytag.models.model import MODELS, HeldOut, Model, State, group, model_class, model_name, param
from polytag.relabelling.edit import Edit, edited
from polytag.scores import Scores
from polytag.storage.schema import Items, Number, Table

if TYPE_CHECKING:
    from polytag.corpus import Corpus
    from polytag.run import Run

ALL = "all"  # the key of settings that apply to every part
_TAG = re.compile(r"[A-Za-z0-9_-]+")
_FEW = 20_000  # up to this number of labels, every member scores all of them, even for the k best
_CELLS = 32_000_000  # maximum number of values that all members keep in memory for encoded texts
_SEARCHED = 5_000_000  # held-out documents x labels up to which weights are compared on all scores
_CANDIDATES = 100  # labels per document on which weights are compared otherwise
_AT_ONCE = 2000  # maximum number of documents that the members encode at once


class HeldPart(NamedTuple):
    """The held-out scores of a member, and the member itself if it can score further labels of the same documents.

    There are no scores if none are known, or if the member scores candidates and will be run again anyway.
    """

    scores: Scores | None
    part: Part | None = None


@dataclass
class Mixed(Model):
    """An ensemble: the weighted sum of several models' probabilities, by default of `bert-sgm` and `bert`.

    ``alpha p(first) + (1 - alpha) p(second)`` (equation 4), or a sum of more. The weights maximise the metric with one global
    threshold on validation documents. A member is trained by ``fit`` or comes from a finished run; labels are matched by name.
    Margins of linear models are calibrated first. Thresholds decide; sets that members decode are ignored.

    With ``folds`` there are no validation documents: every member is trained once without each fold, and the mean of these
    models predicts. Weights and thresholds are fitted on the out-of-fold scores of all documents.
    """

    parts: list[str] = param(
        ["bert-sgm", "bert"],
        "models to train (NAME, or NAME:TAG for several of one kind), or folders of finished runs",
        first=True,
    )
    settings: dict[str, Any] = param(
        {}, "settings of the parts, a table for each; those under 'all' apply to every part that has them", first=True
    )
    weights: list[float] = param([], "weight of each part; empty = chosen on held-out documents", minimum=0, first=True)
    held_out: HoldOutSettings = group(HoldOutSettings, without=("holdout", "refit"), folds=0)
    parts_at_once: int = param(1, "number of parts trained in parallel, each in a process of its own", minimum=1)
    composite: ClassVar[bool] = True
    divided: ClassVar[str] = "pieces"
    judged: ClassVar[tuple[str, ...]] = ("weights", "unknown")
    trained: list[Part] = field(init=False, repr=False, default_factory=list)
    shares: list[float] = field(init=False, repr=False, default_factory=list)
    given: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    # -- settings --------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, classifiers: Mapping[str, Trained], weights: Sequence[float] = ()) -> Self:
        """An ensemble of trained classifiers by name; ``fit`` only chooses the weights."""
        model = cls(parts=list(classifiers), weights=list(weights))
        model.given = dict(classifiers)
        return model

    @classmethod
    def joined(cls, parts: Sequence[Part], weights: Sequence[float], labels: LabelSet, shared: Mapping[str, Any]) -> Self:
        """The trained ensemble of trained members; ``shared`` are its seed and its metric."""
        options = {part.name: effective(part.model) for part in parts}
        settings = {name: {key: value for key, value in table.items() if key not in shared} for name, table in options.items()}
        model = cls.build({"parts": [part.name for part in parts], "settings": settings, "weights": list(weights), **shared})
        model.trained, model.shares, model.labels = list(parts), list(weights), labels
        return model

    @classmethod
    def check_options(cls, options: Mapping[str, Any], *, idle: bool = True) -> dict[str, Any]:
        """The options; the settings of each part are checked and cast by its own class."""
        options = super().check_options(options, idle=idle)
        keys = ("parts", "weights", "settings", "folds")
        parts, weights, settings, folds = (options.get(name, declared(cls)[name].default) for name in keys)
        twice = next((part for part in parts if parts.count(part) > 1), None)
        finished = next((part for part in parts if not _registered(part)), None)
        if len(parts) < (1 if folds else 2):
            raise ConfigError(f"'parts' is {', '.join(parts) or 'empty'}, but an ensemble needs at least two; name another model")
        if folds == 1:
            raise ConfigError("'folds' is 1, but then no model would be trained on the held-out fold; set at least 2, or 0")
        if folds and finished is not None:
            raise ConfigError(
                f"with 'folds' every part must be a model to train, but {finished!r} is not; name a model, or set folds=0"
            )
        if twice:
            raise ConfigError(f"'parts' has {twice!r} twice; add tags, as in {twice}:a and {twice}:b")
        for part in parts:
            if _registered(part) and ":" in part and not _TAG.fullmatch(part.partition(":")[2]):
                raise ConfigError(f"the part {part!r} has an invalid tag; use letters, digits, '-' and '_'")
        if weights and (len(weights) != len(parts) or not sum(weights) > 0):
            raise ConfigError(f"'weights' has {len(weights)} numbers for {len(parts)} parts; give each one, not all of them 0")
        checked = {name: cls._checked_table(name, table, options) for name, table in settings.items()}
        for name in [name for name in checked if idle and name != ALL]:
            kind = cls.part_classes(name, options)[0]
            kind.check_options({**_effective(kind, checked.get(ALL, {}), checked[name]), **checked[name]})
        return {**options, **({"settings": checked} if settings else {})}

    @classmethod
    def saved_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The checked options of an artefact; they and the settings of the parts may be from an earlier version."""
        parts, settings = options.get("parts", declared(cls)["parts"].default), dict(options.get("settings", {}))
        for name, table in settings.items():
            kinds = [kind for part in parts if name in (part, ALL) and (kind := _registered(part))]
            settings[name] = _carried_over(kinds, table) if isinstance(table, Mapping) else table
        return super().saved_options({**options, **({"settings": settings} if settings else {})})

    @classmethod
    def _checked_table(cls, name: str, table: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """The settings under this name, each cast by the models that declare it."""
        kinds = cls.part_classes(name, options)
        if not isinstance(table, Mapping):
            raise ConfigError(f"the settings of the part {name!r} are {table!r}, but they must be a table")
        checked: dict[str, Any] = {}
        for key, value in table.items():
            having = [kind for kind in kinds if key in declared(kind)] or kinds[:1]
            cast = [kind.check_options({key: value}, idle=False) for kind in having]
            checked |= cast[0] if all(one == cast[0] for one in cast) else {key: value}  # each part casts its own
        return checked

    @classmethod
    def part_classes(cls, name: str, options: Mapping[str, Any]) -> list[type[Model]]:
        """The model classes that settings under this name apply to."""
        parts = options.get("parts", declared(cls)["parts"].default)
        if name != ALL and name not in parts:
            raise ConfigError(f"settings for {name!r}, which is none of the parts; {suggestion(name, [*parts, ALL])}")
        kinds = [model_class(kind) for part in parts if name in (part, ALL) and (kind := _registered(part))]
        if not kinds:
            reason = "all parts are finished runs" if name == ALL else f"the part {name!r} is a finished run"
            raise ConfigError(f"{reason} and cannot have settings; remove the settings for {name!r}")
        return kinds

    def _options_of(self, part: str, kind: type[Model], fold: int) -> dict[str, Any]:
        """The options of a part: seed and metric of the ensemble, settings for all parts, then its own settings."""
        common = {key: value for key, value in self.settings.get(ALL, {}).items() if key in declared(kind)}
        options = {"seed": self.seed, "optimise": self.optimise, **common, **self.settings.get(part, {})}
        return kind.check_options({**options, "seed": options["seed"] + fold}, idle=False)

    # -- training --------------------------------------------------------------------------------------------------

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train or load each member, then choose the weights on held-out documents, the same for all members."""
        self.check_options(self.options(), idle=False)
        if self.held_out.folds:
            return self._fit_folds(train if valid is None else train.concat(valid), run)
        taken = {part: self._take(part) for part in self.parts if part in self.given or not _registered(part)}
        if taken and valid is None:
            names = ", ".join(map(repr, taken))
            raise ConfigError(f"weights need documents outside the training data of {names}; give validation documents (--valid)")
        columns = {part: columns_of(found.model.labels, train.labels, part) for part, found in taken.items()}
        train, valid, rows = train.hold_out(valid, self.seed)
        own = [self._training(place, train, valid) for place in enumerate(self.parts, start=1) if place[1] not in taken]
        fresh = iter(train_parts(own, run, self.parts_at_once))
        self.trained, held = [], []
        for number, name in enumerate(self.parts, start=1):
            if name in taken:
                assert valid is not None
                place = f"{number}-taken"
                part, scores, same = part_of_run(
                    name, taken[name], columns[name], (train, valid), run, place, _compared(train, valid)
                )
            else:
                part, scores = next(fresh)
                same = not learned_from_valid(part.model)
            self.trained.append(part)
            held.append(HeldPart(scores, part if same else None))
        self.labels = train.labels
        return self._weigh(held, train, valid, rows, run)

    def _fit_folds(self, whole: Corpus, run: Run) -> HeldOut | None:
        """Train each member once without each fold, then choose the weights on the out-of-fold scores of all documents."""
        folds = whole.folds(self.held_out.folds, seed=self.seed)
        corpora = [(whole.subset(learned), whole.subset(watched)) for learned, watched in folds]
        places = enumerate(self.parts, start=1)
        own = [self._training(place, *both, fold) for place in places for fold, both in enumerate(corpora, start=1)]
        found = train_parts(own, run, self.parts_at_once)
        self.trained, held = [part for part, _ in found], []
        for first in range(0, len(found), len(folds)):
            known = [scores for _, scores in found[first : first + len(folds)] if scores is not None]
            held.append(HeldPart(Scores.stack(known) if len(known) == len(folds) else None))
        self.labels = whole.labels
        rows = np.concatenate([watched for _, watched in folds])
        return self._weigh(held, whole, whole.subset(rows), rows, run)

    def _weigh(
        self, held: Sequence[HeldPart], train: Corpus, valid: Corpus | None, rows: NDArray[np.int64], run: Run
    ) -> HeldOut | None:
        """Choose the weights, if all members have held-out scores; ``rows`` are the indices of the held-out documents."""
        known = [
            one for one in held if one.scores is not None or (one.part is not None and scores_candidates_only(one.part.model))
        ]
        shares = [weight / sum(self.weights) for weight in self.weights] or even_weights(len(self.parts))
        self.shares = self._by_training(shares)
        if valid is None or len(known) < len(held):
            return None
        together = self._held_together(known, valid.texts)
        if not self.weights and len(self.parts) > 1:
            least = min(train.fewest_labels, valid.fewest_labels)
            most = _compared(train, valid)
            compared = [scores.best(most) if most and scores.is_full else scores for scores in together.scores]
            found = fit_weights(compared, valid.truth, self.optimise, least)
            shares = found.weights
            self.shares = self._by_training(shares)
            run.log("mixing", {"parts": self.parts, **found.log(self.optimise)})
        return HeldOut(valid.truth, together.mixed(shares), rows)

    def _by_training(self, shares: Sequence[float]) -> list[float]:
        """The weights of the members, divided evenly among the models of their folds."""
        times = max(1, self.held_out.folds)
        return [share / times for share in shares for _ in range(times)]

    def _held_together(self, known: Sequence[HeldPart], texts: Sequence[str]) -> MemberScores:
        """The members' scores of held-out documents, computed as in ``score`` by all members that can be run again."""
        names, batches = self.labels.names, []
        many = len(texts) * len(names) > _SEARCHED  # members that score all labels are not run again
        size = _texts_at_once(part.model for _, part in known if part is not None)
        for at in range(0, max(1, len(texts)), size):
            some, asked = texts[at : at + size], list[LabelScorer]()
            for scores, part in known:
                if part is not None and (
                    scores is None or not (scores.is_full or (many and not scores_candidates_only(part.model)))
                ):
                    asked.append(EncodedPart(part, part.model.encode(some), names))
                else:
                    assert scores is not None
                    asked.append(FixedScores(scores.rows(at, at + size)))
            batches.append(MemberScores.of(asked, None))
        return MemberScores.stack(batches)

    def _training(self, numbered: tuple[int, str], train: Corpus, valid: Corpus | None, fold: int = 0) -> Training:
        """The training of a part with this number and name; folds count from 1, and each has its own seed."""
        number, name = numbered
        kind = model_class(str(_registered(name)))
        place = f"{number}-{name.replace(':', '-')}" + (f"-{fold}" if fold else "")
        return Training(place, Part(name, kind.build(self._options_of(name, kind, max(0, fold - 1)))), train, valid)

    def _take(self, part: str) -> FinishedRun:
        """A finished run, or a trained classifier in memory."""
        if part in self.given:
            return FinishedRun.of(self.given[part])
        if not Path(part).exists():
            hint = suggestion(part.partition(":")[0], list(MODELS))
            raise ConfigError(f"the part {part!r} is neither a model nor the folder of a run; {hint}")
        return FinishedRun.load(part)

    def start_from(self, other: Self) -> NoReturn:
        """Raise: only the members can continue."""
        raise ConfigError("an ensemble cannot continue an earlier run; continue its parts (train --from) and combine those")

    def renamed(self, labels: LabelSet) -> Self:
        """With other names for its labels, and for those of its members, which may have another order."""
        found, names = super().renamed(labels), dict(zip(self.labels, labels, strict=True))
        found.trained = []
        for part in self.trained:
            own = part.model.labels
            edit = Edit("rename", own.names, tuple(names[name] for name in own))
            same = own.names == self.labels.names
            found.trained.append(replace(part, model=part.model.renamed(labels if same else edited(own, edit).labels)))
        return found

    # -- scoring ---------------------------------------------------------------------------------------------------

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Probabilities of every label, or of the k best ones.

        With very many labels, each member scores more than k candidates. Members that can score requested labels also score the
        candidates of the others; in other members, a label that is no candidate has probability 0.
        """
        self.require_fitted()
        size, wanted, k = _texts_at_once(part.model for part in self.trained), None, self.clipped(k)
        if k is not None and len(self.labels) > max(_FEW, 4 * k + _CANDIDATES):
            wanted = 4 * k + _CANDIDATES
        found = (self._mixture(texts[at : at + size], wanted) for at in range(0, max(1, len(texts)), size))
        return Scores.stack([scores if k is None else scores.best(k) for scores in found])

    def attribute(self, text: str, labels: NDArray[np.int64], *, exact: bool = False) -> Attribution:
        """By leaving words out; with the probability that each member gives, and its weight."""
        found = super().attribute(text, labels, exact=exact)
        asked = indicator([labels], len(self.labels))
        rows = []
        for part, share in zip(self.trained, self.shares, strict=True):
            scores = part.given(part.model.encode([text]), asked, self.labels.names)
            for place, value in enumerate(scores_of(scores, labels)[0].tolist()):
                rows.append((place, {"part": part.name, "weight": share, "probability": value}))
        return replace(found, details=[{"parts": [row for at, row in rows if at == place]} for place in range(len(labels))])

    def scored_labels(self) -> int:
        """The sum over the members, as if their candidates were disjoint."""
        return min(len(self.labels), sum(part.model.scored_labels() for part in self.trained) or len(self.labels))

    def kept_per_text(self) -> int:
        """The sum over the members."""
        return sum(part.model.kept_per_text() for part in self.trained)

    def _mixture(self, texts: Sequence[str], k: int | None) -> Scores:
        used = [(part, share) for part, share in zip(self.trained, self.shares, strict=True) if share > 0]
        encoded = [EncodedPart(part, part.model.encode(texts), self.labels.names) for part, _ in used]
        return MemberScores.of(encoded, k).mixed([share for _, share in used])

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The members with their states, and their weights."""
        self.require_fitted()
        return {"parts": [part.state(self.labels) for part in self.trained], "weights": self.shares}

    def schema(self) -> Table:
        """The members, each of which has a schema of its own, and their weights."""
        return Table({"parts": Items(PART, "parts", least=1), "weights": Items(Number(0, 1, whole=False), "parts")})

    def restore(self, state: State) -> None:
        """Rebuild the members from this state alone."""
        self.trained = [Part.from_state(part, self.labels) for part in state["parts"]]
        self.shares = [float(weight) for weight in state["weights"]]
        if abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError("its weights do not fit its parts")

    def part_models(self) -> list[Model]:
        """The models of the members."""
        return [part.model for part in self.trained]

    def described_parts(self) -> list[dict[str, Any]]:
        """Name, model, weight and options of each member."""
        rows = zip(self.trained, self.shares, strict=True)
        return [{"name": p.name, "model": model_name(p.model), "weight": s, "options": p.model.options()} for p, s in rows]


def _compared(train: Corpus, valid: Corpus) -> int | None:
    """The number of labels per document on which weights are compared; None for all."""
    return _CANDIDATES if len(valid) * len(train.labels) > _SEARCHED else None


def _texts_at_once(models: Iterable[Model]) -> int:
    """The number of texts that models encode at once, limited by the memory of the encoded texts."""
    return max(1, min(_AT_ONCE, _CELLS // max(1, sum(model.kept_per_text() for model in models))))


def _registered(part: str) -> str | None:
    """The model name of a part that is trained, or None for a finished run."""
    name = part.partition(":")[0]
    return name if name in MODELS else None


def _effective(kind: type[Model], common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for all parts that a part of this class declares and that have an effect on it."""
    known = declared(kind)
    common = {name: value for name, value in common.items() if name in known}
    values = {**{name: setting.default for name, setting in known.items()}, **common, **own}
    return {name: value for name, value in common.items() if known[name].idle(values) is None}


def _carried_over(kinds: Sequence[str], table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an artefact for these models under their present names, without those that had no effect."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        present = [(kind, carried_over(kind, {name: value})) for kind in kinds]
        known = [one for kind, one in present if one.keys() <= declared(model_class(kind)).keys()]
        for one in known if known else [{name: value}]:
            found |= one
    return found
