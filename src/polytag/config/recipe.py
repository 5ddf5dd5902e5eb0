"""The recipe: all settings of a training as TOML, from which it can be repeated."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from polytag.config.groups.common_settings import optimise_param, seed_param
from polytag.config.label_costs import checked_costs
from polytag.config.promise import Promise
from polytag.config.registry import MODELS, class_of
from polytag.config.search_ranges import Search, read_search
from polytag.config.settings import check_fields, declared, param, title
from polytag.config.toml_text import read_toml, toml_text
from polytag.errors import ConfigError, brief, suggestion
from polytag.storage.atomic_text import replace_text

_FILES = ("train", "valid", "labels", "from", "fingerprint")
_COLUMNS = ("format", "labels", "id", "group", "separator", "on_bad")
_WITH_OPTIONS = ("seed", "optimise", "calibrate", "closed", "min_labels", "promise", "favour_rare", "costs")
_KINDS: dict[str, Any] = {"text": str | Path, "a table": dict, "text or a list of text": str | list | tuple}
_HEADER = "# The settings of a training. The same recipe with the same data gives the same model.\n"


@dataclass
class Recipe:
    """The settings of a training: the model with its options, the seed, the decision and the data."""

    model: str = param("br", "name of the model")
    options: dict[str, Any] = field(default_factory=dict, metadata={"help": "hyper-parameters that differ from their defaults"})
    seed: int = seed_param()
    optimise: str = optimise_param()
    calibrate: bool = param(True, "whether margins are calibrated to probabilities")
    closed: bool = param(False, "whether ancestors of predicted labels are predicted too")
    min_labels: int | None = param(None, "minimum number of labels per document; none = minimum of the training data", minimum=0)
    promise: str | None = param(
        None, "promise to keep instead of optimising: recall=.9, recall=.9,confidence=.9 or precision=.9; none = no promise"
    )
    favour_rare: float = param(
        0.0, "exponent of the inverse propensity that scores are multiplied by, to rank rare labels higher; 0 = none",
        minimum=0, maximum=2,
    )  # fmt: skip
    costs: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "per label, the costs of a false positive and of a false negative, to minimise instead of optimising"},
    )
    data: dict[str, Any] = field(default_factory=dict, metadata={"help": "files, reading options and fingerprint of the data"})
    tune: dict[str, Any] = field(default_factory=dict, metadata={"help": "number of trials and ranges of `polytag tune`"})

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a TOML file; the error of an unknown key or an invalid value names the file and the key."""
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
        """Write the recipe as TOML, atomically."""
        replace_text(Path(path), _HEADER + toml_text(self._table()))

    @classmethod
    def named(cls, name: Any, options: Mapping[str, Any]) -> Self:
        """A recipe for a model by name; keys of the recipe, such as seed and optimise, may be among the options."""
        if not isinstance(name, str):
            raise ConfigError(f"{brief(name)} is not a model; pass its name, as in Classifier('br'), a model object or a recipe")
        own = {key: options[key] for key in _WITH_OPTIONS if key in options}
        return cls(model=name, options={key: value for key, value in options.items() if key not in own}, **own).checked()

    def checked(self) -> Self:
        """The same recipe with every value checked and cast; the error of an invalid value names it."""
        values = check_fields(type(self), {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}, "")
        cls = class_of(values["model"])
        options = cls.check_options(values["options"])
        for name in _shared(cls):
            if options.pop(name, values[name]) != values[name]:
                raise ConfigError(f"the recipe has one {name!r} at its top and another under [options]; keep the one at the top")
        _check_data(values["data"])
        values["promise"] = str(Promise.parse(values["promise"])) if values["promise"] else None
        values["costs"] = checked_costs(values["costs"])
        if values["costs"] and (values["promise"] or not values["calibrate"]):
            other = f"the promise {values['promise']}" if values["promise"] else "calibrate=false"
            raise ConfigError(f"costs do not go with {other}; leave one of them out")
        if values["favour_rare"] and not values["calibrate"]:
            raise ConfigError("favour_rare does not go with calibrate=false; leave one of them out")
        checked = dataclasses.replace(self, **{**values, "options": options})
        checked.search()
        return checked

    def search(self) -> Search:
        """The search that [tune] declares; keys at the top of a recipe, such as the seed, are not searched."""
        cls = class_of(self.model)
        options = {name: f.check for name, f in declared(cls).items() if name not in _shared(cls)}
        return read_search(self.tune, title(cls), options)

    def with_overrides(self, settings: Sequence[str]) -> Self:
        """The recipe with settings such as ``c=2`` or ``ngrams=1,2``: options of the model, or keys of the recipe."""
        cls = class_of(self.model)
        own = {name: f for name, f in declared(type(self)).items() if name not in ("model", "options", "data", "tune", "costs")}
        options = {name: f for name, f in declared(cls).items() if name not in own}
        changed: dict[str, Any] = {}
        chosen = dict(self.options)
        for setting in sorted(settings, key=lambda setting: "." in setting.partition("=")[0]):  # parts first, then their settings
            name, equals, text = setting.partition("=")
            name = name.strip()
            if not equals:
                raise ConfigError(f"--set {brief(setting, 80)} has no value; write it as NAME=VALUE")
            if "." in name and cls.composite:
                chosen["settings"] = _with_part_setting(cls, chosen, name, text.strip())
                continue
            if name not in own and name not in options:
                hint = "name it with --model" if name == "model" else suggestion(name, [*options, *own])
                raise ConfigError(f"--set {brief(setting, 80)}: {title(cls)} has no option {name!r}; {hint}")
            value = (own.get(name) or options[name]).from_text(text.strip(), f"--set {brief(setting, 80)}: {name!r}")
            (changed if name in own else chosen)[name] = value
        return dataclasses.replace(self, options=chosen, **changed).checked()

    def fingerprint(self) -> str:
        """A checksum of everything that affects the model; data count by their ``fingerprint``, if there is one, not by paths."""
        table = self._table()
        table.pop("tune", None)  # it does not affect a training
        table["data"] = self.data.get("fingerprint", table["data"])
        return hashlib.sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()

    def _table(self) -> dict[str, Any]:
        """The recipe as a TOML table, subtables last; TOML has no null, so the option None becomes the word none."""
        last = ("options", "data", "tune", "costs")
        table = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in last}
        for name in [name for name in ("promise", "favour_rare") if not table[name]]:
            del table[name]
        options = {name: "none" if value is None else value for name, value in self.options.items()}
        costs = {"costs": dict(self.costs)} if self.costs else {}
        return {**table, "options": options, **costs, "data": dict(self.data), **({"tune": dict(self.tune)} if self.tune else {})}


