"""Draw the packaged sample: ``python -m polytag_corpora.make_sample FULL_SET OUT``."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from polytag.datasets.folder import SPLITS, read_split, without_leaks, write_folder
from polytag.errors import ConfigError, DataError
from polytag.formats.document import Document
from polytag.labels import LabelSet
from polytag_corpora.debian import facet_of

SIZES = {"train": 4800, "valid": 600, "test": 600}
# Minimum number of documents per facet, if the full set has them: enough to train and to evaluate.
PER_FACET = {"train": 15, "valid": 2, "test": 2}
MIN_LABELS = 3
LENGTH = range(120, 1500)


def sample(full: str | Path, out: str | Path, seed: int = 0, *, sizes: Mapping[str, int] = SIZES) -> dict[str, int]:
    """Write a sample of a full debtags folder; documents keep their splits. Returns the counts."""
    splits = without_leaks({split: read_split(Path(full) / f"{split}.jsonl.xz") for split in SPLITS})
    chosen = {split: choose(splits[split], sizes[split], PER_FACET[split], f"{seed}/{split}") for split in SPLITS}
    used = {label for documents in chosen.values() for document in documents for label in document.labels}
    labels = LabelSet.read(Path(full) / "labels.jsonl")
    if not used <= set(labels):
        raise DataError(f"{full}: label {min(used - set(labels))!r} is not in its labels.jsonl; build the set again")
    return write_folder(out, chosen, restricted(labels, used))


def choose(documents: list[Document], size: int, per_facet: int, seed: str) -> list[Document]:
    """Choose documents at random, well-tagged ones first, after the minimum of the rarest facets; they keep their order."""
    order = list(range(len(documents)))
    random.Random(seed).shuffle(order)
    order.sort(key=lambda number: not well_tagged(documents[number]))
    facets = [frozenset(map(facet_of, document.labels)) for document in documents]
    chosen: dict[int, None] = {}
    held: Counter[str] = Counter()
    rarest_first = sorted(Counter(facet for row in facets for facet in row).items(), key=lambda item: (item[1], item[0]))
    for facet, _ in rarest_first:
        for number in order:
            if held[facet] >= per_facet:
                break
            if facet in facets[number] and number not in chosen:
                chosen[number] = None
                held.update(facets[number])
    for number in order:
        if len(chosen) >= size:
            break
        chosen[number] = None
    return [documents[number] for number in sorted(chosen)]


def well_tagged(document: Document) -> bool:
    """Whether a document has several tags, no tag for missing tags, and a text of usual length."""
    complete = not any(label.endswith("TODO") for label in document.labels)
    return complete and len(document.labels) >= MIN_LABELS and len(document.text) in LENGTH


def restricted(labels: LabelSet, used: set[str]) -> LabelSet:
    """The used labels and all roots of the tree, in their order."""
    names = [name for name in labels if name in used or name not in labels.parents]
    kept = set(names)
    descriptions = {name: text for name, text in labels.descriptions.items() if name in kept}
    return LabelSet(names, descriptions=descriptions, parents={n: p for n, p in labels.parents.items() if n in kept})


def main(arguments: list[str]) -> dict[str, int]:
    """Draw the sample from the first folder into the second."""
    if len(arguments) != 2:
        raise ConfigError("give two folders: the full debtags corpus and the output folder")
    return sample(arguments[0], arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
