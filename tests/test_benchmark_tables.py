"""The tables of the benchmarks are those of the committed results: nobody has to remember to write them anew."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ("auto", "extreme", "platforms", "tutorials/half-a-million", "tutorials/index")
CHAPTERS = [path.relative_to(ROOT) for path in sorted((ROOT / "benchmarks" / "book").glob("*.md"))]
WRITTEN = [Path(name) for name in ("README.md", *(f"docs/{name}.md" for name in DOCS))] + CHAPTERS


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The benchmarks and what they write into, without any of the tables."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    for name in WRITTEN:
        text = (ROOT / name).read_text(encoding="utf-8")
        emptied, count = re.subn(r"(<!-- results:\S+ -->\n).*?(<!-- end:)", r"\1\2", text, flags=re.DOTALL)
        assert count or name in CHAPTERS
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(emptied, encoding="utf-8")
    return folder


def test_tables_come_from_the_results(copy: Path) -> None:
    for script in ("tables.py", "extreme_tables.py"):
        subprocess.run([sys.executable, copy / "benchmarks" / script], check=True)
    subprocess.run([sys.executable, "-m", "benchmarks", "table", "all"], check=True, cwd=copy, stdout=subprocess.DEVNULL)
    for name in WRITTEN:
        assert (copy / name).read_text(encoding="utf-8") == (ROOT / name).read_text(encoding="utf-8"), name
    for path in sorted((ROOT / "benchmarks" / "results" / "tables").glob("*.json")):
        made = copy / path.relative_to(ROOT)
        assert made.read_text(encoding="utf-8") == path.read_text(encoding="utf-8"), path.name
