"""Recipes repeat a training exactly, and a wrong key or value is named with what to do."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polytag.config.groups.common_settings import LARGEST_SEED
from polytag.config.recipe import Recipe, build_model
from polytag.config.settings import LARGEST, declared
from polytag.config.toml_text import toml_text
from polytag.errors import ConfigError
from polytag.models.model import MODELS, Model, param


@dataclass
class Toy(Model):
    """A model with one option of every type."""

    c: float = param(1.0, "strength", minimum=0)
    epochs: int = param(3, "passes", minimum=1, maximum=100)
    lower: bool = param(True, "lower case")
    loss: str = param("hinge", "loss", choices=("hinge", "logistic"))
    ngrams: tuple[int, int] = param((1, 1), "range of n", minimum=1)
    grid: list[float] = field(default_factory=lambda: [0.5, 1.0], metadata={"help": "values of c", "minimum": 0.0})
    words: tuple[str, ...] = param((), "stop words")
    limit: int | None = param(5, "vocabulary", minimum=1)
    share: int | float = param(1, "documents: how many, or which share")
    name: str | None = param(None, "a name")
    mode: Literal["fast", "slow"] = param("fast", "mode")
    learned: int = field(init=False, default=0)

    def fit(self, train: Any, valid: Any, run: Any) -> None: ...

    def score(self, texts: Any, k: int | None = None) -> Any: ...

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None: ...


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "toy", f"{__name__}:Toy")
        yield


KEYS = st.text(st.characters(codec="utf-8"), max_size=6)
SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(KEYS, v, max_size=4), max_leaves=12)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_toml_written_reads_back_equal(table: dict[str, Any]) -> None:
    assert repr(tomllib.loads(toml_text(table))) == repr(reordered(table))


def reordered(table: Any) -> Any:
    """Tables go behind plain values; nothing else may change, the types least of all."""
    if not isinstance(table, dict):
        return table
    ordered = sorted(table.items(), key=lambda item: isinstance(item[1], dict))
    return {key: reordered(value) for key, value in ordered}


def test_toml_takes_paths_numpy_and_tuples_and_leaves_none_out() -> None:
    table = {"p": Path("a/b"), "n": np.float64(0.5), "t": (1, 2), "none": None, "d": [{"x": None, "y": 1}], "half": "\ud800"}
    assert tomllib.loads(toml_text(table)) == {"p": "a/b", "n": 0.5, "t": [1, 2], "d": [{"y": 1}], "half": "?"}
    with pytest.raises(TypeError, match="set"):
        toml_text({"a": {1}})


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "c": st.floats(0, allow_nan=False, allow_infinity=False),
        "epochs": st.integers(1, 100),
        "lower": st.booleans(),
        "loss": st.sampled_from(["hinge", "logistic"]),
        "ngrams": st.tuples(st.integers(1, 9), st.integers(1, 9)),
        "grid": st.lists(st.floats(0, allow_nan=False, allow_infinity=False), max_size=3),
        "words": st.lists(st.text(st.characters(codec="utf-8")), max_size=3).map(tuple),
        "limit": st.none() | st.integers(1, LARGEST),
        "share": st.integers(max_value=LARGEST) | st.floats(allow_nan=False, allow_infinity=False),
        "name": st.none() | st.text(st.characters(codec="utf-8")).filter(lambda t: t.lower() != "none"),
        "mode": st.sampled_from(["fast", "slow"]),
    },
)
NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
READING = st.fixed_dictionaries({}, optional={"format": NAMES, "text": NAMES | st.lists(NAMES, max_size=3), "on_bad": NAMES})
DATA = st.fixed_dictionaries({}, optional={"train": NAMES, "labels": NAMES, "fingerprint": NAMES, "reading": READING})
RECIPES = st.builds(
    Recipe,
    model=st.just("toy"),
    options=OPTIONS,
    seed=st.integers(0, LARGEST_SEED),
    optimise=st.sampled_from(["micro_f1", "macro_f1", "subset_accuracy"]),
    calibrate=st.booleans(),
    closed=st.booleans(),
    min_labels=st.none() | st.integers(0, 9),
    data=DATA,
)


@given(RECIPES)
def test_a_recipe_written_is_the_recipe_read_and_builds_the_model_it_says(tmp_path_factory: Any, recipe: Recipe) -> None:
    path = tmp_path_factory.getbasetemp() / "recipes" / "r.toml"
    recipe.write(path)
    again = Recipe.read(path)
    assert list(path.parent.iterdir()) == [path]
    assert again == recipe and repr(again.options) == repr(recipe.options)
    assert again.fingerprint() == recipe.fingerprint()
    model = build_model(again)
    assert isinstance(model, Toy) and model == Toy(**recipe.options, seed=recipe.seed, optimise=recipe.optimise)
    assert Toy.check_options(model.options()) == model.options()


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("c=2", "c", 2.0),
        ("c = 1e-3", "c", 0.001),
        ("epochs=7", "epochs", 7),
        ("lower=no", "lower", False),
        ("lower=True", "lower", True),
        ("loss=logistic", "loss", "logistic"),
        ("ngrams=1,2", "ngrams", (1, 2)),
        ("ngrams=[1, 2]", "ngrams", (1, 2)),
        ("grid=0.5", "grid", [0.5]),
        ("grid=", "grid", []),
        ("grid=1,2,", "grid", [1.0, 2.0]),
        ("words=a, b", "words", ("a", "b")),
        ("limit=none", "limit", None),
        ("limit=9", "limit", 9),
        ("share=1", "share", 1),
        ("share=1.0", "share", 1.0),
        ("name=x=y", "name", "x=y"),
        ("name=None", "name", None),
        ("mode=slow", "mode", "slow"),
    ],
)
def test_settings_are_cast_to_the_declared_type(setting: str, name: str, value: Any) -> None:
    before = Recipe("toy", {"epochs": 2, "c": 9.0})
    after = before.with_overrides([setting])
    assert repr(after.options[name]) == repr(value)
    assert after.options == {"epochs": 2, "c": 9.0, name: value}
    assert before == Recipe("toy", {"epochs": 2, "c": 9.0})


def test_settings_reach_the_recipe_too() -> None:
    recipe = Recipe("toy").with_overrides(
        ["seed=4", "closed=yes", "min_labels=2", "optimise=macro_f1", "calibrate=0", "c=1", "c=2"]
    )
    assert recipe == Recipe("toy", {"c": 2.0}, 4, "macro_f1", False, True, 2)
    assert build_model(recipe) == Toy(c=2.0, seed=4, optimise="macro_f1")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("epoch=3", "the model 'toy' has no option 'epoch'; did you mean 'epochs'?"),
        ("learned=3", "no option 'learned'"),
        ("labels=3", "no option 'labels'"),
        ("zzz=3", "known: c, epochs"),
        ("model=br", "--model"),
        ("c", "NAME=VALUE"),
        ("c=many", "'c' is 'many', but it must be a number, at least 0"),
        ("share=nan", "a number"),
        ("c=inf", "'c' is inf, but it must be a number, at least 0"),
        (f"limit={10**30}", "at most 1,000,000,000"),
        (f"seed={10**30}", "at most 1e+18"),
        ("c=-1", "at least 0"),
        ("epochs=2.5", "a whole number, at least 1, at most 100"),
        ("epochs=101", "at most 100"),
        ("lower=maybe", "true or false"),
        ("loss=hunge", "one of hinge, logistic"),
        ("ngrams=1", "a list"),
        ("ngrams=0,1", "at least 1"),
        ("grid=1,x", "a list, each a number"),
        ("grid=1,-1", "at least 0"),
        ("limit=0", "a whole number or none, at least 1"),
        ("mode=medium", "one of fast, slow"),
        ("seed=-1", "at least 0"),
        ("optimise=f1", "micro_f1, macro_f1, subset_accuracy"),
    ],
)
def test_a_setting_that_does_not_fit_says_what_would(setting: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Recipe("toy").with_overrides([setting])
    assert words in str(caught.value) and "\n" not in str(caught.value) and setting in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 2.0}, "whole number"),
        ({"epochs": True}, "whole number"),
        ({"epochs": "2"}, "whole number"),
        ({"c": "2"}, "a number"),
        ({"c": float("nan")}, "a number"),
        ({"lower": 1}, "true or false"),
        ({"loss": 1}, "text"),
        ({"loss": None}, "text"),
        ({"ngrams": [1, 2, 3]}, "a list"),
        ({"grid": {}}, "a list"),
        ({"grid": None}, "a list"),
        ({"ngrams": 1}, "a list"),
        ({"grid": [[1.0]]}, "a list"),
        ({"limit": "many"}, "or none"),
        ({"eppochs": 2}, "did you mean 'epochs'"),
    ],
)
def test_options_of_the_wrong_type_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Toy.check_options(options)
    assert next(iter(options)) in str(caught.value) and "the model 'toy'" in str(caught.value)


def test_options_are_cast_from_json_and_numpy() -> None:
    given_values = {
        "c": 2,
        "ngrams": [1, 2],
        "grid": (np.float32(0.5), 1),
        "epochs": np.int64(4),
        "limit": "none",
        "words": ["a"],
    }
    checked = Toy.check_options(given_values)
    assert repr(checked) == repr({"c": 2.0, "ngrams": (1, 2), "grid": [0.5, 1.0], "epochs": 4, "limit": None, "words": ("a",)})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = 'toy'\noptimize = 'x'", "unknown key 'optimize'; did you mean 'optimise'?"),
        ("model = 'toy'\nepochs = 3", "under [options]"),
        ("model = 'toy'\n[options]\nepoch = 3", "no option 'epoch'; did you mean 'epochs'?"),
        ("model = 'toy'\n[options]\nepochs = 'x'", "'epochs' is 'x', but it must be a whole number"),
        ("model = 'toi'", "there is no model 'toi'; did you mean 'toy'?"),
        ("model = 3", "'model' is 3, but it must be text"),
        ("model = 'toy'\noptions = 3", "'options' is 3, but it must be a table"),
        ("model = 'toy'\nseed = 1\n[options]\nseed = 2", "one 'seed' at its top"),
        ("model = 'toy'\n[options]\noptimise = 'macro_f1'", "one 'optimise' at its top"),
        ("model = 'toy'\noptimise = 'f1'", "one of micro_f1"),
        ("model = 'toy'\nseed = -1", "at least 0"),
        ("model = toy", "not valid TOML"),
        ("model = '\udcff'", "not UTF-8"),
    ],
)
def test_a_bad_recipe_file_is_named_with_its_key(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        Recipe.read(path)
    assert str(caught.value).startswith(f"{path}: ") and words in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        Recipe.read(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        Recipe.read(tmp_path)


def test_one_value_stands_for_a_list_of_one() -> None:
    assert Toy.check_options({"grid": 2, "words": "a"}) == {"grid": [2.0], "words": ("a",)}


def test_the_same_seed_among_the_options_is_no_conflict() -> None:
    recipe = Recipe("toy", Toy(seed=3).options(), seed=3).checked()
    assert not {"seed", "optimise"} & set(recipe.options) and build_model(recipe) == Toy(seed=3)


def test_the_fingerprint_follows_settings_and_content_but_not_paths() -> None:
    base = Recipe("toy", {"c": 2.0}, data={"train": "a.jsonl", "fingerprint": "x"})
    assert base.fingerprint() == Recipe("toy", {"c": 2.0}, data={"train": "./a.jsonl", "fingerprint": "x"}).fingerprint()
    others = [Recipe("toy", {"c": 3.0}, data=base.data), Recipe("toy", {"c": 2.0}, 1, data=base.data), Recipe("toy", {"c": 2.0})]
    others += [Recipe("toy", {"c": 2.0}, data={"fingerprint": "y"}), Recipe("toy", {"c": 2.0}, data={"train": "a.jsonl"})]
    assert len({recipe.fingerprint() for recipe in [base, *others]}) == 6


def test_options_describe_themselves() -> None:
    described = declared(Toy)
    own = ["c", "epochs", "lower", "loss", "ngrams", "grid", "words", "limit", "share", "name", "mode"]
    assert [name for name in described if name in Toy.__annotations__] == own and "seed" in described
    loss = described["loss"]
    assert (loss.type, loss.default, loss.help, loss.choices) == ("text", "hinge", "loss", ("hinge", "logistic"))
    assert described["limit"].type == "a whole number or none" and described["grid"].default == [0.5, 1.0]


def test_a_class_that_only_gives_another_default_keeps_what_its_base_says_about_a_setting() -> None:
    @dataclass
    class Patient(Toy):
        """The same, with other defaults."""

        epochs: int = 50
        loss: str = "logistic"

    toy, patient = (declared(cls) for cls in (Toy, Patient))
    assert patient["epochs"] == dataclasses.replace(toy["epochs"], default=50)
    assert patient["loss"] == dataclasses.replace(toy["loss"], default="logistic")
    assert {name: patient[name] for name in toy if name not in ("epochs", "loss")} == {
        name: option for name, option in toy.items() if name not in ("epochs", "loss")
    }
    assert Patient().epochs == 50
    for wrong in ({"epochs": 101}, {"loss": "none"}):
        with pytest.raises(ConfigError, match="but it must be"):
            Patient.check_options(wrong)
