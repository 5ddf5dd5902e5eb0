"""Counters, gauges and histograms in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Telemetry:
    """What happened since the start; cheap enough for every request."""

    def __init__(self) -> None:
        """Count from zero."""
        self.requests: dict[tuple[str, int], int] = defaultdict(int)
        self.texts: dict[str, int] = defaultdict(int)
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(_BOUNDS) + 1))
        self._sums: dict[str, float] = defaultdict(float)

    def count(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.requests[route, status] += 1
        self._buckets[route][bisect_left(_BOUNDS, seconds)] += 1
        self._sums[route] += seconds

    def lines(self) -> Iterable[str]:
        """All lines of requests."""
        yield from block("polytag_requests_total", "counter", "requests by route and status", {
            f'route="{route}",status="{status}"': count for (route, status), count in sorted(self.requests.items())
        })  # fmt: skip
        yield from block("polytag_texts_total", "counter", "texts that were labelled", {
            f'model="{escaped(name)}"': count for name, count in sorted(self.texts.items())
        })  # fmt: skip
        yield "# HELP polytag_request_seconds time from the request to its answer"
        yield "# TYPE polytag_request_seconds histogram"
        for route, counts in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), counts, strict=True):
                total += count
                yield f'polytag_request_seconds_bucket{{route="{route}",le="{bound}"}} {total}'
            yield f'polytag_request_seconds_sum{{route="{route}"}} {self._sums[route]:.6f}'
            yield f'polytag_request_seconds_count{{route="{route}"}} {total}'


def block(name: str, kind: str, text: str, values: Mapping[str, float]) -> Iterable[str]:
    """A metric with its help; the keys are labels in the form of Prometheus, or empty."""
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"


def escaped(value: str) -> str:
    """A value of a Prometheus label."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
