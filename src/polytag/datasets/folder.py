"""A corpus as a folder: ``train``, ``valid`` and ``test`` as JSON lines, and ``labels.jsonl``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from polytag.formats.document import Document
from polytag.formats.document_files import read_documents, write_documents
from polytag.labels import LabelSet

SPLITS = ("train", "valid", "test")


def split_of(group: str) -> str:
    """The split of a group, by the hash of its name: a tenth each goes to test and valid, the same on every machine."""
    bucket = int(hashlib.md5(group.encode(), usedforsecurity=False).hexdigest(), 16) % 100
    return "test" if bucket < 10 else "valid" if bucket < 20 else "train"


def grouped(documents: Iterable[tuple[str, Document]]) -> dict[str, list[Document]]:
    """Divide (group, document) pairs into splits, without exact duplicates and with no text in two splits."""
    splits: dict[str, list[Document]] = {split: [] for split in SPLITS}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for group, document in documents:
        if (document.text, document.labels) not in seen:
            seen.add((document.text, document.labels))
            splits[split_of(group)].append(document)
    return without_leaks(splits)


def without_leaks(splits: Mapping[str, Iterable[Document]]) -> dict[str, list[Document]]:
    """Drop every document whose text is also in an earlier split."""
    seen: set[str] = set()
    clean: dict[str, list[Document]] = {}
    for split in SPLITS:
        keyed = [(text_key(document.text), document) for document in splits[split]]
        clean[split] = [document for key, document in keyed if key not in seen]
        seen.update(key for key, _ in keyed)
    return clean


def text_key(text: str) -> str:
    """The words of a text, casefolded: texts that differ only in case or punctuation have the same key."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def write_folder(out: str | Path, splits: Mapping[str, Iterable[Document]], labels: LabelSet) -> dict[str, int]:
    """Write a corpus folder; returns the number of documents of each split and the number of labels."""
    counts = {split: write_documents(Path(out) / f"{split}.jsonl.xz", documents) for split, documents in splits.items()}
    labels.write(Path(out) / "labels.jsonl")
    return {**counts, "labels": len(labels)}


def read_split(path: str | Path) -> list[Document]:
    """Read one split of a corpus folder."""
    return list(read_documents(path))
