"""A million documents through ``polytag predict``: peak memory, completeness, order.

python benchmarks/streaming.py [--documents 1000000]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peers.report import machine
from polytag.datasets import load_sample, sample_path

OUT = Path(__file__).parent / "results" / "streaming.json"


def write_documents(path: Path, count: int) -> None:
    """Runs of 10 to 59 words cut from the shipped sample, seeded."""
    words = " ".join(load_sample()[0].texts[:800]).split()
    rng = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            start, size = rng.randrange(len(words) - 60), rng.randrange(10, 60)
            file.write(json.dumps({"id": str(number), "text": " ".join(words[start : start + size])}) + "\n")


def main() -> None:
    """Train on the sample, label the generated file, and look at what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    count = parser.parse_args().documents
    polytag = [sys.executable, "-m", "polytag", "-q"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_documents(folder / "in.jsonl", count)
        files = {name: str(sample_path(name)) for name in ("train", "valid", "labels")}
        told = ["train", files["train"], "--valid", files["valid"], "--labels", files["labels"], "--out", str(folder / "run")]
        subprocess.run([*polytag, *told], check=True)
        trained = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        start = time.perf_counter()
        code = "import sys, resource; from polytag.verbs.prediction import predict_file; predict_file(*sys.argv[1:4]);"
        code += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        paths = [str(folder / name) for name in ("run", "in.jsonl", "out.jsonl")]
        done = subprocess.run([sys.executable, "-c", code, *paths], check=True, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        with (folder / "out.jsonl").open(encoding="utf-8") as file:
            ordered = [json.loads(line)["id"] == str(number) for number, line in enumerate(file)]
    found = {
        "command": "python benchmarks/streaming.py",
        "machine": machine(),
        "documents": count,
        "written": len(ordered),
        "in_order": all(ordered),
        "peak_mib": round(int(done.stdout.split()[-1]) / 1024),
        "seconds": round(seconds, 1),
        "documents_per_second": round(count / seconds),
        "training_peak_mib": round(trained / 1024),
    }
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
