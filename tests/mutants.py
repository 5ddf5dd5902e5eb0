"""``make mutants``: plant one bug at a time in a copy of the checkout, and see which of them no test notices.

Tests are chosen by a table, by names and by imports: first those of the changed module (``nearest_tests.py``, or its name), then
those that import it, then those that import it through others, until one fails or the time is over. In the end all tests that
failed are run without a bug; where one fails then, its mutants are tried again without it. Numba's cache is each copy's own, and
what was compiled from the changed module or from one that imports it is compiled again.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from mutations import Mutant, compiles, mutants
from nearest_tests import nearest

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = Path("tests") / "fixtures"
PLANTED, EQUIVALENT = FIXTURES / "planted_bugs.json", FIXTURES / "equivalent_mutants.json"

WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(
    [
        "torch",
        "numba",
        "pandas",
        "pytest",
        "hypothesis",
        "pyarrow",
        "sklearn.svm",
        "scipy.sparse",
        "rich.progress",
        "transformers",
    ]
)


class Outcome(NamedTuple):
    """How a run of tests ended: ``passed``, ``failed`` or ``timed out``, and the tests that failed."""

    end: str
    failed: list[str]


def run_tests(folder: Path, said: Path, options: list[str]) -> None:
    """In a process of its own, which has the large packages already: run pytest in a copy of the checkout."""
    os.setsid()
    os.chdir(folder)
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(stream, number)
    package = str(folder / "src")
    os.environ |= {"PYTHONPATH": package, "NUMBA_CACHE_DIR": str(folder / ".numba")}
    sys.path[:] = [package, str(folder), *(path for path in sys.path if path not in (str(ROOT / "src"), str(ROOT / "tests")))]
    for name in ("mutations", "nearest_tests"):  # of the checkout
        sys.modules.pop(name, None)
    import numba
    import pytest

    numba.config.reload_config()
    os._exit(pytest.main(options))


# -- the copies --------------------------------------------------------------------------------------------------------


class Copy:
    """A copy of the checkout in which bugs are planted, one at a time."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        """Bring the copy up to date with the checkout."""
        self.folder = folder
        for name in ("src", "tests"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for file in files:
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, target)

    def test(self, files: Sequence[str], seconds: float, *options: str) -> Outcome:
        """Run test files."""
        usual = ["-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"]
        said = self.folder.with_suffix(".txt")
        process = WARM.Process(target=run_tests, args=(self.folder, said, [*usual, *options, *files]))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
            return Outcome("timed out", [])
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said.read_text(), re.MULTILINE)
        if process.exitcode in (0, 5):
            return Outcome("passed", [])
        return Outcome("failed", failed or [f"exit code {process.exitcode}"])

    @contextlib.contextmanager
    def planted(self, mutant: Mutant, users: Iterable[str]) -> Iterator[None]:
        """Inside, the bug is there; what was compiled from its module, and by numba from the module's users, is forgotten."""
        path = self.folder / mutant.path
        source = path.read_bytes()
        compiled = [name.rpartition(".")[2] for name in users] if b"njit" in source else []
        self._forget(path, compiled)
        path.write_bytes(mutant.apply(source))
        try:
            yield
        finally:
            path.write_bytes(source)
            self._forget(path, compiled)

    def _forget(self, source: Path, modules: Iterable[str]) -> None:
        stale = [*(source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")]
        for path in [*stale, *(path for name in modules for path in (self.folder / ".numba").glob(f"*/{name}.*"))]:
            path.unlink(missing_ok=True)


def checkout_files() -> list[str]:
    """All files of the checkout that git knows or would add."""
    said = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in said.stdout.splitlines() if (ROOT / name).is_file() and not name.startswith("gpu/")]


# -- which tests -------------------------------------------------------------------------------------------------------


class Imports:
    """Who imports whom, by the text of a copy: modules of the package, and test files with what they share."""

    def __init__(self, folder: Path) -> None:
        """Read all files."""
        self.modules = {_module(path.relative_to(folder / "src")): path for path in (folder / "src").rglob("*.py")}
        self.helpers = {path.stem: path for path in (folder / "tests").glob("*.py")}
        self.tests = [f"tests/{name}.py" for name in sorted(self.helpers) if name.startswith("test_")]
        self.uses = {name: set(self._imports(path)) for name, path in {**self.modules, **self.helpers}.items()}

    def _imports(self, path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.modules or alias.name in self.helpers)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
                if (name := node.value.partition(":")[0]) in self.modules:  # as the registry of models names them
                    yield name
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    for name in (f"{node.module}.{alias.name}", node.module or ""):
                        if name in self.modules or name in self.helpers:
                            yield name
                            break

    @cache  # noqa: B019, one object lives as long as the program
    def users(self, module: str) -> set[str]:
        """The module itself and all modules that import it, directly or not."""
        found, left = {module}, [module]
        while left:
            name = left.pop()
            for user in self.modules:
                if name in self.uses[user] and user not in found:
                    found.add(user)
                    left.append(user)
        return found

    @cache  # noqa: B019
    def by_distance(self, module: str) -> list[tuple[int, str]]:
        """Test files that reach a module, the nearest first, and of those the ones that import least."""
        own = {f"tests/test_{module.rpartition('.')[2]}.py": None, **dict.fromkeys(nearest(module))}
        found = []
        for test in self.tests:
            distance = None if test in own else self._distance(Path(test).stem, module)
            if distance is not None:
                found.append((distance, test))
        known = [(0, test) for test in own if "::" in test or test in self.tests]
        return known + sorted(found, key=lambda pair: (pair[0], len(self.uses[Path(pair[1]).stem]), pair[1]))

    def _distance(self, start: str, module: str) -> int | None:
        seen, level, distance = {start}, {start}, 0
        while level:
            distance += 1
            level = {name for one in level for name in self.uses[one]} - seen
            if module in level:
                return distance
            seen |= level
        return None


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


# -- the work ----------------------------------------------------------------------------------------------------------


class Bench:
    """Copies that work side by side, and the tests that fail without a bug."""

    def __init__(self, work: Path, jobs: int, timeout: float) -> None:
        """Make the copies."""
        self.timeout = timeout
        files = checkout_files()
        self.copies: SimpleQueue[Copy] = SimpleQueue()
        made = [Copy(work / f"copy-{number}", files) for number in range(jobs)]
        for copy in made:
            self.copies.put(copy)
        self.folder = made[0].folder
        self.imports = Imports(self.folder)
        self.broken: set[str] = set()

    def tried(self, mutant: Mutant) -> dict[str, Any]:
        """Plant the bug, run tests, the nearest first, until one fails or the time is over; take it out."""
        copy, start = self.copies.get(), time.monotonic()
        module = _module(Path(mutant.path).relative_to("src"))
        outcome = Outcome("passed", [])
        files: list[str] = []
        try:
            for test in ([mutant.test] if mutant.test else []) + [test for _, test in self.imports.by_distance(module)]:
                if outcome.end != "passed" or time.monotonic() - start > self.timeout:
                    break
                files.append(test)
                outcome = self._noticed(copy, mutant, module, test)
        finally:
            self.copies.put(copy)
        status = {"passed": "survived", "failed": "killed", "timed out": "timed out"}[outcome.end]
        told = mutant.described((copy.folder / mutant.path).read_bytes())
        return {**told, "status": status, "by": next(iter(outcome.failed), ""), "tests": files}

    def _noticed(self, copy: Copy, mutant: Mutant, module: str, test: str) -> Outcome:
        """How a test file ends with the bug; a file that takes as long without it does not count."""
        if test in self.broken:
            return Outcome("passed", [])
        left_out = [part for name in sorted(self.broken) if name.startswith(test) for part in ("--deselect", name)]
        with copy.planted(mutant, self.imports.users(module)):
            outcome = copy.test([test], self.timeout, "-x", *left_out)
        if outcome.end == "timed out" and copy.test([test], self.timeout).end == "timed out":
            print(f"without a bug, this timed out as well: {test}", flush=True)
            self.broken.add(test)
            return Outcome("passed", [])
        return outcome

    def unsound(self, names: Iterable[str]) -> set[str]:
        """Those of the tests that failed with a bug that fail without it as well; they do not count any more."""
        copy = self.copies.get()
        tests = {name for name in names if "::" in name}
        imported = {name for name in names if name not in tests and name.startswith("tests/")}
        wrong = {name for name in imported if copy.test([name], self.timeout, "--collect-only").end != "passed"}
        if tests:
            wrong |= set(copy.test(sorted(tests), self.timeout + 20 * len(tests)).failed)
        self.copies.put(copy)
        self.broken |= wrong
        return wrong


# -- which mutants -----------------------------------------------------------------------------------------------------


def changed_lines(base: str) -> dict[str, set[int]]:
    """The lines of the package that are not as they were in a revision."""
    command = ["git", "diff", "-U0", base, "--", "src"]
    found: dict[str, set[int]] = {}
    name = ""
    for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("+++ b/"):
            name = line.removeprefix("+++ b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            found.setdefault(name, set()).update(range(first, first + count))
    command = ["git", "ls-files", "-o", "--exclude-standard", "--", "src"]
    for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        found[name] = set(range(1, 1_000_000))
    return {name: lines for name, lines in found.items() if name.endswith(".py") and (ROOT / name).is_file()}


def planted(folder: Path) -> Iterator[Mutant]:
    """The bugs that people planted, each by the text that it replaces."""
    for bug in json.loads((ROOT / PLANTED).read_text(encoding="utf-8")):
        source, old = (folder / bug["file"]).read_bytes(), bug["old"].encode()
        if source.count(old) != 1:
            sys.exit(f"{PLANTED}: {bug['old']!r} is {source.count(old)} times in {bug['file']}; it must be there once")
        start = source.index(old)
        line = source.count(b"\n", 0, start) + 1
        yield Mutant(bug["file"], line, "planted", start, start + len(old), bug["new"].encode(), bug["test"])


def pool_of(arguments: argparse.Namespace, folder: Path) -> list[Mutant]:
    """The mutants that a command line asks for."""
    if arguments.planted:
        return list(planted(folder))
    if arguments.files:
        lines = {os.path.relpath(Path(file).resolve(), ROOT): None for file in arguments.files}
    elif arguments.sample and not arguments.base:
        lines = {str(path.relative_to(folder)): None for path in sorted((folder / "src").rglob("*.py"))}
    else:
        lines = dict(changed_lines(arguments.base or "HEAD"))  # type: ignore[arg-type]
    pool = [
        mutant
        for name, only in lines.items()
        for mutant in mutants(name, (folder / name).read_bytes())
        if only is None or mutant.line in only
    ]
    if arguments.sample:  # by checksum: where nothing changed, the same ones are drawn again
        pool.sort(key=lambda mutant: _drawn(arguments.seed, mutant, folder))
    sound = (mutant for mutant in pool if compiles(mutant, (folder / mutant.path).read_bytes()))
    return list(islice(sound, arguments.sample or None))


def _drawn(seed: int, mutant: Mutant, folder: Path) -> str:
    told = (seed, mutant.path, mutant.kind, *mutant.shown((folder / mutant.path).read_bytes()))
    return hashlib.sha256(repr(told).encode()).hexdigest()


def with_arguments(results: list[dict[str, Any]]) -> None:
    """Mark survivors that are known to change nothing that a test could see, with the reason."""
    path = ROOT / EQUIVALENT
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    reasons = {(one["file"], one["before"], one["after"]): one["argument"] for one in known}
    for result in results:
        reason = reasons.get((result["file"], result["before"], result["after"]))
        if result["status"] == "survived" and reason:
            result.update(status="equivalent", argument=reason)


def main() -> None:
    """Read the command line, try the mutants, tell what came of them."""
    os.environ["OMP_NUM_THREADS"] = "1"
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", help="files of src [default: the lines that changed since --base]")
    parser.add_argument("--base", help="revision that changes are counted from [default: HEAD, or all of src with --sample]")
    parser.add_argument("--sample", type=int, help="try this many of the mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--planted", action="store_true", help=f"try the bugs of {PLANTED} instead")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="mutants at once")
    parser.add_argument("--timeout", type=float, default=150, help="seconds for a test file, and after which no other is tried")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "polytag-mutants", help="folder of the copies")
    parser.add_argument("--out", type=Path, help="write the results here, as JSON")
    parser.add_argument("--resume", action="store_true", help="do not repeat what --out has as killed or equivalent")
    parser.add_argument("--list", action="store_true", help="list the mutants and try none")
    arguments = parser.parse_args()
    bench = Bench(arguments.work, arguments.jobs, arguments.timeout)
    pool = pool_of(arguments, bench.folder)
    if arguments.list:
        for mutant in pool:
            before, after = mutant.shown((bench.folder / mutant.path).read_bytes())
            print(f"{mutant.path}:{mutant.line}: {mutant.kind}\n  - {before}\n  + {after}")
        return
    results: list[dict[str, Any]] = []
    if arguments.resume and arguments.out and arguments.out.exists():
        results = json.loads(arguments.out.read_text(encoding="utf-8"))["results"]
        with_arguments(results)
        done = {_mark(result) for result in results if result["status"] != "survived"}
        results = [result for result in results if _mark(result) in done]
        pool = [mutant for mutant in pool if _mark(mutant.described((bench.folder / mutant.path).read_bytes())) not in done]
    while pool:
        tried: dict[tuple[str, ...], Mutant] = {}
        with ThreadPoolExecutor(arguments.jobs) as threads:
            waiting = {threads.submit(bench.tried, mutant): mutant for mutant in pool}
            for future in as_completed(waiting):
                results.append(result := future.result())
                tried[_mark(result)] = waiting[future]
                place = f"{result['file']}:{result['line']}"
                print(f"{len(results)} {result['status']:9} {place} {result['kind']} {result['by']}", flush=True)
                write(results, arguments.out)
        wrong = bench.unsound({result["by"] for result in results if _mark(result) in tried})
        again = {_mark(result) for result in results if _mark(result) in tried and result["by"] in wrong}
        results = [result for result in results if _mark(result) not in again]
        pool = [tried[mark] for mark in again]
    counts = write(results, arguments.out)
    for result in results:
        if result["status"] in ("survived", "equivalent"):
            print(f"\n{result['file']}:{result['line']} {result['status']}: {result.get('argument', '')}")
            print(f"  - {result['before']}\n  + {result['after']}")
    print("\n" + ", ".join(f"{count} {status}" for status, count in counts.items()))


def _mark(result: dict[str, Any]) -> tuple[str, ...]:
    return result["file"], str(result["line"]), result["before"], result["after"]


def write(results: list[dict[str, Any]], out: Path | None) -> dict[str, int]:
    """Sort and count the results, and write them to a file if there is one."""
    results.sort(key=lambda result: (result["file"], result["line"], result["after"]))
    with_arguments(results)
    counts = {status: sum(r["status"] == status for r in results) for status in ("killed", "timed out", "survived", "equivalent")}
    if out:
        record = {"command": " ".join(["python", *sys.argv]), "mutants": len(results), **counts, "results": results}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return counts


if __name__ == "__main__":
    main()
