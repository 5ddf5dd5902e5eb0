"""A correction as a record; it needs no database, which takes long to import and which many services never open."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Correction:
    """What a person says about the labels of a text; labels that are accepted or added belong to it, removed ones do not."""

    text: str
    user: str
    model: str
    version: str
    accepted: Sequence[str] = ()
    removed: Sequence[str] = ()
    added: Sequence[str] = ()
    document: str | None = None
    key: str | None = None

    def digest(self) -> str:
        """A checksum of what was said, without who, when and by which version."""
        said = [self.text, sorted(self.accepted), sorted(self.removed), sorted(self.added), self.model, self.document]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()
