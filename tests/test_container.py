"""The command line in a container: nothing can be written but the run folder, no home, an unknown user, no network, 512 MB."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import polytag
from polytag.classifier import Classifier

pytestmark = pytest.mark.services
USER, MEGABYTES = 12345, 512
# Remounting keeps every mount's own options; mounts that refuse (of the kernel) have nothing that a test could write to.
ENTER = f"""
set -e
mount --bind "$RUN" "$RUN"
while read -r _ _ _ _ place options _; do
  case "$place" in "$RUN" | /proc*) continue ;; esac
  mount -o "remount,bind,$(echo "$options" | sed 's/^rw/ro/')" "$place" 2> /dev/null || true
done < /proc/self/mountinfo
cd "$WORK"
exec unshare --user --map-user={USER} --map-group={USER} prlimit --data={MEGABYTES << 20} env -u RUN -u WORK "$@"
"""
MEASURED = """
import atexit, re, runpy, sys
def peak():
    status = open("/proc/self/status").read()  # getrusage would know the memory of the process that started this one, too
    print("peak", int(re.search(r"VmHWM:\\s*(\\d+)", status)[1]) // 1024, file=sys.stderr)
atexit.register(peak)
sys.argv[0] = "polytag"
runpy.run_module("polytag", run_name="__main__")
"""


class Done(NamedTuple):
    """What a command said, and its most megabytes of memory."""

    code: int
    out: str
    err: str
    peak: int


def contained(run: Path, work: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in namespaces of its own, in the folder ``work``, with these variables alone."""
    package = str(Path(polytag.__file__).parent.parent)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": package, "RUN": str(run), "WORK": str(work), **variables}
    inside = ["unshare", "--user", "--map-root-user", "--mount", "--net", "sh", "-c", ENTER, "sh", *command]
    return subprocess.run(inside, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only folder that can be written to."""
    folder = tmp_path_factory.mktemp("container").resolve()
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "prlimit", "mount"))):
        pytest.skip("needs namespaces of Linux, and unshare, prlimit and mount")
    tried = contained(folder, folder, "true")
    if tried.returncode:
        pytest.skip(f"the kernel allows no namespaces here: {tried.stderr.strip()}")
    return folder


def story(run: Path, *arguments: str, work: Path | None = None, **variables: str) -> Done:
    """The command line in the container; it must end well."""
    done = contained(run, work or run, sys.executable, "-c", MEASURED, *arguments, **variables)
    err, _, peak = done.stderr.rpartition("peak ")
    assert done.returncode == 0 and peak, done
    return Done(done.returncode, done.stdout, err, int(peak))


def test_the_container_is_one(run: Path) -> None:
    outside = [
        Path(polytag.__file__).parent,
        Path(sys.prefix),
        Path("/"),
        Path("/tmp"),
        Path("/dev/shm"),
        Path.home(),
        run.parent,
    ]
    for folder in outside:
        assert contained(run, run, "touch", str(folder / "polytag-container")).returncode, folder
    for line, said in (("id -u", USER), ("id -g", USER), ("ulimit -d", MEGABYTES << 10), ("tail -n +2 /proc/net/route", "")):
        assert contained(run, run, "sh", "-c", line).stdout.strip() == str(said), line
    more = contained(run, run, sys.executable, "-c", f"bytearray({MEGABYTES << 20})")
    assert more.returncode == 1 and "MemoryError" in more.stderr
    assert contained(run, run, "touch", "here").returncode == 0 and (run / "here").exists()
    (run / "here").unlink()


def test_the_whole_story_from_a_sample_to_a_search(run: Path, files: Path) -> None:
    peaks: dict[str, int] = {}

    def said(*arguments: str) -> str:
        done = story(run, *arguments, HOME="/nonexistent")
        assert "Traceback" not in done.err
        peaks[arguments[0]] = max(peaks.get(arguments[0], 0), done.peak)
        return done.out or done.err

    said("data", "sample", "--out", "sample")
    assert "documents" in said("data", "describe", "sample/train.jsonl.xz")
    assert "trained br on 5,400" in said("train", "sample/train.jsonl.xz", "--valid", "sample/valid.jsonl.xz", "--out", "br")
    said("predict", "br", "sample/test.jsonl.xz", "--out", "found.jsonl")
    rows: list[dict[str, Any]] = [json.loads(line) for line in (run / "found.jsonl").read_text().splitlines()]
    assert len(rows) == 600 and sum(len(row["labels"]) for row in rows) > 600
    quality = json.loads(said("evaluate", "br", "sample/test.jsonl.xz", "--json"))
    assert quality["micro_f1"] > 0.6 and json.loads(said("info", "br", "--json"))["model"] == "br"
    shutil.copy(files / "valid.jsonl", run / "small.jsonl")
    quick = ("--set", "ngrams=1", "--set", "folds=2")
    said("compare", "small.jsonl", "--test", "small.jsonl", "--models", "br,lp", *quick, "--out", "both")
    if importlib.util.find_spec("optuna"):
        said("tune", "small.jsonl", "--range", "c={low=0.1,high=10,log=true}", *quick, "--trials", "2", "--out", "search")
    assert Classifier.load(run / "br").predict(["a text editor"]) and all(peak < MEGABYTES for peak in peaks.values()), peaks
    known = {"sample", "br", "found.jsonl", "small.jsonl", "both", "search", f"polytag-numba-{USER}"}
    assert {path.name for path in run.iterdir()} <= known


def test_where_no_folder_at_all_can_be_written_to(run: Path, run_folder: Path, files: Path) -> None:
    """No HOME, and a working directory that is read-only: kernels are compiled and not kept."""
    done = story(run, "-q", "predict", str(run_folder), str(files / "test.jsonl"), work=Path("/"))
    assert len(done.out.splitlines()) == 60 and done.peak < MEGABYTES
