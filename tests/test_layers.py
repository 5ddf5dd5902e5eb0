"""The house: a room uses only rooms below it, no module is hard to find, no setting is declared twice. All read from the code."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
PACKAGE = SOURCE / "polytag"
LAYERS = (  # from top to bottom; a room may use what stands below it, and nothing beside it
    ("__main__",),
    ("cli",),
    ("server", "sklearn", "mlflow", "spark"),
    ("cluster",),
    ("auto", "transfer"),
    ("verbs",),
    ("datasets",),
    ("report",),
    ("analysis", "audit"),
    ("classifier",),
    ("explain", "editing"),
    ("models",),
    ("decision",),
    ("metrics",),
    ("xmc",),
    ("nn",),
    ("linear",),
    ("text",),
    ("corpus",),
    ("relabelling",),
    ("scores",),
    ("labels", "run"),
    ("formats", "config", "work"),
    ("storage", "kernels"),
    ("errors",),
)
FREE = ("cli", "models")  # one file per verb or model
MOST_AT_ROOT, MOST_IN_A_ROOM = 8, 15


def modules() -> dict[str, Path]:
    """All modules of the package by their dotted names; a package is its ``__init__``."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> Iterator[str]:
    """The modules of the package that a module imports anywhere: in functions and for typing too, and those named in text."""
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively; write the whole name"
            base = node.module or ""
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in MODULES or base in MODULES:
                    yield inner if inner in MODULES else base


def room(name: str) -> str:
    """The room of a module, or the word that it is."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "polytag"


HEIGHT = {word: len(LAYERS) - at for at, layer in enumerate(LAYERS) for word in layer}


def test_every_module_has_a_layer() -> None:
    assert {room(name) for name in MODULES} - set(HEIGHT) == {"polytag"}


@pytest.mark.parametrize("name", [name for name in MODULES if room(name) != "polytag"])
def test_no_import_goes_upwards(name: str) -> None:
    mine = room(name)
    wrong = [other for other in imports(name) if room(other) not in (mine, "polytag") and HEIGHT[room(other)] >= HEIGHT[mine]]
    assert not wrong, f"{name} ({mine}) uses {wrong}"


def test_there_is_no_cycle() -> None:
    graph = {name: set(imports(name)) - {name, "polytag"} for name in MODULES if name != "polytag"}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_the_registry_names_modules_of_the_models_room_alone() -> None:
    """It is the one place below ``models`` that knows where they are, as text."""
    from polytag.config.registry import MODELS

    assert all(target.startswith("polytag.models.") and target.partition(":")[0] in MODULES for target in MODELS.values())


# -- the listing -------------------------------------------------------------------------------------------------------


def test_only_the_words_are_at_the_root() -> None:
    files = {path.stem for path in PACKAGE.glob("*.py")}
    assert files == {"__init__", "__main__", "classifier", "corpus", "errors", "labels", "run", "scores"}
    assert len(files) <= MOST_AT_ROOT


def test_no_room_is_crowded() -> None:
    rooms = {path for path in PACKAGE.rglob("*") if path.is_dir() and path.name not in ("__pycache__", *FREE)}
    counts = {str(path.relative_to(PACKAGE)): len(list(path.glob("*.py"))) for path in rooms}
    assert {name: count for name, count in counts.items() if count > MOST_IN_A_ROOM} == {}


def test_models_holds_one_file_per_model_and_nothing_else() -> None:
    from polytag.config.registry import MODELS

    files = {path.stem for path in (PACKAGE / "models").glob("*.py")} - {"__init__", "model"}
    assert files == {target.partition(":")[0].rpartition(".")[2] for target in MODELS.values()}


def stem(word: str) -> str:
    """A word without what makes it plural or an -ing form, so that look-alikes are equal."""
    for ending, instead in (("ies", "y"), ("s", ""), ("ing", ""), ("ed", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = re.sub(r"(.)\1$", r"\1", word[: -len(ending)] + instead)
    return word.rstrip("e")


@pytest.mark.parametrize(
    ("one", "other"), [("curve", "curves"), ("mixed", "mixing"), ("embed", "embedding"), ("rank", "ranking")]
)
def test_look_alikes_have_the_same_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_no_two_modules_have_names_that_look_alike() -> None:
    names = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        if parts[0] not in FREE and path.stem not in ("__init__", "__main__"):
            names["_".join(stem(word) for word in path.stem.split("_"))].append("/".join(parts))
    assert {key: found for key, found in names.items() if len(found) > 1} == {}


# -- models and settings -----------------------------------------------------------------------------------------------


def test_models_inherit_at_most_three_deep() -> None:
    pytest.importorskip("torch")
    from polytag.models.model import MODELS, Model, model_class

    for name in MODELS:
        line = [cls for cls in model_class(name).__mro__ if issubclass(cls, Model) and cls is not Model]
        assert len(line) <= 3, f"{name}: {' -> '.join(cls.__name__ for cls in line)} -> Model"


def declarations() -> Iterator[tuple[str, str]]:
    """Every ``name: type = param(...)`` in the package, and where it stands."""
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Call):
                function = node.value.func
                if isinstance(function, ast.Name) and function.id == "param":
                    yield node.target.id, f"{name}:{node.lineno}"


def test_each_setting_is_declared_once() -> None:
    places = defaultdict(list)
    for setting, place in declarations():
        if place.startswith("polytag.config.recipe:"):
            continue  # keys of a recipe, not settings of a model
        places[setting].append(place)
    assert len(places) > 100
    assert {setting: found for setting, found in places.items() if len(found) > 1} == {}


def test_no_model_repeats_a_declaration_by_its_default_alone() -> None:
    """A model overrides a default inside ``group(...)``, so a plain field of a model is never a setting of a group."""
    pytest.importorskip("torch")
    from polytag.config.settings import declared
    from polytag.models.model import MODELS, model_class

    for name in MODELS:
        own = Counter(setting.name for setting in declared(model_class(name)).values())
        assert all(count == 1 for count in own.values())
        assert all(setting.help for setting in declared(model_class(name)).values()), name


def test_a_setting_tells_of_settings_and_values_that_exist() -> None:
    """``when`` and ``unless`` name settings of the model, or of another model that has the group, and values they can have."""
    pytest.importorskip("torch")
    from polytag.config.settings import declared
    from polytag.models.model import MODELS, model_class

    everywhere = {setting for name in MODELS for setting in declared(model_class(name))}
    for name in MODELS:
        known = declared(model_class(name))
        for setting in known.values():
            for other, values in {**setting.when, **setting.unless}.items():
                assert other in everywhere, f"{name}: {setting.name} depends on {other}"
                if other in known and known[other].choices:
                    assert set(values) & set(known[other].choices), f"{name}: {setting.name} depends on {other}={values}"


def test_at_most_twenty_settings_come_first() -> None:
    pytest.importorskip("torch")
    from polytag.models.model import MODELS
    from polytag.verbs.inspection import describe_model

    for name in MODELS:
        first, everything = describe_model(name), describe_model(name, everything=True)
        assert 3 <= len(first["options"]) <= 20, f"{name}: {len(first['options'])}"
        assert len(first["options"]) + first["more"] == len(everything["options"])
        assert not [option["name"] for option in first["options"] if option["idle"]]
