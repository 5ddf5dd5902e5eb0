"""The artefact: one folder of JSON and safetensors, written atomically, verified and memory-mapped when read.

``artefact.json`` has the tree of plain values, and the name, size and checksum of every array file.
``arrays-<checksum>.safetensors`` have the arrays, each named by its JSON pointer in the tree.
Array files are named by their content, so a new artefact never overwrites the files of the old one.
Replacing ``artefact.json`` is the only switch between the two.
``README.md`` is the model card. Nothing reads it; ``artefact.json`` has its checksum, which tells whether it is of this model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from polytag.errors import ArtefactError, PolytagError
from polytag.storage.array_files import Arrays, file_chunks, map_arrays
from polytag.storage.state_json import State, decode, encode

FORMAT = 1
MANIFEST = "artefact.json"
CARD = "README.md"
SHARD_BYTES = 1 << 30
_ARRAY_FILE = re.compile(r"arrays-[0-9a-f]{12}\.safetensors")
_TEMPORARY = re.compile(r"\.writing-[0-9a-f]{32}\.tmp")
_SEAL = re.compile(rb'\{"sha256": "([0-9a-f]{64})",\n')
_REMEDY = "copy the folder again from where it was saved, or train again"


class ArtefactInfo(NamedTuple):
    """The metadata of an artefact: format number, version that wrote it, files and their total size.

    ``card`` says whether the model card is the one that was saved with it: ``as saved``, ``changed`` or ``missing``.
    """

    format: int
    polytag: str
    files: tuple[str, ...]
    bytes: int
    card: str = "missing"


def polytag_version() -> str:
    """The installed version of this package."""
    try:
        return metadata.version("polytag")
    except metadata.PackageNotFoundError:
        return "unknown"


def artefact_folder(path: str | Path) -> Path:
    """The folder of the artefact, given that folder or the folder of its run."""
    path = Path(path)
    for folder in (path, path / "model"):
        if (folder / MANIFEST).is_file():
            return folder
    if not path.exists():
        raise ArtefactError(f"{path}: no such folder; name the folder of a run or of its model")
    if not path.is_dir():
        raise ArtefactError(f"{path} is a file; name the folder of a run or of its model")
    if (path / "log.jsonl").exists():
        raise ArtefactError(f"{path}: this run has no model yet; let its training finish, or start it again with --resume")
    raise ArtefactError(f"{path} is not an artefact (there is no {MANIFEST}); name the folder of a run or of its model")


def manifest_digest(folder: Path) -> str:
    """A checksum of an artefact; its manifest includes the checksums of all files."""
    return file_digest(folder / MANIFEST)


def file_digest(path: Path) -> str:
    """The sha256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- writing ---------------------------------------------------------------------------------------------------------


def write_artefact(folder: str | Path, state: State, check: Callable[[State], None] | None = None, card: str = "") -> None:
    """Save a state in a new or existing folder, atomically: a kill leaves either the old or the new state.

    ``card`` is the text of the model card. It follows the state: after a kill the one of the earlier state may be there.

    ``check`` gets the state as read back from the new files, before they replace the old ones. If it raises, nothing is saved.
    """
    folder = Path(folder)
    tree, arrays = encode(state)
    kept: set[str] = set()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept = {path.name for path in folder.iterdir()}
        files = [_write_shard(folder, shard) for shard in _shards(arrays)]
        _sync_folder(folder)
        readme, digest, _ = _write_temporary(folder, [card.encode("utf-8", "replace")]) if card else (None, "", 0)
        manifest = _write_temporary(folder, [_manifest(tree, files, digest)])[0]
        if check is not None:
            check(_read_back(folder, manifest))
        os.replace(manifest, folder / MANIFEST)
        kept |= {file["name"] for file in files}
        if readme is not None:
            os.replace(readme, folder / CARD)
        _sync_folder(folder)
    except Exception as error:
        _remove_leftovers(folder, kept)
        if isinstance(error, OSError):
            reason = f"cannot save here ({error.strerror or error}); make room or name another folder; nothing was lost"
        elif isinstance(error, ArtefactError):
            reason = f"nothing was saved, as it could not be loaded again: {str(error).removeprefix(f'{folder}: ')}"
        else:
            raise
        raise ArtefactError(f"{folder}: {reason}") from None
    _remove_leftovers(folder, {file["name"] for file in files})


