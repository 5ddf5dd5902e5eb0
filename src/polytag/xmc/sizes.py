"""How many clusters labels are put into, and how many of them are looked into, where nobody says it."""

from __future__ import annotations

_ALONE, _SHARED, _MOST = 1000, 4, 10_000  # clusters up to which labels share none; labels of one; clusters, if those are enough
_PER_CLUSTER = 60  # labels of a cluster at the most
_RANKED, _BEAM = 400, (10, 100)  # labels that a beam should hold, and the least and most clusters for that


def cluster_count(n_labels: int) -> int:
    """Clusters for so many labels."""
    return min(max(min(max(_ALONE, n_labels // _SHARED), _MOST), -(-n_labels // _PER_CLUSTER)), n_labels)


def beam_width(n_labels: int, clusters: int) -> int:
    """Clusters of a document whose labels are ranked."""
    least, most = _BEAM
    return min(max(_RANKED * clusters // n_labels, least), most)
