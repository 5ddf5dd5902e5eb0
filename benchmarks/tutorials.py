"""Run every tutorial from top to bottom with a clock: ``python benchmarks/tutorials.py [NAME...]``.

Each page starts in a new folder and has the whole sample. Commands are run by a shell as a reader types them, Python examples in
one namespace per page. Examples that are marked as not run are left out. The results go to results/tutorials.json.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGES = ROOT / "docs" / "tutorials"
OUT = HERE / "results" / "tutorials.json"


def play(page: Path, folder: Path) -> dict[str, Any]:
    """Run a page; the seconds of all commands, the longest one, and how many there are."""
    sys.path.insert(0, str(ROOT / "tests"))
    docs: Any = importlib.import_module("test_docs")
    module = types.ModuleType("tutorial")
    took: list[tuple[float, str]] = []
    os.chdir(folder)
    for block in docs.blocks(page):
        if "file" in block.notes:
            Path(block.notes["file"]).write_text(block.text, encoding="utf-8")
        if block.not_run:
            continue
        if block.language == "python":
            start = time.perf_counter()
            exec(compile("\n" * block.line + block.text, str(page), "exec"), module.__dict__)
            took.append((time.perf_counter() - start, "a Python example"))
        elif block.language == "console":
            for command, shown in docs.commands(block):
                took.append((_timed(command, wanted=2 if shown.startswith("polytag: ") else 0), command))
    seconds, longest = max(took)
    total = sum(one for one, _ in took)
    return {"commands": len(took), "seconds": round(total, 1), "longest_seconds": round(seconds, 1), "longest": longest}


def _timed(command: str, wanted: int) -> float:
    start = time.perf_counter()
    shell = f'polytag() {{ "{sys.executable}" -m polytag "$@"; }}; {command}'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    if done.returncode != wanted:
        raise SystemExit(f"{command}: ended with {done.returncode}: {done.stderr[-1000:]}")
    return time.perf_counter() - start


def main() -> None:
    """Run the pages; rows of other pages stay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [page.stem for page in sorted(PAGES.glob("*.md")) if page.stem != "index"]
    parser.add_argument("names", nargs="*", help=f"tutorials [default: {', '.join(names)}]")
    parser.add_argument("--out", type=Path, default=OUT)
    told = parser.parse_args()
    out: Path = told.out.resolve()
    rows = {row["tutorial"]: row for row in json.loads(out.read_text(encoding="utf-8"))["rows"]} if out.exists() else {}
    for name in told.names or names:
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = {"tutorial": name, **play(PAGES / f"{name}.md", Path(folder))}
            os.chdir(ROOT)
        print(rows[name], flush=True)
        note = "Two cores without other work; a filled cache of compiled code; one run each."
        made = {"command": "python benchmarks/tutorials.py", "note": note, "rows": [rows[one] for one in names if one in rows]}
        out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
