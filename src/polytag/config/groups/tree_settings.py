"""How labels are indexed, and how separators rank them: what trees and clusters of labels share."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.settings import param

INDEXES = ("text", "pifa", "both")
DOCUMENT_WEIGHTS = ("root", "one")
NEGATIVES = ("teacher", "matcher")
WORTHS = ("sigmoid", "l1-hinge", "l2-hinge", "l3-hinge", "l4-hinge")
JOINS = ("network", "frozen", "none")
_ALONE, _SHARED, _MOST = 1000, 4, 10_000  # up to 1,000 clusters hold one label each; then 4 labels each, up to 10,000 clusters
_LABELS_PER_CLUSTER = 60  # at most


@dataclass
class TreeSettings:
    """Label index."""

    index: str = param(
        "pifa", "label representation: its text, its documents' features (pifa), or both", choices=INDEXES, first=True
    )
    label_encoder: str = param(
        "minilm", "encoder of the label texts; needs torch; xbert, xttention: empty = that of the documents",
        unless={"index": ("pifa",)},
    )  # fmt: skip
    max_terms: int = param(
        500, "maximum number of features that represent a label; 0 = all, as in the paper", minimum=0, unless={"index": ("text",)}
    )
    document_weight: str = param(
        "root", "weight of a document with n labels in pifa: 1 / sqrt(n) (root), or one, as in the paper",
        choices=DOCUMENT_WEIGHTS, unless={"index": ("text",)},
    )  # fmt: skip
    trees: int = param(
        1, "number of trees, each from another seed; their probabilities are averaged", minimum=1, maximum=64, first=True
    )
    branching: int = param(64, "children of an inner node", minimum=2, maximum=1024)
    max_leaf: int = param(100, "maximum number of labels in a leaf", minimum=2, maximum=10_000, first=True)
    clusters: int = param(
        0,
        "number of clusters; 0 = labels / 4, clamped to 1,000-10,000, with at most 60 labels each",
        minimum=0,
        first=True,
    )

    def cluster_count(self, n_labels: int) -> int:
        """The number of clusters for a number of labels."""
        automatic = max(min(max(_ALONE, n_labels // _SHARED), _MOST), -(-n_labels // _LABELS_PER_CLUSTER))
        return min(self.clusters or automatic, n_labels)


@dataclass
class RankSettings:
    """Ranking."""

    negatives: str = param(
        "teacher",
        "negatives of a label: documents of its cluster (teacher), and also those wrongly sent there (matcher)",
        choices=NEGATIVES,
    )
    worth: str = param("l3-hinge", "function that turns a separator's margin into a score", choices=WORTHS)
    propensity: bool = param(False, "whether positives are weighted by the label's inverse propensity, which favours rare labels")
    half: bool = param(True, "whether weights are stored in half precision")
    memory: float = param(0.0, "memory limit of training in GiB; 0 = what is free", minimum=0)
    join: str = param(
        "network",
        "document vector joined with tf-idf for ranking: the fine-tuned network's, the frozen encoder's, or none",
        choices=JOINS,
        first=True,
    )
    join_weight: float = param(
        0.5, "norm of the centred document vector; that of the tf-idf row is 1", minimum=0, unless={"join": ("none",)}
    )
