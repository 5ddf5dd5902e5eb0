"""The service under load: swaps of versions, a full queue, slow senders, odd bodies, and a killed process."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
import httpx
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from polytag.server.access import Tokens
from polytag.server.app import create_app
from polytag.server.drift import Drift, promise_state
from polytag.server.hosting.hosted_model import HostedModel
from polytag.server.hosting.model_shelf import Shelf
from polytag.server.hosting.request_queue import RequestQueue
from polytag.server.limits import Limits
from polytag.server.problem import Problem
from polytag.server.service import Service
from test_server import TEXTS, Client, trained


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[HostedModel]:
    found = []
    for seed in (0, 7):
        folder = tmp_path_factory.mktemp(f"seed{seed}") / "one"
        trained(seed).save(folder)
        found.append(HostedModel.load(folder))
    return found


def app_of(model: HostedModel, limits: Limits | None = None) -> tuple[Any, Service]:
    service = Service(Shelf([model], limits or Limits()), limits or Limits(), Tokens())
    return create_app(service), service


def test_a_hundred_swaps_under_load_fail_no_request_and_mix_no_version(versions: list[HostedModel]) -> None:
    """Requests of several texts run while versions change; each answer is wholly that of the version that it names."""
    app, service = app_of(versions[0])
    wants: list[dict[str, Any]] = [{}, {"top": 2}, {"floor": 0.0}]
    expected = {}
    for model in versions:
        client = Client(Service(Shelf([model], Limits()), Limits(), Tokens()))
        for want in wants:
            expected[model.version, json.dumps(want)] = client.predict(texts=TEXTS, **want)["predictions"]
    assert expected[versions[0].version, "{}"] != expected[versions[1].version, "{}"]
    seen: set[str] = set()
    done = False

    async def sender(client: httpx.AsyncClient, number: int) -> int:
        count = 0
        while not done:
            want = wants[(count + number) % 3]
            answer = await client.post("/v1/predict", json={"texts": TEXTS, **want})
            assert answer.status_code == 200, answer.text
            found = answer.json()
            assert found["predictions"] == expected[found["version"], json.dumps(want)]
            seen.add(found["version"])
            count += 1
        return count

    async def swapper() -> None:
        nonlocal done
        try:
            for number in range(100):
                await asyncio.to_thread(service.shelf.swap, "one", versions[(number + 1) % 2])
                await asyncio.sleep(0.005)
        finally:
            done = True

    async def main() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            counts = await asyncio.gather(swapper(), *(sender(client, number) for number in range(6)))
        return sum(count or 0 for count in counts)

    assert asyncio.run(main()) > 100
    assert seen == {model.version for model in versions}
    assert service.shelf.place("one").swaps == 100


class Slow(HostedModel):
    """A model that takes 20 ms a text and has no short way."""

    lean = None  # type: ignore[assignment]

    def predict(self, texts: Any, wants: Any, most: int = 1_000) -> Any:
        time.sleep(0.02 * len(texts))
        return super().predict(texts, wants, most)


def test_a_full_queue_refuses_and_recovers(versions: list[HostedModel]) -> None:
    """Far more requests than can be answered: the excess gets 503 with Retry-After, the others the right answer."""
    one = versions[0]
    slow = Slow(one.name, one.version, one.classifier)
    app, service = app_of(slow, Limits(waiting=8, batch=4))
    right = one.classifier.predict([TEXTS[0]])[0]

    async def main() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            answers = await asyncio.gather(*(client.post("/v1/predict", json={"texts": [TEXTS[0]]}) for _ in range(100)))
            later = await client.post("/v1/predict", json={"texts": [TEXTS[0]]})
        return [*answers, later]

    answers = asyncio.run(main())
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(200) >= 9 and statuses.count(503) >= 80 and set(statuses) == {200, 503}
    assert statuses[-1] == 200
    for answer in answers:
        if answer.status_code == 200:
            assert answer.json()["predictions"][0]["labels"] == right
        else:
            assert int(answer.headers["retry-after"]) >= 1
    assert service.shelf.place("one").live.texts == 0


def test_a_queue_is_bounded_by_expected_seconds_too(versions: list[HostedModel]) -> None:
    async def main() -> None:
        queue = RequestQueue(versions[0], Limits(wait_s=1.0))
        queue.seconds, queue.texts = 0.5, 3
        with pytest.raises(Problem) as refused:
            queue.submit(["a"], versions_want())
        assert refused.value.status == 503

    asyncio.run(main())


def versions_want() -> Any:
    from polytag.server.hosting.hosted_model import PLAIN

    return PLAIN


def test_an_error_in_a_batch_is_answered_and_the_queue_goes_on(versions: list[HostedModel]) -> None:
    class Broken(Slow):
        def predict(self, texts: Any, wants: Any, most: int = 1_000) -> Any:
            if "boom" in texts:
                raise RuntimeError("boom")
            return super().predict(texts, wants, most)

    one = versions[0]
    client = Client(app_of(Broken(one.name, one.version, one.classifier))[1])
    answer = client("POST", "/v1/predict", json={"texts": ["boom"]})
    assert answer.status_code == 500 and answer.headers["content-type"] == "application/problem+json"
    assert "boom" not in answer.text
    assert client.predict(texts=["fish"])["predictions"][0]["labels"] == one.classifier.predict(["fish"])[0]


# -- a real server -----------------------------------------------------------------------------------------------------


@contextmanager
def running(app: Any) -> Iterator[int]:
    """The application on a port of its own, in a thread."""
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield place.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)


def exchanged(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """What a server answers to bytes that are sent in parts."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        connection.settimeout(10)
        return connection.recv(65_536)


