"""The recipe: everything that a training was told, as TOML that repeats it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from polytag.errors import ConfigError
from polytag.models.model import METRIC_NAMES, MODELS, Model, model_class, param, suggestion
from polytag.options import check_fields, declared, title, validate_options
from polytag.ranges import Search, read_search
from polytag.toml import read_toml, toml_text

_HEADER = "# What this training was told. The same recipe with the same data gives the same model.\n"


@dataclass
class Recipe:
    """What a training is told: the model with its options, the seed, how to decide, and which data."""

    model: str = param("br", "name of the model")
    options: dict[str, Any] = field(default_factory=dict, metadata={"help": "the model's hyper-parameters that were set"})
    seed: int = param(0, "same seed, same machine: same scores", minimum=0)
    optimise: str = param("micro_f1", "metric that choices are made for", choices=METRIC_NAMES)
    calibrate: bool = param(True, "turn scores into probabilities that can be trusted")
    closed: bool = param(False, "predict every ancestor of a predicted label too")
    min_labels: int | None = param(None, "fewest labels of a document; none: as in the training data", minimum=0)
    data: dict[str, Any] = field(default_factory=dict, metadata={"help": "the files, how to read them, their fingerprint"})
    tune: dict[str, Any] = field(default_factory=dict, metadata={"help": "what `polytag tune` may try: trials and ranges"})

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a TOML file; an unknown key or a value that does not fit is an error that names the file and the key."""
        table = read_toml(Path(path))
        try:
            known = [f.name for f in dataclasses.fields(cls)]
            for key in table:
                if key not in known:
                    raise ConfigError(f"unknown key {key!r}; {_place_of(key, table.get('model', 'br'), known)}")
            return cls(**check_fields(cls, table, "")).checked()
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def write(self, path: str | Path) -> None:
        """Write the recipe as TOML, in one step: a reader never sees half of it."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(_HEADER + toml_text(self._table()), encoding="utf-8", newline="\n")
        os.replace(temporary, path)

    def checked(self) -> Self:
        """The same recipe with every value checked and cast, or an error that says which one does not fit."""
        values = check_fields(type(self), {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}, "")
        options = validate_options(model_class(values["model"]), values["options"])
        for name in _shared(model_class(values["model"])):
            if options.pop(name, values[name]) != values[name]:
                raise ConfigError(f"the recipe has one {name!r} at its top and another under [options]; keep the one at the top")
        told = dataclasses.replace(self, **{**values, "options": options})
        told.search()
        return told

    def search(self) -> Search:
        """What [tune] declares: how many trials, over which ranges; the seed and the like are not searched."""
        cls = model_class(self.model)
        options = {name: f.check for name, f in declared(cls).items() if name not in _shared(cls)}
        return read_search(self.tune, title(cls), options)

    def with_overrides(self, settings: Sequence[str]) -> Self:
        """The recipe with settings such as ``c=2`` or ``ngrams=1,2`` applied: options of the model, or keys of the recipe."""
        cls = model_class(self.model)
        own = {name: f for name, f in declared(type(self)).items() if name not in ("model", "options", "data", "tune")}
        options = {name: f for name, f in declared(cls).items() if name not in own}
        changed: dict[str, Any] = {}
        chosen = dict(self.options)
        for setting in sorted(settings, key=lambda setting: "." in setting.partition("=")[0]):  # first which parts there are
            name, equals, text = setting.partition("=")
            name = name.strip()
            if not equals:
                raise ConfigError(f"--set {setting!r} has no value; write it as NAME=VALUE")
            if "." in name and hasattr(cls, "part_classes"):
                chosen["settings"] = _with_part_setting(cls, chosen, name, text.strip())
                continue
            if name not in own and name not in options:
                hint = "name it with --model" if name == "model" else suggestion(name, [*options, *own])
                raise ConfigError(f"--set {setting!r}: {title(cls)} has no option {name!r}; {hint}")
            value = (own.get(name) or options[name]).from_text(text.strip(), f"--set {setting!r}: {name!r}")
            (changed if name in own else chosen)[name] = value
        return dataclasses.replace(self, options=chosen, **changed).checked()

    def fingerprint(self) -> str:
        """A checksum of everything that shapes the model; data with a ``fingerprint`` is known by that, not by its paths."""
        table = self._table()
        table.pop("tune", None)  # a training never looks at it
        table["data"] = self.data.get("fingerprint", table["data"])
        return hashlib.sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()

    def _table(self) -> dict[str, Any]:
        """The recipe as TOML can hold it, tables last; TOML has no null, so an option without a value is the word none."""
        table = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("options", "data", "tune")}
        options = {name: "none" if value is None else value for name, value in self.options.items()}
        return {**table, "options": options, "data": dict(self.data), **({"tune": dict(self.tune)} if self.tune else {})}


def _with_part_setting(cls: Any, options: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
    """The settings of a model's parts with one more, named PART.OPTION."""
    part, _, option = name.rpartition(".")
    where = f"--set '{name}={text}'"
    kinds = cls.part_classes(part, options)
    known = {key: found for kind in reversed(kinds) for key, found in declared(kind).items()}
    if option not in known:
        titles = " or ".join(dict.fromkeys(map(title, kinds)))
        raise ConfigError(f"{where}: {titles} has no option {option!r}; {suggestion(option, list(known))}")
    settings = options.get("settings", {})
    return {**settings, part: {**settings.get(part, {}), option: known[option].from_text(text, f"{where}: {option!r}")}}


def build_model(recipe: Recipe) -> Model:
    """The untrained model that a recipe asks for."""
    recipe = recipe.checked()
    cls = model_class(recipe.model)
    return cls(**recipe.options, **{name: getattr(recipe, name) for name in _shared(cls)})


def _shared(cls: type[Any]) -> list[str]:
    """The options of a model that stand at the top of a recipe, such as the seed."""
    top = {f.name for f in dataclasses.fields(Recipe)}
    return [name for name in declared(cls) if name in top]


def _place_of(key: str, model: Any, known: Sequence[str]) -> str:
    """What to do about a key at the top of a recipe that does not belong there."""
    if isinstance(model, str) and model in MODELS and key in declared(model_class(model)):
        return f"it is an option of {model!r}: put it under [options]"
    return suggestion(key, known)
