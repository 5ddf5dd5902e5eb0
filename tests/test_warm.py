"""Compilation: each verb compiles what the table says, each kernel once; ``polytag warm`` and a second process fill the cache."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from polytag.datasets import load_sample
from polytag.decision.thresholds import _apply, _marks
from polytag.kernels.compiler import KERNELS
from polytag.kernels.sorting import heap_sort, sort_part
from polytag.kernels.sparse_rows import places_of
from polytag.scores import Scores
from polytag.storage.artefact import saved_model
from polytag.verbs import warming

USED = """
import json, sys
from polytag.cli.app import main
sys.argv[0] = "polytag"
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
from polytag.kernels.compiler import KERNELS
used = {name: len(kernel.signatures) for name, (kernel, _) in KERNELS.items() if kernel.signatures}
print("\\n" + json.dumps([used, len(KERNELS)]))
"""
LARGER = {f"polytag.{name}" for name in warming.OTHERS}
PARTS = {"polytag.linear.block_kernels.solve_block"}  # a kernel that is also compiled as a part of another one


def used(*arguments: str) -> dict[str, int]:
    """How many specialisations of each kernel a command has compiled or found in the cache."""
    done = subprocess.run([sys.executable, "-c", USED, "-q", *arguments], capture_output=True, text=True, timeout=120, check=True)
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])[0]
    return found


@pytest.mark.parametrize("model", ["br", "xlinear"])
def test_a_verb_compiles_what_the_table_says_and_each_kernel_once(tmp_path: Path, model: str) -> None:
    """Read-only arrays, other layouts or integer types would compile a kernel a second time."""
    run, some = str(tmp_path / "run"), tmp_path / "some.jsonl"
    load_sample()[0].subset(range(300)).write(some)
    for verb, arguments in (
        ("train", (str(some), "--model", model, "--out", run)),
        ("predict", (run, str(some), "--out", str(tmp_path / "out.jsonl"))),
    ):
        found = used(verb, *arguments)
        assert set(found.values()) == {1}, {name: count for name, count in found.items() if count > 1}
        assert found.keys() - LARGER - PARTS == {f"polytag.{name}" for name in warming.NEEDED[verb, model]} - PARTS
    assert saved_model(run) == model


def test_the_signatures_are_those_of_the_tables() -> None:
    """Every kernel of the rooms that the tables name is in a table, and can be typed."""
    names = {*warming.OTHERS, *(name for needed in warming.NEEDED.values() for name in needed)}
    for name in names:
        kernel, signature = warming._kernel(name)
        assert len(numba.core.sigutils.normalize_signature(signature)[0]) == kernel.py_func.__code__.co_argcount, name
    assert {f"polytag.{name}" for name in names} >= KERNELS.keys()


def test_a_second_process_compiles_for_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the kernels that are needed later; there is none where all is there, with one thread, or on a busy machine."""
    started: list[list[str]] = []

    class Process:
        def __init__(self, command: list[str], **_: object) -> None:
            started.append(command)

        def kill(self) -> None: ...

        def wait(self) -> None: ...

    monkeypatch.setattr(warming.subprocess, "Popen", Process)
    monkeypatch.setattr(warming, "_is_stored", lambda name: False)
    monkeypatch.setattr(warming.os, "getloadavg", lambda: (0.5, 0.0, 0.0))
    monkeypatch.setenv("POLYTAG_THREADS", "1")
    warming.share("predict", "br")
    monkeypatch.setenv("POLYTAG_THREADS", "2")
    warming.share("predict", "bert")
    assert not started
    warming.share("predict", "br")
    assert started[0][1:] == ["-m", "polytag.verbs.warming", *warming.NEEDED["predict", "br"][-2:]]
    monkeypatch.setattr(warming.os, "getloadavg", lambda: (2.5, 0.0, 0.0))
    warming.share("predict", "br")
    monkeypatch.setattr(warming.os, "getloadavg", lambda: (0.5, 0.0, 0.0))
    monkeypatch.setattr(warming, "_is_stored", lambda name: True)
    warming.share("predict", "br")
    assert len(started) == 1


def test_a_process_fills_the_cache_for_a_named_processor(tmp_path: Path) -> None:
    """What one process compiled is found by another one for the same processor, and not for another processor."""
    name, cpu = "kernels.row_merge.merge_rows", "x86-64" if numba.core.config.MACHINE_BITS == 64 else ""
    ask = "from polytag.verbs.warming import _kernel, _is_stored, compile_kernel; n = 'kernels.row_merge.merge_rows'; "
    ask += "print(_is_stored(n)); compile_kernel(n); print(sum(_kernel(n)[0].stats.cache_hits.values()))"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    answers = []
    for given_cpu in (cpu, cpu, ""):
        command = [sys.executable, "-c", ask]
        done = subprocess.run(
            command, env={**environment, "NUMBA_CPU_NAME": given_cpu}, capture_output=True, text=True, timeout=60, check=True
        )
        answers.append(done.stdout.split())
    assert answers == [["False", "0"], ["True", "1"], ["True", "0"]], name


