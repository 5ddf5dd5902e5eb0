"""A software bill of materials in the format CycloneDX 1.5, of what is installed in this environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement

Component = dict[str, Any]


def bill(root: str, extras: Iterable[str] = ()) -> dict[str, Any]:
    """The package with all packages that it needs, directly or not, with versions and licences."""
    found: dict[str, Distribution] = {}
    needs: dict[str, list[str]] = {}
    pending = [(root, frozenset(extras))]
    while pending:
        name, wanted = pending.pop()
        key = normal(name)
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:  # for another platform, or left out of this environment
            continue
        more = [one for one in requirements(found[key], wanted) if installed(one.name)]
        fresh = [one for one in more if normal(one.name) not in needs.get(key, [])]
        needs.setdefault(key, []).extend(normal(one.name) for one in fresh)
        pending += [(one.name, frozenset(one.extras)) for one in fresh]
    first = component(found.pop(normal(root)), "application")
    references = {key: component(one)["bom-ref"] for key, one in found.items()} | {normal(root): first["bom-ref"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": first},
        "components": [component(found[key]) for key in sorted(found)],
        "dependencies": [
            {
                "ref": references[key],
                "dependsOn": sorted({references[other] for other in needs.get(key, []) if other in references}),
            }
            for key in sorted(references)
        ],
    }


def requirements(one: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    """What a package needs here, with these of its extras."""
    for text in one.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def installed(name: str) -> bool:
    """Whether this environment has the package."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def component(one: Distribution, kind: str = "library") -> Component:
    """A package as a component."""
    name, version = one.metadata["Name"], one.version
    purl = f"pkg:pypi/{normal(name)}@{version}"
    made: Component = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    licence = one.metadata.get("License-Expression")
    named = [row.rpartition(":: ")[2] for row in one.metadata.get_all("Classifier") or () if row.startswith("License ::")]
    if licence:
        made["licenses"] = [{"expression": licence}]
    elif named:
        made["licenses"] = [{"license": {"name": text}} for text in named]
    return made


def normal(name: str) -> str:
    """A package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()
