"""Binary relevance (Boutell et al. 2004): every label is a question of its own."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.models.tfidf_model import TfidfModel


@dataclass
class BinaryRelevance(TfidfModel):
    """One linear separator per label over tf-idf, all trained side by side."""
