"""How wide a search is: through label sequences, label trees or clusters of labels. The default beams stand here."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.settings import param

SEQUENCE_BEAM = 5  # hypotheses of a decoder
TREE_BEAM = 10  # nodes of each level of a label tree
_RANKED_LABELS, _FEWEST_CLUSTERS, _MOST_CLUSTERS = 400, 10, 100  # clusters of a beam: enough for 400 labels, clamped


@dataclass
class SearchSettings:
    """Search."""

    beam: int = param(
        0,
        "beam width: hypotheses, nodes per level or clusters; 0 = enough clusters for 400 labels, clamped to 10-100",
        minimum=0,
        maximum=10_000,
        first=True,
    )
    candidates: int = param(100, "maximum number of labels scored per document", minimum=1, maximum=10_000, first=True)
    length_penalty: float = param(0.0, "hypotheses compare by log p / length to this power", minimum=0, maximum=10)

    def cluster_beam(self, n_labels: int, clusters: int) -> int:
        """The number of clusters of a document whose labels are ranked."""
        wanted = self.beam or min(max(_RANKED_LABELS * clusters // n_labels, _FEWEST_CLUSTERS), _MOST_CLUSTERS)
        return min(wanted, clusters)
