"""The end of a command's process: nothing is lost although it does not take everything apart."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def ended(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code), encoding="utf-8")
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, cwd=folder, timeout=120)


def test_threads_end_and_registered_functions_are_called(tmp_path: Path) -> None:
    """Threads first, as the interpreter does; what is still in a buffer is written."""
    done = ended(
        """
        import atexit, gc, sys, threading, time
        from polytag.cli.entry import start

        class Left:
            def __del__(self) -> None:
                print("taken apart")

        left = Left()

        def late() -> None:
            time.sleep(0.3)
            print("thread", end=" ")

        atexit.register(lambda: print(gc.get_threshold()[0], "registered", end=" "))
        threading.Thread(target=late).start()
        sys.argv = ["polytag", "--version"]
        start()
        print("after the end")
        """,
        tmp_path,
    )
    assert done.returncode == 0 and done.stderr == ""
    assert "200000 registered" in done.stdout and "taken apart" not in done.stdout
    assert done.stdout.split()[-1] == "registered" and "thread" in done.stdout and "after" not in done.stdout


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["predict", "nothing", "nowhere"], 2), (["no-verb"], 2)])
def test_the_exit_code_is_that_of_the_command(arguments: list[str], code: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "polytag", *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == code, done.stderr
    assert bool(done.stderr) == bool(code)


def test_a_bug_shows_its_traceback(tmp_path: Path) -> None:
    done = ended(
        """
        import polytag.cli.app
        from polytag.cli.entry import start

        def broken() -> None:
            raise KeyError("a bug")

        polytag.cli.app.main = broken
        start()
        """,
        tmp_path,
    )
    assert done.returncode == 1 and "KeyError: 'a bug'" in done.stderr
