"""Limits of the service: what a request may ask for, and how much may wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What the service accepts; whatever is above is refused with a reason, and nothing grows without bound."""

    body: int = 8_000_000  # bytes of a request
    file: int = 200_000_000  # bytes of a corpus that is sent as a job
    text: int = 400_000  # characters of a text
    explained: int = 20_000  # characters of a text to explain
    texts: int = 512  # texts of a request
    batch: int = 64  # texts that are scored at once
    waiting: int = 2_048  # texts that wait, of all requests to one model
    wait_s: float = 2.0  # expected seconds in the queue above which a request is refused
    time_s: float = 30.0  # seconds from the first byte of a request to its answer
    gather_ms: float = 2.0  # how long a batch of a slow model waits for more texts
    candidates: int = 1_000  # labels of a text above a floor
    rate: float = 0.0  # requests per second of one token; 0 = no limit
    burst: int = 50  # requests that a token may send at once, with a rate
