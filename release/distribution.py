"""Make everything that a release consists of: ``python release/distribution.py [--out dist]``.

Writes the wheel, the source distribution, a software bill of materials for each set of extras, and the checksums of all of them.
The wheel is reproducible: its times are those of the last commit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bill_of_materials import bill

ROOT = Path(__file__).resolve().parent.parent
EXTRAS: dict[str, tuple[str, ...]] = {"core": (), "nn-serve": ("nn", "serve")}
SUMS = "SHA256SUMS"


def main() -> None:
    """Build, describe, sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the release [default: dist]")
    out: Path = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    build(out)
    for name, extras in EXTRAS.items():
        text = json.dumps(bill("polytag", extras), indent=2, ensure_ascii=False) + "\n"
        (out / f"polytag-{name}.cdx.json").write_text(text, encoding="utf-8")
    (out / SUMS).write_text(checksums(out), encoding="utf-8")
    print((out / SUMS).read_text(encoding="utf-8"), end="")


def build(out: Path) -> None:
    """The wheel and the source distribution, with the time of the last commit."""
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # setuptools would pack files that are gone
    when = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": when.stdout.strip() or "1767225600"}
    subprocess.run([sys.executable, "-m", "build", "--outdir", out, ROOT], check=True, env=environment, stdout=subprocess.DEVNULL)


def checksums(folder: Path) -> str:
    """One line for each file, as ``sha256sum --check`` reads it."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


if __name__ == "__main__":
    main()