def _read_back(folder: Path, path: Path) -> State:
    """The state that these files hold; their checksums were computed a moment ago."""
    manifest = _parse_manifest(path, path.read_bytes())
    return _mapped(folder, manifest, [folder / file["name"] for file in manifest["files"]], True)


def _shards(arrays: Arrays) -> Iterator[Arrays]:
    """Fill files up to the limit in the order of the tree; a larger array gets a file of its own."""
    shard: Arrays = {}
    size = 0
    for name, array in arrays.items():
        if shard and size + array.nbytes > SHARD_BYTES:
            yield shard
            shard, size = {}, 0
        shard[name] = array
        size += array.nbytes
    if shard:
        yield shard


def _write_shard(folder: Path, shard: Arrays) -> dict[str, Any]:
    temporary, digest, size = _write_temporary(folder, file_chunks(shard))
    target = folder / f"arrays-{digest[:12]}.safetensors"
    if target.is_file() and target.stat().st_size == size and file_digest(target) == digest:
        temporary.unlink()  # the same arrays are already there, perhaps mapped by this process
    else:
        os.replace(temporary, target)
    return {"name": target.name, "bytes": size, "sha256": digest}


def _manifest(tree: Any, files: list[dict[str, Any]], card: str = "") -> bytes:
    """The text of artefact.json; the first line is the checksum of the rest. ``card`` is the checksum of the model card."""
    parts = {"format": FORMAT, "polytag": polytag_version(), **({"card": card} if card else {}), "files": files, "state": tree}
    lines = ",\n".join(f'"{key}": {json.dumps(part, allow_nan=False)}' for key, part in parts.items())
    body = f"{lines}\n}}\n".encode("ascii")
    return f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode("ascii") + body


def _write_temporary(folder: Path, chunks: Iterable[bytes | memoryview]) -> tuple[Path, str, int]:
    """Write chunks to a temporary file and sync it to disk; returns path, checksum and size."""
    path = folder / f".writing-{uuid.uuid4().hex}.tmp"
    digest, size = hashlib.sha256(), 0
    with open(path, "xb") as out:
        for chunk in chunks:
            out.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        out.flush()
        os.fsync(out.fileno())
    return path, digest.hexdigest(), size


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk, where the system supports it."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_unused(folder: Path) -> None:
    """Remove what an interrupted save left beside an artefact, if there is one."""
    with contextlib.suppress(OSError, ArtefactError):
        manifest = _parse_manifest(folder / MANIFEST, _manifest_bytes(folder))
        _remove_leftovers(folder, {file["name"] for file in manifest["files"]})


def _remove_leftovers(folder: Path, named: set[str]) -> None:
    """Remove temporary files and all array files that are not named; then the folder, if it is empty."""
    with contextlib.suppress(OSError):  # what cannot be removed now (a mapped file, on some systems) is removed by the next save
        for path in sorted(folder.iterdir()):
            old = _ARRAY_FILE.fullmatch(path.name) and path.name not in named
            if old or _TEMPORARY.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()
        folder.rmdir()  # fails unless it is empty


# --- reading ---------------------------------------------------------------------------------------------------------


def read_artefact(folder: str | Path, *, verify: bool = True) -> State:
    """The saved state with read-only, memory-mapped arrays; without ``verify`` checksums of arrays are not checked."""
    folder = Path(folder)
    while True:
        raw = _manifest_bytes(folder)
        manifest = _parse_manifest(folder / MANIFEST, raw)
        try:
            return _assemble(folder, manifest, verify)
        except FileNotFoundError as error:
            # Another process may have saved a new artefact in the meantime; if so, read that one.
            if _manifest_bytes(folder) == raw:
                raise ArtefactError(f"{error.filename}: the file is missing; {_REMEDY}") from None


def artefact_info(folder: str | Path) -> ArtefactInfo:
    """The metadata of an artefact; its arrays are not read."""
    folder = Path(folder)
    raw = _manifest_bytes(folder)
    manifest = _parse_manifest(folder / MANIFEST, raw)
    files = tuple(str(file["name"]) for file in manifest["files"])
    size = len(raw) + sum(file["bytes"] for file in manifest["files"])
    return ArtefactInfo(manifest["format"], manifest["polytag"], files, size, _card_state(folder, manifest.get("card")))


