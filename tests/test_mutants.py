"""The mutation tester changes what decides something and nothing else, and finds the tests that are nearest to it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from mutants import EQUIVALENT, PLANTED, ROOT, Imports, planted
from mutations import compiles, mutants


def changes(source: str) -> set[str]:
    """The changed lines of all mutants."""
    raw = source.encode()
    return {mutant.shown(raw)[1] for mutant in mutants("x.py", raw) if compiles(mutant, raw)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return a < b", {"return a <= b", "return None"}),
        ("return a <= b < c", {"return a < b < c", "return a <= b <= c", "return None"}),
        ("return (a) is not b", {"return (a) is b", "return None"}),
        ("return a not in b", {"return a in b", "return None"}),
        ("return a + b - c", {"return a - b - c", "return a + b + c", "return None"}),
        ("return a and b or c", {"return a or b or c", "return a and b and c", "return None"}),
        ("return not (a or b)", {"return (a or b)", "return not (a and b)", "return None"}),
        ("return max(a, b)", {"return min(a, b)", "return None"}),
        ("return np.minimum(a, -b)", {"return np.maximum(a, -b)", "return None"}),
        ("return 'é', a < b, 3", {"return 'é', a <= b, 3", "return 'é', a < b, 4", "return None"}),
        ("f(a, b=True)", {"pass", "f(a, b=False)"}),
        ("a.b = 0.5", {"pass", "a.b = 1.5"}),
        ("a += b", {"pass", "a -= b"}),
        ("a = b", {"pass"}),  # a is an argument as well
        ("new = b", set()),  # without it nothing would go on
        ("raise KeyError(a + 1)", {"pass"}),
        ("x: list[int] = f(1)", {"x: list[int] = f(2)"}),
    ],
)
def test_every_decision_is_changed(line: str, expected: set[str]) -> None:
    assert changes(f"def g(a, b, c):\n    {line}\n") == expected


def test_what_decides_nothing_is_left_alone() -> None:
    assert not changes('''
"""A module, 1 + 1."""
from __future__ import annotations
import logging
if TYPE_CHECKING:
    from a import b
log = logging.getLogger(__name__)
@njit(cache=True, nogil=True)
def f(a: Literal[1], b: bool | None) -> tuple[int, 3]:
    """Nothing < something."""
    assert a < 1, "no"
    log.info("%d of %d", a + 1, b - 1)
    text = f"{a + 1}"
class A:
    """3 < 4."""
    field: Literal[4]
if __name__ == "__main__":
    f(1, True)
''')


def test_mutants_of_a_real_file_differ_from_it_in_one_place_and_have_the_right_line() -> None:
    path = "src/polytag/decision/thresholds.py"
    source = (ROOT / path).read_bytes()
    found = [mutant for mutant in mutants(path, source) if compiles(mutant, source)]
    assert len(found) > 100 and len({mutant.apply(source) for mutant in found}) == len(found)
    lines = source.splitlines()
    for mutant in found:
        changed = mutant.apply(source)
        assert changed != source and lines[: mutant.line - 1] == changed.splitlines()[: mutant.line - 1]
        ast.parse(changed)


def test_the_nearest_tests_come_first() -> None:
    imports = Imports(ROOT)
    assert imports.by_distance("polytag.decision.decision")[0] == (0, "tests/test_decision.py")
    assert (1, "tests/test_decision.py") in imports.by_distance("polytag.decision.thresholds")
    distances = [distance for distance, _ in imports.by_distance("polytag.kernels.top_k")]
    assert distances == sorted(distances) and len(distances) > 10
    assert {"polytag.xmc.tree_training", "polytag.models.xlinear"} <= imports.users("polytag.xmc.node_kernels")


def test_planted_bugs_and_their_tests_are_still_at_home() -> None:
    found = list(planted(ROOT))
    assert len(found) == len(json.loads((ROOT / PLANTED).read_text())) > 20
    for mutant in found:
        file, _, name = mutant.test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text()


def test_mutants_that_change_nothing_have_an_argument_and_a_line_that_is_there() -> None:
    for entry in json.loads((ROOT / EQUIVALENT).read_text()):
        text = " ".join((ROOT / Path(entry["file"])).read_text().split())
        assert entry["before"] in text and entry["before"] != entry["after"] and len(entry["argument"]) > 20
