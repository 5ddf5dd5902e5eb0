"""Files of apt on a Debian machine: package lists, translations and the debtags vocabulary."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from polytag.errors import DataError

LISTS = Path("/var/lib/apt/lists")
VOCABULARY = Path("/usr/share/debtags/vocabulary")
ENDINGS = ("", ".lz4", ".zst", ".gz", ".xz", ".bz2", ".lzma")


def find_packages(lists: Path = LISTS) -> list[Path]:
    """Find the package indexes that apt downloaded, one file per index."""
    found = _one_each(lists, "*_Packages")
    if not found:
        raise DataError(f"no package index in {lists}; run 'apt-get update' on a Debian machine, or give Packages files")
    return found


def find_translations(language: str, lists: Path = LISTS) -> list[Path]:
    """Find the description files of one language that apt downloaded; long English descriptions are in such files too."""
    found = _one_each(lists, f"*_i18n_Translation-{language}")
    if not found:
        update = f"apt-get -o Acquire::Languages={language} update"
        raise DataError(f"no descriptions in the language {language!r} in {lists}; run '{update}', or give Translation files")
    return found


def find_vocabulary(installed: Path = VOCABULARY) -> Path | str:
    """Find the debtags vocabulary: the installed file, or its text from the package ``debtags``, downloaded with apt."""
    return installed if installed.is_file() else _vocabulary_from_package()


def _one_each(lists: Path, pattern: str) -> list[Path]:
    found: dict[str, Path] = {}
    for ending in ENDINGS:
        for path in sorted(lists.glob(pattern + ending)):
            found.setdefault(path.name.removesuffix(ending), path)
    return [found[name] for name in sorted(found)]


def _vocabulary_from_package() -> str:
    advice = "install the package 'debtags', or give the vocabulary file that is in it"
    with tempfile.TemporaryDirectory() as folder:
        _run(["apt-get", "download", "debtags"], folder, advice)
        package = next(Path(folder).glob("debtags_*.deb"), None)
        if package is None:
            raise DataError(f"apt-get downloaded no debtags package; {advice}")
        _run(["dpkg-deb", "--extract", package.name, "files"], folder, advice)
        file = Path(folder, "files").joinpath(*VOCABULARY.parts[1:])
        if not file.is_file():
            raise DataError(f"the package debtags has no {VOCABULARY.name}; {advice}")
        return file.read_text(encoding="utf-8")


def _run(command: list[str], folder: str, advice: str) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise DataError(f"the debtags vocabulary is not installed and there is no {command[0]} to get it; {advice}") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DataError(f"the debtags vocabulary is not installed and '{' '.join(command)}' failed ({reason}); {advice}")
