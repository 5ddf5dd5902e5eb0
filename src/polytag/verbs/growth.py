"""``polytag curve`` as functions: train on more and more documents, and extrapolate to what further ones would buy."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polytag.analysis.power_law import (
    EXPONENTS,
    CurvePoint,
    Estimate,
    Gain,
    HeldBack,
    LabelGain,
    LearningCurve,
    MetricCurve,
    PowerLaw,
    fit_power_law,
)
from polytag.classifier import Classifier
from polytag.config.recipe import Recipe
from polytag.corpus import Corpus
from polytag.errors import ConfigError, DataError
from polytag.metrics.of_sets import per_label, set_metrics
from polytag.run import Run

log = logging.getLogger(__name__)
Floats: TypeAlias = NDArray[np.float64]
METRICS = ("micro_f1", "macro_f1", "subset_accuracy")
_LEAST = 4  # sizes that a curve needs
_FEWEST = 20  # training documents of the smallest size
_RATIO = 0.65  # each size is this share of the next larger one, if there are enough documents
_SUPPORT = 5.0  # true documents in a hold-out below which no gain of a label is estimated
_DRAWN_CELLS = 40_000_000


@dataclass(frozen=True)
class CurvePlan:
    """How a curve is measured: number of sizes and seeds, share of documents to test on, and the time it may take."""

    sizes: int = 7
    seeds: int = 3
    test_share: float = 0.2
    minutes: float = 10.0
    more: int = 100

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.sizes < _LEAST:
            raise ConfigError(f"a curve needs {_LEAST} sizes or more, not {self.sizes}")
        if self.seeds < 2:
            raise ConfigError(f"a curve needs two seeds or more for its interval, not {self.seeds}")
        if not 0 < self.test_share < 1:
            raise ConfigError(f"the share of test documents is {self.test_share:g}; it must be between 0 and 1")
        if self.more < 1:
            raise ConfigError(f"the number of further documents is {self.more}; it must be 1 or more")


def corpus_files(path: Path) -> tuple[Path, Path | None]:
    """The training documents and the label file: the path itself, or what a corpus folder has."""
    if not path.is_dir():
        return path, None
    train, labels = (sorted(path.glob(f"{name}.*")) for name in ("train", "labels"))
    if len(train) != 1:
        raise DataError(f"{path}: {len(train) or 'no'} files named train.*; a corpus folder has one, or name a file")
    return train[0], labels[0] if len(labels) == 1 else None


class Measured(NamedTuple):
    """Values of all metrics (sizes, seeds, metrics), F1 of all labels (sizes, seeds, labels), and test support of labels."""

    sizes: list[int]
    metrics: Floats
    labels: Floats
    support: Floats
    test_documents: int


def learning_curve(recipe: Recipe, corpus: Corpus, plan: CurvePlan | None = None, test: Corpus | None = None) -> LearningCurve:
    """Measure the learning curve of a model on a corpus and extrapolate it.

    Every seed holds out its own documents, unless ``test`` is given. Its training sets are nested. ``gains`` start from all
    documents of the corpus, those that were held out included.
    """
    plan, start = plan or CurvePlan(), time.monotonic()
    corpus.require_trainable()
    found = measure(recipe, corpus, plan, test)
    curves = tuple(_metric_curve(name, found, at, len(corpus), plan.more) for at, name in enumerate(METRICS))
    labels, silent = label_gains(found, corpus, plan.more)
    return LearningCurve(
        model=recipe.model, documents=len(corpus), test_documents=found.test_documents, seeds=plan.seeds,
        seconds=time.monotonic() - start, metrics=curves, more=plan.more, labels=labels, labels_without_estimate=silent,
    )  # fmt: skip


# -- measuring ---------------------------------------------------------------------------------------------------------


def curve_sizes(documents: int, count: int) -> list[int]:
    """Geometric numbers of documents up to all of them, at least 20 each."""
    if documents < 2 * _FEWEST:
        raise DataError(f"a learning curve needs {2 * _FEWEST} training documents or more, not {documents}")
    ratio = max(_RATIO, (_FEWEST / documents) ** (1 / (count - 1)))
    sizes = sorted({max(_FEWEST, round(documents * ratio**step)) for step in range(count)})
    if len(sizes) < _LEAST:
        raise DataError(f"{documents} training documents give only {len(sizes)} different sizes; a curve needs {_LEAST}")
    return sizes


def measure(recipe: Recipe, corpus: Corpus, plan: CurvePlan, test: Corpus | None = None) -> Measured:
    """Train and evaluate every size with every seed, smallest size first, until the time is over."""
    parts = [_divided(corpus, test, plan.test_share, recipe.seed + seed) for seed in range(plan.seeds)]
    labels = corpus.labels if test is None else corpus.labels.union(test.labels)
    parts = [(train.with_labels(labels), held.with_labels(labels)) for train, held in parts]
    sizes = curve_sizes(min(len(train) for train, _ in parts), plan.sizes)
    metrics, own = np.zeros((len(sizes), plan.seeds, len(METRICS))), np.zeros((len(sizes), plan.seeds, len(labels)))
    done = 0
    for at, seed in Run().track(list(_within(sizes, plan)), "training on more documents"):
        train, held = parts[seed]
        metrics[at, seed], own[at, seed] = _trained(recipe, train.subset(np.arange(sizes[at])), held, recipe.seed + seed)
        done = at + (seed == plan.seeds - 1)
    if done < _LEAST:
        raise ConfigError(f"{plan.minutes:g} minutes are enough for {done} sizes only; a curve needs {_LEAST}: give it more")
    support = np.mean([np.bincount(held.truth.indices, minlength=len(labels)) for _, held in parts], axis=0)
    return Measured(sizes[:done], metrics[:done], own[:done], support, len(parts[0][1]))


def _within(sizes: Sequence[int], plan: CurvePlan) -> Iterator[tuple[int, int]]:
    """The trainings in order; a size is begun only if it will end in time, as the size before says."""
    start = time.monotonic()
    for at, size in enumerate(sizes):
        began = time.monotonic()
        yield from ((at, seed) for seed in range(plan.seeds))
        if at + 1 < len(sizes):
            expected = (time.monotonic() - began) * sizes[at + 1] / size
            if time.monotonic() - start + expected > 60 * plan.minutes:
                log.warning("%d of %d sizes fit into %g minutes; --minutes allows more", at + 1, len(sizes), plan.minutes)
                return


def _divided(corpus: Corpus, test: Corpus | None, share: float, seed: int) -> tuple[Corpus, Corpus]:
    """Training documents in random order, and documents to test on."""
    generator = np.random.default_rng(seed)
    if test is not None:
        return corpus.subset(generator.permutation(len(corpus))), test
    train, held = corpus.split(1 - share, share, seed=seed, by="random" if corpus.groups is None else "group")
    return train.subset(generator.permutation(len(train))), held


def _trained(recipe: Recipe, train: Corpus, held: Corpus, seed: int) -> tuple[list[float], Floats]:
    """The metrics and every label's F1 of one training."""
    found = Classifier(replace(recipe, seed=seed)).fit(train).outcome(held)
    metrics = set_metrics(found.truth, found.predicted)
    return [metrics[name] for name in METRICS], per_label(found.truth, found.predicted).f1


