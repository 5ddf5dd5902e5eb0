"""``polytag data describe`` as a function: the summary of a corpus and its splits, with copies between splits."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from polytag.analysis.corpus_summary import describe
from polytag.audit.near_duplicates import copies_between
from polytag.corpus import Corpus


def describe_parts(parts: Mapping[str, Corpus]) -> dict[str, Any]:
    """The statistics of the splits; near-duplicates are counted between every two of them."""
    found = describe(parts)
    counts = copies_between([corpus.texts for corpus in parts.values()]) if len(parts) > 1 else {}
    names = list(parts)
    found["near_duplicate_texts_across"] = [
        {"part": names[later], "also_in": names[earlier], "documents": counts[earlier, later]}
        for earlier, later in itertools.combinations(range(len(names)), 2)
    ]
    return found
