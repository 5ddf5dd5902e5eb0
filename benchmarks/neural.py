"""Train models with given settings and measure them: on validation while settings are chosen, on test once they are frozen.

    python benchmarks/neural.py --data DIR --jobs JOBS.json... --parallel 6 --out FILE [--only PATTERN] [--test] [--runs DIR]
    python benchmarks/neural.py --data DIR --jobs JOBS.json... --queue 1500 --out FILE    # what is pending, in 1,500 seconds

JOBS.json is a list of ``{"name": ..., "corpus": "reuters", "model": "bert", "options": {...}, "seeds": [0, 1, 2]}``. Jobs run
side by side, one process each. Validation numbers are those of the decision fitted there, and cross-fitted (thresholds from the
other four fifths); test numbers come from the same classifier, with nothing chosen on test.

With ``--runs`` every trained classifier is kept there as NAME-SEED, and ``{runs}`` and ``{seed}`` in an option stand for that
folder and the seed: so can a mixture name the runs of an earlier call. A job's ``decisions`` are further rules that its scores
are judged by: thresholds such as 0.5, ``"decoded"``, or ``"closed"`` and ``"open"`` under the label tree. Its ``variants`` are
settings that a trained model is given afterwards, and its ``extra`` names further files of training documents.

With ``--keep`` the label sets that every classifier decides, by every rule, are kept in a folder, as NAME-SEED.npz, for
``bootstrap.py``; with ``--scores`` all scores are, in half precision, to try mixtures on. ``--queue`` is described in
``job_queue.py``: rows of FILE are kept, and what they lack is trained.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import subprocess
import sys
import time
from functools import reduce
from pathlib import Path
from typing import Any

from bootstrap import OWN, keep
from job_queue import Ledger, run_queue

KEPT = ("micro_f1", "macro_f1", "subset_accuracy", "micro_precision", "micro_recall", "p@1", "p@3", "p@5",
        "hamming_loss", "samples_f1", "calibration_error")  # fmt: skip
RANKED = tuple(f"{name}@{k}" for name in ("r", "psp") for k in (1, 3, 5))


def run_one(told: argparse.Namespace, job: dict[str, Any]) -> dict[str, Any]:
    """Train once and measure."""
    from polytag import Classifier, LabelSet
    from polytag.models.mixed import Mixed
    from polytag.run import Run

    folder = told.data / job["corpus"]
    labels = LabelSet.read(next(folder.glob("labels.jsonl*")))
    names = ("train", "valid", "test")[: 2 + told.test]
    files = {name: [name, *(job.get("extra", []) if name == "train" else [])] for name in names}
    documents = {name: _first(_read(folder, files[name], labels), told.documents) for name in names}
    classifier = Classifier(job["model"], {**filled(job.get("options", {}), told), "seed": told.seed})
    log = _Log()
    start = time.perf_counter()
    classifier.fit(documents["train"], documents["valid"], log.watching(Run()))
    row: dict[str, Any] = {
        "seed": told.seed,
        "train_seconds": time.perf_counter() - start,
        "decision": classifier.decision.report,
    }
    row |= {"by_epoch": log.values, "mixing": log.mixing, "power": log.power}
    if told.runs:
        classifier.save(run_folder(told.runs, job, told.seed))
    parts = [part.model for part in classifier.model.trained] if isinstance(classifier.model, Mixed) else [classifier.model]
    folded = isinstance(classifier.model, Mixed) and job.get("options", {}).get("folds")
    learned = folded or any(model.learns_from_valid for model in parts)  # from validation documents too: no metrics on them
    kept = {}
    for name in names[2 if learned else 1 :]:
        start = time.perf_counter()
        row[name] = _kept(classifier.evaluate(documents[name]))
        row[f"{name}_seconds"] = time.perf_counter() - start
        row[f"{name}_matching"] = _matching(classifier.model, documents[name])
        row[f"{name}_variants"] = [_varied(classifier, documents[name], options) for options in job.get("variants", [])]
        rules = job.get("decisions", [])
        if rules or told.keep or told.scores:
            scored = _Scored(classifier, documents[name])
            row[f"{name}_decisions"] = {str(rule): scored.judged(rule) for rule in rules}
            kept[name] = scored
    place = f"{job['name'].replace(' ', '-')}-{told.seed}.npz"
    if told.keep:
        best = {name: one.scores.ranked(5)[0] for name, one in kept.items()}
        keep(told.keep / place, {name: (one.corpus.truth, one.sets) for name, one in kept.items()}, best)
    if told.scores:
        _keep_scores(told.scores / place, {name: one.scores for name, one in kept.items()})
    return row


def run_folder(runs: Path, job: dict[str, Any], seed: int) -> Path:
    """Where a trained classifier is kept."""
    return runs / f"{job['name'].replace(' ', '-')}-{seed}"


def _read(folder: Path, names: list[str], labels: Any) -> Any:
    """The documents of one or several files."""
    from polytag import Corpus

    return reduce(Corpus.concat, [Corpus.read(folder / f"{name}.jsonl.xz", labels=labels) for name in names])


def filled(options: Any, told: argparse.Namespace) -> Any:
    """Options with their places for the folder of runs and the seed filled in."""
    if isinstance(options, dict):
        return {key: filled(value, told) for key, value in options.items()}
    if isinstance(options, list):
        return [filled(value, told) for value in options]
    return options.format(runs=told.runs, seed=told.seed) if isinstance(options, str) else options


def _keep_scores(path: Path, parts: dict[str, Any]) -> None:
    """Scores as sparse rows, rounded to half precision."""
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    for name, scores in parts.items():
        matrix = scores.matrix
        arrays |= {f"{name}_data": matrix.data.astype(np.float16), f"{name}_indices": matrix.indices}
        arrays[f"{name}_indptr"] = matrix.indptr
    np.savez_compressed(path, **arrays)


def _kept(found: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in found.items() if key in KEPT or key in RANKED}


def _first(corpus: Any, most: int) -> Any:
    """Some documents, to see whether jobs run at all."""
    import numpy as np

    return corpus.subset(np.random.default_rng(0).permutation(len(corpus))[:most]) if most else corpus


def _matching(model: Any, corpus: Any) -> dict[str, float]:
    """P@k of the clusters that a model over clusters finds, the first part of X-BERT's table 2; nothing for other models."""
    from polytag.metrics.of_rankings import ranking_metrics

    if not hasattr(model, "matched"):
        return {}
    scores, truth = model.matched(corpus.texts, corpus.truth)
    return {key: value for key, value in ranking_metrics(truth, scores).items() if key in KEPT}


