"""The service under load: requests per second, latency, overload and swaps, with wrk and hey on the same machine.

    python benchmarks/serving.py                           # br on debtags: single texts, half load, swaps
    python benchmarks/serving.py --parts bert --bert RUN  # gathered against one by one, and ten times the capacity
    python benchmarks/serving.py --parts annif --annif VENV  # against Annif with omikuji, from a virtual environment

All parts run in turn on one machine, so that ratios compare; an idle machine gives the rates. A part that is measured again
replaces its numbers in the file of results, and the others stay.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers.report import machine

OUT = Path(__file__).parent / "results" / "serving.json"
DATA = Path("../shared/data")
SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "{kind}"
local bodies, n, at = {{}}, 0, 0
for line in io.lines("{bodies}") do n = n + 1; bodies[n] = line end
request = function() at = at % n + 1; return wrk.format(nil, "{path}", nil, bodies[at]) end
"""


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


@contextmanager
def started(
    command: list[str], port: int, path: str, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server, from its first answer on."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    try:
        for _ in range(1_200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextmanager
def polytag(runs: list[Path], port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The service."""
    command = [sys.executable, "-m", "polytag", "-q", "serve", *map(str, runs), "--port", str(port), *options]
    with started(command, port, "/ready") as process:
        yield process


def used(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """CPU seconds and resident MiB of a process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident = int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), resident


def wrk(url: str, script: Path, seconds: int, connections: int) -> dict[str, float]:
    """Requests per second and latencies in ms of a closed loop."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {"requests_per_second": float(re.findall(r"Requests/sec:\s+([\d.]+)", text)[0])}
    for share, value, unit in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)\b", text):
        found[f"p{share}_ms"] = float(value) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[unit]
    found["requests"] = float(re.findall(r"(\d+) requests in", text)[0])
    found["errors"] = float((re.findall(r"Non-2xx or 3xx responses: (\d+)", text) or ["0"])[0])
    return found


def hey(url: str, body: Path, seconds: int, rate: float, workers: int) -> dict[str, Any]:
    """Latencies and statuses at a rate that does not depend on the answers."""
    each = rate / workers
    command = ["hey", "-z", f"{seconds}s", "-c", str(workers), "-q", f"{each:.4f}", "-m", "POST", "-T", "application/json"]
    text = subprocess.run([*command, "-D", str(body), "-o", "csv", url], check=True, capture_output=True, text=True).stdout
    rows = [line.split(",") for line in text.splitlines()[1:]]
    times = sorted(float(row[0]) * 1000 for row in rows if row[6] == "200")
    statuses = {status: sum(row[6] == status for row in rows) for status in sorted({row[6] for row in rows})}
    found: dict[str, Any] = {"offered_per_second": rate, "sent": len(rows), "statuses": statuses}
    if times:
        found |= {"p50_ms": times[len(times) // 2], "p99_ms": times[int(len(times) * 0.99)]}
    return found


def write_bodies(folder: Path, texts: list[str]) -> dict[str, Path]:
    """Requests of one text each, for wrk and for hey."""
    paths = {name: folder / f"{name}.txt" for name in ("json", "one")}
    paths["json"].write_text("".join(json.dumps({"texts": [text]}) + "\n" for text in texts))
    paths["one"].write_text(json.dumps({"texts": [texts[0]]}))
    paths["predict"] = folder / "predict.lua"
    paths["predict"].write_text(SCRIPT.format(kind="application/json", bodies=paths["json"], path="/v1/predict"))
    return paths


def texts_of(data: Path) -> list[str]:
    """Test texts of debtags."""
    with lzma.open(data / "debtags" / "test.jsonl.xz", "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def trained(data: Path, folder: Path) -> Path:
    """``br`` on debtags."""
    place = data / "debtags"
    files = [str(place / "train.jsonl.xz"), "--valid", str(place / "valid.jsonl.xz"), "--labels", str(place / "labels.jsonl")]
    subprocess.run([sys.executable, "-m", "polytag", "-q", "train", *files, "--out", str(folder / "debtags")], check=True)
    return folder / "debtags"


def single_texts(run: Path, paths: dict[str, Path], seconds: int, rounds: int) -> dict[str, Any]:
    """The highest rate of single texts, and the latency at half of it."""
    port = free_port()
    found = []
    with polytag([run], port) as process:
        url = f"http://127.0.0.1:{port}"
        wrk(url, paths["predict"], 3, 32)
        for _ in range(rounds):
            before = used(process)[0]
            result = wrk(url, paths["predict"], seconds, 32)
            result["cpu_us_per_request"] = (used(process)[0] - before) / max(1.0, result["requests"]) * 1e6
            found.append(result)
        best = max(result["requests_per_second"] for result in found)
        half = hey(f"{url}/v1/predict", paths["one"], seconds, best / 2, 32)
    return {"rounds": found, "half_load": half}


def swaps(run: Path, paths: dict[str, Path], count: int, folder: Path) -> dict[str, Any]:
    """Reload under load: two artefacts take turns in one folder, and no request fails."""
    place, second = folder / "live" / "debtags", folder / "second"
    shutil.copytree(run, place)
    train_other = "import sys; from polytag import Classifier; c = Classifier.load(sys.argv[1]); "
    train_other += "c.decision.min_labels += 1; c.save(sys.argv[2])"
    subprocess.run([sys.executable, "-c", train_other, str(run), str(second)], check=True)
    port, versions, done = free_port(), set(), threading.Event()
    result: dict[str, Any] = {}
    with polytag([place], port) as process:
        url = f"http://127.0.0.1:{port}"
        seconds = 3_600

        def load() -> None:
            command = ["wrk", "-t1", "-c32", f"-d{seconds}s", "-s", str(paths["predict"]), url]
            sender = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            done.wait()
            sender.send_signal(signal.SIGINT)
            result["wrk"] = sender.communicate()[0]

        thread = threading.Thread(target=load)
        thread.start()
        for number in range(count):
            shutil.rmtree(place / "model")
            shutil.copytree((second if number % 2 == 0 else run) / "model", place / "model")
            request = urllib.request.Request(f"{url}/v1/admin/models/debtags/reload", method="POST")
            with urllib.request.urlopen(request, timeout=60) as answer:
                versions.add(json.loads(answer.read())["version"])
        done.set()
        thread.join()
        memory = used(process)[1]
    text = result["wrk"]
    failed = sum(
        int(number) for number in re.findall(r"(?:Non-2xx or 3xx responses: |connect |read |write |timeout )(\d+)", text)
    )
    sent = float(re.findall(r"(\d+) requests in", text)[0])
    return {"swaps": count, "versions": len(versions), "requests": sent, "failed": failed, "resident_mib": memory}


def main() -> None:
    """Run what was asked for and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--run", type=Path, help="a finished br on debtags, instead of training one")
    parser.add_argument("--bert", type=Path, help="a finished network; the part is called like its folder")
    parser.add_argument("--annif", type=Path, help="virtual environment with annif[omikuji]")
    parser.add_argument("--annif-home", type=Path, help="folder of Annif's project; a trained one is used again")
    parser.add_argument("--parts", nargs="+", choices=("br", "reload", "bert", "annif"), default=["br", "reload"])
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args()
    found: dict[str, Any] = json.loads(told.out.read_text()) if told.out.exists() else {}
    found |= {"command": "python benchmarks/serving.py", "machine": machine()}
    with tempfile.TemporaryDirectory() as temporary:
        for name, part in parts(told, Path(temporary)):
            found[name] = {"seconds": told.seconds, "load_before": os.getloadavg()[0], **part}
            told.out.write_text(json.dumps(found, indent=1) + "\n")
            print(name, json.dumps(part, indent=1), flush=True)


def parts(told: argparse.Namespace, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts that were asked for, by name."""
    texts = texts_of(told.data)
    paths = write_bodies(folder, texts)
    run = told.run.absolute() if told.run is not None else folder
    if told.run is None and {"br", "reload", "annif"} & {*told.parts}:
        run = trained(told.data, folder)
    if "br" in told.parts:
        yield "br", single_texts(run, paths, told.seconds, told.rounds)
    if "reload" in told.parts:
        yield "reload", swaps(run, paths, told.swaps, folder)
    if "annif" in told.parts:
        from serving_annif import compared

        home = told.annif_home or folder / "annif"
        yield "annif", compared(told.annif, told.data, run, texts, folder, home, told.seconds, told.rounds)
    if "bert" in told.parts:
        from serving_network import measured

        yield told.bert.name, measured(told.bert, texts, folder / "network", told.seconds, told.rounds)


if __name__ == "__main__":
    main()
