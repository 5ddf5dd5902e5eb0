"""Run: the folder of one training, with its recipe, log, checkpoints, metrics and model."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import logging
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, TypeVar

from polytag.errors import ArtefactError, ConfigError, file_error
from polytag.formats.inputs import checked_path
from polytag.storage.artefact import MANIFEST, polytag_version, read_artefact, write_artefact
from polytag.storage.atomic_text import replace_text
from polytag.storage.plain_json import plain
from polytag.storage.state_json import State
from polytag.work.workplace import HERE, Workplace

try:
    import fcntl
except ImportError:  # not on every system; two trainings in one folder are then not detected
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from rich.progress import Progress

    from polytag.config.recipe import Recipe

logger = logging.getLogger(__name__)
T = TypeVar("T")
LOG = "log.jsonl"
_STAGE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_QUIET_SECONDS = 10.0
_BAR_SECONDS = 0.1


class Run:
    """The folder of one training; without a folder nothing is written, and only progress is shown.

    A run locks its folder until it is closed (it is a context manager): a second training in it is refused.
    """

    def __init__(self, folder: str | Path | None = None, *, progress: bool | None = None, resume: bool = False) -> None:
        """Open a new or existing folder.

        ``progress`` None = bars on a terminal, unless polytag logs only warnings; ``resume`` keeps earlier checkpoints.
        """
        self.folder = None if folder is None else checked_path(folder)
        self.resume = resume
        self.fingerprint = ""
        self.workplace: Workplace = HERE
        self._progress = progress
        self._bars: Progress | None = None
        self._started = time.monotonic()
        self._used: set[str] = set()
        self._lock: IO[str] | None = None
        self._log: IO[str] | None = None
        if self.folder is None:
            if resume:
                raise ConfigError("there is nothing to resume without a folder; name the folder of the run")
            return
        self._lock = _open_folder(self.folder)
        if not resume:
            self.clear_stages()
        self._log = _open_log(self.folder / LOG)
        self.log("start", {"resume": resume, "polytag": polytag_version()})

    def __enter__(self) -> Self:
        """Return the run itself."""
        return self

    def __exit__(self, *failure: object) -> None:
        """Close the run, also after an error."""
        self.close()

    def close(self) -> None:
        """Unlock the folder."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
        for file in (self._log, self._lock):
            if file is not None:
                with contextlib.suppress(OSError):  # a full disk; the line that could not be written has raised before
                    file.close()
        self._log = self._lock = None

    @property
    def plots_folder(self) -> Path | None:
        """The folder for plots."""
        return None if self.folder is None else self.folder / "plots"

    def part(self, name: str) -> Run:
        """The run of an ensemble member inside this one: in ``parts/NAME``, with its own log and checkpoints."""
        inner = Run(self.part_folder(name), progress=self._progress, resume=self.resume)
        inner.fingerprint, inner.workplace = self.fingerprint, self.workplace
        return inner

    def part_folder(self, name: str) -> Path | None:
        """The folder of the inner run with this name."""
        return None if self.folder is None else self.folder / "parts" / name

    def log(self, event: str, values: Mapping[str, Any]) -> None:
        """Append an event to the log, with the time and the seconds since the run was opened."""
        logger.debug("%s %s", event, values)
        if self._log is not None:
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
            record = {"time": now, "elapsed": round(time.monotonic() - self._started, 3), "event": event, **values}
            try:
                self._log.write(json.dumps(plain(record), ensure_ascii=False, allow_nan=False) + "\n")
                self._log.flush()
            except OSError as error:
                raise file_error(self._log.name, error) from None

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Write the metrics of this run; non-finite numbers become null."""
        if self.folder is not None:
            text = json.dumps(plain(metrics), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            replace_text(self.folder / "metrics.json", text)

    def write_recipe(self, recipe: Recipe) -> None:
        """Write the recipe of this run; checkpoints from another recipe or other data are not used."""
        self.fingerprint = recipe.fingerprint()
        if self.folder is not None:
            recipe.write(self.folder / "recipe.toml")

    # --- checkpoints

    def stage(self, name: str, make: Callable[[], State], *, key: Mapping[str, Any] | None = None) -> State:
        """The result of a named stage: from its checkpoint when resuming, otherwise computed and checkpointed.

        With a folder, both return the state as read back (arrays read-only): a resumed training has exactly the state of an
        uninterrupted one.
        """
        if self.folder is None:
            return make()
        if name in self._used:
            raise ValueError(f"the stage {name!r} was used twice in one run; give every stage a name of its own")
        self._used.add(name)
        found = self.load_stage(name, key=key)
        if found is not None:
            self.log("stage", {"name": name, "resumed": True})
            return found
        start = time.monotonic()
        self.save_stage(name, make(), key=key)
        self.log("stage", {"name": name, "resumed": False, "seconds": round(time.monotonic() - start, 3)})
        state: State = read_artefact(self._stage_folder(name), verify=False)["state"]
        return state

    def save_stage(self, name: str, state: State, *, key: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint atomically, in place of an earlier one with this name; without a folder do nothing."""
        if self.folder is not None:
            write_artefact(self._stage_folder(name), {"key": self._stage_key(key), "state": state})

    def load_stage(self, name: str, *, key: Mapping[str, Any] | None = None) -> State | None:
        """The checkpoint with this name, if this run resumes and key, recipe, data and version are the same."""
        if not self.resume or self.folder is None or not (self._stage_folder(name) / MANIFEST).exists():
            return None
        try:
            saved = read_artefact(self._stage_folder(name))
        except ArtefactError as error:
            logger.warning("stage %s is repeated: %s", name, error)
            return None
        if saved.get("key") != self._stage_key(key):
            logger.warning("stage %s is repeated: its checkpoint belongs to another recipe, other data or another version", name)
            return None
        state: State = saved["state"]
        return state

    def clear_stages(self) -> None:
        """Remove all checkpoints, those of ensemble members included."""
        self._used.clear()
        if self.folder is not None:
            shutil.rmtree(self.folder / "stages", ignore_errors=True)
            for log in (self.folder / "parts").glob(f"*/{LOG}"):
                shutil.rmtree(log.parent / "stages", ignore_errors=True)

    def _stage_folder(self, name: str) -> Path:
        parts = name.split("/")
        if not all(_STAGE_NAME.fullmatch(part) for part in parts):
            raise ValueError(f"{name!r} cannot name a stage; use letters, digits, '-', '_', '.' and '/' between parts")
        assert self.folder is not None
        return self.folder.joinpath("stages", *parts)

    def _stage_key(self, key: Mapping[str, Any] | None) -> str:
        whole = [polytag_version(), self.fingerprint, plain(key or {})]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()

    # --- progress

    def track(
        self, iterable: Iterable[T], description: str, total: int | None = None, place: Callable[[T], int] | None = None
    ) -> Iterator[T]:
        """Iterate and show progress: a bar on a terminal, otherwise a log line every ten seconds.

        ``place`` gives the number of an item, from 1, if earlier items may have been processed before.
        """
        if total is None and isinstance(iterable, Sized):
            total = len(iterable)
        wanted = sys.stderr is not None and sys.stderr.isatty() and logging.getLogger("polytag").level <= logging.INFO
        bar = wanted if self._progress is None else self._progress
        counted = ((place(item) if place else number, item) for number, item in enumerate(iterable, 1))
        return self._with_bar(counted, description, total) if bar else _with_lines(counted, description, total)

    def _with_bar(self, counted: Iterable[tuple[int, T]], description: str, total: int | None) -> Iterator[T]:
        self._bars = bars = self._bars or _new_bars()
        task = bars.add_task(description, total=total)
        done, shown = 0, -math.inf
        try:
            for number, item in counted:
                yield item
                done = number
                if time.monotonic() - shown >= _BAR_SECONDS:
                    bars.update(task, completed=done)
                    shown = time.monotonic()
        finally:
            bars.update(task, completed=done)
            if len(bars.tasks) > 1:  # the bar of an inner loop is removed; the outermost bar remains
                bars.remove_task(task)
            else:
                bars.stop()
                self._bars = None


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """The events of a run since its last start without ``resume``; a truncated line is skipped."""
    events: list[dict[str, Any]] = []
    try:
        lines = (
            (Path(folder) / LOG).read_text(encoding="utf-8", errors="replace").split("\n")
        )  # not splitlines, which knows more line separators
    except FileNotFoundError:
        return events
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == "start" and not event.get("resume"):
            events.clear()
        events.append(event)
    return events


