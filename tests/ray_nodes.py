"""A real Ray with two nodes on this machine, and a thread that kills one of its workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest


@pytest.fixture(scope="module")
def same_modules() -> Iterator[None]:
    """Workers import what this process imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(part for part in sys.path if part))
        patch.setenv("RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S", "120")  # a busy machine starts a client's server slowly
        yield


class Nodes(NamedTuple):
    """The addresses of a cluster: within it, and for clients."""

    address: str
    client: str


@pytest.fixture(scope="module")
def ray_cluster(same_modules: None) -> Iterator[Nodes]:
    """Two nodes of Ray on this machine, one core each."""
    ray = pytest.importorskip("ray")
    utility = pytest.importorskip("ray.cluster_utils")
    with socket.socket() as chosen:
        chosen.bind(("", 0))
        port = chosen.getsockname()[1]
    head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": port}
    nodes = utility.Cluster(initialize_head=True, head_node_args=head)
    nodes.add_node(num_cpus=1)
    yield Nodes(nodes.address, f"ray://127.0.0.1:{port}")
    ray.shutdown()
    nodes.shutdown()


def kill_a_worker(name: str, killed: list[int], stop: threading.Event, wait: float = 0.3, once: Path | None = None) -> None:
    """Kill the first process with this name on its command line, once it has worked for a moment and ``once`` exists."""
    while not stop.is_set() and not killed:
        time.sleep(0.05)
        if once is not None and not once.exists():
            continue
        found = subprocess.run(["pgrep", "-f", name], capture_output=True, text=True).stdout.split()
        for process in map(int, found):
            if process != os.getpid():
                time.sleep(wait)
                try:
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)
                    break
                except ProcessLookupError:
                    continue


@contextmanager
def one_worker_killed(name: str, once: Path | None = None) -> Iterator[None]:
    """Inside, the first worker whose title has this name is killed; it is an error if there is none."""
    killed, stop = list[int](), threading.Event()
    killer = threading.Thread(target=kill_a_worker, args=(name, killed, stop, 0.0, once))
    killer.start()
    try:
        yield
    finally:
        stop.set()
        killer.join()
    assert killed, "no worker was killed"
