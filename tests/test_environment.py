"""Where the package runs: closed and full streams, missing permissions, read-only containers, forks, threads and processes."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conftest import Toy
from polytag.classifier import Classifier
from polytag.errors import ConfigError
from polytag.kernels import compiler
from quick import OPTIONS

# -- standard streams --------------------------------------------------------------------------------------------------


def shell(line: str, **values: object) -> subprocess.CompletedProcess[str]:
    """A line for a shell, in which ``polytag`` is the command."""
    python = f"{sys.executable} -m polytag"
    text = line.format(**values)
    command = ["bash", "-c", f'polytag() {{ {python} "$@"; }}; {text}']
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


@pytest.mark.skipif(shutil.which("bash") is None or not os.path.exists("/dev/full"), reason="needs a shell and /dev/full")
@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("polytag -q predict {run} - --out {tmp}/o.jsonl <&-", 2, "polytag: standard input is closed; name a file\n"),
        ("polytag -q predict {run} {files}/test.jsonl >&-", 2, "polytag: standard output is closed"),
        ("polytag info {run} >&-", 2, "polytag: standard output is closed"),
        ("polytag info {run} > /dev/full", 2, "polytag: No space left on device\n"),
        ("polytag -q predict {run} {files}/test.jsonl > /dev/full", 2, "polytag: standard output: No space left on device\n"),
        ("polytag info {run} | true; exit ${{PIPESTATUS[0]}}", 0, ""),
        ("polytag info {run} --json | true; exit ${{PIPESTATUS[0]}}", 0, ""),
        ("polytag --help | true; exit ${{PIPESTATUS[0]}}", 0, ""),
        ("polytag -q train {files}/valid.jsonl --set c=1 --set ngrams=1 --out {tmp}/r 2>&- <&- >&-", 0, ""),
        ("polytag train {files}/valid.jsonl --set c=1 --set ngrams=1 --out {tmp}/r 2> /dev/full", 0, ""),
        ("cp {files}/test.jsonl {tmp}/x; polytag predict {run} {tmp}/x --format jsonl >> {tmp}/x", 2, "are the same file"),
        ("polytag predict {run} {files}/test.jsonl --out /dev/stdout | head -n 1 > /dev/null", 0, "labelled 60 documents\n"),
    ],
)
def test_closed_full_and_broken_streams(run_folder: Path, files: Path, tmp_path: Path, line: str, code: int, words: str) -> None:
    done = shell(line, run=run_folder, files=files, tmp=tmp_path)
    assert done.returncode == code and words in done.stderr and "Traceback" not in done.stderr, done
    assert len(done.stderr.splitlines()) == (1 if words else 0), done.stderr
    if " train " in line:
        assert Classifier.load(tmp_path / "r").predict(["trawler cod net"])


def without_privileges() -> None:
    """Let the permissions of files count for the superuser too, in the process that is started next."""
    if os.getuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for override in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, dropped by PR_CAPBSET_DROP
            if libc.prctl(24, override, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "prctl")


@contextlib.contextmanager
def closed(*folders: Path) -> Iterator[None]:
    """Folders that nobody may write to, with all that is in them."""
    places = [place for folder in folders for place in (folder, *folder.rglob("*"))]
    modes = {place: place.stat().st_mode for place in places}
    try:
        for place, mode in modes.items():
            place.chmod(mode & ~0o222)
        yield
    finally:
        for place, mode in modes.items():
            place.chmod(mode)


needs_permissions = pytest.mark.skipif(
    sys.platform != "linux", reason="the superuser's privileges are dropped by a call of Linux"
)


@needs_permissions
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("predict {run} {tmp}/secret.jsonl", "secret.jsonl: permission denied"),
        ("predict {run} {files}/test.jsonl --out {tmp}/out.jsonl", "out.jsonl: permission denied"),
        ("predict {run} {files}/test.jsonl --out {tmp}/secret.jsonl", "secret.jsonl: permission denied"),
        ("predict {run} {files}/test.jsonl --out {tmp}/deeper/out.jsonl", "deeper: permission denied"),
        ("train {files}/train.jsonl --out {tmp}/r", "r: a run cannot be kept here (Permission denied)"),
        ("data sample --out {tmp}", "train.jsonl.xz: permission denied"),
        ("train {files}/train.jsonl --labels {tmp}/secret.jsonl", "secret.jsonl' is not readable"),
        ("train --recipe {tmp}/secret.jsonl", "secret.jsonl' is not readable"),
    ],
)
def test_missing_permissions_are_one_line(run_folder: Path, files: Path, tmp_path: Path, arguments: str, line: str) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_text("{}")
    secret.chmod(0)
    command = [sys.executable, "-m", "polytag", "-q", *arguments.format(run=run_folder, files=files, tmp=tmp_path).split()]
    with closed(tmp_path):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=without_privileges, cwd="/")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("polytag: ") and line in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and sorted(path.name for path in tmp_path.iterdir()) == ["secret.jsonl"]


# -- the compiler's cache ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without compiled code, and an empty home."""
    folder = tmp_path_factory.mktemp("image")
    source = Path(compiler.__file__).parent.parent
    shutil.copytree(source, folder / "polytag", ignore=shutil.ignore_patterns("__pycache__", "sample"))
    (folder / "home").mkdir()
    return folder


