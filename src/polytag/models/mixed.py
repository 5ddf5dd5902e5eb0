"""The mixed model (bert-sgm-mixed, 3.3 and algorithm 2), for any number of any models."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

import numpy as np

from polytag.errors import ConfigError
from polytag.models.mixing import columns_of, even_weights, fit_weights
from polytag.models.model import MODELS, HeldOut, Model, State, model_class, model_name, param, suggestion
from polytag.models.part import Asked, Part, Reader, Said, Together, names_some
from polytag.models.side_by_side import Training, train_parts
from polytag.models.taken import Taken, refits, taken_part
from polytag.options import validate_options
from polytag.scores import Scores

if TYPE_CHECKING:
    from polytag.classifier import Classifier
    from polytag.corpus import Corpus
    from polytag.run import Run

ALL = "all"  # the name under which settings are for every part
_TAG = re.compile(r"[A-Za-z0-9_-]+")
_FEW = 20_000  # labels up to which every part scores all of them, also when only the k best are asked for
_CELLS = 32_000_000  # numbers that all parts together keep of the texts that they have read
_SEARCHED = 5_000_000  # held-out documents x labels up to which all of them are looked at when weights are compared
_CANDIDATES = 100  # labels per document that are looked at where there are more
_AT_ONCE = 2000  # most documents that parts are asked about at once


class HeldPart(NamedTuple):
    """Scores on held-out documents, and the part that gave them, if it is there itself: then it can be asked for more.

    Scores are missing where nothing is known, or where a part that names candidates will be asked anyway.
    """

    scores: Scores | None
    part: Part | None = None


@dataclass
class Mixed(Model):
    """The weighted sum of several models' probabilities, by default of `bert-sgm` and `bert`.

    ``alpha p(first) + (1 - alpha) p(second)`` (equation 4), or a sum of more; the weights are those with which one threshold
    does best on validation documents. A part is trained now, or taken from a finished run as it is, by label name. Margins of
    linear models are made probabilities first. The mixture decides by thresholds alone, whatever sets its parts decode.

    With ``folds`` there are no validation documents: every part is trained that many times, each time without another share of
    all documents. The mean of these trainings is what predicts; weights and thresholds are chosen on all documents, each scored
    by the training that did not see it.
    """

    parts: list[str] = param(
        ["bert-sgm", "bert"], "models to train (NAME, or NAME:TAG for several of one kind), or folders of finished runs"
    )
    settings: dict[str, Any] = param(
        {}, "settings of the parts that are trained, a table for each; those under 'all' are for every part that has them"
    )
    weights: list[float] = param([], "how much each part counts; empty: chosen on held-out documents", minimum=0)
    folds: int = param(0, "trainings of each part, every one without another share of all documents; 0: just one", minimum=0)
    parts_at_once: int = param(1, "parts that are trained side by side, each by a process of its own", minimum=1)
    trained: list[Part] = field(init=False, repr=False, default_factory=list)
    shares: list[float] = field(init=False, repr=False, default_factory=list)
    given: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    # -- settings --------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, classifiers: Mapping[str, Classifier], weights: Sequence[float] = ()) -> Self:
        """A mixture of trained classifiers, each under a name; ``fit`` trains none of them and finds the weights."""
        model = cls(parts=list(classifiers), weights=list(weights))
        model.given = dict(classifiers)
        return model

    @classmethod
    def checked_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with the settings of each part checked and cast as that part's own."""
        told = {name: options.get(name, getattr(cls(), name)) for name in ("parts", "weights", "settings", "folds")}
        parts, weights, settings, folds = told.values()
        twice = next((part for part in parts if parts.count(part) > 1), None)
        finished = next((part for part in parts if not _registered(part)), None)
        if len(parts) < (1 if folds else 2):
            raise ConfigError(f"'parts' is {', '.join(parts) or 'empty'}, but a mixture needs at least two; name another model")
        if folds == 1:
            raise ConfigError("'folds' is 1, but what one training does not see would never be learned; set at least 2, or 0")
        if folds and finished is not None:
            raise ConfigError(
                f"with 'folds' every part is trained now, but {finished!r} is no model; name a model, or set folds=0"
            )
        if twice:
            raise ConfigError(f"the part {twice!r} is there twice; tell them apart, as in {twice}:a and {twice}:b")
        for part in parts:
            if _registered(part) and ":" in part and not _TAG.fullmatch(part.partition(":")[2]):
                raise ConfigError(f"the part {part!r} has a tag that cannot be used; take letters, digits, '-' and '_'")
        if weights and (len(weights) != len(parts) or not sum(weights) > 0):
            raise ConfigError(f"'weights' has {len(weights)} numbers for {len(parts)} parts; give each one, not all of them 0")
        checked: dict[str, Any] = {}
        for name, table in settings.items():
            kinds = cls.part_classes(name, options)
            if not isinstance(table, Mapping):
                raise ConfigError(f"the settings of the part {name!r} are {table!r}, but they must be a table")
            checked[name] = {}
            for key, value in table.items():
                for kind in [kind for kind in kinds if _has(kind, key)] or kinds[:1]:
                    checked[name] |= validate_options(kind, {key: value})
        return {**options, **({"settings": checked} if settings else {})}

    @classmethod
    def part_classes(cls, name: str, options: Mapping[str, Any]) -> list[type[Model]]:
        """The classes of the models that settings under this name are for."""
        parts = options.get("parts", cls().parts)
        if name != ALL and name not in parts:
            raise ConfigError(f"settings for {name!r}, which is none of the parts; {suggestion(name, [*parts, ALL])}")
        kinds = [model_class(kind) for part in parts if name in (part, ALL) and (kind := _registered(part))]
        if not kinds:
            told = "no part is trained now" if name == ALL else f"the part {name!r} is no model to train but a finished run"
            raise ConfigError(f"{told}: there is nothing to set; leave the settings for {name!r} out")
        return kinds

    def _options_of(self, part: str, kind: type[Model], fold: int) -> dict[str, Any]:
        """What a part is told: the seed and the metric of the mixture, what is set for all parts, and what is set for it."""
        common = {key: value for key, value in self.settings.get(ALL, {}).items() if _has(kind, key)}
        told = {"seed": self.seed, "optimise": self.optimise, **common, **self.settings.get(part, {})}
        return validate_options(kind, {**told, "seed": told["seed"] + fold})

    # -- training --------------------------------------------------------------------------------------------------

    def fit(self, train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Train or take each part, then choose the weights on held-out documents, the same ones for all parts."""
        self.checked_options(self.options())
        if self.folds:
            return self._fit_folds(train if valid is None else train.concat(valid), run)
        taken = {part: self._take(part) for part in self.parts if part in self.given or not _registered(part)}
        if taken and valid is None:
            told = ", ".join(map(repr, taken))
            raise ConfigError(f"weights are chosen on documents that {told} never saw; give validation documents (--valid)")
        columns = {part: columns_of(found.classifier.labels, train.labels, part) for part, found in taken.items()}
        train, valid = train.held_apart(valid, self.seed)
        own = [self._training(place, train, valid) for place in enumerate(self.parts, start=1) if place[1] not in taken]
        fresh = iter(train_parts(own, run, self.parts_at_once))
        self.trained, held = [], []
        for number, name in enumerate(self.parts, start=1):
            if name in taken:
                assert valid is not None
                place = f"{number}-taken"
                part, scores, same = taken_part(
                    name, taken[name], columns[name], (train, valid), run, place, _compared(train, valid)
                )
            else:
                part, scores = next(fresh)
                same = not refits(part.model)
            self.trained.append(part)
            held.append(HeldPart(scores, part if same else None))
        self.labels = train.labels
        return self._weigh(held, train, valid, run)

    def _fit_folds(self, whole: Corpus, run: Run) -> HeldOut | None:
        """Train each part once without each of the folds, then choose the weights on all documents, fold after fold."""
        folds = whole.folds(self.folds, seed=self.seed)
        corpora = [(whole.subset(learned), whole.subset(watched)) for learned, watched in folds]
        places = enumerate(self.parts, start=1)
        own = [self._training(place, *both, fold) for place in places for fold, both in enumerate(corpora, start=1)]
        found = train_parts(own, run, self.parts_at_once)
        self.trained, held = [part for part, _ in found], []
        for first in range(0, len(found), len(folds)):
            known = [scores for _, scores in found[first : first + len(folds)] if scores is not None]
            held.append(HeldPart(Scores.stack(known) if len(known) == len(folds) else None))
        self.labels = whole.labels
        return self._weigh(held, whole, whole.subset(np.concatenate([watched for _, watched in folds])), run)

    def _weigh(self, held: Sequence[HeldPart], train: Corpus, valid: Corpus | None, run: Run) -> HeldOut | None:
        """Choose the weights, if there is anything to choose them on."""
        known = [one for one in held if one.scores is not None or (one.part is not None and names_some(one.part.model))]
        shares = [weight / sum(self.weights) for weight in self.weights] or even_weights(len(self.parts))
        self.shares = self._by_training(shares)
        if valid is None or len(known) < len(held):
            return None
        together = self._held_together(known, valid.texts)
        if not self.weights and len(self.parts) > 1:
            least = min(int(np.diff(corpus.truth.indptr).min(initial=0)) for corpus in (train, valid))
            most = _compared(train, valid)
            compared = [scores.best(most) if most and scores.is_full else scores for scores in together.scores]
            found = fit_weights(compared, valid.truth, self.optimise, least)
            shares = found.weights
            self.shares = self._by_training(shares)
            run.log("mixing", {"parts": self.parts, **found.log(self.optimise)})
        return HeldOut(valid.truth, together.mixed(shares))

    def _by_training(self, shares: Sequence[float]) -> list[float]:
        """The weights of the parts as weights of their trainings, which count alike."""
        times = max(1, self.folds)
        return [share / times for share in shares for _ in range(times)]

    def _held_together(self, known: Sequence[HeldPart], texts: Sequence[str]) -> Together:
        """What the parts say of held-out documents, computed as ``score`` does it wherever the parts can be asked again."""
        names, batches = self.labels.names, []
        many = len(texts) * len(names) > _SEARCHED  # a part that would score all of these labels is not asked again
        size = _texts_at_once(part.model for _, part in known if part is not None)
        for at in range(0, max(1, len(texts)), size):
            some, asked = texts[at : at + size], list[Asked]()
            for scores, part in known:
                if part is not None and (scores is None or not (scores.is_full or (many and not names_some(part.model)))):
                    asked.append(Reader(part, part.model.read(some), names))
                else:
                    assert scores is not None
                    asked.append(Said(scores.rows(at, at + size)))
            batches.append(Together.of(asked, None))
        return Together.stack(batches)

    def _training(self, numbered: tuple[int, str], train: Corpus, valid: Corpus | None, fold: int = 0) -> Training:
        """How a part is trained, by its number and name; the folds count from 1, each with another seed."""
        number, name = numbered
        kind = model_class(str(_registered(name)))
        place = f"{number}-{name.replace(':', '-')}" + (f"-{fold}" if fold else "")
        return Training(place, Part(name, kind(**self._options_of(name, kind, max(0, fold - 1)))), train, valid)

    def _take(self, part: str) -> Taken:
        """A classifier that is trained already."""
        if part in self.given:
            return Taken.of(self.given[part])
        if not Path(part).exists():
            hint = suggestion(part.partition(":")[0], list(MODELS))
            raise ConfigError(f"the part {part!r} is no model and no folder of a run; {hint}")
        return Taken.load(part)

    def start_from(self, other: Self) -> NoReturn:
        """Refuse: each part has its own way."""
        raise ConfigError("a mixture cannot go on from an earlier run; let its parts go on (train --from), and mix those")

    # -- scoring ---------------------------------------------------------------------------------------------------

    def score(self, texts: Sequence[str], k: int | None = None) -> Scores:
        """Probabilities of every label, or of the k best ones.

        With very many labels each part names some more than k candidates. Parts that can be asked about labels score those of all
        others too; in the others, a label that a part does not name counts as 0.
        """
        self.require_fitted()
        size, wanted = _texts_at_once(part.model for part in self.trained), None
        if k is not None and len(self.labels) > max(_FEW, 4 * k + _CANDIDATES):
            wanted = 4 * k + _CANDIDATES
        found = (self._mixture(texts[at : at + size], wanted) for at in range(0, max(1, len(texts)), size))
        return Scores.stack([scores if k is None else scores.best(k) for scores in found])

    def scored_labels(self) -> int:
        """What the parts score, as if no two of them named the same candidate."""
        return min(len(self.labels), sum(part.model.scored_labels() for part in self.trained) or len(self.labels))

    def kept_per_text(self) -> int:
        """What all parts keep."""
        return sum(part.model.kept_per_text() for part in self.trained)

    def _mixture(self, texts: Sequence[str], k: int | None) -> Scores:
        used = [(part, share) for part, share in zip(self.trained, self.shares, strict=True) if share > 0]
        readers = [Reader(part, part.model.read(texts), self.labels.names) for part, _ in used]
        return Together.of(readers, k).mixed([share for _, share in used])

    # -- files -----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The parts, each with all that it learned, and their weights."""
        self.require_fitted()
        return {"parts": [part.state(self.labels) for part in self.trained], "weights": self.shares}

    def restore(self, state: State) -> None:
        """Build the parts again; nothing but what was saved is needed."""
        self.trained = [Part.from_state(part, self.labels) for part in state["parts"]]
        self.shares = [float(weight) for weight in state["weights"]]
        if len(self.shares) != len(self.trained) or not (min(self.shares) >= 0 and abs(sum(self.shares) - 1) < 1e-6):
            raise ValueError("its weights do not fit its parts")

    def described_parts(self) -> list[dict[str, Any]]:
        """What each part is and how much it counts."""
        rows = zip(self.trained, self.shares, strict=True)
        return [{"name": p.name, "model": model_name(p.model), "weight": s, "options": p.model.options()} for p, s in rows]


def _compared(train: Corpus, valid: Corpus) -> int | None:
    """How many labels per document are looked at when weights are compared; None for all."""
    return _CANDIDATES if len(valid) * len(train.labels) > _SEARCHED else None


def _texts_at_once(models: Iterable[Model]) -> int:
    """How many texts some models read together, by what they keep of each until they were asked about all candidates."""
    return max(1, min(_AT_ONCE, _CELLS // max(1, sum(model.kept_per_text() for model in models))))


def _registered(part: str) -> str | None:
    """The name of the model that a part is trained as, or None for a finished run."""
    name = part.partition(":")[0]
    return name if name in MODELS else None


def _has(kind: type[Model], option: str) -> bool:
    """Whether a model takes this option."""
    return any(f.name == option and f.init for f in dataclasses.fields(kind))
