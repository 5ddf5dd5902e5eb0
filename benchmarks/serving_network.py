"""A network in service: gathered requests against inference one by one, and ten times what it can answer.

``benchmarks/serving.py --bert RUN`` calls this. What is measured in turn, round by round:

- ``alone``: one process predicts one text after the other, without a service;
- ``one_by_one``: the service, with one connection, so that nothing can be gathered;
- ``gathered``: the service, with 32 connections.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from open_loop import Outcome, Sender
from serving import free_port, polytag, used, write_bodies, wrk

TOKENS = 32  # of a short text
LOOP = """
import json, sys, time
from pathlib import Path
from polytag.server.hosting.hosted_model import PLAIN, HostedModel
model = HostedModel.load(Path(sys.argv[1]))
texts = json.loads(Path(sys.argv[2]).read_text())
print("ready", flush=True)
at = 0
for line in sys.stdin:
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < float(line):
        model.predict([texts[at % len(texts)]], [PLAIN])
        at, count = at + 1, count + 1
    print(count / (time.perf_counter() - start), flush=True)
"""


def short_texts(run: Path, texts: list[str]) -> list[str]:
    """The first words of texts, at most 32 tokens each."""
    from polytag import Classifier

    model: Any = Classifier.load(run).model
    cut = [" ".join(text.split()[:24]) for text in texts]
    sizes = np.diff(model.tokens.encode(cut)[1]) + len(model.tokens.prefix) + len(model.tokens.suffix)
    return [text for text, size in zip(cut, sizes, strict=True) if size <= TOKENS]


@contextmanager
def loop(run: Path, texts: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that predicts one text after the other for as many seconds as it is told."""
    (folder / "texts.json").write_text(json.dumps(texts))
    command = [sys.executable, "-c", LOOP, str(run), str(folder / "texts.json")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout and process.stdout.readline() == "ready\n"
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(60)


def rates(run: Path, texts: list[str], folder: Path, seconds: int, rounds: int) -> dict[str, Any]:
    """Requests per second of the three ways, and what gathering gains: the median of the rounds' ratios."""
    folder.mkdir()
    paths, port = write_bodies(folder, texts), free_port()
    found: dict[str, Any] = {"alone": [], "one_by_one": [], "gathered": []}
    with loop(run, texts, folder) as process, polytag([run], port):
        assert process.stdin and process.stdout
        url = f"http://127.0.0.1:{port}"
        wrk(url, paths["predict"], 2, 32)
        for _ in range(rounds):
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
            found["alone"].append(float(process.stdout.readline()))
            found["one_by_one"].append(wrk(url, paths["predict"], seconds, 1))
            found["gathered"].append(wrk(url, paths["predict"], seconds, 32))
    gathered = [one["requests_per_second"] for one in found["gathered"]]
    single = [one["requests_per_second"] for one in found["one_by_one"]]
    found["gain_over_alone"] = median(many / one for many, one in zip(gathered, found["alone"], strict=True))
    found["gain_over_one_by_one"] = median(many / one for many, one in zip(gathered, single, strict=True))
    return found


def overload(run: Path, texts: list[str], capacity: float, seconds: int) -> dict[str, Any]:
    """Ten times the capacity on a schedule: statuses, wrong answers, memory, and the time until service is back."""
    port, texts, memory, done = free_port(), texts[:300], list[float](), threading.Event()
    with polytag([run], port) as process:
        bodies = [json.dumps({"texts": [text]}).encode() for text in texts]
        expected = [_asked(port, body) for body in bodies]

        def right(number: int, body: bytes) -> bool:
            return _alike(json.loads(body)["predictions"][0], expected[number])

        def watch() -> None:
            while not done.wait(0.2):
                memory.append(used(process)[1])

        at_capacity = asyncio.run(Sender(port, "/v1/predict", bodies, right).run(capacity, seconds))
        before, watcher = used(process)[1], threading.Thread(target=watch)
        watcher.start()
        offered: Outcome = asyncio.run(Sender(port, "/v1/predict", bodies, right).run(10 * capacity, seconds))
        start = time.monotonic()
        _asked(port, bodies[0])
        back = time.monotonic() - start
        done.set()
        watcher.join()
        counted = refusals(port)
    resident = {"before_mib": before, "most_mib": max(memory), "growth": max(memory) / before - 1}
    return {
        "capacity": capacity, "at_capacity": at_capacity.summary(capacity), "offered": offered.summary(10 * capacity),
        "back_after_s": back, "resident": resident, "refused_by_metrics": counted,
    }  # fmt: skip


def refusals(port: int) -> float:
    """How many requests the service itself says that it refused."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return sum(float(number) for number in re.findall(r"^\w+\{[^}]*503[^}]*\} (\S+)$", text, re.MULTILINE))


def _asked(port: int, body: bytes) -> dict[str, Any]:
    """The prediction of one text; a refused request is sent again."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/predict", body, {"Content-Type": "application/json"})
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found: dict[str, Any] = json.loads(answer.read())["predictions"][0]
                return found
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(0.05)


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two predictions have the same labels, and scores that differ by rounding only."""
    first, second = (dict(zip(each["labels"], each["scores"], strict=True)) for each in (one, other))
    return first.keys() == second.keys() and all(abs(first[name] - second[name]) < 1e-4 for name in first)


def measured(run: Path, texts: list[str], folder: Path, seconds: int, rounds: int) -> dict[str, Any]:
    """Everything about one run."""
    folder.mkdir()
    short = short_texts(run, texts)
    found: dict[str, Any] = {"up_to_32_tokens": rates(run, short, folder / "short", seconds, rounds)}
    found["debtags"] = rates(run, texts, folder / "whole", seconds, rounds)
    print(json.dumps({name: (one["gain_over_alone"], one["gain_over_one_by_one"]) for name, one in found.items()}), flush=True)
    capacity = max(one["requests_per_second"] for one in found["up_to_32_tokens"]["gathered"])
    found["overload"] = overload(run, short, capacity, 3 * seconds)
    return found
