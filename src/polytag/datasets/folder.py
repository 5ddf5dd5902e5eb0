"""One corpus as a folder: ``train``, ``valid`` and ``test`` as JSON lines, and ``labels.jsonl``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from polytag.documents import Document
from polytag.formats import read_documents, write_documents
from polytag.labels import LabelSet

SPLITS = ("train", "valid", "test")


def split_of(group: str) -> str:
    """Name the split of a group: a tenth each goes to test and valid by the hash of its name, the same on every machine."""
    bucket = int(hashlib.md5(group.encode(), usedforsecurity=False).hexdigest(), 16) % 100
    return "test" if bucket < 10 else "valid" if bucket < 20 else "train"


def grouped(documents: Iterable[tuple[str, Document]]) -> dict[str, list[Document]]:
    """Deal (group, document) pairs into splits, without exact repeats and with no text in two splits."""
    splits: dict[str, list[Document]] = {split: [] for split in SPLITS}
    repeats: set[tuple[str, tuple[str, ...]]] = set()
    for group, document in documents:
        if (document.text, document.labels) not in repeats:
            repeats.add((document.text, document.labels))
            splits[split_of(group)].append(document)
    return without_leaks(splits)


def without_leaks(splits: Mapping[str, Iterable[Document]]) -> dict[str, list[Document]]:
    """Drop every document whose text stands in an earlier split: train keeps it, then valid."""
    seen: set[str] = set()
    clean: dict[str, list[Document]] = {}
    for split in SPLITS:
        keyed = [(text_key(document.text), document) for document in splits[split]]
        clean[split] = [document for key, document in keyed if key not in seen]
        seen.update(key for key, _ in keyed)
    return clean


def text_key(text: str) -> str:
    """Reduce a text to its words, so that two texts that differ in case or punctuation only are one text."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def write_folder(out: str | Path, splits: Mapping[str, Iterable[Document]], labels: LabelSet) -> dict[str, int]:
    """Write a corpus folder and return how many documents each split and how many labels the label file holds."""
    counts = {split: write_documents(Path(out) / f"{split}.jsonl.xz", documents) for split, documents in splits.items()}
    labels.write(Path(out) / "labels.jsonl")
    return {**counts, "labels": len(labels)}


def read_split(path: str | Path) -> list[Document]:
    """Read one split of such a folder."""
    return list(read_documents(path))
