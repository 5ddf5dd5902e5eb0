"""Two corpora from Debian's package index: descriptions with their debtags, and descriptions with their dependencies."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from polytag.datasets.folder import grouped, write_folder
from polytag.errors import DataError
from polytag.formats.document import Document
from polytag.labels import LabelSet
from polytag_corpora.deb822 import paragraphs, read_paragraphs, synopsis_and_body

FIELDS = frozenset(("Package", "Source", "Depends", "Tag", "Description", "Description-md5"))
# What may follow a package's name in a dependency: an architecture, a version, restrictions.
QUALIFIER = re.compile(r"[\s:(\[<].*", re.DOTALL)


@dataclass(frozen=True)
class Package:
    """The fields of a package index that the corpora need."""

    name: str
    source: str
    synopsis: str
    body: str
    md5: str
    tags: tuple[str, ...]
    depends: tuple[str, ...]


def build_debtags(
    indexes: Sequence[str | Path],
    vocabulary: str | Path,
    out: str | Path,
    *,
    translations: Sequence[str | Path] = (),
    language: str = "en",
) -> dict[str, int]:
    """Write the corpus of package descriptions and their debtags; returns the counts.

    ``vocabulary`` is the path of the debtags vocabulary; a string with line breaks is its text.
    """
    packages = read_packages(indexes)
    tags = _occurring(packages, lambda package: package.tags, "Tag", indexes)
    documents = _documents(packages, lambda package: package.tags, translations, language)
    return write_folder(out, grouped(documents), tag_labels(vocabulary, tags))


def build_debdeps(
    indexes: Sequence[str | Path], out: str | Path, *, translations: Sequence[str | Path] = (), language: str = "en"
) -> dict[str, int]:
    """Write the corpus of package descriptions and the packages each depends on, alternatives included; returns the counts."""
    packages = read_packages(indexes)
    names = _occurring(packages, lambda package: package.depends, "Depends", indexes)
    documents = _documents(packages, lambda package: package.depends, translations, language)
    synopses = {package.name: package.synopsis for package in packages}
    return write_folder(out, grouped(documents), LabelSet(sorted(names), descriptions={n: synopses.get(n, "") for n in names}))


def read_packages(indexes: Sequence[str | Path]) -> list[Package]:
    """Read package indexes in the given order; the first entry of a package counts.

    Its tags come from the first entry that has any: the indexes of updates and security fixes have none.
    """
    packages: dict[str, Package] = {}
    for path in indexes:
        for paragraph in read_paragraphs(path, FIELDS):
            if "Package" not in paragraph:
                raise DataError(f"{path}: a paragraph has no 'Package' field; give Packages files of Debian's index")
            package = _package(paragraph)
            first = packages.setdefault(package.name, package)
            if package.tags and not first.tags:
                packages[package.name] = dataclasses.replace(first, tags=package.tags)
    if not packages:
        raise DataError(f"no packages in {', '.join(map(str, indexes)) or 'no index files'}; give Packages files")
    return list(packages.values())


def read_translations(paths: Sequence[str | Path], language: str) -> dict[str, str]:
    """Read translated descriptions, each as one line of text, by the md5 sum of the English description."""
    field = f"Description-{language}"
    texts: dict[str, str] = {}
    for path in paths:
        for paragraph in read_paragraphs(path, ("Description-md5", field)):
            if field in paragraph and "Description-md5" in paragraph:
                texts.setdefault(paragraph["Description-md5"], " ".join(synopsis_and_body(paragraph[field])).strip())
    if paths and not texts:
        raise DataError(f"no '{field}' in {', '.join(map(str, paths))}; give Translation-{language} files")
    return texts


def tag_labels(vocabulary: str | Path, tags: Iterable[str]) -> LabelSet:
    """The label tree of the given tags and their facets, in the vocabulary's order; other tags come last."""
    descriptions = _read_vocabulary(vocabulary)
    wanted = set(tags)
    wanted |= {facet_of(tag) for tag in wanted}
    names = [name for name in descriptions if name in wanted] + sorted(wanted - descriptions.keys())
    parents = {name: facet_of(name) for name in names if facet_of(name) != name}
    texts = {name: descriptions.get(name) or name.replace("::", ": ").replace("-", " ") for name in names}
    return LabelSet(names, descriptions=texts, parents=parents)


def facet_of(tag: str) -> str:
    """The facet of a tag: ``use`` for ``use::editing``; the facet of a facet is itself."""
    return tag.partition("::")[0]


def _read_vocabulary(vocabulary: str | Path) -> dict[str, str]:
    fields = ("Facet", "Tag", "Description")
    text = isinstance(vocabulary, str) and "\n" in vocabulary
    found = paragraphs(str(vocabulary).splitlines(), fields) if text else read_paragraphs(vocabulary, fields)
    descriptions: dict[str, str] = {}
    for paragraph in found:
        name = paragraph.get("Tag") or paragraph.get("Facet")
        if name:
            synopsis, body = synopsis_and_body(paragraph.get("Description", ""))
            descriptions[name] = f"{synopsis}. {body}" if body else synopsis
    if not descriptions:
        where = "the text given" if text else vocabulary
        raise DataError(f"no 'Facet' or 'Tag' paragraphs in {where}; give the vocabulary of the package debtags")
    return descriptions


def _package(paragraph: dict[str, str]) -> Package:
    description = paragraph.get("Description", "")
    synopsis, body = synopsis_and_body(description)
    return Package(
        name=paragraph["Package"],
        source=paragraph.get("Source", paragraph["Package"]).split()[0],
        synopsis=synopsis,
        body=body,
        # An index with long descriptions has no md5 sums: the sum is that of the field and a line break.
        md5=paragraph.get("Description-md5") or hashlib.md5(f"{description}\n".encode(), usedforsecurity=False).hexdigest(),
        tags=_names(paragraph.get("Tag", "").split(",")),
        depends=_names(QUALIFIER.sub("", name.strip()) for name in re.split(r"[,|]", paragraph.get("Depends", ""))),
    )


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in names} - {""}))


def _occurring(packages: list[Package], labels: Callable[[Package], tuple[str, ...]], field: str, where: object) -> set[str]:
    found = {label for package in packages for label in labels(package)}
    if not found:
        raise DataError(f"no package has the field '{field}' in {where}; give Packages files of Debian's index")
    return found


def _documents(
    packages: list[Package], labels: Callable[[Package], tuple[str, ...]], translations: Sequence[str | Path], language: str
) -> Iterator[tuple[str, Document]]:
    """Yield source package and document; packages built from one source share much of their text."""
    texts = read_translations(translations, language)
    if language != "en" and not texts:
        raise DataError(f"descriptions in the language {language!r} need Translation-{language} files; none was given")
    if not texts and not any(package.body for package in packages):
        raise DataError("these indexes have only one-line descriptions; give their Translation-en files as well")
    for package in packages:
        own = f"{package.synopsis} {package.body}".strip() if language == "en" else ""
        text = texts.get(package.md5, own)
        if text and labels(package):
            yield package.source, Document(package.name, text, labels(package))