class _Scored:
    """The scores of one part of a corpus, and what several rules make of them."""

    def __init__(self, classifier: Any, corpus: Any) -> None:
        self.classifier, self.corpus = classifier, corpus
        self.scores = classifier.scores(corpus.texts)
        self.sets = {OWN: classifier.decision.decide(self.scores, classifier.labels)}

    def judged(self, rule: str | float) -> dict[str, float]:
        """The metrics of a rule; at a fixed threshold there is no least number of labels, as in the papers."""
        import numpy as np

        from polytag.decision.decision import Decision
        from polytag.metrics.of_sets import evaluate

        own = self.classifier.decision
        if rule in ("closed", "open"):
            decision = dataclasses.replace(own, closed=rule == "closed")
        elif rule == "decoded":
            decision = Decision("decoded", own.optimise)
        else:
            decision = Decision("threshold", own.optimise, thresholds=np.full(1, rule, dtype=np.float32))
        sets = self.sets[str(rule)] = decision.decide(self.scores, self.classifier.labels)
        found = _kept(evaluate(self.corpus.truth, sets, self.scores))
        if rule in ("closed", "open"):
            wider = np.diff(self.classifier.labels.close(sets).indptr)
            found["documents_that_violate_the_tree"] = float((wider > np.diff(sets.indptr)).sum())
        return found


