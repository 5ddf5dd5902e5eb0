"""The choice of the best children against a plain sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polytag.xmc.rank import WORTH
from polytag.xmc.select import choose


@given(st.integers(0, 9999), st.integers(1, 60), st.integers(1, 4), st.integers(1, 700), st.booleans())
@settings(max_examples=80)
def test_the_best_children_are_those_of_a_plain_sort(seed: int, most: int, beam: int, wanted: int, ties: bool) -> None:
    """Equal scores by name, -1 where there are fewer; what stands after a node's own margins is never chosen."""
    generator = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(generator.integers(0, most + 1, 12))])
    names = generator.permutation(int(starts[-1])).astype(np.int32)
    nodes = np.stack([generator.permutation(12)[:beam] for _ in range(3)]).astype(np.int32)
    nodes[generator.random(nodes.shape) < 0.2] = -1
    scores = -generator.integers(0, 3, nodes.shape).astype(np.float32)
    margins = np.full((nodes.size, -(-most // 16) * 16), 1e30, dtype=np.float32)
    expected: list[list[tuple[float, int]]] = [[], [], []]
    for at, node in enumerate(nodes.ravel()):
        own = starts[node + 1] - starts[node] if node >= 0 else 0
        margins[at, :own] = generator.integers(-3, 3, own) if ties else generator.normal(size=own)
        logs = scores.ravel()[at] - np.maximum(1 - margins[at, :own], 0) ** 2
        expected[at // beam] += zip(-logs, names[starts[node] : starts[node] + own].tolist(), strict=True)
    found, values = np.empty((3, wanted), dtype=np.int32), np.empty((3, wanted), dtype=np.float32)
    room = beam * margins.shape[1]
    buffers = np.empty(room, dtype=np.int32), np.empty((2, room), dtype=np.int64)
    bits, value_bits = margins.view(np.int32), values.view(np.int32)
    choose(nodes, scores, margins, bits, starts, WORTH["l2-hinge"], names, *buffers, found, values, value_bits)
    for row, pairs in enumerate(expected):
        best = sorted(pairs)[:wanted]
        assert found[row].tolist() == [name for _, name in best] + [-1] * (wanted - len(best))
        assert values[row].tolist() == [-score for score, _ in best] + [-np.inf] * (wanted - len(best))
