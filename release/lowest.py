"""Print a constraints file of the lowest versions that pyproject.toml allows: ``python release/lowest.py [EXTRA...]``."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def lowest(extras: Iterable[str] = (), project: Path = PROJECT) -> Iterator[str]:
    """One line ``name==version`` for each requirement with a lower bound."""
    declared = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    texts = [*declared["dependencies"], *(text for extra in extras for text in declared["optional-dependencies"][extra])]
    for text in dict.fromkeys(texts):
        requirement = Requirement(text)
        bounds = [one.version for one in requirement.specifier if one.operator == ">="]
        if not bounds:
            continue
        yield f"{requirement.name}=={bounds[0]}"


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