def _open_folder(folder: Path) -> IO[str]:
    """Create the folder and lock it."""
    if (folder / MANIFEST).exists():
        raise ConfigError(f"{folder} is the folder of a model; name the folder of the run around it, or a new one")
    if (folder / "stages").exists() and not (folder / LOG).exists():
        raise ConfigError(f"{folder} has a folder 'stages' that no training made; name another folder for the run")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "a+", encoding="utf-8")  # noqa: SIM115, open as long as the run
    except OSError as error:
        raise ArtefactError(f"{folder}: a run cannot be kept here ({error.strerror}); name another folder") from None
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigError(f"another training is writing to {folder}; wait until it ends, or name another folder") from None
    except OSError as error:  # some network file systems have no locks
        logger.warning("%s cannot be locked (%s); make sure that no other training writes there", folder, error.strerror)
    return lock


def _open_log(path: Path) -> IO[str]:
    """Open the log for appending, on a new line even if the last one is truncated."""
    file = open(path, "a", encoding="utf-8", errors="replace", newline="\n")  # noqa: SIM115, the run closes it
    if path.stat().st_size:
        with open(path, "rb") as written:
            written.seek(-1, os.SEEK_END)
            if written.read() != b"\n":
                file.write("\n")
    return file


def _with_lines(counted: Iterable[tuple[int, T]], description: str, total: int | None) -> Iterator[T]:
    start = shown = time.monotonic()
    before = None
    for done, item in counted:
        before = done - 1 if before is None else before
        yield item
        now = time.monotonic()
        if now - shown >= _QUIET_SECONDS:
            shown = now
            rest = f" of {total}, about {(now - start) / (done - before) * (total - done):.0f} s left" if total else ""
            logger.info("%s: %d%s (%.0f s)", description, done, rest, now - start)


def _new_bars() -> Progress:
    """Bars on standard error; standard output is for results."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=Console(stderr=True))
    bars.start()
    return bars
