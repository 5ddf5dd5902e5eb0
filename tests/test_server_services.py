"""The service against programs from outside: schemathesis, PostgreSQL, and Annif as a client."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
import httpx

from polytag import Classifier
from polytag.server.access import Tokens
from polytag.server.app import create_app
from polytag.server.hosting.hosted_model import HostedModel
from polytag.server.hosting.model_shelf import Shelf
from polytag.server.limits import Limits
from polytag.server.service import Service
from test_server import TEXTS, check_database, trained
from test_server_load import app_of, check_kills, running

pytestmark = pytest.mark.services
SCHEMA_REQUESTS = 2_000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> HostedModel:
    folder = tmp_path_factory.mktemp("runs") / "one"
    trained().save(folder)
    return HostedModel.load(folder)


# -- schemathesis ------------------------------------------------------------------------------------------------------


def test_no_request_that_the_document_allows_causes_an_internal_error(model: HostedModel, tmp_path: Path) -> None:
    """At least 2,000 requests made from the OpenAPI document: no status of 500, and statuses and types as documented."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings

    service = Service(Shelf([model], Limits()), Limits(), Tokens(), f"sqlite:///{tmp_path / 'c.db'}")
    sent = 0
    with running(create_app(service)) as port:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
        operations = [result.ok() for result in schema.get_all_operations()]
        each = -(-SCHEMA_REQUESTS // len(operations))
        while sent < SCHEMA_REQUESTS:  # an operation without parameters has one request, so that one round may not be enough
            for operation in operations:

                @settings(
                    max_examples=each, deadline=None, database=None, phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )  # fmt: skip
                @given(case=operation.as_strategy())
                def check(case: Any) -> None:
                    nonlocal sent
                    sent += 1
                    answer = case.call(base_url=f"http://127.0.0.1:{port}", timeout=30)
                    assert answer.status_code != 500, (case.as_curl_command(), answer.text)
                    if answer.status_code >= 400:
                        assert answer.headers["content-type"][0] == "application/problem+json", case.as_curl_command()

                check()
    print(f"{sent} requests to {len(operations)} operations")
    assert sent >= SCHEMA_REQUESTS


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


def _programs() -> Path | None:
    """The folder of PostgreSQL's programs: Debian keeps them out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    place = shutil.which("initdb")
    return None if place is None else Path(place).parent


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL of its own, which a test starts and stops; as root it runs as the user postgres."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    folder.chmod(0o777)
    data = folder / "data"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    initialise = [*user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"]
    subprocess.run(initialise, check=True, **quiet)
    options = ["-p", str(port), "-k", str(folder), "-h", "127.0.0.1"]
    process = subprocess.Popen([*user, str(programs / "postgres"), "-D", str(data), *options], **quiet)
    try:
        for _ in range(300):
            ready = subprocess.run([str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)], check=False, **quiet)
            if ready.returncode == 0:
                break
            time.sleep(0.1)
        yield f"postgresql://postgres@127.0.0.1:{port}/"
    finally:
        process.send_signal(signal.SIGINT)  # does not wait for clients
        process.wait(30)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder that another user can enter; pytest's own are private."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="pg") as name:
        yield Path(name)


def test_postgresql_keeps_corrections_like_sqlite(short_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    import psycopg

    with postgres(short_folder) as url:
        with psycopg.connect(f"{url}postgres", autocommit=True) as connection:
            for name in ("one", "two", "kills"):
                connection.execute(f"CREATE DATABASE {name}")
        check_database(f"{url}one", f"{url}two", tmp_path)
        check_kills(f"{url}kills", 20)


def test_kill_9_twenty_times_on_sqlite(tmp_path: Path) -> None:
    check_kills(f"sqlite:///{tmp_path / 'c.db'}", 20)


# -- Annif as a client -------------------------------------------------------------------------------------------------


def _annif() -> str | None:
    """Annif's command, in the path or in an environment of its own (``.venvs/annif``)."""
    own = Path(__file__).resolve().parent.parent / ".venvs" / "annif" / "bin" / "annif"
    return os.environ.get("POLYTAG_ANNIF") or (str(own) if own.exists() else shutil.which("annif"))


def test_annifs_own_http_backend_gets_its_suggestions_here(model: HostedModel, tmp_path: Path) -> None:
    """``annif suggest`` with backend http shows the labels and scores of the classifier."""
    program = _annif()
    if program is None:
        pytest.skip("annif is not installed; make .venvs/annif, or name it by POLYTAG_ANNIF")
    labels = model.classifier.labels.names
    rows = "".join(f"<{label}>\t{label}\n" for label in labels)
    (tmp_path / "vocab.tsv").write_text(rows)
    app, _ = app_of(model)
    with running(app) as port:
        (tmp_path / "projects.cfg").write_text(
            "[far]\nname=far\nlanguage=en\nbackend=http\nvocab=v\nlimit=4\n"
            f"endpoint=http://127.0.0.1:{port}/v1/projects/one/suggest\n"
        )

        def annif(*arguments: str, text: str = "") -> str:
            done = subprocess.run(
                [program, *arguments], input=text, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        annif("load-vocab", "--language", "en", "v", "vocab.tsv")
        out = annif("suggest", "far", text=TEXTS[0])
    found = [line.split("\t") for line in out.splitlines() if line.strip()]
    best = [(name, score) for name, score in model.classifier.scores([TEXTS[0]]).top(4)[0]]
    assert [row[1] for row in found] == [name for name, _ in best]
    assert [float(row[-1]) for row in found] == pytest.approx([score for _, score in best], abs=1e-3)


def test_without_the_extra_the_verb_is_one_line(tmp_path: Path) -> None:
    """Without the extra, the verb is one line and exit code 2."""
    blocked = tmp_path / "fastapi"
    blocked.mkdir()
    (blocked / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'fastapi'\", name='fastapi')\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "polytag", "serve", "x"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "polytag[serve]" in done.stderr


def test_learning_from_corrections_goes_live(tmp_path: Path) -> None:
    """Correct, learn, see the difference, go live, and back; the run on disk follows."""
    if not hasattr(Classifier, "learn"):
        pytest.skip("classifiers do not learn yet")
    trained().save(tmp_path / "one")
    service = Service(Shelf.load([tmp_path / "one"], Limits()), Limits(), Tokens(), f"sqlite:///{tmp_path / 'c.db'}")
    with running(create_app(service)) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        first = client.get("/v1/models").json()["models"][0]["version"]
        for number in range(8):
            said = {"text": f"quantum computer {number}", "added": ["physics"], "user": "ann"}
            assert client.post("/v1/corrections", json=said).status_code == 201
        report = client.post("/v1/admin/models/one/learn").json()
        assert report["live"] == first != report["candidate"]
        gained = report["difference"]["corrections"]["changes"]["rows"]
        assert any(row["label"] == "physics" for row in gained)
        assert client.post("/v1/predict", json={"texts": ["quantum computer"]}).json()["version"] == first
        assert client.post("/v1/admin/models/one/live").json()["version"] == report["candidate"]
        answer = client.post("/v1/predict", json={"texts": ["quantum computer"]}).json()
        assert answer["version"] == report["candidate"] == HostedModel.version_at(tmp_path / "one")
        assert answer["predictions"][0]["labels"] == ["physics"]
        assert client.post("/v1/admin/models/one/learn").status_code == 409
        assert client.post("/v1/admin/models/one/back").json()["version"] == first == HostedModel.version_at(tmp_path / "one")