def _card_state(folder: Path, digest: Any) -> str:
    try:
        return "as saved" if file_digest(folder / CARD) == digest else "changed"
    except OSError:
        return "missing"


def saved_model(run: str | Path) -> str:
    """The name of the model in a run or its model folder, from the first bytes of its manifest; empty if it is not there.

    Nothing is checked: whoever reads the artefact does that.
    """
    try:
        with (artefact_folder(run) / MANIFEST).open("rb") as file:
            found = re.search(rb'"state": \{"model": "([\w-]+)"', file.read(1 << 16))
    except (OSError, PolytagError):
        return ""
    return found[1].decode() if found else ""


def _manifest_bytes(folder: Path) -> bytes:
    try:
        return (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if not folder.is_dir():
            raise ArtefactError(f"{folder}: no such folder; name the folder of a trained model") from None
        raise ArtefactError(f"{folder} is not an artefact (there is no {MANIFEST}); name the folder of a trained model") from None
    except OSError as error:
        raise ArtefactError(f"{folder / MANIFEST}: cannot be read ({error.strerror})") from None


def _parse_manifest(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError):
        raise ArtefactError(f"{path} is not valid JSON: damaged or cut short; {_REMEDY}") from None
    number = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(number, int):
        raise ArtefactError(f"{path} does not describe a Polytag artefact; name the folder of a trained model")
    if number > FORMAT:
        raise ArtefactError(f"{path} has format {number}, and this Polytag reads up to {FORMAT}: update Polytag, or train again")
    seal = _SEAL.match(raw)
    if not seal or hashlib.sha256(raw[seal.end() :]).hexdigest().encode("ascii") != seal[1]:
        raise ArtefactError(f"{path} was changed after it was saved (its checksum differs); {_REMEDY}")
    _check_manifest(path, manifest)
    return dict(manifest)


def _check_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Reject a manifest that this package cannot have written, above all file names outside the folder."""
    files = manifest.get("files")
    sound = isinstance(manifest.get("polytag"), str) and isinstance(manifest.get("state"), dict) and isinstance(files, list)
    for file in files if sound and files else []:
        sound = sound and isinstance(file, dict) and isinstance(file.get("bytes"), int) and isinstance(file.get("sha256"), str)
        sound = sound and isinstance(file.get("name"), str) and _ARRAY_FILE.fullmatch(file["name"]) is not None
    if not sound:
        raise ArtefactError(f"{path} is not a valid description of a Polytag artefact; {_REMEDY}")


def _assemble(folder: Path, manifest: dict[str, Any], verify: bool) -> State:
    files = {folder / file["name"]: file for file in manifest["files"]}
    for path, file in files.items():
        size = path.stat().st_size
        if size != file["bytes"]:
            what = "cut short" if size < file["bytes"] else "changed"
            raise ArtefactError(f"{path} was {what} ({size} bytes instead of {file['bytes']}); {_REMEDY}")
    with ThreadPoolExecutor(1) as pool:  # checksums of a large model take as long as the rest
        digests = pool.map(file_digest, files if verify else ())
        try:
            return _mapped(folder, manifest, files, verify)
        finally:  # also after a decoding error: a changed file is the more helpful reason
            for (path, file), digest in zip(files.items(), digests, strict=False):
                if digest != file["sha256"]:
                    raise ArtefactError(f"{path} was changed after it was saved (its checksum differs); {_REMEDY}") from None


def _mapped(folder: Path, manifest: dict[str, Any], files: Iterable[Path], verify: bool) -> State:
    arrays: Arrays = {}
    for path in files:
        try:
            arrays.update(map_arrays(path))
        except (ValueError, OverflowError, RecursionError) as error:
            raise ArtefactError(f"{path} is not a valid safetensors file ({error}); {_REMEDY}") from None
    try:
        state = decode(manifest["state"], arrays, verify)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise ArtefactError(f"{folder / MANIFEST} and its array files are inconsistent ({error}); {_REMEDY}") from None
    if not isinstance(state, dict):
        raise ArtefactError(f"{folder / MANIFEST} has a state that is no table; {_REMEDY}")
    return state
