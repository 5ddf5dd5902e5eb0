"""Opening text files: plain, .gz, .xz, .zst, standard input and output; always UTF-8."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TextIO, cast

from polytag.errors import DataError

COMPRESSED = (".gz", ".xz", ".zst")


def stem_and_suffix(path: str | Path) -> tuple[str, str]:
    """The name without its suffixes, and the suffix of the format: ``a.jsonl.xz`` gives ``("a", ".jsonl")``."""
    name = Path(path).name
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    stem, suffix = os.path.splitext(name)
    return stem, suffix.lower()


def open_bytes(path: str | Path, mode: str = "rb") -> IO[bytes]:
    """Open a plain or compressed file for bytes; ``-`` is standard input or output."""
    if str(path) == "-":
        return sys.stdin.buffer if "r" in mode else sys.stdout.buffer
    name = str(path)
    try:
        if name.endswith(".gz"):
            return cast("IO[bytes]", gzip.open(name, mode))
        if name.endswith(".xz"):
            return cast("IO[bytes]", lzma.open(name, mode))
        if name.endswith(".zst"):
            import zstandard

            if "r" in mode:
                return io.BufferedReader(_Zstandard(open(name, "rb")))
            return cast("IO[bytes]", zstandard.open(name, mode))
        return cast("IO[bytes]", open(name, mode))
    except FileNotFoundError:
        raise DataError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{name} is a folder; name a file") from None
    except PermissionError:
        raise DataError(f"{name}: permission denied") from None


class _Zstandard(io.RawIOBase):
    """The bytes of a .zst file; unlike the library's own reader it detects a truncated file."""

    def __init__(self, file: IO[bytes]) -> None:
        """Take the open file."""
        import zstandard

        self.file, self.failure = file, zstandard.ZstdError
        self.frames = zstandard.ZstdDecompressor()
        self.frame = self.frames.decompressobj()
        self.inside, self.ready = False, b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or a part of it."""
        while not self.ready:
            raw = self.frame.unused_data if self.frame.eof else b""
            if self.frame.eof:
                self.frame, self.inside = self.frames.decompressobj(), False
            raw = raw or self.file.read(1 << 17)
            if not raw:
                if self.inside:
                    raise EOFError("the file ends within a frame")
                return 0
            self.inside = True
            try:
                self.ready = self.frame.decompress(raw)
            except self.failure as error:
                raise EOFError(str(error)) from None
        count = min(len(buffer), len(self.ready))
        buffer[:count] = self.ready[:count]
        self.ready = self.ready[count:]
        return count

    def close(self) -> None:
        """Close the file."""
        self.file.close()
        super().close()


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, if they do not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"{folder}: a file with this name exists; name another folder") from None
    except PermissionError:
        raise DataError(f"{folder}: permission denied") from None


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[TextIO]:
    """Open a file as UTF-8 text, without byte-order mark; wrong encoding and broken compression are data errors."""
    raw = open_bytes(path)
    text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
    try:
        yield text
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error.reason}, byte {error.object[error.start]:#04x}); convert it first") from None
    except (lzma.LZMAError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged or cut-short compressed file ({error})") from None
    finally:
        if str(path) == "-":
            text.detach()
        else:
            text.close()


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[TextIO]:
    """Open a file for writing UTF-8 text and create its folder; ``-`` is standard output."""
    if str(path) != "-":
        make_folder(Path(path).parent)
    raw = open_bytes(path, "wb")
    text = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
    try:
        yield text
        text.flush()
    finally:
        if str(path) == "-":
            text.detach()
        else:
            text.close()
