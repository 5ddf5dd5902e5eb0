"""Opening files: in every compression a damaged or truncated file is detected; a file in place of a folder is an error."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
import zstandard

from polytag.errors import DataError
from polytag.formats.streams import make_folder, reading, stem_and_suffix, writing

TEXT = "".join(f"line {number} — naïve\n" for number in range(20_000))
COMPRESS = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda raw: zstandard.ZstdCompressor().compress(raw),
}


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_what_is_written_is_read_again(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "new" / f"a.txt{ending}"
    with writing(path) as file:
        file.write(TEXT)
    with reading(path) as file:
        assert file.read() == TEXT


@pytest.mark.parametrize("ending", list(COMPRESS))
@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_a_file_cut_short_is_noticed(tmp_path: Path, ending: str, share: float) -> None:
    raw = COMPRESS[ending](TEXT.encode())
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(DataError, match="cut-short"), reading(path) as file:
        file.read()


def test_several_frames_of_zstandard_are_one_text(tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    path.write_bytes(b"".join(COMPRESS[".zst"](part.encode()) for part in ("one ", "two ", "three")))
    with reading(path) as file:
        assert file.read() == "one two three"


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(DataError, match="with this name exists"):
        make_folder(tmp_path / "taken")
    with pytest.raises(DataError, match="with this name exists"), writing(tmp_path / "taken" / "b.txt"):
        pass


def test_the_suffix_is_the_one_before_the_compression() -> None:
    assert stem_and_suffix("x/a.b.jsonl.xz") == ("a.b", ".jsonl")
    assert stem_and_suffix("-") == ("-", "")
