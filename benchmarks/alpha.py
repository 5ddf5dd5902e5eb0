"""The mixture of two models by its weight and by all four metrics (BERT paper, figure 4), from scores that neural.py kept.

    python benchmarks/alpha.py SCORES SETS rcv1-small-bert-sgm rcv1-small-bert --out FILE [--part valid] [--picture FILE]

SCORES and SETS are the folders of ``neural.py --scores`` and ``--keep``. ``alpha`` is the weight of the first model. The label
sets are those at 0.5, as in the paper; the log of ``mixed`` has micro-F1 with a fitted threshold. Values are means over seeds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.sparse import csr_array

from bootstrap import kept
from polytag.metrics.of_sets import set_metrics

METRICS = ("hamming_accuracy", "subset_accuracy", "micro_f1", "macro_f1")
ALPHAS = [step / 20 for step in range(21)]


def scores_of(path: Path, part: str, shape: tuple[int, int]) -> csr_array:
    """The probabilities of one run."""
    with np.load(path, allow_pickle=False) as found:
        data, indices, indptr = (found[f"{part}_{name}"] for name in ("data", "indices", "indptr"))
    return csr_array((data.astype(np.float32), indices, indptr), shape=shape)


def sweep(first: csr_array, second: csr_array, truth: csr_array, threshold: float = 0.5) -> dict[str, list[float]]:
    """Every metric of the mixed sets, by alpha."""
    found: dict[str, list[float]] = {name: [] for name in METRICS}
    for alpha in ALPHAS:
        mixed = csr_array(alpha * first + (1 - alpha) * second)
        mixed.data = (mixed.data >= threshold).astype(np.float32)
        mixed.eliminate_zeros()
        values = set_metrics(truth, mixed)
        for name in METRICS:
            found[name].append(values[name])
    return found


def draw(curves: dict[str, list[float]], names: tuple[str, str], path: Path) -> None:
    """One curve for each metric, from its best value."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, values in curves.items():
        axes.plot(ALPHAS, np.array(values) - max(values), "o-", label=f"{name.replace('_', ' ')} (best {max(values):.3f})")
    axes.set_xlabel(f"alpha: weight of {names[0]}; the rest is {names[1]}")
    axes.set_ylabel("difference to the best")
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Sweep over every seed, average and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", type=Path)
    parser.add_argument("sets", type=Path)
    parser.add_argument("names", nargs=2)
    parser.add_argument("--part", default="valid", choices=("valid", "test"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--picture", type=Path)
    told = parser.parse_args()
    found: list[dict[str, list[float]]] = []
    for path in sorted(told.scores.glob(f"{told.names[0]}-[0-9].npz")):
        seed = path.stem[-1]
        truth = kept(told.sets / path.name, told.part)[1]
        other = told.scores / f"{told.names[1]}-{seed}.npz"
        found.append(sweep(scores_of(path, told.part, truth.shape), scores_of(other, told.part, truth.shape), truth))
    if not found:
        raise SystemExit(
            f"there is no {told.names[0]}-SEED.npz in {told.scores}; the folder is what neural.py --scores was given"
        )
    means = {name: np.mean([one[name] for one in found], axis=0).tolist() for name in METRICS}
    row: dict[str, Any] = {"names": told.names, "part": told.part, "seeds": len(found), "alpha": ALPHAS, **means}
    told.out.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    for name, values in means.items():
        print(f"{name} best {max(values):.4f} at alpha {ALPHAS[int(np.argmax(values))]:.2f}")
    if told.picture:
        draw(means, told.names, told.picture)


if __name__ == "__main__":
    main()
