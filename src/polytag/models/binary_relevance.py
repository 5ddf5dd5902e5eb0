"""Binary relevance (Boutell et al. 2004): one independent binary classifier per label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from polytag.models.base.tfidf_model import TfidfModel


@dataclass
class BinaryRelevance(TfidfModel):
    """One independent linear separator per label over tf-idf."""

    extendable: ClassVar[bool] = True
