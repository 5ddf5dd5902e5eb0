"""An artefact as bytes, to send to machines that do not see its folder."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from polytag.classifier import Classifier
from polytag.storage.artefact import artefact_folder

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []  # arrays are mapped from their files as long as the process runs


def artefact_files(run: str | Path) -> dict[str, bytes]:
    """The files of an artefact, by their names within it."""
    folder = artefact_folder(run)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def loaded(files: Mapping[str, bytes]) -> Classifier:
    """The classifier of such files."""
    folder = tempfile.TemporaryDirectory(prefix="polytag-")
    _FOLDERS.append(folder)
    for name, content in files.items():
        path = Path(folder.name) / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Classifier.load(folder.name)
