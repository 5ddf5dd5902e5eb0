"""Can a mixture decide label sets better together than label by label? Three decisions, on validation documents of reuters.

    python benchmarks/neural.py --data DIR --jobs benchmarks/jobs/reuters-sets.json --keep SETS --scores SCORES --out FILE
    python benchmarks/set_decisions.py --data DIR --sets SETS --scores SCORES

``thresholds`` are Polytag's own, on the mean of the probabilities, cross-fitted. ``votes`` takes the set that most members
decide. ``mode`` takes the most probable set where each member, by itself, gives labels independent probabilities: members agree
or disagree about sets, so labels of the mixture are not independent. Candidates are the sets of the members and of the mean at
four thresholds. Every document gets at least one label. ``lp`` is trained here.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bootstrap import kept
from polytag import Classifier, Corpus, LabelSet
from polytag.decision.decision import METRICS, Decision
from polytag.scores import Scores

CORPUS, SEEDS = "reuters", range(3)
BERT, SEQTAG, SGM, COMPLETED = "bert", "seqtag", "bert-sgm", "bert-sgm,-completion"
MIXTURES: dict[str, tuple[tuple[str, ...], float]] = {  # networks, three seeds each, and the weight of lp in seeds
    "bert": ((BERT,), 0),
    "bert and seqtag": ((BERT, SEQTAG), 0),
    "bert, seqtag and lp": ((BERT, SEQTAG), 1.5),
    "bert, seqtag and bert-sgm (completion)": ((BERT, SEQTAG, COMPLETED), 0),
    "bert, seqtag, bert-sgm (completion) and lp": ((BERT, SEQTAG, COMPLETED), 2),
    "bert, bert-sgm (completion) and lp": ((BERT, COMPLETED), 1.5),
    "all and lp": ((BERT, SEQTAG, COMPLETED, SGM), 2),
}
CUTS = (0.3, 0.4, 0.5, 0.6)
LEAST = 1e-3  # a probability is no nearer to 0 or 1: networks are too sure
OUT = Path(__file__).parent / "results" / "set_decisions.json"
Table = NDArray[np.float32]
Member = tuple[Table, NDArray[np.bool_]]  # probabilities, and the sets that it decides itself


def members(told: argparse.Namespace, train: Corpus, valid: Corpus) -> dict[str, Member]:
    """What every network, and lp, say of the validation documents."""
    found = {}
    for name in (BERT, SEQTAG, SGM, COMPLETED):
        for seed in SEEDS:
            file = f"{CORPUS}-{name}-{seed}.npz"
            with np.load(told.scores / file, allow_pickle=False) as rows:
                parts = rows["valid_data"].astype(np.float32), rows["valid_indices"], rows["valid_indptr"]
            table = csr_array(parts, shape=valid.truth.shape).toarray()
            decided = table >= 0.5 if name == BERT else kept(told.sets / file, "valid", "decoded")[0].toarray() > 0
            found[f"{name}-{seed}"] = table, decided
    scores = Classifier("lp").fit(train).scores(valid.texts)
    assert scores.decoded is not None
    return {**found, "lp": (scores.matrix.toarray(), scores.decoded.toarray() > 0)}


def by_votes(some: list[Member], weights: list[float]) -> NDArray[np.bool_]:
    """The set of every document that has most votes; of equal ones that of the surer members."""
    chosen = []
    for row in range(len(some[0][0])):
        votes: dict[bytes, float] = defaultdict(float)
        for (table, sets), weight in zip(some, weights, strict=True):
            votes[sets[row].tobytes()] += weight + 1e-6 * float(table[row, sets[row]].sum())
        chosen.append(np.frombuffer(max(votes, key=lambda key: votes[key]), dtype=np.bool_))
    return np.stack(chosen)


def by_mode(some: list[Member], weights: list[float]) -> NDArray[np.bool_]:
    """The most probable of the candidate sets of every document, under the mixture of the members' products."""
    mean = _mean(some, weights)
    candidates = np.stack([*(sets for _, sets in some), *(mean >= cut for cut in CUTS)])  # (sets, documents, labels)
    worth = np.zeros(candidates.shape[:2])
    for (table, _), weight in zip(some, weights, strict=True):
        p = np.clip(table, LEAST, 1 - LEAST)
        worth += weight * np.exp(np.where(candidates, np.log(p), np.log1p(-p)).sum(axis=2))
    worth[~candidates.any(axis=2)] = 0
    return np.asarray(candidates[worth.argmax(axis=0), np.arange(len(mean))])


def _mean(some: list[Member], weights: list[float]) -> Table:
    return np.asarray(sum(weight * table for (table, _), weight in zip(some, weights, strict=True)) / sum(weights), np.float32)


def measured(truth: csr_array, sets: NDArray[np.bool_], mean: Table) -> dict[str, float]:
    """The metrics; a document without a label gets the most probable one."""
    short = np.flatnonzero(~sets.any(axis=1))
    filled = sets.copy()
    filled[short, mean[short].argmax(axis=1)] = True
    return {name: float(metric(truth, csr_array(filled.astype(np.float32)))) for name, metric in METRICS.items()}


def main() -> None:
    """Decide with every mixture in all ways, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args()
    labels = LabelSet.read(told.data / CORPUS / "labels.jsonl")
    train, valid = (Corpus.read(told.data / CORPUS / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid"))
    said, truth = members(told, train, valid), valid.truth
    rows: list[dict[str, Any]] = []
    for name, (networks, lp) in MIXTURES.items():
        names = [f"{network}-{seed}" for network in networks for seed in SEEDS] + ["lp"] * bool(lp)
        some, weights = [said[one] for one in names], [lp if one == "lp" else 1.0 for one in names]
        mean = _mean(some, weights)
        scores = Scores.full(mean, labels.names, "probability")
        cut = {metric: Decision("auto", metric, 1).fit(scores, truth, labels) for metric in ("micro_f1", "subset_accuracy")}
        ways = {f"thresholds for {key}": one.held_out_sets(scores, truth, labels).toarray() > 0 for key, one in cut.items()}
        ways |= {"votes": by_votes(some, weights), "mode": by_mode(some, weights)}
        rows.append({"name": name, **{way: measured(truth, sets, mean) for way, sets in ways.items()}})
        print(json.dumps(rows[-1]), flush=True)
    command = "python benchmarks/set_decisions.py --data DIR --sets SETS --scores SCORES"
    note = "Validation documents of reuters, one training of every seed; test was not opened."
    told.out.write_text(json.dumps({"command": command, "note": note, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
