"""What a model keeps of its training documents, to learn on from more of them."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.settings import param


@dataclass
class LearningSettings:
    """Learning on."""

    keep_features: bool = param(
        False, "whether the artefact keeps the features and labels of all documents, not their texts, to learn on from them"
    )