def test_slow_senders_are_cut_off(versions: list[HostedModel]) -> None:
    app, _ = app_of(versions[0], Limits(time_s=0.3))
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with running(app) as port:
        for path in (b"/v1/predict", b"/v1/explain", b"/v1/jobs"):
            assert b" 408 " in exchanged(port, head % path).split(b"\r\n")[0]
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200


def test_shutdown_finishes_what_was_accepted(versions: list[HostedModel]) -> None:
    one = versions[0]
    app, service = app_of(Slow(one.name, one.version, one.classifier), Limits(batch=1))
    answers: list[int] = []
    accepted: list[Any] = []
    queue = service.shelf.place("one").live
    submit = queue.submit
    queue.submit = lambda texts, want: (accepted.append(texts), submit(texts, want))[1]  # type: ignore[method-assign]
    with running(app) as port:
        url, body = f"http://127.0.0.1:{port}/v1/predict", {"texts": ["fish"] * 5}
        threads = [threading.Thread(target=lambda: answers.append(httpx.post(url, json=body).status_code)) for _ in range(6)]
        for thread in threads:
            thread.start()
        while len(accepted) < 6:
            time.sleep(0.005)
    for thread in threads:
        thread.join()
    assert answers == [200] * 6


def test_graceful_exit_of_the_command(versions: list[HostedModel], tmp_path: Path) -> None:
    """The verb itself: it listens, answers, logs no text, and ends with 0 after SIGTERM."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [sys.executable, "-m", "polytag", "serve", str(versions[0].folder), "--port", str(port)]
    process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        try:
            assert httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
            break
        except httpx.TransportError:
            time.sleep(0.1)
    httpx.post(f"http://127.0.0.1:{port}/v1/predict", json={"texts": ["a secret text"]})
    httpx.post(f"http://127.0.0.1:{port}/v1/explain", json={"text": "a secret text", "labels": ["secret"]})
    assert httpx.get(f"http://127.0.0.1:{port}/health", headers={"Host": "evil.test"}).status_code == 421
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "secret" not in log


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(
    ["texts", "text", "top", "model", "ask", "floor", "labels", "exact", "accepted", "removed", "user", "documents"]
)
bodies = (
    st.dictionaries(keys, json_values, max_size=5).map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=200)
)
PATHS = [
    "/v1/predict",
    "/v1/explain",
    "/v1/corrections",
    "/v1/projects/one/suggest-batch",
    "/v1/projects/one/learn",
    "/v1/extract",
]


@pytest.fixture(scope="module")
def fuzzed(versions: list[HostedModel], tmp_path_factory: pytest.TempPathFactory) -> Client:
    database = tmp_path_factory.mktemp("fuzz") / "c.db"
    return Client(Service(Shelf([versions[0]], Limits()), Limits(), Tokens(), f"sqlite:///{database}"))


@settings(max_examples=150, deadline=None)
@given(path=st.sampled_from(PATHS), body=bodies)
def test_no_body_causes_an_internal_error(fuzzed: Client, path: str, body: bytes) -> None:
    answer = fuzzed("POST", path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "body",
    [
        b'{"texts": ' + b"[" * 200_000,
        b'{"texts": ["' + b"\\ud800" * 1_000 + b'"]}',
        b'{"texts": ["\\u0000\\uffff"]}',
        b'{"texts": ["a"], "top": 1e400}',
        b'{"texts": ["a"], "top": 99999999999999999999999}',
        b'{"texts": ["a"], "floor": -1e308}',
        b'{"texts": [' + b'"",' * 500 + b'""]}',
        '{"texts": ["\N{FAMILY}\u202e\u0301 ﷽"]}'.encode(),
    ],
)
def test_odd_bodies_are_answered(fuzzed: Client, body: bytes) -> None:
    assert fuzzed("POST", "/v1/predict", content=body).status_code in (200, 400, 422)


# -- kill -9 -----------------------------------------------------------------------------------------------------------

WRITER = """
import sys
from polytag.server.corrections.correction_store import Correction, CorrectionStore
from polytag.server.corrections.database import open_database
store = CorrectionStore(open_database(sys.argv[1]))
print("ready", flush=True)
for line in sys.stdin:
    key = line.strip()
    store.add(Correction(f"text {key}", "ann", "m", "v", added=["x"], key=key))
    print(key, flush=True)
