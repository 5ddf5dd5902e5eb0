"""Maps of labels (BERT+SGM, appendix B): label vectors of a trained model in two dimensions, as a picture and as numbers.

    python benchmarks/label_maps.py --data ../shared/data --corpora debtags aapd-even

The paper projects the classification layer of multi-label BERT on AAPD and sees clusters of related labels. Whether that holds is
measured: the share of labels whose nearest label on the map is of the same branch, against the share by chance. The branch is the
root of the label tree, or else the part of the name before the first dot, as in cs.LG.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from polytag.analysis.label_map import LabelMap, label_map
from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.labels import LabelSet
from polytag.report.drawing import png
from polytag.report.sections.label_relations import map_chart

RESULTS = Path(__file__).parent / "results"


def agreement(found: LabelMap) -> dict[str, float]:
    """The share of labels whose nearest label is of the same branch, and the share that a random order would give."""
    distances = np.linalg.norm(found.places[:, None] - found.places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(axis=1).tolist()
    same = [found.groups[i] == found.groups[j] for i, j in enumerate(nearest)]
    sizes, n = Counter(found.groups), len(found.groups)
    chance = sum(size * (size - 1) for size in sizes.values()) / (n * (n - 1))
    return {"nearest_in_branch": float(np.mean(same)), "by_chance": chance}


def mapped(classifier: Classifier, method: str) -> LabelMap:
    """The map of a trained classifier; branches without a tree are the first parts of names."""
    vectors = classifier.model.label_vectors()
    assert vectors is not None, f"{classifier.recipe.model} has no label vectors"
    found = label_map(vectors, classifier.labels, classifier.training["label_counts"], method=method)  # type: ignore[arg-type]
    if classifier.labels.has_tree:
        return found
    return dataclasses.replace(found, groups=tuple(name.split(".")[0].split("-")[0] for name in found.names))


def measure(corpus: str, told: argparse.Namespace) -> dict[str, Any]:
    """Train, project, draw; the numbers of one corpus."""
    folder = told.data / corpus
    if told.run is not None:
        classifier = Classifier.load(told.run)
    else:
        labels = LabelSet.read(folder / "labels.jsonl")
        train, valid = (Corpus.read(folder / f"{part}.jsonl.xz", labels=labels) for part in ("train", "valid"))
        options = json.loads(told.options)
        classifier = Classifier(told.model, options).fit(train, valid)
    found = mapped(classifier, told.method)
    told.pictures.mkdir(parents=True, exist_ok=True)
    (told.pictures / f"label-map-{corpus}.png").write_bytes(png(map_chart(found), dpi=130))
    row: dict[str, Any] = {"corpus": corpus, "model": classifier.recipe.model, "method": found.method, "labels": len(found.names)}
    if "encoder" in classifier.model.options():
        row["encoder"] = classifier.model.options()["encoder"]
    return row | {"branches": len(set(found.groups)), "neighbours_kept": found.kept} | agreement(found)


def main() -> None:
    """Add rows to the results; a row of the same corpus and model is replaced."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpora", nargs="+", default=["debtags", "aapd-even"])
    parser.add_argument("--model", default="br")
    parser.add_argument("--options", default='{"c": [1.0], "ngrams": [1]}', help="settings of the model, as JSON")
    parser.add_argument("--run", type=Path, help="a finished run to take instead of training; for one corpus")
    parser.add_argument("--method", default="tsne")
    parser.add_argument("--out", type=Path, default=RESULTS / "label_maps.json")
    parser.add_argument("--pictures", type=Path, default=RESULTS / "pictures")
    told = parser.parse_args()
    rows = json.loads(told.out.read_text(encoding="utf-8")) if told.out.exists() else []
    for corpus in told.corpora:
        row = measure(corpus, told)
        print(json.dumps(row))
        rows = [old for old in rows if (old["corpus"], old["model"]) != (row["corpus"], row["model"])] + [row]
    told.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