def _with_part_setting(cls: Any, options: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
    """The settings of a model's parts, with the one named PART.OPTION added."""
    part, _, option = name.rpartition(".")
    where = f"--set {brief(f'{name}={text}', 80)}"
    kinds = cls.part_classes(part, options)
    known = {key: found for kind in reversed(kinds) for key, found in declared(kind).items()}
    if option not in known:
        titles = " or ".join(dict.fromkeys(map(title, kinds)))
        raise ConfigError(f"{where}: {titles} has no option {option!r}; {suggestion(option, list(known))}")
    settings = options.get("settings", {})
    return {**settings, part: {**settings.get(part, {}), option: known[option].from_text(text, f"{where}: {option!r}")}}


def _check_data(data: Mapping[str, Any]) -> None:
    """Raise unless the table [data] has the known keys with values of their types."""
    _check_table(data, {**dict.fromkeys(_FILES, "text"), "reading": "a table"}, "[data]")
    _check_table(data.get("reading", {}), {**dict.fromkeys(_COLUMNS, "text"), "text": "text or a list of text"}, "[data.reading]")


def _check_table(table: Mapping[str, Any], kinds: Mapping[str, str], where: str) -> None:
    for key, value in table.items():
        if key not in kinds:
            raise ConfigError(f"{where} has no key {brief(key)}; {suggestion(str(key), list(kinds))}")
        items = value if isinstance(value, list | tuple) else ()
        if not isinstance(value, _KINDS[kinds[key]]) or not all(isinstance(item, str) for item in items):
            raise ConfigError(f"{where} {key!r} is {brief(value)}, but it must be {kinds[key]}")


def build_model(recipe: Recipe) -> Any:
    """The untrained model of a recipe."""
    recipe = recipe.checked()
    cls = class_of(recipe.model)
    return cls.build({**recipe.options, **{name: getattr(recipe, name) for name in _shared(cls)}})


def _shared(cls: type[Any]) -> list[str]:
    """The options of a model that are keys at the top of a recipe, such as the seed."""
    top = {f.name for f in dataclasses.fields(Recipe)}
    return [name for name in declared(cls) if name in top]


def _place_of(key: str, model: Any, known: Sequence[str]) -> str:
    """Advice about an unknown key at the top of a recipe."""
    if isinstance(model, str) and model in MODELS and key in declared(class_of(model)):
        return f"it is an option of {model!r}: put it under [options]"
    return suggestion(key, known)
