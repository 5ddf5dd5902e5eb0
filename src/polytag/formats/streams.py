"""Opening text files: plain, .gz, .xz, .zst, standard input and output; always UTF-8."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import lzma
import os
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TextIO, cast

from polytag.errors import DataError, file_error

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
    name = str(path)
    if name == "-":
        return _standard("r" in mode)
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
    except OSError as error:
        raise file_error(name, error) from None
    except ValueError:
        raise DataError(f"{name!r} is not the name of a file") from None


def _standard(reading: bool) -> IO[bytes]:
    """Standard input or output; either may be closed."""
    stream = sys.stdin if reading else sys.stdout
    if stream is None or stream.closed:
        raise DataError(f"standard {'input' if reading else 'output'} is closed; name a file")
    return stream.buffer


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
    except OSError as error:
        raise file_error(folder, error) from None
    except ValueError:
        raise DataError(f"{str(folder)!r} is not the name of a folder") from None


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
    except OSError as error:
        raise file_error(path, error) from None
    finally:
        if str(path) == "-":
            text.detach()
        else:
            text.close()


# -- writing -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[TextIO]:
    """Open a file for UTF-8 text; it takes its place when it is complete. ``-`` is standard output."""
    if str(path) != "-":
        with written(path) as place, io.TextIOWrapper(open_bytes(place, "wb"), encoding="utf-8", newline="\n") as text:
            yield text
        return
    text = io.TextIOWrapper(open_bytes(path, "wb"), encoding="utf-8", newline="\n")
    try:
        yield text
        text.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise file_error("standard output", error) from None
    finally:
        with contextlib.suppress(OSError):  # flushes again, after an error that says more
            text.detach()


@contextlib.contextmanager
def written(path: str | Path) -> Iterator[Path]:
    """The place to write a file to: a temporary one, which replaces ``path`` at the end. After an error nothing is left of it.

    What cannot be replaced (a pipe, a device, a file in a folder that is not writable) is written directly.
    """
    if "\0" in str(path):
        raise DataError(f"{str(path)!r} is not the name of a file")
    try:
        target = Path(path) if _written_directly(Path(path)) else Path(os.path.realpath(path))
        if target.is_dir():
            raise IsADirectoryError
        if _written_directly(target):
            yield target
            return
        make_folder(target.parent)
        ending = next((ending for ending in COMPRESSED if target.name.endswith(ending)), "")
        mark = hashlib.sha256(target.name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        temporary = target.with_name(f".writing-{mark}{ending}")  # what a kill leaves has this name again and is replaced
        try:
            open(temporary, "wb").close()  # an error here is about the folder
            yield temporary
            _replace(temporary, target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise file_error(path, error) from None


def _written_directly(path: Path) -> bool:
    if not path.exists():
        return False
    special = not path.is_file() or str(path).startswith(("/dev/", "/proc/"))
    return not path.is_dir() and (special or not os.access(path.parent, os.W_OK))


def _replace(temporary: Path, target: Path) -> None:
    """Move a file to its place; an earlier one must be writable and hands on its permissions."""
    if target.exists():
        if not os.access(target, os.W_OK):
            raise PermissionError
        shutil.copymode(target, temporary)
    try:
        os.replace(temporary, target)
    except OSError as error:
        if error.errno != errno.EBUSY:  # a file that is mounted, as containers do, cannot be replaced
            raise
        shutil.copyfile(temporary, target)
