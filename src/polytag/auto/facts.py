"""What the choice of a model depends on: the size and the language of a corpus, and what this machine has."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from polytag.corpus import Corpus

_SAMPLE = 1_000  # documents whose texts are looked at
_LETTERS = 2_000  # characters of a text that are looked at
NEEDED = ("torch", "transformers", "tokenizers", "accelerate")


@dataclass(frozen=True)
class Facts:
    """The facts; ``latin`` is the share of letters in the Latin script, ``sets`` the number of different label sets."""

    documents: int
    labels: int
    words: float
    labels_per_document: float
    sets: int
    latin: float
    networks: bool
    gpu: bool

    def sentence(self) -> str:
        """The facts in words."""
        about = f"{self.documents:,} documents of {self.words:.0f} words, {self.labels:,} labels"
        means = "a GPU" if self.gpu else "no GPU" if self.networks else "no networks (install polytag[nn])"
        return f"{about}, {self.labels_per_document:.1f} a document, {self.sets:,} label sets; {means}"


def look_at(corpus: Corpus) -> Facts:
    """The facts of a corpus and of this machine."""
    at = np.random.default_rng(0).permutation(len(corpus))[:_SAMPLE].tolist()
    texts = [corpus.texts[row] for row in at]
    truth = corpus.truth
    used = len(np.unique(truth.indices))
    rows = zip(truth.indptr[:-1].tolist(), truth.indptr[1:].tolist(), strict=True)
    sets = {truth.indices[a:b].tobytes() for a, b in rows}
    networks = all(find_spec(package) is not None for package in NEEDED)
    words = float(np.mean([len(text.split()) for text in texts])) if texts else 0.0
    per_document = truth.nnz / max(1, len(corpus))
    return Facts(len(corpus), used, words, per_document, len(sets), _latin(texts), networks, networks and _gpu())


def _latin(texts: list[str]) -> float:
    """The share of letters up to Latin Extended-B."""
    letters = np.array([ord(sign) for text in texts for sign in text[:_LETTERS] if sign.isalpha()], dtype=np.int64)
    return float((letters < 0x250).mean()) if len(letters) else 1.0


def _gpu() -> bool:
    from polytag.nn.training.devices import pick_device

    return pick_device("auto").type == "cuda"
