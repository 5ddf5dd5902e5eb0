"""What it costs to compile for a named processor, as a container does, instead of for this one.

    python benchmarks/named_cpu.py RUN [--data ../shared/data]

RUN is a ``br`` on debtags. A process per processor predicts the test documents, in batches and one by one; the processes take
turns, and ratios are those of the best rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from peers.report import machine

OUT = Path(__file__).parent / "results" / "named_cpu.json"
NAMES = ("", "x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64")  # "" is this machine's
LOOP = """
import json, lzma, sys, time
from pathlib import Path
from polytag.kernels.compiler import host_cpu
from polytag.server.hosting.hosted_model import PLAIN, HostedModel
model = HostedModel.load(Path(sys.argv[1]))
with lzma.open(sys.argv[2], "rt", encoding="utf-8") as file:
    texts = [json.loads(line)["text"] for line in file]
print(host_cpu(), flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    for at in range(0, len(texts), 64):
        part = texts[at : at + 64]
        model.predict(part, [PLAIN] * len(part))
    middle = time.perf_counter()
    for text in texts[:1000]:
        model.predict([text], [PLAIN])
    end = time.perf_counter()
    print(json.dumps([len(texts) / (middle - start), 1000 / (end - middle)]), flush=True)
"""


def begun(name: str, run: Path, texts: Path, caches: Path) -> subprocess.Popen[str]:
    """A process with kernels for a processor."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(caches / (name or "host")), "POLYTAG_THREADS": "1"}
    if name:
        environment["NUMBA_CPU_NAME"] = name
    command = [sys.executable, "-c", LOOP, str(run), str(texts)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args()
    found: dict[str, Any] = {
        "command": "python benchmarks/named_cpu.py RUN",
        "machine": machine(),
        "rounds": told.rounds,
        "rows": {},
    }
    rows: dict[str, Any] = found["rows"]
    with tempfile.TemporaryDirectory() as caches:
        texts = told.data / "debtags" / "test.jsonl.xz"
        processes = {name: begun(name, told.run, texts, Path(caches)) for name in NAMES}
        for name, process in processes.items():
            assert process.stdout is not None
            rows[name or "host"] = {"cpu": process.stdout.readline().strip(), "batches": [], "single": []}
        for _ in range(told.rounds):
            for name, process in processes.items():
                assert process.stdin and process.stdout
                process.stdin.write("go\n")
                process.stdin.flush()
                for kind, rate in zip(("batches", "single"), json.loads(process.stdout.readline()), strict=True):
                    rows[name or "host"][kind].append(round(rate))
        for process in processes.values():
            process.communicate()
    for row in rows.values():
        row["share_of_host"] = {kind: round(max(row[kind]) / max(rows["host"][kind]), 3) for kind in ("batches", "single")}
    told.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
