"""The first answer of a freshly started container: the steps of deploy/Dockerfile in a fresh root, where no daemon runs.

    python deploy/fresh_root.py ROOT && python benchmarks/container.py ROOT br=RUN
    python deploy/fresh_root.py ROOT --arg EXTRAS=serve,postgres,nn,export && python benchmarks/container.py ROOT bert=RUN

The time is from the start of the command to the first prediction, as the container's user, with everything read-only but /tmp and
the working folder. The pages of the root's files may be in memory from the start before; the first round shows what that changes.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from peers.report import machine
from serving import free_port

HERE = Path(__file__).resolve().parent
OUT = HERE / "results" / "container.json"
sys.path.insert(0, str(HERE.parent / "deploy"))


def answer(port: int, token: str, timeout: float) -> dict[str, Any]:
    """The first prediction, as soon as there is one."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps({"texts": ["a python library for web servers"]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/predict", body, headers)
    end = time.monotonic() + timeout
    while True:
        try:
            with urllib.request.urlopen(request, timeout=timeout) as found:
                return dict(json.loads(found.read()))
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def first_answer(root: Any, run: Path, tokens: Path, token: str) -> tuple[float, dict[str, Any]]:
    """Seconds from the start of a service in a root to its first prediction, and the prediction."""
    port = free_port()
    words = [*root.entry, "--port", str(port), "/runs/model"]
    command = root.command(words, mounts={run.absolute(): "/runs/model", tokens.absolute(): "/tokens"}, closed=True)
    start = time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        found = answer(port, token, 120)
        return time.monotonic() - start, found
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def started_root(folder: Path) -> Any:
    """A root that was made before, with what the Dockerfile says about its user, variables and command."""
    from fresh_root import FreshRoot, instructions

    root = FreshRoot(folder.absolute())
    root.variables["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    for word, rest in instructions((HERE.parent / "deploy" / "Dockerfile").read_text()):
        if word not in ("FROM", "RUN", "COPY"):
            root.step(word, rest, None)
    return root


def token_in(folder: Path) -> str:
    """A token, and the file that a service reads."""
    command = [sys.executable, "-m", "polytag", "token", "add", str(folder / "tokens.jsonl"), "ann"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    folder.chmod(0o755)
    (folder / "tokens.jsonl").chmod(0o644)
    return text.split()[-1]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args()
    found: dict[str, Any] = json.loads(told.out.read_text()) if told.out.exists() else {"first_answer_s": {}}
    found |= {"command": "python benchmarks/container.py ROOT NAME=RUN", "machine": machine()}
    root = started_root(told.root)
    with tempfile.TemporaryDirectory() as place:
        tokens = Path(place)
        token = token_in(tokens)
        for name, run in (one.split("=", 1) for one in told.runs):
            times = [first_answer(root, Path(run), tokens, token)[0] for _ in range(told.rounds)]
            found["first_answer_s"][name] = {"rounds": times, "median": sorted(times)[len(times) // 2]}
    told.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