MATCH = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from polytag.kernels.sparse_rows import places_of
from scipy.sparse import csr_array
print(places_of(csr_array([[1.0, 0.0, 0.0]]), csr_array([[1.0, 1.0, 0.0]]))[1].tolist(), sys.modules["polytag"].__file__)
"""


@needs_permissions
@pytest.mark.parametrize("temporary", [True, False], ids=["temporary folder", "no folder at all"])
def test_a_read_only_package_with_a_read_only_home_works(image: Path, tmp_path: Path, temporary: bool) -> None:
    """As in an ordinary container: kernels are compiled, and cached in a temporary folder if there is one."""
    environment = {"PYTHONPATH": str(image), "PATH": os.environ["PATH"], "HOME": str(image / "home")}
    command = [sys.executable, "-c", MATCH, str(tmp_path if temporary else tmp_path / "none")]
    with closed(image):
        for _ in range(2):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=120, preexec_fn=without_privileges, cwd=tmp_path
            )
            assert done.returncode == 0 and f"[True] {image}" in done.stdout, done.stderr
    assert bool(list(tmp_path.rglob("*.nbi"))) == temporary and not list(image.rglob("*.nbi"))


def test_a_user_without_a_home_gets_no_folder_of_a_strange_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba would make a folder called ``~`` in the working directory."""
    monkeypatch.setattr(compiler.config, "CACHE_DIR", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert not compiler._default_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert compiler._default_folder()


def test_the_folder_of_the_cache_belongs_to_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = compiler.own_folder()
    assert folder is not None and Path(folder).parent == tmp_path and Path(folder).stat().st_mode & 0o777 == 0o700
    assert compiler.own_folder() == folder
    Path(folder).chmod(0o777)
    assert compiler.own_folder() is None, "others could have put code there"
    Path(folder).rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    Path(folder).symlink_to(tmp_path / "elsewhere")
    assert compiler.own_folder() is None
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert compiler.own_folder() is None


def test_every_kernel_goes_through_one_compiler() -> None:
    package = Path(compiler.__file__).parent.parent
    importers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"^\s*(from numba import .*\bn?jit\b|import numba)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert importers == {"kernels/compiler.py"}


def test_kernels_are_compiled_where_the_compiler_is_switched_off(run_folder: Path, files: Path) -> None:
    command = [sys.executable, "-m", "polytag", "-q", "predict", str(run_folder), str(files / "test.jsonl")]
    done = subprocess.run(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 60, done.stderr


def test_settings_of_the_compiler_are_left_as_they_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiler.config, "DISABLE_JIT", 1)
    monkeypatch.setattr(compiler.config, "CACHE_DIR", "")
    monkeypatch.setattr(compiler, "_default_folder", lambda: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def twice(number: Any) -> Any:
        return 2 * number

    compiled = compiler.njit(cache=True)(twice)
    assert compiled(21) == 42 and list(tmp_path.rglob("*.nbi"))
    assert (compiler.config.DISABLE_JIT, compiler.config.CACHE_DIR) == (1, "")


# -- forks, processes and threads --------------------------------------------------------------------------------------

FORKED = """
import multiprocessing, sys
import torch
from polytag.classifier import Classifier

torch.set_num_threads(2)
classifier = Classifier.load(sys.argv[1])
texts = ["trawler cod net " * 40, "violin chord melody " * 40] * 100
expected = classifier.predict(texts)  # now the threads of this process exist
pool = multiprocessing.get_context("fork").Pool(2)
found = pool.map_async(classifier.predict, [texts] * 4).get(timeout=60)
print(all(one == expected for one in found))
"""


@pytest.fixture(scope="module")
def neural(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a neural model."""
    folder = tmp_path_factory.mktemp("neural")
    Classifier("cnn", {**OPTIONS["cnn"], "epochs": 1}).fit(toy.train, toy.valid).save(folder)
    return folder


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
def test_a_loaded_network_works_in_a_forked_pool(neural: Path) -> None:
    """The threads of the parent do not exist in its copies; torch would wait for them without end."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", FORKED, str(neural)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr


def test_a_forked_process_is_told_that_it_cannot_use_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from polytag.nn.training.devices import pick_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(ConfigError, match="a forked process cannot use the GPU; start processes with 'spawn'"):
        pick_device("auto")
    assert pick_device("cpu").type == "cpu"


def labelled(run: str, texts: list[str]) -> list[list[str]]:
    """What another process answers."""
    return Classifier.load(run).predict(texts)


def test_spawned_processes_load_the_model_themselves(run_folder: Path, br: Classifier, toy: Toy) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply_async(labelled, (str(run_folder), toy.test.texts)).get(timeout=60)
    assert found == br.predict(toy.test.texts)


@pytest.mark.parametrize("model", ["br", "cnn"])
def test_threads_share_one_classifier(model: str, run_folder: Path, neural: Path, toy: Toy) -> None:
    classifier = Classifier.load(run_folder if model == "br" else neural)
    expected = classifier.predict(toy.test.texts)
    with ThreadPoolExecutor(8) as threads:
        assert all(found == expected for found in threads.map(classifier.predict, [toy.test.texts] * 16))