"""


def killed_writer(url: str, keys: list[str], acknowledgements: int, seconds: float) -> set[str]:
    """Corrections that a process acknowledged before it was killed without warning, in the middle of the next ones."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdin and process.stdout and process.stdout.readline() == "ready\n"
    process.stdin.write("".join(f"{key}\n" for key in keys))
    process.stdin.flush()
    found = {process.stdout.readline().strip() for _ in range(acknowledgements)}
    time.sleep(seconds)
    process.kill()
    found |= {line.strip() for line in process.stdout if line.endswith("\n")}
    process.wait()
    return found


def check_kills(url: str, times: int) -> None:
    """None that was acknowledged is lost, and none is there twice, although the last ones are sent again after each kill."""
    from polytag.server.corrections.correction_store import CorrectionStore
    from polytag.server.corrections.database import open_database

    rng, acknowledged, keys = random.Random(0), set[str](), [f"k{number}" for number in range(100_000)]
    engine = open_database(url)
    for _ in range(times):
        start = max(0, len(acknowledged) - 10)
        acknowledged |= killed_writer(url, keys[start : start + 2_000], rng.randint(5, 20), rng.uniform(0.0, 0.02))
        texts = [row["text"].removeprefix("text ") for row in CorrectionStore(engine).page(limit=100_000)]
        assert len(texts) == len(set(texts))
        assert acknowledged <= set(texts)
    engine.dispose()
    assert len(acknowledged) > times


def test_kill_9_loses_and_repeats_no_correction(tmp_path: Path) -> None:
    check_kills(f"sqlite:///{tmp_path / 'c.db'}", 4)


# -- drift -------------------------------------------------------------------------------------------------------------


def test_drift_is_small_for_texts_like_those_of_training_and_large_for_others(versions: list[HostedModel]) -> None:
    rng = np.random.default_rng(11)
    model = versions[0]
    words = ["fish", "wheat", "python", "sea"]
    alike, other = Drift(model), Drift(model)
    for _ in range(400):
        chosen = rng.choice(words, size=int(rng.integers(1, 3)), replace=False)
        alike.see([" ".join([*chosen, *rng.choice(["the", "a", "of", "again"], size=4)])])
        other.see(["lorem ipsum " + " ".join(rng.choice(["dolor", "amet", "again"], size=4))])
    same, changed = alike.report(), other.report()
    assert same["unknown_words"] < 0.05 < 0.5 < changed["unknown_words"]
    assert same["words"] < 0.25 < changed["words"]
    assert changed["drifted"] and changed["scores"] > same["scores"]
    assert alike.report()["sampled"] == same["sampled"] == 400


def test_a_promise_falls_when_corrections_contradict_it() -> None:
    from polytag import Classifier

    rng = np.random.default_rng(5)
    texts = [" ".join(rng.choice(["fish", "sea", "wheat"], size=3)) for _ in range(200)]
    labels = [sorted(set(text.split())) for text in texts]
    classifier = Classifier("br", {"c": [1.0], "promise": "recall=.9"}).fit(texts, labels)
    model = HostedModel("m", "v", classifier)
    good = [{"version": "v", "accepted": ["a"], "added": [], "removed": []}] * 40
    bad = [{"version": "v", "accepted": ["a"], "added": ["b"], "removed": []}] * 40
    assert promise_state(model, False, good)["stands"] is True  # type: ignore[index]
    assert promise_state(model, False, bad)["reason"] == "corrections contradict it"  # type: ignore[index]
    assert promise_state(model, True, good)["stands"] is False  # type: ignore[index]
    assert promise_state(model, False, [{**row, "version": "older"} for row in bad])["stands"] is True  # type: ignore[index]