# -- extrapolating -----------------------------------------------------------------------------------------------------


def _metric_curve(name: str, found: Measured, at: int, documents: int, more: int) -> MetricCurve:
    values = found.metrics[:, :, [at]]
    law = fit_power_law(found.sizes, values)
    points = tuple(
        CurvePoint(size, float(row.mean()), tuple(row.tolist())) for size, row in zip(found.sizes, values[:, :, 0], strict=True)
    )
    ahead = np.unique(np.geomspace(found.sizes[0], max(4 * documents, documents + more), 40).round().astype(int)).tolist()
    gains = tuple(_gain(law, documents, step) for step in sorted({more, documents, 3 * documents}))
    fitted, now, limit = tuple(_estimate(law, n) for n in ahead), _estimate(law, documents), _estimate(law, np.inf)
    return MetricCurve(name, points, fitted, now, limit, gains, _held_back(found.sizes, values))


def _estimate(law: PowerLaw, documents: float) -> Estimate:
    middle, low, high = law.estimate(law.at(documents))
    return Estimate(0 if np.isinf(documents) else int(documents), float(middle[0]), float(low[0]), float(high[0]))


def _gain(law: PowerLaw, documents: int, more: int) -> Gain:
    middle, low, high = law.estimate(law.at(documents + more) - law.at(documents))
    return Gain(documents, more, float(middle[0]), float(low[0]), float(high[0]))


def _held_back(sizes: Sequence[int], values: Floats) -> HeldBack | None:
    """Fit without the largest size and predict it; None if too few sizes are left."""
    if len(sizes) <= _LEAST:
        return None
    law = fit_power_law(sizes[:-1], values[:-1])
    middle, low, high = (float(bound[0]) for bound in law.estimate(law.measured(sizes[-1])))
    measured = float(values[-1].mean())
    return HeldBack(sizes[-1], measured, middle, low, high, low <= measured <= high)


def label_gains(found: Measured, corpus: Corpus, more: int, draws: int = 400) -> tuple[tuple[LabelGain, ...], int]:
    """What more documents would add to every label's F1, largest first, and how many labels have too few to say."""
    enough = np.flatnonzero(found.support >= _SUPPORT)
    rows: list[LabelGain] = []
    counts = np.bincount(corpus.truth.indices, minlength=len(found.support))
    n, seeds = len(corpus), found.labels.shape[1]
    names = corpus.labels.names
    for part in np.array_split(enough, max(1, len(enough) * draws * len(EXPONENTS) // _DRAWN_CELLS)):
        noise = label_noise(found.support[part], seeds)
        law = fit_power_law(found.sizes, found.labels[:, :, part], noise=noise, draws=draws)
        now, later = law.at(n), law.at(n + more)
        gain, low, high = law.estimate(later - now)
        value = law.estimate(now)[0]
        measured = found.labels[-1][:, part].mean(axis=0)
        columns = (counts[part], found.support[part], measured, value, gain, low, high)
        rows += [LabelGain(names[j], int(c), *map(float, rest)) for j, c, *rest in zip(part.tolist(), *columns, strict=True)]
    rows.sort(key=lambda row: (-row.gain, row.label))
    return tuple(rows), int((counts > 0).sum()) - len(rows)


def label_noise(support: Floats, seeds: int) -> Floats:
    """The standard deviation of a label's mean F1 that its number of true test documents allows at best."""
    return np.sqrt(0.25 / (np.maximum(support, 1) * seeds))