def _varied(classifier: Any, corpus: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What a trained model does with other settings, such as another beam."""
    from polytag.models.base.neural_model import NeuralModel

    before = {name: classifier.model.options()[name] for name in options}
    classifier.model.change(options)
    start = time.perf_counter()
    found: dict[str, Any] = {"options": options, **_kept(classifier.evaluate(corpus)), "seconds": time.perf_counter() - start}
    if "beam" in options and isinstance(classifier.model, NeuralModel) and classifier.model._decoded_width():
        found["decoded"] = _Scored(classifier, corpus).judged("decoded")
    classifier.model.change(before)
    return found


class _Log:
    """What a training says about itself: the metric on validation documents by epoch, and how a mixture was weighed."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.mixing: Any = None
        self.power: Any = None

    def watching(self, run: Any) -> Any:
        """The run, whose log is read along."""
        told = run.log

        def log(event: str, values: dict[str, Any]) -> None:
            if event == "validation":
                self.values.append(values)
            if event == "power":
                self.power = values
            if event == "mixing":
                self.mixing = values
            told(event, values)

        run.log = log
        return run


def run_job(told: argparse.Namespace, job: dict[str, Any], seed: int) -> dict[str, Any]:
    """One job in a process of its own; what it prints last is its row."""
    command = [sys.executable, __file__, "--data", str(told.data), "--one", json.dumps(job), "--seed", str(seed)]
    command += ["--test"] * told.test + (["--runs", str(told.runs)] if told.runs else [])
    command += (["--keep", str(told.keep)] if told.keep else []) + (["--scores", str(told.scores)] if told.scores else [])
    command += ["--documents", str(told.documents)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"seed": seed, "error": done.stderr[-2000:]}
    row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def summary(rows: list[dict[str, Any]], part: str) -> dict[str, list[float]]:
    """Mean and standard deviation over seeds."""
    import numpy as np

    found = [row[part] for row in rows if part in row]
    keys = found[0] if found else {}
    return {key: [float(np.mean([r[key] for r in found])), float(np.std([r[key] for r in found]))] for key in keys}


def main() -> None:
    """Run all jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--jobs", type=Path, nargs="+", default=[])
    parser.add_argument("--only", default="", help="run the jobs alone in whose name this pattern is found")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--test", action="store_true", help="open the test documents too")
    parser.add_argument("--runs", type=Path, help="keep the trained classifiers in this folder")
    parser.add_argument("--keep", type=Path, help="keep the decided label sets in this folder")
    parser.add_argument("--scores", type=Path, help="keep all scores in this folder")
    parser.add_argument("--queue", type=float, help="keep the rows of --out, and train what is pending for this many seconds")
    parser.add_argument("--documents", type=int, default=0, help="number of documents of each split, to try the jobs; 0 = all")
    parser.add_argument("--one", help="a job as JSON, run in this process")
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    if told.one:
        print(json.dumps(run_one(told, json.loads(told.one))))
        return
    files = [[job for job in json.loads(path.read_text()) if re.search(told.only, job["name"])] for path in told.jobs]
    left = run_queue(
        files,
        Ledger(told.out, resume=told.queue is not None),
        lambda job, seed: run_job(told, job, seed),
        lambda rows: {part: summary(rows, part) for part in ("valid", "test")},
        _print,
        parallel=told.parallel,
        seconds=told.queue or 0.0,
        run_of=lambda job, seed: run_folder(told.runs, job, seed) if told.runs else None,
    )
    for name, seed in left:
        print(f"{name}, seed {seed}: no time left", flush=True)


def _print(job: dict[str, Any]) -> None:
    errors = [row["error"][-300:] for row in job["rows"] if "error" in row]
    crossed = [max(row["decision"].get("cross_fitted", {}).values(), default=0) for row in job["rows"] if "error" not in row]
    seconds = [round(row["train_seconds"]) for row in job["rows"] if "error" not in row]
    for part, found in job["summary"].items():
        if found:
            words = " ".join(f"{key}={found[key][0]:.4f}±{found[key][1]:.4f}" for key in KEPT[:4])
            print(f"{job['name']} {part} {words}", "cross", [round(v, 4) for v in crossed], "s", seconds, flush=True)
    for part in ("valid", "test"):
        for rule in job.get("decisions", []):
            judged = [row[f"{part}_decisions"][str(rule)] for row in job["rows"] if f"{part}_decisions" in row]
            if judged:
                words = " ".join(f"{key}={sum(row[key] for row in judged) / len(judged):.4f}" for key in KEPT[:3])
                print(f"{job['name']} {part} by {rule}: {words}", flush=True)
    for error in errors:
        print(job["name"], "ERROR", error, flush=True)


if __name__ == "__main__":
    main()
