"""Every example in README.md, CONTRIBUTING.md and docs/ is run here, and the generated tables are compared with the code.

Run as a script (``make docs``) this file writes the generated tables again.
"""

from __future__ import annotations

import doctest
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_reference import api_reference
from polytag import datasets
from polytag.config.settings import declared
from polytag.models.model import MODELS, model_class

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BOOK = [ROOT / "benchmarks" / "README.md", *sorted((ROOT / "benchmarks" / "book").glob("*.md"))]
RUN, READ = {"python", "console"}, {"json", "toml", "text", "csv"}
NOT_RUN_AT_MOST = 24  # CONTRIBUTING.md lists them; make docs writes the list
NOT_DESCRIBED_YET: set[str] = set()  # models in the making; a name leaves this set with its section in docs/models.md
ELSEWHERE = re.compile(r"data build|data get|apt-get|npm")  # docs/data.md: needs apt or npm
HARMLESS = {"head", "cat", "ls", "printf", "tail"}  # beside polytag, what an example may call
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^(`{3,})\s*(\w*)\s*$")
NOTE = re.compile(r"<!-- (not run|file): (.+?) -->")
GENERATED = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


# -- reading pages -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block: the line it begins at, its language, its text, and what a comment right before it says."""

    page: Path
    line: int
    language: str
    text: str
    notes: dict[str, str]

    @property
    def place(self) -> str:
        return f"{self.page.name}, line {self.line}"

    @property
    def not_run(self) -> str | None:
        """Why a block is not run, if it is not."""
        if self.page.name == "data.md" and self.language == "console" and ELSEWHERE.search(self.text):
            return "needs apt or npm"
        return self.notes.get("not run")


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page in order."""
    lines = page.read_text(encoding="utf-8").split("\n")
    notes: dict[str, str] = {}
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence:
            end = next(i for i in range(at + 1, len(lines)) if lines[i].rstrip() == fence[1])
            yield Block(page, at + 1, fence[2], "\n".join(lines[at + 1 : end]) + "\n", notes)
            at = end
        if lines[at].strip():
            notes = dict(NOTE.findall(lines[at]))
        at += 1


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown below it."""
    command, output = "", ""
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, output
            command, output = line[2:], ""
        elif command.endswith("\\"):
            command = command[:-1] + line
        else:
            assert command, f"{block.place}: output without a command; begin commands with '$ '"
            output += line + "\n"
    yield command, output


# -- running examples --------------------------------------------------------------------------------------------------


class Player:
    """Runs the blocks of one page one after the other, in one folder and one namespace."""

    def __init__(self, polytag: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.polytag, self.monkeypatch, self.folder = polytag, monkeypatch, folder
        self.module = types.ModuleType("example")
        monkeypatch.setitem(sys.modules, "example", self.module)

    def play(self, block: Block) -> None:
        if "file" in block.notes:
            (self.folder / block.notes["file"]).write_text(block.text, encoding="utf-8")
        if block.not_run:
            return
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, str(block.page), "exec"), self.module.__dict__)
        elif block.language == "console":
            for command, shown in commands(block):
                self._command(block, command, shown)
        elif block.language == "json":
            lines = block.text.splitlines()
            [json.loads(text) for text in ([block.text] if lines[0] in "{[" or not lines[0].endswith("}") else lines)]
        elif block.language == "toml":
            tomllib.loads(block.text)

    def _command(self, block: Block, command: str, shown: str) -> None:
        said, code = "", 0
        for stage in _stages(command):
            assert code == 0, f"{block.place}: {command!r} failed before its end: {said}"
            said, code = self._polytag(stage[1:], said) if stage[0] == "polytag" else self._other(block, stage, said)
        expected = 2 if shown.startswith("polytag: ") else 0
        assert code == expected, f"{block.place}: {command!r} ended with {code}: {said}"
        if shown:
            checker = doctest.OutputChecker()
            example = doctest.Example(command, shown)
            assert checker.check_output(shown, said, FLAGS), f"{block.place}: {checker.output_difference(example, said, FLAGS)}"

    def _polytag(self, arguments: list[str], said: str) -> tuple[str, int]:
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said.encode()), encoding="utf-8"))
        told = self.polytag(*arguments)
        return told.out + (told.err if told.code else ""), told.code

    def _other(self, block: Block, stage: list[str], said: str) -> tuple[str, int]:
        assert stage[0] in HARMLESS, (
            f"{block.place}: {stage[0]!r} cannot be run by the tests; say '<!-- not run: why -->' before it"
        )
        done = subprocess.run(stage, input=said, capture_output=True, text=True, cwd=self.folder, check=False)
        return done.stdout + done.stderr, done.returncode


def _stages(command: str) -> list[list[str]]:
    """The words of a command, cut at pipes; a comment at its end is left out."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|")
    lexer.whitespace_split, lexer.commenters = True, "#"
    stages: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            stages.append([])
        else:
            stages[-1].append(word)
    return stages


@pytest.fixture(scope="session")
def small_sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped sample, thinned out so that the examples run in seconds."""
    folder = tmp_path_factory.mktemp("small-sample")
    for name, part, count in zip(("train", "valid", "test"), datasets.load_sample(), (400, 60, 60), strict=True):
        part.subset(np.linspace(0, len(part) - 1, count).astype(int)).write(folder / f"{name}.jsonl.xz")
    for name in ("labels", "attribution"):
        shutil.copy(datasets.sample_path(name), folder)
    return folder


@pytest.fixture
def player(polytag: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_sample: Path) -> Player:
    """A player whose ``polytag data sample`` and ``load_sample`` give the thinned-out sample."""
    real = datasets.sample_path
    monkeypatch.setattr(datasets, "sample_path", lambda name: small_sample / real(name).name)
    monkeypatch.chdir(tmp_path)
    return Player(polytag, monkeypatch, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_of_a_page_does_what_the_page_says(page: Path, player: Player) -> None:
    for block in blocks(page):
        player.play(block)


def test_blocks_have_a_known_language_and_only_few_are_not_run() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    assert [block.place for block in found if block.language not in RUN | READ] == []
    assert sum(block.language in RUN for block in found) > 25
    left_out = [f"{block.place}: {block.not_run}" for block in found if block.not_run]
    assert len(left_out) <= NOT_RUN_AT_MOST, left_out
    reasons = re.compile(r"needs |installs packages|takes long without a GPU|runs until|these are the project's own targets")
    assert [block.place for block in found if block.not_run and not reasons.match(block.not_run)] == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("```python\nassert 1 == 2, 'never'\n```\n", "never"),
        ("```console\n$ polytag info br --json\nsomething else\n```\n", "Expected"),
        ("```console\n$ polytag info no-such-run\n```\n", "ended with 2"),
        ("```console\n$ rm -r /\n```\n", "cannot be run"),
        ("```json\n{'a': 1}\n```\n", "property name"),
    ],
)
def test_an_example_that_is_wrong_is_noticed(player: Player, tmp_path: Path, page: str, words: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises((AssertionError, ValueError), match=words):
        for block in blocks(path):
            player.play(block)


# -- links, models, generated tables -----------------------------------------------------------------------------------


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *BOOK, ROOT / "CHANGELOG.md"], ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            file, _, anchor = target.partition("#")
            path = (page.parent / file) if file else page
            assert path.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in _anchors(path), f"{page.name}: {target}"


@pytest.mark.parametrize("name", [name for name in MODELS if name not in NOT_DESCRIBED_YET])
def test_every_model_is_in_the_readme_and_has_a_row_and_a_section_of_its_own(name: str) -> None:
    assert f"`{name}`" in (ROOT / "README.md").read_text(encoding="utf-8")
    models = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| \[?`{name}`", models, re.MULTILINE)
    assert re.search(rf"^## .*`{name}`", models, re.MULTILINE) and f"<!-- generated: settings {name}" in models


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|")


def _setting_rows(name: str) -> dict[str, str]:
    """A model's settings as rows of a table, by name."""
    rows = {}
    for option in sorted(declared(model_class(name)).values(), key=lambda option: option.group != ""):
        words = option.help + (f" ({', '.join(map(str, option.choices))})" if option.choices else "")
        default = ", ".join(map(str, option.default)) if isinstance(option.default, list | tuple) else option.default
        group = option.title or "Model"
        rows[option.name] = f"| {group} | `{option.name}` | {option.type} | `{default}` | {_cell(words)} |"
    return rows


def settings_table(name: str, beside: str | None = None) -> str:
    """The settings of a model, or those that another model lacks or has with another default."""
    known = _setting_rows(beside) if beside else {}
    rows = [row for option, row in _setting_rows(name).items() if known.get(option) != row]
    if not rows:
        return f"No settings other than those of `{beside}`.\n"
    return "\n".join(["| group | setting | type | default | meaning |", "|---|---|---|---|---|", *rows]) + "\n"


def command_reference() -> str:
    """All verbs with their arguments and options, from the command line itself."""
    import typer.main

    from polytag.cli.app import app

    root: Any = typer.main.get_command(app)
    parts = ["### `polytag`\n", _options_table(root.params)]
    for path, command in _leaves(root, ("polytag",)):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        usage = " ".join([*path, *(p.metavar if p.required else f"[{p.metavar}]" for p in arguments), "[OPTIONS]"])
        parts += [f"### `{' '.join(path)}`\n", f"{command.help}\n", f"```text\n{usage}\n```\n", _options_table(command.params)]
    return "\n".join(parts)


def _leaves(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, (*path, name))
        else:
            yield (*path, name), command


def _options_table(params: list[Any]) -> str:
    rows = ["| argument or option | meaning |", "|---|---|"]
    for p in params:
        name = p.metavar if p.param_type_name == "argument" else ", ".join(p.opts) + "".join(f" / {o}" for o in p.secondary_opts)
        extra = " (required)" if p.required else "" if p.default in (None, False) else f" [default: {p.default}]"
        several = "; may be given several times" if getattr(p, "multiple", False) else ""
        rows.append(f"| `{_cell(name)}` | {_cell(p.help)}{several}{extra} |")
    return "\n".join(rows) + "\n"


def not_run_table() -> str:
    """The examples that no test runs, with the reason that stands before each."""
    rows = ["| page | not run, because |", "|---|---|"]
    left_out = [(block.page.relative_to(ROOT), block.not_run) for page in PAGES for block in blocks(page) if block.not_run]
    return "\n".join([*rows, *(f"| {page} | {why} |" for page, why in dict.fromkeys(left_out))]) + "\n"


def generate(what: str) -> str:
    """One generated part, by the words in its marker, as in ``commands``, ``settings br`` or ``settings cc beside br``."""
    match what.split():
        case ["api"]:
            return api_reference()
        case ["commands"]:
            return command_reference()
        case ["not", "run"]:
            return not_run_table()
        case ["settings", name]:
            return settings_table(name)
        case ["settings", name, "beside", other]:
            return settings_table(name, other)
    raise ValueError(f"nothing is known about {what!r}")


def regenerated(page: Path) -> str:
    """The text of a page with its generated parts made anew."""
    text = page.read_text(encoding="utf-8")
    return GENERATED.sub(lambda part: f"{part[1]}\n{generate(part[2])}\n{part[3]}", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_generated_tables_say_what_the_code_says(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == regenerated(page), "the code has changed; run `make docs`"


def test_the_files_and_names_of_the_equations_exist() -> None:
    rows = re.findall(
        r"^\|[^|]*\|[^|]*\| `([^`|]+)` \|(?: `([^`|]+)`)? \|$", (ROOT / "docs/equations.md").read_text("utf-8"), re.M
    )
    assert len(rows) > 30
    for file, name in rows:
        path = ROOT / file if file.startswith("benchmarks/") else ROOT / "src" / "polytag" / file
        assert path.is_file(), file
        for part in name.split(".") if name else ():
            assert re.search(rf"(class|def) {part}\b", path.read_text("utf-8")), f"{file}: {name}"


def test_the_command_reference_knows_every_verb() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for verb in ("train", "evaluate", "predict", "compare", "info", "data describe", "data build", "data get", "data sample"):
        assert f"### `polytag {verb}`" in text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(regenerated(page), encoding="utf-8")
