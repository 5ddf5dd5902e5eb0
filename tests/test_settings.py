"""Settings of a class and of its groups: limits, values that exclude one another, and the way in and out of an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from polytag.config.groups.search_settings import SearchSettings
from polytag.config.groups.tree_settings import TreeSettings
from polytag.config.settings import assign, built, check_settings, declared, effective, flat, group, param, refuse_idle
from polytag.errors import ConfigError
from polytag.models.model import model_class


@dataclass
class Windows:
    """How long texts are read."""

    long: str = param("head", "what is read", choices=("head", "windows"))
    overlap: int = param(32, "tokens that windows share; a list tries each", minimum=0, maximum=64, when={"long": ("windows",)})
    rates: list[float] = param([0.5, 1.0], "rates; several are compared", minimum=0)


@dataclass
class Tool:
    """Something with settings of its own and of a group."""

    speed: float = param(1.0, "how fast", minimum=0.5, maximum=2)
    sound: str = param("", "what it says", unless={"speed": (2.0,)})
    windows: Windows = group(Windows, without=(), limits={"overlap": (1, 8)}, one=("rates",), overlap=4)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"speed": 2}, {"speed": 2.0}),
        ({"speed": 0.5}, {"speed": 0.5}),
        ({"overlap": 1}, {"overlap": 1}),
        ({"overlap": 8}, {"overlap": 8}),
        ({"rates": 3}, {"rates": 3.0}),
    ],
)
def test_values_within_the_limits_are_cast(values: dict[str, Any], expected: dict[str, Any]) -> None:
    found = check_settings(Tool, values)
    assert found == expected and [type(v) for v in found.values()] == [type(v) for v in expected.values()]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"speed": 2.01}, "the option 'speed' is 2.01, but it must be a number, at least 0.5, at most 2"),
        ({"speed": 0.49}, "at least 0.5"),
        ({"overlap": 0}, "'overlap' is 0, but it must be a whole number, at least 1, at most 8"),  # the model's own limits
        ({"overlap": 9}, "at most 8"),
        ({"overlap": 10**10}, "at most 8"),
        ({"long": "tail"}, "one of head, windows"),
        ({"rates": [0.5, 1.0]}, "'rates' is"),
        ({"sped": 1}, "has no option 'sped'; did you mean 'speed'"),
    ],
)
def test_values_outside_of_them_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(Tool, values)
    assert words in str(caught.value)


def test_a_setting_without_effect_is_refused_unless_it_has_its_default() -> None:
    with pytest.raises(ConfigError, match="Tool: the option 'overlap' has no effect with long=head; it is for long=windows"):
        refuse_idle(Tool, {"overlap": 5})
    with pytest.raises(ConfigError, match=r"the option 'sound' has no effect with speed=2.0; leave it out"):
        refuse_idle(Tool, {"speed": 2.0, "sound": "beep"})
    refuse_idle(Tool, {"overlap": 5, "long": "windows"})
    refuse_idle(Tool, {"overlap": 4})
    refuse_idle(Tool, {"sound": "beep"})


def test_settings_go_into_an_object_and_come_out_again() -> None:
    values = {"speed": 1.5, "sound": "beep", "long": "windows", "overlap": 7, "rates": 0.25}
    tool = built(Tool, values)
    assert (tool.speed, tool.windows.overlap, tool.windows.rates) == (1.5, 7, [0.25])
    assert flat(tool) == values and effective(tool) == values
    assign(tool, {"overlap": 4, "rates": 2.0, "speed": 1.0, "long": "head"})
    assert (tool.speed, tool.windows.overlap, tool.windows.rates, tool.windows.long) == (1.0, 4, [2.0], "head")
    assert effective(tool) == {"sound": "beep", "rates": 2.0}


def test_what_has_no_effect_is_not_told() -> None:
    assert effective(built(Tool, {"overlap": 7})) == {} and effective(built(Tool, {"overlap": 7, "long": "windows"})) != {}


def test_objects_do_not_share_their_lists() -> None:
    one, other = built(Tool, {}), built(Tool, {})
    one.windows.rates.append(9.0)
    assert other.windows.rates == [0.5, 1.0] and declared(Tool)["rates"].default == 0.5


def test_a_group_says_what_it_is_and_a_single_value_does_not_speak_of_several() -> None:
    found = declared(Tool)
    assert list(found) == ["speed", "sound", "long", "overlap", "rates"]
    assert (found["overlap"].title, found["overlap"].group, found["speed"].group) == ("How long texts are read", "windows", "")
    assert found["rates"].help == "rates" and found["overlap"].default == 4 and found["overlap"].type == "a whole number"


def test_windows_need_not_overlap() -> None:
    windows = {"long": "windows", "overlap": 0}
    assert model_class("bert").check_options(windows) == windows
    with pytest.raises(ConfigError, match="overlap"):
        model_class("bert").check_options({**windows, "overlap": -1})


@pytest.mark.parametrize(
    ("labels", "clusters"),
    [(3, 3), (900, 900), (3_000, 1_000), (20_000, 5_000), (40_000, 10_000), (500_000, 10_000), (900_000, 15_000)],
)
def test_clusters_are_a_quarter_of_the_labels_within_limits(labels: int, clusters: int) -> None:
    """From 1,000 to 10,000 clusters, unless there are fewer labels, or more than 60 would be in one."""
    assert TreeSettings().cluster_count(labels) == clusters
    assert TreeSettings(clusters=50).cluster_count(labels) == min(50, labels)


@pytest.mark.parametrize(
    ("labels", "clusters", "beam"), [(20, 5, 5), (4_000, 1_000, 100), (40_000, 2_000, 20), (40_000, 200, 10)]
)
def test_the_beam_has_clusters_for_400_labels_within_limits(labels: int, clusters: int, beam: int) -> None:
    assert SearchSettings().cluster_beam(labels, clusters) == beam
    assert SearchSettings(beam=7).cluster_beam(labels, clusters) == min(7, clusters)


def test_a_model_changes_its_settings_by_name() -> None:
    from polytag.models.model import model_class

    model = model_class("xlinear").build({})
    model.change({"beam": 7})
    assert model.options()["beam"] == 7
    with pytest.raises(ConfigError, match="beam"):
        model.change({"beam": 0})
    assert model.options()["beam"] == 7
