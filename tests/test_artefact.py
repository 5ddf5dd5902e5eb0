"""The artefact keeps every state exactly, notices every change, and survives being killed at any moment."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array, random_array

from polytag.errors import ArtefactError
from polytag.storage import array_files, artefact
from polytag.storage.artefact import artefact_folder, artefact_info, read_artefact, write_artefact

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


def same(a: Any, b: Any) -> bool:
    """Equality to the bit, in type, shape and content."""
    if isinstance(a, csr_array):
        return (
            isinstance(b, csr_array)
            and a.shape == b.shape
            and all(same(getattr(a, p), getattr(b, p)) for p in ("data", "indices", "indptr"))
        )
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and a == b


def example(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "weights": rng.normal(size=(7, 5)).astype(np.float32),
        "rows": csr_array(random_array((6, 9), density=0.3, rng=rng, dtype=np.float32)),
        "nested": {"names": ["a", "ü", "漢"], "limit": float("-inf"), "none": None, "inner": {"flags": np.array([True, False])}},
        **{"seed": seed, "a/b": np.arange(2), "a": {"b": np.arange(3)}},
    }


ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda d: hnp.arrays(np.dtype(d), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=5) | ARRAYS
KEYS = st.text(max_size=4) | st.sampled_from(["$array", "$csr", "$state", "$float", "a/b", "a", "b", "~1", "__metadata__", ""])
STATES = st.dictionaries(
    KEYS, st.recursive(LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=3), max_leaves=8), max_size=4
)


@settings(max_examples=60, deadline=None)
@given(STATES, st.sampled_from([1, 16, 1 << 30]))
def test_any_state_comes_back_equal_whatever_the_size_of_a_file(state: dict[str, Any], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(artefact, "SHARD_BYTES", limit)
        write_artefact(folder, state)
        assert same(state, read_artefact(folder))
        assert same(state, read_artefact(folder, verify=False))


@pytest.mark.parametrize("dtype", DTYPES)
def test_safetensors_itself_reads_the_same_arrays(tmp_path: Path, dtype: str) -> None:
    from safetensors.numpy import load_file

    array = np.arange(-3, 9).astype(dtype).reshape(3, 4)
    write_artefact(tmp_path, {"a": {"odd": np.ones(3, dtype=np.int8), "b": array}})
    (file,) = tmp_path.glob("*.safetensors")
    loaded = load_file(file)
    assert sorted(loaded) == ["/a/b", "/a/odd"]
    assert same(loaded["/a/b"], array)


def test_layouts_and_number_types_that_differ_in_memory_come_back_plain(tmp_path: Path) -> None:
    table = np.arange(12, dtype=np.float64).reshape(3, 4)
    state = {
        "f": np.asfortranarray(table),
        "t": table[:, ::2],
        "big": table.astype(">f8"),
        "n": np.float32(0.5),
        "i": np.int64(3),
        "x": (1, 2),
    }
    write_artefact(tmp_path, state)
    back = read_artefact(tmp_path)
    assert np.array_equal(back["f"], table) and np.array_equal(back["t"], table[:, ::2]) and np.array_equal(back["big"], table)
    assert (back["n"], back["i"], back["x"]) == (0.5, 3, [1, 2]) and type(back["i"]) is int


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_sparse_matrices_keep_types_and_explicit_zeros_and_work(tmp_path: Path, index: type, dtype: type) -> None:
    matrix = csr_array((3, 4), dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = (
        np.array([1, 0, 3], dtype),
        np.array([1, 3, 0], index),
        np.array([0, 2, 2, 3], index),
    )
    write_artefact(tmp_path, {"m": matrix, "empty": csr_array((0, 4), dtype=np.float32)})
    back = read_artefact(tmp_path)["m"]
    assert same(matrix, back) and not back.indices.flags.writeable
    if dtype is not np.float16:
        dense = np.array([[0, 1, 0, 0], [0, 0, 0, 0], [3, 0, 0, 0]])
        assert np.array_equal(back @ np.eye(4), dense) and np.array_equal(back[1:3].toarray(), dense[1:3])


def test_arrays_are_mapped_aligned_and_read_only(tmp_path: Path) -> None:
    write_artefact(tmp_path, {"a": np.ones(3, np.int8), "b": np.ones(5, np.float16), "c": np.ones(1000, np.float64)})
    for array in read_artefact(tmp_path).values():
        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert type(base.base).__name__ == "mmap" and array.flags.aligned and not array.flags.writeable


def test_the_same_state_gives_the_same_bytes_and_only_json_and_safetensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefact, "SHARD_BYTES", 64)
    for name in ("one", "two"):
        write_artefact(tmp_path / name, example())
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert first == second and len(first) > 2
    assert all(re.fullmatch(r"artefact\.json|arrays-[0-9a-f]{12}\.safetensors", name) for name in first)
    info = artefact_info(tmp_path / "one")
    assert info.bytes == sum(map(len, first.values())) and {*info.files, "artefact.json"} == set(first)


def test_a_mapped_artefact_is_saved_over_itself_and_changed(tmp_path: Path) -> None:
    write_artefact(tmp_path, example())
    mapped = read_artefact(tmp_path)
    write_artefact(tmp_path, mapped)
    assert same(example(), read_artefact(tmp_path)) and same(example(), mapped)
    write_artefact(tmp_path, {**mapped, "more": np.zeros(3)})
    assert same({**example(), "more": np.zeros(3)}, read_artefact(tmp_path))
    assert same(example(), mapped), "arrays mapped before must stay readable"
    assert len(list(tmp_path.iterdir())) == 2


def test_files_of_others_stay(tmp_path: Path) -> None:
    for name in ("notes.txt", "arrays-mine.safetensors"):
        (tmp_path / name).write_text("mine")
    for seed in (0, 1):
        write_artefact(tmp_path, example(seed))
    assert (tmp_path / "notes.txt").exists() and (tmp_path / "arrays-mine.safetensors").exists()


@pytest.mark.parametrize("value", [{1, 2}, b"x", np.array(["a"]), np.array([1j]), {1: 2}, object(), csr_array(np.eye(2)).tocoo()])
def test_what_cannot_be_saved_is_refused_before_anything_is_touched(tmp_path: Path, value: Any) -> None:
    write_artefact(tmp_path, example())
    with pytest.raises(TypeError, match=r"/deep/0"):
        write_artefact(tmp_path, {"a": np.zeros(100), "deep": [value]})
    assert same(example(), read_artefact(tmp_path)) and len(list(tmp_path.iterdir())) == 2


# --- damage


def error_of(folder: Path) -> str:
    with pytest.raises(ArtefactError) as caught:
        read_artefact(folder)
    message = str(caught.value)
    assert "\n" not in message and re.search(r"; (name|copy)|: update", message), "one line that says what to do"
    return message


def test_every_changed_byte_and_every_cut_is_noticed(tmp_path: Path) -> None:
    write_artefact(tmp_path, {"a": np.arange(6, dtype=np.int16), "b": {"x": [1.5, "y", None]}})
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for position in range(len(whole)):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
            assert path.name in error_of(tmp_path)
            path.write_bytes(whole[:position])
            assert path.name in error_of(tmp_path)
        path.write_bytes(whole + b" ")
        assert path.name in error_of(tmp_path)
        path.write_bytes(whole)
    assert read_artefact(tmp_path)["b"] == {"x": [1.5, "y", None]}


def test_missing_and_foreign_folders_say_what_to_do(tmp_path: Path) -> None:
    assert "no such folder" in error_of(tmp_path / "none")
    assert "not an artefact" in error_of(tmp_path)
    (tmp_path / "artefact.json").write_text("[1, 2]")
    assert "does not describe a Polytag artefact" in error_of(tmp_path)
    write_artefact(tmp_path, example())
    (file,) = tmp_path.glob("*.safetensors")
    file.unlink()
    assert file.name in error_of(tmp_path) and "missing" in error_of(tmp_path)


def test_without_verify_the_size_is_still_checked(tmp_path: Path) -> None:
    write_artefact(tmp_path, example())
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ArtefactError, match="cut short"):
        read_artefact(tmp_path, verify=False)


def test_a_newer_format_asks_for_an_update(tmp_path: Path) -> None:
    write_artefact(tmp_path, example())
    path = tmp_path / "artefact.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": artefact.FORMAT + 1}))
    assert "update Polytag" in error_of(tmp_path)


def forge(folder: Path, change: Any, header: Any = None) -> None:
    """An artefact from a stranger: any content, with checksums that fit."""
    write_artefact(folder, {"m": csr_array(np.eye(3, dtype=np.float32)), "a": np.arange(4)})
    manifest = json.loads((folder / "artefact.json").read_text())
    if header is not None:
        (file,) = folder.glob("*.safetensors")
        raw = file.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        entries = json.loads(raw[8 : 8 + length])
        header(entries)
        text = json.dumps(entries).encode()
        raw = len(text).to_bytes(8, "little") + text + raw[8 + length :]
        digest = hashlib.sha256(raw).hexdigest()
        file.unlink()
        (folder / f"arrays-{digest[:12]}.safetensors").write_bytes(raw)
        manifest["files"] = [{"name": f"arrays-{digest[:12]}.safetensors", "bytes": len(raw), "sha256": digest}]
    manifest.pop("sha256")
    change(manifest)
    body = json.dumps(manifest)[1:].encode()
    (folder / "artefact.json").write_bytes(b'{"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'",\n' + body)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["files"][0].update(name="../forged/" + m["files"][0]["name"]),
        lambda m: m["state"].update(a={"$array": "/nowhere"}),
        lambda m: m["state"]["m"].update(shape=[3, 2]),
        lambda m: m["state"]["m"].update(shape=[4, 3]),
        lambda m: m["state"]["m"].update(shape="x"),
        lambda m: m.update(state=[]),
        lambda m: m.update(files=None),
    ],
)
def test_a_forged_tree_is_refused(tmp_path: Path, change: Any) -> None:
    forge(tmp_path / "forged", lambda manifest: None)
    assert np.array_equal(read_artefact(tmp_path / "forged")["a"], np.arange(4)), "the forger's tools must work"
    forge(tmp_path / "forged", change)
    error_of(tmp_path / "forged")


BAD_OFFSETS = [{"data_offsets": offsets} for offsets in ([0, 1 << 40], [-8, 24], [8, 0])]
BAD_SHAPES = [{"shape": shape} for shape in ([-4], [5], [2.0, 2.0])]


@pytest.mark.parametrize("entry", [*BAD_OFFSETS, *BAD_SHAPES, {"dtype": "BF16"}, {"dtype": ["x"]}])
def test_a_forged_array_header_is_refused(tmp_path: Path, entry: dict[str, Any]) -> None:
    forge(tmp_path, lambda manifest: None, lambda entries: entries["/a"].update(entry))
    assert "safetensors" in error_of(tmp_path)


def test_an_artefact_saved_while_it_is_read_is_read_as_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_artefact(tmp_path, example())
    parse = artefact._parse_manifest

    def parse_then_overtake(*args: Any) -> dict[str, Any]:
        monkeypatch.setattr(artefact, "_parse_manifest", parse)
        result = parse(*args)
        write_artefact(tmp_path, example(1))
        return result

    monkeypatch.setattr(artefact, "_parse_manifest", parse_then_overtake)
    assert same(example(1), read_artefact(tmp_path))


# --- crashes


class Crash(BaseException):
    """Stands for the end of the process."""


def crash_at(patch: pytest.MonkeyPatch, step: int, failure: BaseException, after: bool) -> list[str]:
    """Let the n-th call that touches the disk fail, before or after it did its work; the names of the calls made."""
    calls: list[str] = []

    def wrap(name: str, function: Any) -> Any:
        def wrapped(*args: Any, **options: Any) -> Any:
            calls.append(name)
            now = len(calls) == step + 1
            if now and not after:
                raise failure
            result = function(*args, **options)
            if now:
                raise failure
            return result

        return wrapped

    for owner, name in (
        (os, "replace"),
        (os, "fsync"),
        (Path, "unlink"),
        (array_files, "_header"),
        (array_files, "_array_bytes"),
    ):
        patch.setattr(owner, name, wrap(name, getattr(owner, name)))
    return calls


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_artefact(tmp_path: Path, after: bool) -> None:
    old, new = example(0), example(1)
    outcomes, stale = [], []
    for step in range(100):
        folder = tmp_path / str(step)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(artefact, "SHARD_BYTES", 100)
            write_artefact(folder, old, card="old")
            calls = crash_at(patch, step, Crash(), after)
            try:
                write_artefact(folder, new, card="new")
            except Crash:
                outcomes.append(read_artefact(folder)["seed"])
                assert same(example(outcomes[-1]), read_artefact(folder))
                own = (folder / artefact.CARD).read_text() == ("old", "new")[outcomes[-1]]
                assert artefact_info(folder).card == ("as saved" if own else "changed")
                stale.append(not own)
            else:
                assert {"replace", "fsync", "unlink", "_array_bytes"} <= set(calls)
                break
        write_artefact(folder, new, card="new")  # the next save works, and clears what the crash left
        assert same(new, read_artefact(folder)) and artefact_info(folder).card == "as saved"
        assert {p.name for p in folder.iterdir()} == {"artefact.json", "README.md", *artefact_info(folder).files}
    assert sum(stale) <= 1, "the card follows the switch at once, and the next save repairs it"
    assert outcomes == sorted(outcomes) and set(outcomes) == {0, 1}, "old up to the switch, new from there on"


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    write_artefact(tmp_path, example())
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, 3, OSError(28, "No space left on device"), False)
        with pytest.raises(ArtefactError, match="No space left on device"):
            write_artefact(tmp_path, example(1))
    assert same(example(), read_artefact(tmp_path)) and len(list(tmp_path.iterdir())) == 2


WRITER = """
import sys, numpy as np
from polytag.storage.artefact import write_artefact
for n in range(int(sys.argv[2]), 10**9):
    write_artefact(sys.argv[1], {"n": n, "big": np.full(300_000, n), "small": {"x": np.full(3, n)}})
    print(n, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_writer_leaves_a_whole_artefact(tmp_path: Path) -> None:
    rng = random.Random(0)
    last = 0
    for _ in range(4):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(last)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        written = int(writer.stdout.readline())
        time.sleep(rng.uniform(0.005, 0.1))
        writer.send_signal(signal.SIGKILL)
        written = int(([str(written), *writer.stdout.read().split()])[-1])
        writer.wait()
        state = read_artefact(tmp_path)
        assert written <= state["n"] <= written + 1
        assert (state["big"] == state["n"]).all() and (state["small"]["x"] == state["n"]).all()
        last = state["n"] + 1


def test_a_run_or_its_model_folder_is_found(tmp_path: Path) -> None:
    write_artefact(tmp_path / "run" / "model", example())
    assert artefact_folder(tmp_path / "run") == artefact_folder(str(tmp_path / "run" / "model")) == tmp_path / "run" / "model"
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "log.jsonl").touch()
    for name, words in (
        ("none", "no such folder"),
        ("half", "--resume"),
        ("half/log.jsonl", "is a file"),
        (".", "not an artefact"),
    ):
        with pytest.raises(ArtefactError, match=words):
            artefact_folder(tmp_path / name)
