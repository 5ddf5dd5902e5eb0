"""Gathers the texts of several requests into batches; the queue is bounded in texts and in expected seconds."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from polytag.server.hosting.hosted_model import PLAIN, HostedModel, Want
from polytag.server.hosting.messages import TextPrediction
from polytag.server.limits import Limits
from polytag.server.problem import busy

_SMOOTHING = 0.2  # weight of the last batch in the mean seconds per text
_SHORT, _SHORT_TEXTS = 60_000, 64  # characters of a batch, and texts of a request, that are scored in the event loop


class Waiting:
    """A request in the queue."""

    __slots__ = ("future", "since", "texts", "want")

    def __init__(self, texts: Sequence[str], want: Want, future: asyncio.Future[list[TextPrediction]]) -> None:
        """Note when it came."""
        self.texts, self.want, self.future, self.since = texts, want, future, time.monotonic()


class RequestQueue:
    """The queue of one version of a model; one batch is scored at a time, and requests gather meanwhile."""

    def __init__(self, model: HostedModel, limits: Limits) -> None:
        """Nothing waits yet."""
        self.model, self.limits = model, limits
        self.texts = 0  # texts that wait or are being scored
        self.seconds = 0.0  # mean per text
        self._queue: deque[Waiting] = deque()
        self._scoring = self._planned = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"model-{model.name}")

    def submit(self, texts: Sequence[str], want: Want) -> asyncio.Future[list[TextPrediction]]:
        """Put a request into the queue; a full queue raises a Problem."""
        expected = self.texts * self.seconds
        if self.texts + len(texts) > max(self.limits.waiting, len(texts)) or expected > self.limits.wait_s:
            raise busy(expected)
        loop = asyncio.get_running_loop()
        request = Waiting(texts, want, loop.create_future())
        self._queue.append(request)
        self.texts += len(texts)
        if not self._scoring and not self._planned:
            self._planned = True
            if self.model.lean is not None:
                loop.call_soon(self._start)  # after all requests that have arrived by now
            else:
                loop.call_later(self.limits.gather_ms / 1000, self._start)
        return request.future

    def _start(self) -> None:
        """Score the requests that wait, up to the size of a batch."""
        self._planned = False
        batch = self._taken()
        if not batch:
            return
        if self._is_short(batch):
            self._score_here(batch)
            return
        self._scoring = True
        scored = asyncio.get_running_loop().run_in_executor(self._pool, self._score, batch)
        scored.add_done_callback(lambda done: self._answer(batch, done))

    def _is_short(self, batch: list[Waiting]) -> bool:
        """Whether a batch costs less than handing it to a thread; the event loop stands still meanwhile."""
        if self.model.lean is None:
            return False
        size = 0
        for request in batch:
            if request.want is not PLAIN or len(request.texts) > _SHORT_TEXTS:
                return False
            for text in request.texts:
                size += len(text)
        return size <= _SHORT

    def _score_here(self, batch: list[Waiting]) -> None:
        done: asyncio.Future[tuple[list[TextPrediction], float]] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(self._score(batch))
        except Exception as error:
            done.set_exception(error)
        self._answer(batch, done)

    def _taken(self) -> list[Waiting]:
        """The next requests; whoever gave up, or waited too long, is left out."""
        batch: list[Waiting] = []
        size, now = 0, time.monotonic()
        while self._queue and (not batch or size + len(self._queue[0].texts) <= self.limits.batch):
            request = self._queue.popleft()
            if request.future.done() or now - request.since > self.limits.time_s:
                self.texts -= len(request.texts)
                if not request.future.done():
                    request.future.set_exception(busy(self.limits.wait_s))
                continue
            batch.append(request)
            size += len(request.texts)
        return batch

    def _score(self, batch: list[Waiting]) -> tuple[list[TextPrediction], float]:
        start = time.perf_counter()
        texts = [text for request in batch for text in request.texts]
        wants = [request.want for request in batch for _ in request.texts]
        found: list[TextPrediction] = []
        for at in range(0, len(texts), self.limits.batch):
            part = slice(at, at + self.limits.batch)
            found += self.model.predict(texts[part], wants[part], self.limits.candidates)
        return found, time.perf_counter() - start

    def _answer(self, batch: list[Waiting], done: asyncio.Future[tuple[list[TextPrediction], float]]) -> None:
        self._scoring = False
        count = sum(len(request.texts) for request in batch)
        self.texts -= count
        error = done.exception()
        if error is None:
            found, seconds = done.result()
            self.seconds += (seconds / max(1, count) - self.seconds) * (_SMOOTHING if self.seconds else 1.0)
        at = 0
        for request in batch:
            if not request.future.done():
                if error is None:
                    request.future.set_result(found[at : at + len(request.texts)])
                else:
                    request.future.set_exception(error)
            at += len(request.texts)
        if self._queue and not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._start)

    def close(self) -> None:
        """Let the thread end when it has nothing left to do."""
        self._pool.shutdown(wait=False)
