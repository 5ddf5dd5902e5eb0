"""What a release consists of: one version everywhere, lower bounds, the bill of materials, and a wheel that works by itself."""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "release"))
pytest.importorskip("packaging")
from bill_of_materials import bill  # noqa: E402
from distribution import build, checksums  # noqa: E402
from environments import TRIALS, run_trial  # noqa: E402
from lowest import lowest  # noqa: E402
from packaging.version import Version  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_one_version_is_named_everywhere() -> None:
    version = PROJECT["version"]
    assert Version(version) >= Version("1.0.0")
    assert re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[1] == version  # type: ignore[index]
    assert f"Polytag {version} |" in (ROOT / "README.md").read_text("utf-8")


def test_the_readme_is_read_in_three_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_requirement_of_users_has_a_lower_bound() -> None:
    users = [extra for extra in PROJECT["optional-dependencies"] if extra not in ("dev", "services", "docs", "release")]
    wanted = [*PROJECT["dependencies"], *(text for extra in users for text in PROJECT["optional-dependencies"][extra])]
    assert len(list(lowest(users))) == len(dict.fromkeys(wanted))
    assert "numpy" in {line.partition("==")[0] for line in lowest()}


def test_the_bill_has_every_direct_dependency_and_no_loose_end() -> None:
    made = bill("polytag")
    names = {component["name"].lower() for component in made["components"]}
    assert {line.partition("==")[0] for line in lowest()} <= names
    known = {component["bom-ref"] for component in [made["metadata"]["component"], *made["components"]]}
    for row in made["dependencies"]:
        assert row["ref"] in known and set(row["dependsOn"]) <= known


def test_the_bill_is_valid_cyclonedx() -> None:
    validation = pytest.importorskip("cyclonedx.validation.json", reason="cyclonedx-python-lib is not installed")
    schema = pytest.importorskip("cyclonedx.schema")
    import json

    pytest.importorskip("jsonschema")
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_5).validate_str(json.dumps(bill("polytag"))) is None


@pytest.mark.services
def test_the_wheel_works_in_an_environment_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("build", reason="the extra release is not installed")
    build(tmp_path)
    wheel = next(tmp_path.glob("*.whl"))
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert any(name.endswith("page/index.html") for name in names) and any("sample/" in name for name in names)
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]
    assert len(checksums(tmp_path).splitlines()) == 2
    for name in ("core", "serve"):
        row = run_trial(name, TRIALS[name], wheel)
        assert "failed" not in row, row["said"]
