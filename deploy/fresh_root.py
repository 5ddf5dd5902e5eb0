"""Does the steps of deploy/Dockerfile in a fresh Debian root, where no container daemon runs, and starts commands in it.

    python deploy/fresh_root.py ROOT [--arg EXTRAS=serve,postgres,nn,export] [--base base.tar]

It needs root's rights, mmdebstrap, chroot and unshare. ROOT is a new folder. ``--base`` keeps the base system for later calls.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

HERE = Path(__file__).resolve().parent
MINUTES = 30
_IGNORED = ("EXPOSE", "STOPSIGNAL", "HEALTHCHECK")


def impossible() -> str:
    """Why no root can be made here; empty if it can."""
    missing = [name for name in ("mmdebstrap", "chroot", "unshare", "mount") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    if os.geteuid() != 0:
        return "only root can make a root"
    closed = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], check=False, capture_output=True)
    return "nothing can be mounted here" if closed.returncode else ""


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile: a word and what follows it."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word, rest.strip()


@dataclass
class FreshRoot:
    """A root folder and the state that a Dockerfile sets up: variables, user, working folder and command."""

    folder: Path
    source: Path = HERE.parent
    given: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    place: str = "/"
    entry: list[str] = field(default_factory=list)

    def build(self, dockerfile: Path, base: Path | None = None) -> None:
        """Do all steps."""
        for word, rest in instructions(dockerfile.read_text()):
            print(f"{word} {rest}"[:120], file=sys.stderr, flush=True)
            self.step(word, rest, base)

    def step(self, word: str, rest: str, base: Path | None) -> None:
        """Do one step; an instruction that is not known is an error."""
        if word == "FROM":
            self._from(rest, base)
        elif word == "ARG":
            name, _, value = rest.partition("=")
            self.arguments[name] = self.given.get(name, value)
        elif word == "ENV":
            pairs = (part.partition("=") for part in shlex.split(rest))
            self.variables |= {name: self._filled(value) for name, _, value in pairs}
        elif word == "COPY":
            *sources, target = rest.split()
            self._copy(sources, self.folder / target.strip("/"), len(sources) > 1 or target.endswith("/"))
        elif word == "RUN":
            command = self.command(["sh", "-c", rest], pip="pip install" in rest)
            subprocess.run(command, check=True, timeout=60 * MINUTES, stdout=subprocess.DEVNULL)
        elif word == "USER":
            self.user = rest
        elif word == "WORKDIR":
            self.place = rest
        elif word == "ENTRYPOINT":
            self.entry = json.loads(rest)
        elif word != "CMD" and word not in _IGNORED:
            raise SystemExit(f"{word} is not known")

    def _from(self, image: str, base: Path | None) -> None:
        """The packages that Debian's own slim images are made of."""
        suite = re.fullmatch(r"debian:(\w+)-slim", image)
        if suite is None:
            raise SystemExit(f"{image} is not a slim image of Debian")
        self.folder.mkdir(parents=True)
        if base is None or not base.exists():
            target = str(base or self.folder)
            subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", suite[1], target], check=True, timeout=60 * MINUTES)
        if base is not None:
            subprocess.run(["tar", "--exclude=./dev/*", "-xf", str(base), "-C", str(self.folder)], check=True)
        for name in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{name}", self.folder / "etc" / name)
        self.variables["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def _filled(self, value: str) -> str:
        return Template(value).safe_substitute({**self.arguments, **self.variables})

    def _copy(self, sources: Sequence[str], target: Path, inside: bool) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        for name in sources:
            here = self.source / name
            if here.is_dir():
                shutil.copytree(here, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (target if inside else target.parent).mkdir(parents=True, exist_ok=True)
                shutil.copy(here, target)

    def command(
        self, words: Sequence[str], *, pip: bool = False, mounts: dict[Path, str] | None = None, closed: bool = False
    ) -> list[str]:
        """A command in the root, with its user, variables and working folder; ``mounts`` are folders of this machine, to read.

        ``closed`` makes everything but /tmp and the working folder read-only. ``pip`` lets pip see what it sees here.
        """
        root, shared = str(self.folder), {str(path): place for path, place in (mounts or {}).items()}
        names = {**self.arguments, **self.variables}
        if pip:
            places = _pip_places()
            shared |= {place: place for place in places}
            names |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        script = [f"mount --bind {root} {root}", f"mount --bind /dev {root}/dev", f"mount -t proc proc {root}/proc"]
        script.append(f"mount -t tmpfs -o mode=1777 none {root}/dev/shm")
        for here, there in shared.items():
            into = f"{root}{there}"
            script.append(f"mkdir -p {Path(into).parent}" if Path(here).is_file() else f"mkdir -p {into}")
            script += [f"touch {into}"] if Path(here).is_file() else []
            script.append(f"mount --bind -o ro {here} {into}")
        if closed:
            script += [f"mount -o remount,bind,ro {root}"]
            script += [f"mount -t tmpfs -o mode=1777 none {root}{place}" for place in ("/tmp", self.place)]
        inner = ["env", "-i", *(f"{name}={value}" for name, value in names.items()), f"HOME={self.place}", *words]
        change = f"cd {self.place} && exec {shlex.join(inner)}"
        script.append(shlex.join(["exec", "chroot", f"--userspec={self.user}", root, "sh", "-c", change]))
        return ["unshare", "--mount", "sh", "-ec", "\n".join(script)]


def _pip_places() -> list[str]:
    """Files and folders of this machine that pip's settings name, and the settings themselves."""
    told = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True).stdout
    places = [place for place in re.findall(r"(?:(?<=file://)|(?<=['= ]))/[\w./-]+", told) if os.path.exists(place)]
    tops = {str(Path(place).parent if place.endswith("/simple") else place) for place in places}
    return sorted(tops | {place for place in ("/etc/pip.conf",) if os.path.exists(place)})


def main() -> None:
    """Make a root."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the Dockerfile")
    parser.add_argument("--base", type=Path, help="file of the base system; made if it is not there")
    told = parser.parse_args()
    reason = impossible()
    if reason:
        raise SystemExit(f"SKIPPED: {reason}")
    given = dict(one.split("=", 1) for one in told.arg)
    FreshRoot(told.root.absolute(), given=given).build(HERE / "Dockerfile", told.base)


if __name__ == "__main__":
    main()
