"""Is one model better than another? A paired bootstrap over documents, from what ``neural.py --keep`` kept.

    python benchmarks/bootstrap.py FOLDER aapd-bert aapd-laco aapd-laco-plcp [--part test] [--draws 10000] [--out FILE]

The first name is the baseline of the others; all seeds of a name are read. Documents are resampled with replacement, the same
ones for both models and all seeds, by ``polytag.metrics.paired_bootstrap``. The difference of micro-F1 and macro-F1 is the mean
over the seeds. The interval holds the middle 95 % of the differences. It shows the variance over documents; the differences of
the single seeds, which are reported too, show the variance over seeds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from polytag.metrics.bootstrap import paired_bootstrap
from polytag.metrics.of_sets import macro_f1, micro_f1

Sets = tuple[csr_array, csr_array]  # what was decided, what is true


def keep(path: Path, parts: dict[str, Sets]) -> None:
    """Write label sets, decided and true, of some parts of a corpus; plain arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    for part, both in parts.items():
        for name, sets in zip(("decided", "truth"), both, strict=True):
            arrays[f"{part}_{name}_indices"], arrays[f"{part}_{name}_indptr"] = sets.indices, sets.indptr
        arrays[f"{part}_labels"] = np.array(both[1].shape[1])
    np.savez_compressed(path, **arrays)


def kept(path: Path, part: str) -> Sets:
    """Read label sets again."""
    with np.load(path, allow_pickle=False) as found:
        if f"{part}_labels" not in found:
            raise SystemExit(f"{path} has no sets of the part {part!r}; it was made without --test")
        width = int(found[f"{part}_labels"])
        pairs = [(found[f"{part}_{name}_indices"], found[f"{part}_{name}_indptr"]) for name in ("decided", "truth")]
    decided, truth = (csr_array((np.ones(len(i), np.float32), i, p), shape=(len(p) - 1, width)) for i, p in pairs)
    return decided, truth


def compare(base: list[Sets], other: list[Sets], draws: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """The other model's micro-F1 and macro-F1 minus the first one's: on all documents, by seed, and over drawn documents."""
    truth = base[0][1]
    if any(abs(one[1] - truth).nnz for one in (*base, *other)):
        raise SystemExit("these sets are not of the same documents; compare runs on one corpus")
    first, second = ([decided for decided, _ in sets] for sets in (base, other))
    found: dict[str, Any] = {}
    for name, metric in (("micro_f1", micro_f1), ("macro_f1", macro_f1)):
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
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()

    def read(name: str) -> list[Sets]:
        paths = sorted(path for path in told.folder.glob(f"{name}-*.npz") if path.stem[len(name) + 1 :].isdigit())
        if not paths:
            raise SystemExit(f"there is no {name}-SEED.npz in {told.folder}; the folder is what neural.py --keep was given")
        return [kept(path, told.part) for path in paths]

    result = []
    for other in told.others:
        row = {"base": told.base, "other": other, "part": told.part, "draws": told.draws}
        row |= compare(read(told.base), read(other), told.draws)
        result.append(row)
        for name in ("micro_f1", "macro_f1"):
            low, high = row[name]["interval_95"]
            print(f"{other} - {told.base} {name} {row[name]['difference']:+.4f} [{low:+.4f}, {high:+.4f}]", flush=True)
    if told.out:
        told.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