def test_a_cache_that_cannot_be_written_to_is_read(tmp_path: Path) -> None:
    """A container's own files are often read-only: what was compiled at build time is found, what was not is compiled."""
    ask = "import os, sys; real = os.access; closed = lambda path, mode: mode != os.W_OK and real(path, mode); "
    ask += "os.access = closed if sys.argv[1] == 'closed' else real; "
    ask += "from polytag.verbs.warming import _kernel, compile_kernel; n = sys.argv[2]; compile_kernel(n); "
    ask += "print(sum(_kernel(n)[0].stats.cache_hits.values()))"
    one, other = "kernels.row_merge.merge_rows", "kernels.top_k.best_of_sparse_rows"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    hits, files = [], []
    for state, name in (("open", one), ("closed", one), ("closed", other)):
        command = [sys.executable, "-c", ask, state, name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
        hits.append(done.stdout.strip())
        files.append(len(list(tmp_path.rglob("*.nb?"))))
    assert hits == ["0", "1", "0"] and files[0] == files[1] == files[2]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names are those of x86")
def test_kernels_for_a_named_processor_use_nothing_that_it_lacks(tmp_path: Path) -> None:
    """A container is built on one processor and runs on others: 256-bit registers came with v3, 512-bit ones with v4."""
    ask = (
        "from polytag.verbs.warming import _kernel, compile_kernel; n = 'linear.block_kernels.score_blocks'; compile_kernel(n); "
    )
    ask += "asm = ''.join(_kernel(n)[0].inspect_asm().values()); print('ymm' in asm, 'zmm' in asm)"
    found = {}
    for name in ("x86-64-v2", "x86-64-v3"):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": name}
        done = subprocess.run(
            [sys.executable, "-c", ask], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        found[name] = done.stdout.split()
    assert found == {"x86-64-v2": ["False", "False"], "x86-64-v3": ["True", "False"]}


def test_calls_find_what_was_compiled_ahead(tmp_path: Path) -> None:
    """A cache that another process filled is used: nothing is compiled twice."""
    names = (
        "text.words._scan",
        "text.tfidf._fill_table",
        "text.tfidf._look_up",
        "text.tfidf._count_documents",
        "text.tfidf._weigh",
    )
    fill = f"from polytag.verbs.warming import compile_kernel; [compile_kernel(name) for name in {names}]"
    call = "import json; from polytag.text.tfidf import Tfidf; from polytag.verbs.warming import _kernel; "
    call += "texts = ['a cod', 'a storm'] * 9; Tfidf().fit(texts).transform(texts); "
    call += f"used = [_kernel(name)[0].stats for name in {names}]; "
    call += "print(json.dumps([[len(one.cache_hits), len(one.cache_misses)] for one in used]))"
    for command in (fill, call):
        done = subprocess.run(
            [sys.executable, "-c", command], env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    found = json.loads(done.stdout)
    assert {misses for _, misses in found} == {0} and sum(hits for hits, _ in found) >= 4, found


@given(st.integers(0, 9999), st.sampled_from([0.3, 1.0]), st.sampled_from([0.3, 1.0]))
def test_places_are_found_in_complete_and_other_matrices(seed: int, one: float, other: float) -> None:
    """A complete matrix needs no kernel; the places are the same."""
    generator = np.random.default_rng(seed)
    entries, matrix = (csr_array((generator.random((4, 5)) < share).astype(np.float32)) for share in (one, other))
    at, known = places_of(entries, matrix)
    pairs = [(i, j) for i in range(4) for j in matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]]]
    asked = [(i, j) for i in range(4) for j in entries.indices[entries.indptr[i] : entries.indptr[i + 1]]]
    assert known.tolist() == [pair in pairs for pair in asked]
    assert at[known].tolist() == [pairs.index(pair) for pair in asked if pair in pairs]


@given(st.integers(0, 9999), st.integers(0, 6), st.booleans())
def test_thresholds_of_complete_scores_are_those_of_the_kernel(seed: int, least: int, single: bool) -> None:
    generator = np.random.default_rng(seed)
    table = generator.integers(0, 4, (6, 5)).astype(np.float32)
    limits = np.full(1, 2.5, np.float32) if single else generator.integers(0, 5, 5).astype(np.float32)
    scores = Scores.full(table, [str(j) for j in range(5)], "margin")
    expected = (table >= limits).astype(np.uint8)
    for row, marks in zip(table, expected, strict=True):
        marks[np.argsort(-row, kind="stable")[:least]] = 2
    compiled, m = np.zeros(table.size, dtype=np.uint8), scores.matrix
    _apply(m.indptr.astype(np.int64), m.indices.astype(np.int64), m.data, limits, least, compiled)
    assert _marks(scores, limits, least).tolist() == expected.ravel().tolist() == compiled.tolist()


@numba.njit
def _sorted(values: np.ndarray, heap: bool) -> None:
    if heap:
        heap_sort(values, len(values))
    else:
        sort_part(values, np.int64(0), len(values))


@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 5), max_size=300), st.booleans())
def test_compiled_sorts_sort(values: list[int], heap: bool) -> None:
    array = np.array(values, dtype=np.int64)
    _sorted(array, heap)
    assert array.tolist() == sorted(values)
