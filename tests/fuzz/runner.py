"""Tries forged artefacts, each in a child process with limits: ``python tests/fuzz/runner.py [MODEL ...] --most N --out FILE``.

The process loads polytag once, with bounds checking in all compiled code, and forks for every forgery. A child loads the
artefact and labels two texts. It may refuse, or answer; it must not crash, touch memory out of bounds, show a trace, take more
than ten seconds, or more memory than 1 GB and four times the artefact.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures" / "format1"
LIMITS = {
    "NUMBA_BOUNDSCHECK": "1", "NUMBA_FULL_TRACEBACKS": "1", "POLYTAG_THREADS": "1", "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip
SECONDS = 10
MEMORY = 1 << 30
PROMISING = "br+promise"
EDITED = "br+edits"
NEAREST = "nearest"
PROMISED = {"promise": "recall=.8", "ngrams": [1], "c": [1.0]}
EQUAL, CHANGED, REFUSED, TRACE = 0, 1, 3, 4
OUTCOMES = {EQUAL: "equal", CHANGED: "changed", REFUSED: "refused", TRACE: "trace"}
GOOD = ("equal", "changed", "refused")


def answers(folder: Path, texts: list[str]) -> str:
    """What a classifier says about texts, as text to compare."""
    from polytag import Classifier

    classifier = Classifier.load(folder)
    scores = classifier.scores(texts)
    found = repr((classifier.predict(texts), scores.matrix.data.tolist(), scores.matrix.indices.tolist()))
    if classifier.abstention is None:
        return found
    return found + repr([prediction.ask for _, prediction in classifier.stream(enumerate(texts), ask=0.3)])


def trained(folder: Path, name: str, options: dict[str, Any]) -> Path:
    """An artefact with what those of the first version do not have: a promise and an abstention, or another model."""
    sys.path.insert(0, str(HERE.parent))
    from polytag import Classifier
    from toys import toy_corpus

    Classifier(name, options).fit(toy_corpus(60)).save(folder)
    return folder / "model"


def child(folder: Path, texts: list[str], expected: str, report: Path, room: int) -> None:
    """Try an artefact and end the process with the outcome."""
    from polytag import PolytagError

    out = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        code = EQUAL if answers(folder, texts) == expected else CHANGED
    except PolytagError as error:
        code = REFUSED if "\n" not in str(error).strip() else TRACE
        print(ascii(str(error)))  # names in a forged artefact need not be text that can be printed
    except BaseException:
        traceback.print_exc()
        code = TRACE
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def outcome(folder: Path, texts: list[str], expected: str, report: Path) -> str:
    """Fork, and say what became of the child."""
    size = sum(path.stat().st_size for path in folder.iterdir())
    virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    allowed = MEMORY + 4 * size
    report.write_bytes(b"")
    pid = os.fork()
    if pid == 0:
        try:
            child(folder, texts, expected, report, virtual + 4 * allowed)
        finally:
            os._exit(TRACE)  # whatever happens, the child must not go on as its parent
    _, status, usage = os.wait4(pid, 0)
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) == signal.SIGALRM else f"signal {os.WTERMSIG(status)}"
    said = report.read_text(errors="replace")
    if "debug: IndexError" in said:
        return "out of bounds"
    found = OUTCOMES.get(os.WEXITSTATUS(status), f"exit {os.WEXITSTATUS(status)}")
    if found == "trace" and "MemoryError" in said:
        return "memory"
    own = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return "memory" if usage.ru_maxrss * 1024 - own > allowed else found


def edited(folder: Path) -> Path:
    """The fixture of br with merged, dropped, split and renamed labels, several parents and titles; the fixtures have none."""
    from polytag import Classifier
    from polytag.labels import LabelSet

    classifier = Classifier.load(FIXTURES / "br" / "model")
    first, second, third, fourth, fifth, *_ = classifier.labels
    classifier.drop([third]).merge({"both": [first, second]}).split({fourth: ["one", "other"]}).rename({fifth: "new"})
    known = classifier.labels.to_records()
    known[-1] |= {"parent": "", "parents": ["one", "other"], "titles": {"en": "a", "de": "b"}, "statements": ["<x:a> <x:b>"]}
    classifier.labels = classifier.model.labels = LabelSet.from_records(known, vocabulary=["<x:a> <x:b> <x:c> ."])
    classifier.save(folder)
    return folder / "model"


def tried(model: str, most: int, seed: int) -> dict[str, Any]:
    """All forgeries of a model's fixture, or an even sample of them."""
    sys.path.insert(0, str(HERE))
    with tempfile.TemporaryDirectory() as fresh:
        made = {
            PROMISING: partial(trained, name="br", options=PROMISED),
            EDITED: edited,
            NEAREST: partial(trained, name=NEAREST, options={}),
        }.get(model)
        return _tried(model, FIXTURES / model / "model" if made is None else made(Path(fresh)), most, seed)


def _tried(model: str, source: Path, most: int, seed: int) -> dict[str, Any]:
    from forgeries import forgeries

    texts = json.loads((FIXTURES / "texts.json").read_text(encoding="utf-8"))[:2]
    expected = answers(source, texts)  # compiles and warms up everything
    total = sum(1 for _ in forgeries(source))
    step = max(1, total // most) if most else 1
    counts: Counter[str] = Counter()
    bad: list[list[str]] = []
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as temporary:
        folder, report = Path(temporary) / "model", Path(temporary) / "report"
        folder.mkdir()
        for number, forgery in enumerate(forgeries(source)):
            if (number + seed) % step:
                continue
            for old in folder.iterdir():
                old.unlink()
            for name, content in forgery.files().items():
                (folder / name).write_bytes(content)
            found = outcome(folder, texts, expected, report)
            counts[found] += 1
            if found not in GOOD:
                lines = report.read_text(errors="replace").strip().splitlines()
                bad.append([found, forgery.what, lines[-1][:200] if lines else ""])
    return {"model": model, "forgeries": total, "tried": counts.total(), **counts, "bad": bad}


def main() -> None:
    """Try the models named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of models [default: all]")
    parser.add_argument("--most", type=int, default=1300, help="maximum number of forgeries of a model; 0 = all")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    args = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in LIMITS.items()):  # before numba is imported
        cache = os.environ.get("NUMBA_CACHE_DIR") or str(Path(tempfile.gettempdir()) / "polytag-fuzz-cache")
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **LIMITS, "NUMBA_CACHE_DIR": cache})
    names = args.models or [*sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()), PROMISING, EDITED, NEAREST]
    rows = []
    for name in names:
        row = tried(name, args.most, args.seed)
        rows.append(row)
        print(json.dumps({key: value for key, value in row.items() if key != "bad"}), flush=True)
        for found in row["bad"][:20]:
            print("   ", *found, flush=True)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(row["bad"] for row in rows))


if __name__ == "__main__":
    main()
