"""An open-loop sender: requests leave on a schedule, whatever becomes of the earlier ones, and every answer is checked."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

_HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
_SLICE_S = 0.005  # what is due is sent this often
_FINISH_S = 30.0


@dataclass
class Outcome:
    """What became of the requests."""

    sent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of answers with status 200
    wrong: int = 0
    connections: int = 0

    def summary(self, rate: float) -> dict[str, Any]:
        """The numbers, for a file of results."""
        times = sorted(1000 * one for one in self.seconds)
        found: dict[str, Any] = {"offered_per_second": rate, "sent": self.sent, "statuses": dict(self.statuses)}
        found |= {"wrong_answers": self.wrong, "connections": self.connections}
        if times:
            found |= {"p50_ms": times[len(times) // 2], "p99_ms": times[int(len(times) * 0.99)]}
        return found


class Sender:
    """Sends requests to one port; a request takes a free connection, or opens one."""

    def __init__(self, port: int, path: str, bodies: Sequence[bytes], right: Callable[[int, bytes], bool]) -> None:
        """``right`` says whether the answer to the body of this number is what it should be."""
        self.port, self.right = port, right
        self.requests = [_HEAD.format(path=path, size=len(body)).encode() + body for body in bodies]
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.outcome = Outcome()

    async def run(self, rate: float, seconds: float) -> Outcome:
        """Send ``rate`` requests per second, then wait for the last answers."""
        start, tasks = time.monotonic(), set[asyncio.Task[None]]()
        while (now := time.monotonic() - start) < seconds:
            for _ in range(int(now * rate) - self.outcome.sent):
                task = asyncio.create_task(self._one(self.outcome.sent % len(self.requests)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                self.outcome.sent += 1
            await asyncio.sleep(_SLICE_S)
        if tasks:
            await asyncio.wait(tasks, timeout=_FINISH_S)
        for task in tasks:
            task.cancel()
        for _, writer in self.free:
            writer.close()
        return self.outcome

    async def _one(self, number: int) -> None:
        start = time.monotonic()
        try:
            status, body = await self._answered(self.requests[number])
        except (OSError, asyncio.IncompleteReadError) as error:
            self.outcome.statuses[type(error).__name__] += 1
            return
        self.outcome.statuses[status] += 1
        if status == "200":
            self.outcome.seconds.append(time.monotonic() - start)
            self.outcome.wrong += not self.right(number, body)

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A free connection, or a new one; a server closes those that were idle for some seconds."""
        while self.free:
            reader, writer = self.free.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
        self.outcome.connections += 1
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def _answered(self, request: bytes) -> tuple[str, bytes]:
        reader, writer = await self._connection()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        size = int(head.split("content-length:")[1].split("\r\n")[0])
        body = await reader.readexactly(size)
        if "connection: close" in head:
            writer.close()
        else:
            self.free.append((reader, writer))
        return head.split()[1], body
