"""Is one model better than another? A paired bootstrap over documents, from what ``neural.py --keep`` kept.

    python benchmarks/bootstrap.py FOLDER aapd-bert aapd-laco aapd-laco-plcp [--part test] [--rule paper] [--out FILE]

The first name is the baseline of the others; all seeds of a name are read. ``--rule`` is the decision: ``polytag`` (the default),
``paper`` (the decoded sets, or 0.5 for a model that decodes none), or one of the job's ``decisions`` by name. Documents are
resampled with replacement, the same ones for both models and all seeds, by ``polytag.metrics.paired_bootstrap``. The difference
of each metric is the mean over the seeds. The interval holds the middle 95 % of the differences. It shows the variance over
documents; the differences of the single seeds, which are reported too, show the variance over seeds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from polytag.metrics.bootstrap import paired_bootstrap
from polytag.metrics.of_sets import macro_f1, micro_f1, subset_accuracy

Sets = tuple[csr_array, csr_array]  # what was decided, what is true
OWN = "decided"  # the name of Polytag's own decision in a file of sets
PAPER = ("decoded", "0.5")  # how the papers decide: the generated set, else one fixed threshold
METRICS = {"micro_f1": micro_f1, "macro_f1": macro_f1, "subset_accuracy": subset_accuracy}


def keep(path: Path, parts: dict[str, tuple[csr_array, dict[str, csr_array]]], best: dict[str, NDArray[np.int32]]) -> None:
    """Write the truth of some parts of a corpus, the label sets that every rule decides, and the best labels; plain arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    for part, (truth, by_rule) in parts.items():
        for name, sets in {"truth": truth, **by_rule}.items():
            arrays[f"{part}_{name}_indices"], arrays[f"{part}_{name}_indptr"] = sets.indices, sets.indptr
        arrays[f"{part}_labels"], arrays[f"{part}_best"] = np.array(truth.shape[1]), best[part]
    np.savez_compressed(path, **arrays)


def kept(path: Path, part: str, rule: str = OWN) -> Sets:
    """Read the label sets of one rule, and the truth."""
    with np.load(path, allow_pickle=False) as found:
        if f"{part}_labels" not in found:
            raise SystemExit(f"{path} has no sets of the part {part!r}; it was made without --test")
        if rule == "paper":
            rule = next((name for name in PAPER if f"{part}_{name}_indptr" in found), PAPER[-1])
        if f"{part}_{rule}_indptr" not in found:
            raise SystemExit(f"{path} has no sets by {rule!r}; name the rule in the job's decisions")
        width = int(found[f"{part}_labels"])
        pairs = [(found[f"{part}_{name}_indices"], found[f"{part}_{name}_indptr"]) for name in (rule, "truth")]
    decided, truth = (csr_array((np.ones(len(i), np.float32), i, p), shape=(len(p) - 1, width)) for i, p in pairs)
    return decided, truth


def compare(base: list[Sets], other: list[Sets], draws: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """The other model's metrics minus the first one's: on all documents, by seed, and over drawn documents."""
    truth = base[0][1]
    if any(abs(one[1] - truth).nnz for one in (*base, *other)):
        raise SystemExit("these sets are not of the same documents; compare runs on one corpus")
    first, second = ([decided for decided, _ in sets] for sets in (base, other))
    found: dict[str, Any] = {}
    for name, metric in METRICS.items():
        result = paired_bootstrap(truth, second, first, name, draws, seed)
        found[name] = {"difference": result.difference, "interval_95": [result.low, result.high], "p": result.p}
        found[name] |= {"base_by_seed": [metric(truth, sets) for sets in first]}
        found[name] |= {"other_by_seed": [metric(truth, sets) for sets in second]}
    return found


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("base")
    parser.add_argument("others", nargs="+")
    parser.add_argument("--part", default="test", choices=("valid", "test"))
    parser.add_argument("--rule", default="polytag", help="polytag, paper, or a rule of the job's decisions")
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()

    def read(name: str) -> list[Sets]:
        paths = sorted(path for path in told.folder.glob(f"{name}-*.npz") if path.stem[len(name) + 1 :].isdigit())
        if not paths:
            raise SystemExit(f"there is no {name}-SEED.npz in {told.folder}; the folder is what neural.py --keep was given")
        return [kept(path, told.part, OWN if told.rule == "polytag" else told.rule) for path in paths]

    result = []
    for other in told.others:
        row = {"base": told.base, "other": other, "part": told.part, "rule": told.rule, "draws": told.draws}
        row |= compare(read(told.base), read(other), told.draws)
        result.append(row)
        for name in METRICS:
            low, high = row[name]["interval_95"]
            print(f"{other} - {told.base} {name} {row[name]['difference']:+.4f} [{low:+.4f}, {high:+.4f}]", flush=True)
    if told.out:
        told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
