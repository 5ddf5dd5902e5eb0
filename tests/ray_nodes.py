"""A real Ray with two nodes on this machine, and a thread that kills one of its workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@pytest.fixture(scope="module", autouse=True)
def same_modules() -> Iterator[None]:
    """Workers import what this process imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(part for part in sys.path if part))
        yield


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[str]:
    """Two nodes of Ray on this machine, one core each; the address of the first."""
    ray = pytest.importorskip("ray")
    utility = pytest.importorskip("ray.cluster_utils")
    nodes = utility.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


def kill_a_worker(name: str, killed: list[int], stop: threading.Event, wait: float = 0.3) -> None:
    """Kill the first process with this name on its command line, once it has worked for a moment."""
    while not stop.is_set() and not killed:
        time.sleep(0.05)
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
def one_worker_killed(name: str, wait: float = 0.0) -> Iterator[None]:
    """Inside, the first worker whose title has this name is killed; it is an error if there is none."""
    killed, stop = list[int](), threading.Event()
    killer = threading.Thread(target=kill_a_worker, args=(name, killed, stop, wait))
    killer.start()
    try:
        yield
    finally:
        stop.set()
        killer.join()
    assert killed, "no worker was killed"
