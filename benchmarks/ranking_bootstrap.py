"""Is one ranking better than another? P@k by a paired bootstrap over families of documents, from what ``neural.py --keep`` kept.

    python benchmarks/ranking_bootstrap.py FOLDER --corpus debdeps --base NAME --others NAME... [--part test] [--into FILE]

A name is that of a job with hyphens for spaces; all seeds in FOLDER are read, and P@k of a document is the mean over them. A
family is a set of near-duplicates (``families.py``): packages of one family are right or wrong together, so families are drawn.
With ``--into`` the rows are added to a file of results, under ``bootstrap_by_family``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from families import KS, ROUNDS, drawn, families_of, interval
from polytag import Corpus
from polytag.kernels.sparse_rows import contains


def hits(folder: Path, name: str, part: str) -> NDArray[np.float64]:
    """Precision at each k (documents, ks), the mean over the seeds."""
    paths = sorted(path for path in folder.glob(f"{name}-*.npz") if path.stem[len(name) + 1 :].isdigit())
    if not paths:
        raise SystemExit(f"there is no {name}-SEED.npz in {folder}; the folder is what neural.py --keep was given")
    found = []
    for path in paths:
        with np.load(path, allow_pickle=False) as kept:
            indices, indptr, best = (kept[f"{part}_{key}"] for key in ("truth_indices", "truth_indptr", "best"))
            truth = csr_array(
                (np.ones(len(indices), np.float32), indices, indptr), shape=(len(best), int(kept[f"{part}_labels"]))
            )
        table = contains(truth, best)
        found.append(np.stack([table[:, :k].mean(axis=1) for k in KS], axis=1))
    mean: NDArray[np.float64] = np.mean(found, axis=0)
    return mean


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="debdeps")
    parser.add_argument("--base", required=True)
    parser.add_argument("--others", nargs="+", required=True)
    parser.add_argument("--part", default="test", choices=("valid", "test"))
    parser.add_argument("--similar", type=float, default=0.5)
    parser.add_argument("--into", type=Path)
    told = parser.parse_args()
    families = families_of(Corpus.read(told.data / told.corpus / f"{told.part}.jsonl.xz").texts, told.similar)
    base = hits(told.folder, told.base, told.part)
    rows: list[dict[str, Any]] = []
    for name in told.others:
        gap = hits(told.folder, name, told.part) - base
        row: dict[str, Any] = {
            "base": told.base,
            "other": name,
            "part": told.part,
            "rounds": ROUNDS,
            "families": len(set(families)),
        }
        row["difference"] = [round(float(value), 5) for value in gap.mean(axis=0)]
        row |= {"interval_families": interval(drawn(gap, families)), "interval_documents": interval(drawn(gap, None))}
        rows.append(row)
        print(json.dumps(row), flush=True)
    if told.into:
        result = json.loads(told.into.read_text(encoding="utf-8"))
        same = [(row["base"], row["other"], row["part"]) for row in rows]
        old = [row for row in result.get("bootstrap_by_family", []) if (row["base"], row["other"], row["part"]) not in same]
        result["bootstrap_by_family"] = old + rows
        told.into.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
