"""URIs and unique names of labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+")
BASE = "urn:polytag:"
"""What the URI of a label starts with that has no id of its own."""


def uri_of(record: Mapping[str, Any]) -> str:
    """The URI of a label: its id, or one that is made of its id or name."""
    identifier = str(record.get("id") or "")
    if _URI.fullmatch(identifier):
        return identifier
    return f"{BASE}id:{quote(identifier, safe='')}" if identifier else f"{BASE}label:{quote(record['name'], safe='')}"


def id_of(uri: str) -> str:
    """The id of the label with this URI; empty if the URI was made of the label's name."""
    made = uri.removeprefix(BASE)
    if made == uri:
        return uri
    kind, _, rest = made.partition(":")
    return unquote(rest) if kind == "id" else "" if kind == "label" else uri


def unique_names(titles: Sequence[str], hints: Sequence[str], ids: Sequence[str]) -> list[str]:
    """The titles; one that several labels have gets its hint, or its id if that is not enough."""
    counts = Counter(titles)
    first = [t if counts[t] == 1 else f"{t} ({hint or uri})" for t, hint, uri in zip(titles, hints, ids, strict=True)]
    again = Counter(first)
    return [t if again[t] == 1 else f"{title} ({uri})" for t, title, uri in zip(first, titles, ids, strict=True)]
