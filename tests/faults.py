"""A disk that fails: the n-th new file, folder, write, sync, rename or removal of a verb is an error, or the process ends there.

Run as a script it tries verbs at many such points, each in a fork of a process that has everything loaded and on a fresh copy
of the same folder, and writes a line of JSON for each to ``report.jsonl``, which ``tests/test_faults.py`` reads.
"""

from __future__ import annotations

import builtins
import errno
import gzip
import io
import json
import os
import shutil
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FAULTS = ("ENOSPC", "EIO", "kill")
KILLED = 77  # the exit code of a process that the disk ended
_OUTPUT = "standard output"
_FULL = ("create", "write", "fsync", "mkdir")  # what keeps failing once a disk is full
_BUFFER = 1024  # bytes that are written at once; less than usual, for files here are small


class Disk:
    """Counts what a process does to the files under a folder and to its standard output, and fails at one point."""

    def __init__(self, folder: Path, point: int = 0, fault: str = "") -> None:
        """Fail at this point, counted from 1; 0 only counts."""
        self.folder, self.point, self.fault = f"{folder}{os.sep}", point, fault
        self.seen: list[str] = []
        self.full = False

    def turn(self, operation: str, path: str, before: Callable[[], object] = lambda: None) -> None:
        """Let an operation pass, or fail after what it does ``before``."""
        if path != _OUTPUT and not path.startswith(self.folder):
            return
        self.seen.append(f"{operation} {path.removeprefix(self.folder)}")
        if self.full and operation in _FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if len(self.seen) != self.point:
            return
        before()
        if self.fault == "kill":
            os._exit(KILLED)
        self.full = self.fault == "ENOSPC"
        number = getattr(errno, self.fault)
        raise OSError(number, os.strerror(number), *(() if operation in ("write", "fsync") else (path,)))

    def install(self) -> None:
        """Stand between this process and its files; there is no way back."""
        for name in ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "fsync"):
            setattr(os, name, self._guarded(name, getattr(os, name)))
        opener = self._opener(builtins.open)
        builtins.open = io.open = opener  # type: ignore[assignment]
        raw = _File(self, 1, "w", closefd=False)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw, _BUFFER), encoding="utf-8")

    def _guarded(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *others: Any, dir_fd: int | None = None, **more: Any) -> Any:
            target = others[0] if name in ("replace", "rename") else path
            where = path_of(target, dir_fd)
            if os.path.lexists(where) == (name != "mkdir") or name in ("replace", "rename", "fsync"):  # else the system refuses
                self.turn(name, where)
            return real(path, *others, **({} if dir_fd is None else {"dir_fd": dir_fd}), **more)

        return call

    def _opener(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(
            file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
            newline: str | None = None, closefd: bool = True, opener: Any = None,
        ) -> Any:  # fmt: skip
            if not set(mode) & set("wax+") or not path_of(file).startswith(self.folder):
                return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
            if not isinstance(file, int) and not os.path.lexists(file):
                self.turn("create", path_of(file))
            raw = _File(self, file, mode.replace("b", "").replace("t", ""), closefd, opener)
            if buffering == 0:
                return raw
            binary = io.BufferedRandom(raw, _BUFFER) if "+" in mode else io.BufferedWriter(raw, _BUFFER)
            if "b" in mode:
                return binary
            text = io.TextIOWrapper(binary, encoding or "utf-8", errors, newline)
            text._CHUNK_SIZE = _BUFFER  # type: ignore[attr-defined]
            return text

        return opened


class _File(io.FileIO):
    """A file on the disk; buffers around it write when they are full, flushed or closed."""

    def __init__(self, disk: Disk, file: Any, *options: Any, **more: Any) -> None:
        super().__init__(file, *options, **more)
        self.disk, self.place = disk, _OUTPUT if file == 1 else path_of(file)

    def write(self, data: Any) -> int:
        """Write, or half of it if the disk fails now."""
        half = bytes(data)[: len(data) // 2]
        if self.place == _OUTPUT and path_of(1) == os.devnull:  # somebody has turned it away
            return super().write(data)
        self.disk.turn("write", self.place, lambda: super(_File, self).write(half))
        return super().write(data)


def path_of(file: Any, folder: int | None = None) -> str:
    """Where a path or an open file is."""
    if isinstance(file, int):
        return os.readlink(f"/proc/self/fd/{file}")
    base = os.getcwd() if folder is None else os.readlink(f"/proc/self/fd/{folder}")
    return os.path.join(base, os.fspath(file))


# -- verbs -------------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A verb: its command line, what is there before, what it left, and how it is repeated if not by the same command."""

    command: Sequence[str]
    before: Callable[[], None]
    left: Callable[[Path], str]
    again: Sequence[str] = ()


FAST = ("--set", "c=1", "--set", "ngrams=1", "--set", "folds=2")
TRAIN, TEST = "../train.jsonl", "../test.jsonl"
SEARCH = ("tune", TRAIN, "--range", "c={low=0.1,high=10,log=true}", "--set", "ngrams=1", "--set", "folds=2", "--out", "run")


def polytag(*arguments: str) -> None:
    """The command line, in this process; an error is raised."""
    from polytag.cli.app import app

    app(["-q", *arguments], standalone_mode=False)


def a_run(folder: str = "run", model: str = "br") -> None:
    """A trained model in a folder."""
    polytag("train", TRAIN, "--model", model, *FAST, "--out", folder)


def model_in(folder: Path) -> str:
    """The name of the model in a run, which must load; the other files of the run must be whole as well."""
    from polytag.classifier import Classifier

    for path in folder.glob("*.toml"):
        tomllib.loads(path.read_text())
    if (folder / "metrics.json").exists():
        json.loads((folder / "metrics.json").read_text())
    classifier = Classifier.load(folder)
    assert classifier.predict(["trawler cod net"]) == [["fishing"]]
    return classifier.recipe.model


def trained(box: Path) -> str:
    """Which of two models is there."""
    return {"br": "old", "lp": "new"}[model_in(box / "run")]


def predictions(name: str) -> Case:
    """Predictions in place of an earlier file."""

    def before() -> None:
        a_run()
        with gzip.open(name, "wt") if name.endswith(".gz") else open(name, "w") as file:
            file.write("earlier\n")

    def left(box: Path) -> str:
        with gzip.open(box / name, "rt") if name.endswith(".gz") else open(box / name) as file:
            text = file.read()
        if text == "earlier\n":
            return "old"
        rows = [json.loads(line) for line in text.splitlines()]
        return "new" if len(rows) == len((box / TEST).read_text().splitlines()) else f"{len(rows)} documents"

    return Case(("predict", "run", TEST, "--out", name), before, left)


def reported() -> Case:
    """A page in place of an earlier one."""

    def before() -> None:
        a_run()
        Path("page.html").write_text("earlier\n")

    def left(box: Path) -> str:
        text = (box / "page.html").read_text()
        return "old" if text == "earlier\n" else "new" if text.endswith("</html>\n") else f"{len(text)} characters"

    return Case(("report", "run", "--test", TEST, "--out", "page.html", "--static", "--map", "pca"), before, left)


def nothing(box: Path) -> str:
    """What a verb leaves that only prints."""
    return {"br": "old"}[model_in(box / "run")]


def compared(box: Path) -> str:
    """Models side by side: one that was there before, one that is new."""
    found = [model_in(box / "runs" / name) for name in ("br", "lp") if (box / "runs" / name / "model" / "artefact.json").exists()]
    return {("br",): "old", ("br", "lp"): "new"}[tuple(found)]


def searched(box: Path) -> str:
    """A search that had one trial; the best model is always there."""
    from polytag.config.recipe import Recipe
    from polytag.run import read_log

    assert model_in(box / "run") == "br" and Recipe.read(box / "run" / "best.toml").model == "br"
    events = [event for event in read_log(box / "run") if event["event"] == "trial"]
    done = len({event["number"] for event in events})
    return {1: "old", 2: "old", 3: "new"}[done]


def a_network() -> None:
    """A tiny network in a run, with an export in float32."""
    from polytag.classifier import Classifier
    from polytag.corpus import Corpus

    options = {"encoder": "words", "embedding": 8, "epochs": 20, "batch_size": 8, "head_rate": 0.05, "encoder_rate": 0.05}
    texts, labels = ["trawler cod net", "tariff export duty"] * 12, [["fishing"], ["trade"]] * 12
    Classifier("bert", {**options, "device": "cpu", "precision": "fp32"}).fit(Corpus.of(texts, labels)).save("run")
    import onnxruntime.quantization  # noqa: F401, here and not in every copy of this process

    assert in_child(lambda: polytag("export", "run", "--onnx")) is None


def exported(box: Path) -> str:
    """Which of two exports is used, if any; the scores must be right in any case."""
    assert model_in(box / "run") == "bert"
    about = box / "run" / "onnx" / "export.json"
    if not about.exists():
        return "none"
    return "new" if json.loads(about.read_text())["int8"] else "old"


CASES = {
    "train": Case(("train", TRAIN, "--model", "lp", *FAST, "--out", "run"), a_run, trained),
    "resume": Case(
        ("train", TRAIN, "--model", "lp", *FAST, "--out", "run"), a_run, trained,
        ("train", TRAIN, "--model", "lp", *FAST, "--out", "run", "--resume"),
    ),
    "predict": predictions("out.jsonl"),
    "predict-gz": predictions("out.jsonl.gz"),
    "predict-print": Case(("predict", "run", TEST), a_run, nothing),
    "evaluate": Case(("evaluate", "run", TEST), a_run, nothing),
    "compare": Case(
        ("compare", TRAIN, "--test", TEST, "--models", "br,lp", *FAST, "--out", "runs"), lambda: a_run("runs/br"), compared
    ),
    "report": reported(),
    "tune": Case((*SEARCH, "--trials", "3", "--resume"), lambda: polytag(*SEARCH, "--trials", "1"), searched),
    "export": Case(("export", "run", "--onnx", "--int8"), a_network, exported),
}  # fmt: skip


# -- the points --------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], Any]) -> Any:
    """Do something in a copy of this process; what it returns, or the text of its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            said = json.dumps(work())
        except BaseException:
            said = json.dumps(f"error: {traceback.format_exc()}")
        with os.fdopen(writing, "w") as pipe:
            pipe.write(said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said)


class Ended(NamedTuple):
    """How a command ended: its exit code, its standard error, and what the disk has seen."""

    code: int
    err: str
    seen: list[str]


def command(box: Path, arguments: Sequence[str], point: int = 0, fault: str = "") -> Ended:
    """Run a command in a fork, with the disk failing at a point."""
    out, err, seen = (box.parent / name for name in ("stdout", "stderr", "seen"))
    seen.touch()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = _command(box, arguments, Disk(box, point, fault), out, err, seen)
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    return Ended(os.waitstatus_to_exitcode(status), err.read_text(), json.loads(seen.read_text() or "[]"))


def _command(box: Path, arguments: Sequence[str], disk: Disk, out: Path, err: Path, seen: Path) -> int:
    from polytag.cli.app import main

    os.chdir(box)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["polytag", "-q", *arguments]
    notes = os.open(seen, os.O_WRONLY | os.O_TRUNC)
    disk.install()
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    try:  # as an interpreter does at its end
        if not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        print(f"Exception ignored: {error}", file=sys.stderr)
        code = 120
    sys.stderr.flush()
    os.write(notes, json.dumps(disk.seen).encode())
    return code


def listing(box: Path) -> list[str]:
    """All files and folders, without what differs from run to run."""
    return sorted(str(path.relative_to(box)) for path in box.rglob("*"))


def tried(case: Case, place: Path, point: int, fault: str) -> dict[str, Any]:
    """Let a verb fail at a point, see what is left, and repeat it on a sound disk."""
    box = place / "box"
    shutil.rmtree(box, ignore_errors=True)
    shutil.copytree(place / "before", box)
    ended = command(box, case.command, point, fault)
    left, files = in_child(lambda: case.left(box)), listing(box)
    repeated = command(box, case.again or case.command)
    after, final = in_child(lambda: case.left(box)), listing(box)
    return {
        "point": point, "fault": fault, "code": ended.code, "err": ended.err, "left": left, "files": files,
        "again": repeated.code, "again_err": repeated.err, "after": after, "final": final,
    }  # fmt: skip


def quick_exports() -> None:
    """Let an export copy a network that was traced before: what the tracing takes has nothing to do with files."""
    from polytag.nn.export import onnx_export

    traced = Path("run", "onnx", "model.onnx").read_bytes()
    onnx_export._trace = lambda network, path: Path(path).write_bytes(traced)  # type: ignore[assignment, return-value]


def tries(name: str, folder: Path, most: str) -> Iterator[dict[str, Any]]:
    """What comes of a verb on a sound disk, then at all points or at so many of them."""
    case, place = CASES[name], folder / name
    for part in ("before", "box"):
        (place / part).mkdir(parents=True)
    for file in ("train.jsonl", "test.jsonl"):
        shutil.copy(folder / file, place)
    os.chdir(place / "before")
    case.before()
    if name != "export":  # compiled code is loaded before the process divides; ONNX Runtime and its threads must not be
        os.chdir(shutil.copytree(place / "before", place / "box", dirs_exist_ok=True))
        polytag(*case.command)
    elif most != "all":
        quick_exports()
    os.chdir(place)
    sound = tried(case, place, 0, "")
    shutil.rmtree(place / "box")
    seen = command(shutil.copytree(place / "before", place / "box"), case.command).seen
    yield {"verb": name, "seen": seen, "before": listing(place / "before"), "expected": listing(place / "box"), **sound}
    if most == "all":
        pairs = [(point, fault) for point in range(1, len(seen) + 1) for fault in FAULTS]
    else:  # spread over all points, the faults by turns
        pairs = [(1 + number * len(seen) // int(most), FAULTS[number % len(FAULTS)]) for number in range(int(most))]
    for point, fault in pairs:
        yield {"verb": name, "operation": seen[point - 1], **tried(case, place, point, fault)}


def main(folder: str, *asked: str) -> None:
    """Try verbs in a folder that holds the documents; each is given as VERB=POINTS or VERB=all."""
    place = Path(folder).resolve()
    for each in asked:
        verb, _, most = each.partition("=")
        for row in tries(verb, place, most):
            with open(place / "report.jsonl", "a") as report:  # closed again: a fork must not have anything of it to write
                report.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
