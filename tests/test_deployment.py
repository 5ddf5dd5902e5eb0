"""The container: its files agree with each other and with the service; its steps work in a fresh root, which answers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from polytag.server.startup import Plan
from test_server import trained

HERE = Path(__file__).resolve().parent.parent
DEPLOY = HERE / "deploy"
sys.path += [str(DEPLOY), str(HERE / "benchmarks")]


def test_the_manifests_agree_with_the_dockerfile_and_the_service() -> None:
    """Ports, user, paths and probes are the same everywhere, and the probes are routes that need no token."""
    from fresh_root import instructions

    yaml = pytest.importorskip("yaml")
    steps = list(instructions((DEPLOY / "Dockerfile").read_text()))
    port = int(next(rest for word, rest in steps if word == "EXPOSE"))
    assert port == Plan([]).port
    user = next(re.findall(r"useradd --uid (\d+)", rest)[0] for word, rest in steps if word == "RUN" and "useradd" in rest)
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == int(user) and pod["securityContext"]["runAsNonRoot"]
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert probes == {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    assert {"/runs", "/tokens", "/data", "/tmp"} == mounted
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["polytag"]
    assert compose["build"]["dockerfile"] == "deploy/Dockerfile" and compose["ports"] == [f"127.0.0.1:{port}:{port}"]
    entry = next(rest for word, rest in steps if word == "ENTRYPOINT")
    assert "/tokens/tokens.jsonl" in entry and steps.index(("USER", "polytag")) < [word for word, _ in steps].index("ENTRYPOINT")


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """The folder for roots; another user has to enter it, and pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="root", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.services
def test_a_fresh_root_answers_with_the_kernels_of_its_build(base: Path) -> None:
    """The Dockerfile's steps in a new Debian; the service runs as its user, on read-only files, and compiles nothing."""
    from container import first_answer, token_in
    from fresh_root import FreshRoot, impossible

    reason = impossible()
    if reason:
        pytest.skip(f"no root can be made: {reason}")
    root = FreshRoot(base / "root")
    saved = os.environ.get("POLYTAG_BASE")
    root.build(DEPLOY / "Dockerfile", Path(saved) if saved else None)
    kernels = base / "root" / "opt" / "polytag" / "kernels"
    compiled = sorted(kernels.rglob("*.nbc"))
    assert len(compiled) >= 20
    classifier = trained()
    classifier.save(base / "one")
    tokens = base / "tokens"
    tokens.mkdir()
    token = token_in(tokens)
    answers = [first_answer(root, base / "one", tokens, token) for _ in range(3)]
    text = "a python library for web servers"
    assert all(found["predictions"][0]["labels"] == classifier.predict([text])[0] for _, found in answers)
    print(f"first answers after {[round(seconds, 2) for seconds, _ in answers]} s")  # benchmarks/container.py has the bar
    used = root.command(["python3", "-c", PROBE], closed=True, mounts={base / "one": "/runs/model"})
    hits = subprocess.run(used, check=True, capture_output=True, text=True).stdout.split()
    assert hits == ["x86-64-v3", "True", "False"]


PROBE = """
from pathlib import Path
from polytag.kernels.compiler import KERNELS, host_cpu
from polytag.server.hosting.hosted_model import HostedModel
HostedModel.load(Path("/runs/model"))
used = [kernel for kernel, _ in KERNELS.values() if kernel.signatures]
print(host_cpu(), bool(used), any(sum(kernel.stats.cache_misses.values()) for kernel in used))
"""
