"""Summary of a corpus and its splits: sizes, label frequencies, duplicates and unseen labels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polytag.corpus import Corpus
from polytag.errors import ConfigError
from polytag.labels import LabelSet
from polytag.metrics.of_sets import GROUPS, frequency_groups

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

RARE = 5  # a label with fewer documents is hard to learn
SHOWN = 8  # number of most frequent, and of rarest, labels in the summary


def describe(parts: Mapping[str, Corpus]) -> dict[str, Any]:
    """The statistics of one or more splits, as JSON values; the first split is the training split."""
    if not parts:
        raise ConfigError("there is nothing to describe; give at least one corpus")
    texts = {name: [" ".join(text.split()) for text in corpus.texts] for name, corpus in parts.items()}
    first, *others = parts
    train = parts[first]
    n_labels = len({name for corpus in parts.values() for name in corpus.labels})  # each part may have its own label set
    return {
        "parts": {name: _part(corpus, texts[name], n_labels) for name, corpus in parts.items()},
        "duplicate_texts_across": [
            {"part": later, "also_in": earlier, "documents": _repeated(texts[later], set(texts[earlier]))}
            for earlier, later in itertools.combinations(parts, 2)
        ],
        "unseen_labels": {name: _unseen(train, parts[name]) for name in others},
        "labels": _labels(train),
    }


def _part(corpus: Corpus, texts: list[str], n_labels: int) -> dict[str, Any]:
    per_document = np.diff(corpus.truth.indptr)
    filled = [text for text in texts if text]
    return {
        "documents": len(corpus),
        "labels_used": len(np.unique(corpus.truth.indices)),
        "assignments": int(corpus.truth.nnz),
        "labels_per_document": _summary(per_document),
        "label_count_distribution": {str(count): int(n) for count, n in enumerate(np.bincount(per_document)) if n},
        "label_density": corpus.truth.nnz / max(len(corpus) * n_labels, 1),
        "label_sets": _distinct_sets(corpus),
        "words_per_document": _summary(np.array([text.count(" ") + 1 if text else 0 for text in texts])),
        "without_labels": int((per_document == 0).sum()),
        "empty_texts": len(texts) - len(filled),
        "duplicate_ids": sum(count - 1 for count in corpus.duplicate_ids.values()),
        "duplicate_texts": len(filled) - len(set(filled)),
        "groups": None if corpus.groups is None else len({group or row for row, group in enumerate(corpus.groups)}),
    }


def _summary(values: NDArray[Any]) -> dict[str, float]:
    if not len(values):
        return dict.fromkeys(("mean", "median", "p95", "min", "max"), 0.0)
    median, p95 = np.percentile(values, [50, 95])
    found = {"mean": values.mean(), "median": median, "p95": p95, "min": values.min(), "max": values.max()}
    return {key: float(value) for key, value in found.items()}


def _distinct_sets(corpus: Corpus) -> int:
    indices, indptr = corpus.truth.indices, corpus.truth.indptr
    return len({indices[start:end].tobytes() for start, end in itertools.pairwise(indptr.tolist())})


def _repeated(texts: list[str], earlier: set[str]) -> int:
    """The number of texts that are also in the earlier split; empty ones are counted elsewhere."""
    return sum(1 for text in texts if text and text in earlier)


def _unseen(train: Corpus, other: Corpus) -> dict[str, Any]:
    """The labels of another split that no training document has."""
    seen = {train.labels[j] for j in np.unique(train.truth.indices).tolist()}
    counts = np.bincount(other.truth.indices, minlength=len(other.labels))
    unseen = [(int(n), name) for n, name in zip(counts, other.labels, strict=True) if n and name not in seen]
    names = [name for _, name in sorted(unseen, key=lambda pair: (-pair[0], pair[1]))]
    return {"labels": len(unseen), "assignments": sum(n for n, _ in unseen), "examples": names[:SHOWN]}


def _labels(train: Corpus) -> dict[str, Any]:
    labels = train.labels
    counts = np.bincount(train.truth.indices, minlength=len(labels))
    order = labels.frequency_order(train.truth)
    used = order[counts[order] > 0]
    group, total = frequency_groups(counts), max(int(counts.sum()), 1)
    return {
        "labels": len(labels),
        "without_documents": int((counts == 0).sum()),
        "rare": int(((counts > 0) & (counts < RARE)).sum()),
        "groups": {
            name: {"labels": int((group == i).sum()), "share": float(counts[group == i].sum() / total)}
            for i, name in enumerate(GROUPS)
        },
        "most_frequent": [{"name": labels[j], "documents": int(counts[j])} for j in used[:SHOWN].tolist()],
        "rarest": [{"name": labels[j], "documents": int(counts[j])} for j in used[::-1][:SHOWN].tolist()],
        "descriptions": len(labels.descriptions),
        "tree": _tree(labels),
    }


def _tree(labels: LabelSet) -> dict[str, int] | None:
    """Depth and number of roots of the tree; labels outside the tree do not count as roots."""
    if not labels.has_tree:
        return None
    parent = labels.parent_numbers
    depth = np.ones(len(labels), dtype=np.int64)
    for j in labels.topological_order().tolist():
        above = [labels.number(name) for name in labels.parents_of(labels[j])]
        depth[j] = 1 + max((depth[number] for number in above), default=0)
    roots = np.unique(parent[parent >= 0])
    return {"depth": int(depth.max()), "roots": int((parent[roots] < 0).sum()), "with_parent": int((parent >= 0).sum())}


# -- terminal output ---------------------------------------------------------------------------------------------------


def render(found: Mapping[str, Any]) -> RenderableType:
    """The statistics as tables for the terminal."""
    from rich.console import Group

    pieces: list[RenderableType] = [_parts_table(found), "", _labels_table(found["labels"])]
    problems = _problems(found)
    return Group(*pieces, *(["", *problems] if problems else []))


def _parts_table(found: Mapping[str, Any]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in found["parts"]:
        table.add_column(name, justify="right", style="bold" if name == next(iter(found["parts"])) else "")
    cells = [_part_cells(part) for part in found["parts"].values()]
    for title in cells[0]:
        row = [cell[title] for cell in cells]
        if title not in ("empty texts", "repeated ids", "groups") or any(value not in ("0", "-") for value in row):
            table.add_row(title, *row)
    return table


def _part_cells(part: Mapping[str, Any]) -> dict[str, str]:
    labels, words = part["labels_per_document"], part["words_per_document"]
    return {
        "documents": f"{part['documents']:,}",
        "labels used": f"{part['labels_used']:,}",
        "labels per document": f"{labels['mean']:.2f}",
        "  min - max": f"{labels['min']:.0f} - {labels['max']:.0f}",
        "  documents with 0 1 2 3 ...": _bars(part["label_count_distribution"]),
        "distinct label sets": f"{part['label_sets']:,}",
        "label density": f"{part['label_density']:.2%}",
        "words per document": f"{words['mean']:.0f}",
        "  median / 95% / max": f"{words['median']:.0f} / {words['p95']:.0f} / {words['max']:,.0f}",
        "without labels": f"{part['without_labels']:,}",
        "empty texts": f"{part['empty_texts']:,}",
        "repeated texts": f"{part['duplicate_texts']:,}",
        "repeated ids": f"{part['duplicate_ids']:,}",
        "groups": "-" if part["groups"] is None else f"{part['groups']:,}",
    }


def _bars(distribution: Mapping[str, int], width: int = 12) -> str:
    """A bar chart of label counts from 0; the last bar includes all larger counts."""
    counts = [0] * width
    for count, documents in distribution.items():
        counts[min(int(count), width - 1)] += documents
    top = max(max(counts), 1)
    return "".join("▁▂▃▄▅▆▇█"[min(7, 8 * n // top)] if n else "·" for n in counts)


def _labels_table(labels: Mapping[str, Any]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    table.add_row("labels", f"{labels['labels']:,}, {labels['descriptions']:,} described, {_tree_words(labels['tree'])}")
    table.add_row(f"fewer than {RARE} documents", f"{labels['rare']:,}, and {labels['without_documents']:,} with none")
    shares = (f"{name} {group['labels']:,} labels, {group['share']:.0%} of uses" for name, group in labels["groups"].items())
    table.add_row("frequency", "; ".join(shares))
    for title, key in (("most frequent", "most_frequent"), ("rarest", "rarest")):
        table.add_row(title, ", ".join(f"{escape(row['name'])} [dim]{row['documents']:,}[/dim]" for row in labels[key]))
    return table


def _tree_words(tree: Mapping[str, int] | None) -> str:
    if tree is None:
        return "no tree"
    return f"a tree of depth {tree['depth']} with {_many(tree['roots'], 'root')}"


def _problems(found: Mapping[str, Any]) -> list[str]:
    """Warnings about problems of an evaluation, one line each."""
    from rich.markup import escape

    train = next(iter(found["parts"]))
    lines = []
    for pair in found["duplicate_texts_across"]:
        if pair["documents"]:
            lines.append(f"[yellow]![/yellow] {pair['part']} has {_many(pair['documents'], 'text')} also in {pair['also_in']}")
    for pair in found.get("near_duplicate_texts_across", ()):
        if pair["documents"]:
            near = "near-duplicates, copies included,"
            lines.append(
                f"[yellow]![/yellow] {_many(pair['documents'], 'text')} of {pair['part']} have {near} in {pair['also_in']}"
            )
    for name, unseen in found["unseen_labels"].items():
        if unseen["labels"]:
            examples = ", ".join(unseen["examples"][:5]) + (", ..." if unseen["labels"] > 5 else "")
            uses = f"{_many(unseen['labels'], 'label')} ({_many(unseen['assignments'], 'use')})"
            lines.append(f"[yellow]![/yellow] {name} has {uses} never seen in {train}: {escape(examples)}")
    return lines


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
