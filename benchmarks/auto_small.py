"""Which rule mixes best when there are few documents: rules compared on draws of 50 to 1,000 training documents.

    python benchmarks/auto_small.py --data DIR [--corpora NAMES] [--sizes 50,100,200] [--draws 4] [--keep FOLDER] [--out FILE]
    python benchmarks/auto_small.py ... --sizes 250,500,1000 --draws 6,6,3 --pool 2500    # encodes each of 2,500 documents once

Documents are drawn from the training part, or from a pool of it. The models that ``auto`` mixes are trained once per draw; their
out-of-fold and validation scores are kept in FOLDER. Then each rule chooses from the out-of-fold scores alone, and is evaluated
on at most 1,000 validation documents. No test document is used. Reuters was left out at first, because the defect was seen on its
test documents. The ``gap`` of a rule is its micro-F1 minus that of the model that is best on validation, which nobody knows
beforehand. ``below`` counts the draws in which the 95 % interval of that difference, by ``paired_bootstrap``, is below zero.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from auto import corpora
from polytag import Corpus, LabelSet
from polytag.auto import choice
from polytag.auto.choice import Goal, Judged, Limits, choose
from polytag.auto.facts import look_at
from polytag.auto.ladder import Candidate, ladder
from polytag.auto.lead import Caution
from polytag.auto.trial import Trained
from polytag.decision.decision import Decision
from polytag.metrics.bootstrap import paired_bootstrap
from polytag.metrics.of_sets import micro_f1
from polytag.models.embed import Embed
from polytag.models.mixture.part import Part
from polytag.models.mixture.weights import Weighed, fit_weights, mix
from polytag.models.model import model_class
from polytag.run import Run
from polytag.scores import Scores

CORPORA = "rcv1-small,sample,debtags,aapd-even,debtags-de"
MIXED = ("br", "lp", "cc", "embed")
EVALUATED = 1_000  # validation documents
NEVER = 1e9


RULES = {
    "the best on the hold-out, alone": Caution(0, 0, NEVER),
    "a mixture, as before": Caution(0, 0, 0),
    "as before, if better by 1 error": Caution(0, 0, 1),
    "shrunk towards the best, prior 200": Caution(0, 200, 0),
    "lead 2, alone": Caution(2, 0, NEVER),
    "lead 2, not shrunk": Caution(2, 0, 0),
    "lead 2, prior 100": Caution(2, 100, 0),
    "lead 2, prior 200": Caution(2, 200, 0),
    "lead 1, prior 200, better by 0.5 errors": Caution(1, 200, 0.5),
    "lead 2, prior 200, better by 0.5 errors": Caution(2, 200, 0.5),
    "lead 2, prior 200, better by 1 error": Caution(2, 200, 1),
    "lead 2, prior 200, better by 1.5 errors": Caution(2, 200, 1.5),
    "lead 2, prior 200, better by 2 errors": Caution(2, 200, 2),
    "lead 2, prior 500, better by 1 error": Caution(2, 500, 1),
}
_known: dict[tuple[str, ...], Any] = {}


def _once(key: str, parts: Sequence[Scores], made: Callable[[], Any]) -> Any:
    """A result for scores that several rules ask for."""
    place = (key, *(sha256(part.matrix.data.tobytes()).hexdigest() for part in parts))
    if place not in _known:
        _known[place] = made()
    return _known[place]


class KnownGoal(Goal):
    """A goal that evaluates the same scores once."""

    def judge(self, scores: Scores, rows: NDArray[np.int64]) -> Judged:
        """The metric and the sets of held-out scores."""
        found: Judged = _once("judged", [scores], lambda: super(KnownGoal, self).judge(scores, rows))
        return found


def fit_weights_once(parts: Sequence[Scores], truth: csr_array, metric: str, least: int) -> Weighed:
    """Weights, found once for the same scores."""
    found: Weighed = _once("weights", parts, lambda: fit_weights(parts, truth, metric, least))
    return found


@dataclass(frozen=True)
class Draw:
    """A draw: the goal on its documents, what was trained on them, and the scores and labels of the validation documents."""

    corpus: str
    size: int
    goal: Goal
    trained: list[Trained]
    new: dict[str, Scores]
    truth: csr_array

    @classmethod
    def load(cls, corpus: str, size: int, path: Path) -> Draw:
        """What ``train`` kept."""
        with np.load(path, allow_pickle=False) as kept:
            names = [name for name in MIXED if f"held_{name}" in kept]
            tables = {name: np.asarray(kept[name], np.float32) for name in kept}
        labels = LabelSet([str(number) for number in range(tables["truth"].shape[1])])
        truth = csr_array(tables["truth"])
        scores = {name: Scores.full(tables[name], labels.names, "probability") for name in tables if "_" in name}
        goal = KnownGoal(labels, truth, "micro_f1", False, int(np.diff(truth.indptr).min()))
        trained = [_trained(name, scores[f"held_{name}"]) for name in names]
        return cls(corpus, size, goal, trained, {name: scores[f"new_{name}"] for name in names}, csr_array(tables["valid"]))

    def sets(self, parts: Sequence[str], weights: Sequence[float]) -> csr_array:
        """The label sets of the validation documents, thresholds from the out-of-fold scores."""
        held = mix([one.held for part in parts for one in self.trained if one.candidate.name == part], weights)
        decision = Decision("auto", "micro_f1", self.goal.least).fit(held, self.goal.truth, self.goal.labels)
        return decision.decide(mix([self.new[part] for part in parts], weights), self.goal.labels)


def _trained(name: str, held: Scores) -> Trained:
    candidate = Candidate(name, name, "vectors" if name == "embed" else "linear", 1.0)
    return Trained(candidate, Part(name, model_class(name)()), held, np.arange(len(held)), 0, 0.0, 1.0, 0.0)


def encode_once() -> None:
    """Keep the vectors of texts, which several draws share."""
    known: dict[str, NDArray[np.float32]] = {}
    made = Embed._vectors

    def vectors(model: Embed, texts: Sequence[str], run: Run | None) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(new, made(model, new, run), strict=True) if new else ())
        return np.stack([known[text] for text in texts])

    Embed._vectors = vectors  # type: ignore[method-assign, assignment]


def train(path: Path, drawn: Corpus, valid: Corpus) -> None:
    """Train the models on drawn documents, and keep their scores."""
    found: dict[str, NDArray[np.float32]] = {"truth": drawn.truth.toarray(), "valid": valid.truth.toarray()}
    for name in [one.name for one in ladder(look_at(drawn)) if one.name in MIXED]:
        part = Part(name, model_class(name).build({"seed": 0, "optimise": "micro_f1"}))
        held = part.model.fit(drawn, None, Run(None, progress=False))
        if held is None:
            continue
        part.calibrate(held)
        rows = np.arange(len(drawn)) if held.rows is None else held.rows
        table = part.probabilities(held.scores, drawn.labels.names).matrix.toarray()
        found[f"held_{name}"] = table[np.argsort(rows)]
        found[f"new_{name}"] = part.probabilities(part.model.score(valid.texts), drawn.labels.names).matrix.toarray()
    np.savez(path, **found)  # type: ignore[arg-type]


def draws(told: argparse.Namespace) -> Iterator[Draw]:
    """All draws, trained if they are not kept."""
    for corpus in told.corpora.split(","):
        whole, valid = corpora(told.data, corpus, 0)[:2]
        assert valid is not None
        valid = valid.with_labels(whole.labels)
        if len(valid) > EVALUATED:
            valid = valid.subset(np.sort(np.random.default_rng(0).permutation(len(valid))[:EVALUATED]))
        pool = np.random.default_rng(5).permutation(len(whole))[: told.pool] if told.pool else np.arange(len(whole))
        sizes, counts = (list(map(int, given.split(","))) for given in (told.sizes, told.draws))
        for size, count in zip(sizes, counts if len(counts) > 1 else counts * len(sizes), strict=True):
            for number in range(count):
                path = told.keep / f"{corpus}-{size}-{number}.npz"
                if not path.exists():
                    rows = np.random.default_rng(100 + number).permutation(pool)[:size]
                    train(path, whole.subset(np.sort(rows)), valid)
                yield Draw.load(corpus, size, path)


def chosen(draw: Draw, rule: Caution) -> csr_array:
    """The sets of what a rule chooses."""
    found = choose(draw.trained, draw.goal, Limits(), rule)
    return draw.sets([one.candidate.name for one in found.parts], found.weights)


def compared(draw: Draw) -> dict[str, Any]:
    """The micro-F1 of every model alone, and of every rule with its difference from the best model."""
    alone = {one.candidate.name: draw.sets([one.candidate.name], [1.0]) for one in draw.trained}
    values = {name: float(micro_f1(draw.truth, sets)) for name, sets in alone.items()}
    best = max(values, key=lambda name: values[name])
    row: dict[str, Any] = {"corpus": draw.corpus, "documents": draw.size, "alone": values, "best": best, "rules": {}}
    for name, rule in RULES.items():
        found = paired_bootstrap(draw.truth, chosen(draw, rule), alone[best], "micro_f1", 400)
        row["rules"][name] = [round(value, 5) for value in (found.difference, found.low, found.high)]
    return row


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each rule: the mean gap, the smallest one, the number of draws below the best model, and the gap by size and corpus."""
    found: dict[str, Any] = {}
    for rule in RULES:
        gaps = np.array([row["rules"][rule][0] for row in rows])
        below = sum(row["rules"][rule][2] < 0 for row in rows)
        entry: dict[str, Any] = {"gap": round(float(gaps.mean()), 4), "least": round(float(gaps.min()), 4), "below": below}
        for key in ("documents", "corpus"):
            groups = dict.fromkeys(row[key] for row in rows)
            mean = {str(one): gaps[[row[key] == one for row in rows]].mean() for one in groups}
            entry[f"gap by {key}"] = {one: round(float(value), 4) for one, value in mean.items()}
        found[rule] = entry
    return found


def main() -> None:
    """Compare the rules on all draws; the file keeps the results of other sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpora", default=CORPORA)
    parser.add_argument("--sizes", default="50,100,200")
    parser.add_argument("--draws", default="4", help="number of draws, or one for every size")
    parser.add_argument("--pool", type=int, default=0, help="draw from this many training documents; 0 = from all")
    parser.add_argument("--keep", type=Path, default=Path("runs/auto-small"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/auto_small.json"))
    told = parser.parse_args()
    told.keep.mkdir(parents=True, exist_ok=True)
    vars(choice)["fit_weights"] = fit_weights_once  # the rules differ in what they make of them
    if told.pool:
        encode_once()
    rows = []
    for draw in draws(told):
        _known.clear()
        rows.append(compared(draw))
    result: dict[str, Any] = json.loads(told.out.read_text()) if told.out.exists() else {}
    wins = {name: sum(row["best"] == name for row in rows) for name in MIXED}
    name = told.sizes + (f" of {told.pool}" if told.pool else "")
    result[name] = {"draws": len(rows), "best alone": wins, "rules": summary(rows), "rows": rows}
    told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
