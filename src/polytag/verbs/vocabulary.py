"""``polytag labels`` as functions: edit the labels of a run without training, and write them to a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import ConfigError, brief
from polytag.formats.document import ReadOptions
from polytag.formats.streams import make_folder, writing
from polytag.labels import LabelSet
from polytag.storage.artefact import artefact_folder

_ESCAPE = "; inside of a name write \\= and \\,"


def rename_labels(run: str | Path, pairs: Sequence[str], out: str | Path) -> Classifier:
    """Rename labels, from ``OLD=NEW``; save the classifier under ``out``."""
    names: dict[str, str] = {}
    for pair in pairs:
        old, new = _sides(pair, "OLD=NEW")
        if old in names:
            raise ConfigError(f"{brief(old)} is renamed twice; give it one new name")
        names[old] = new
    return _saved(Classifier.load(run).rename({_plain(old): _plain(new) for old, new in names.items()}), run, out)


def merge_labels(
    run: str | Path, groups: Sequence[str], out: str | Path, fit: Path | None = None, options: ReadOptions | None = None
) -> Classifier:
    """Merge labels, from ``A,B=C``; save the classifier under ``out``."""
    classifier = Classifier.load(run)
    corpus = _documents(classifier, fit, options)
    sides = [_sides(group, "A,B=C") for group in groups]
    return _saved(classifier.merge(_table([(_plain(new), _list(old)) for old, new in sides]), corpus), run, out)


def drop_labels(
    run: str | Path, names: Sequence[str], out: str | Path, fit: Path | None = None, options: ReadOptions | None = None
) -> Classifier:
    """Remove labels; save the classifier under ``out``."""
    classifier = Classifier.load(run)
    return _saved(classifier.drop(names, _documents(classifier, fit, options)), run, out)


def split_labels(
    run: str | Path, splits: Sequence[str], out: str | Path, fit: Path | None = None, options: ReadOptions | None = None
) -> Classifier:
    """Split labels, from ``A=B,C``; save the classifier under ``out``."""
    classifier = Classifier.load(run)
    corpus = _documents(classifier, fit, options)
    sides = [_sides(split, "A=B,C") for split in splits]
    return _saved(classifier.split(_table([(_plain(old), _list(new)) for old, new in sides]), corpus), run, out)


def add_labels(
    run: str | Path, labels: str | Path, out: str | Path, examples: Path | None = None, options: ReadOptions | None = None
) -> Classifier:
    """Add the labels of a label file, by their texts and a few examples; save the classifier under ``out``."""
    classifier = Classifier.load(run)
    return _saved(classifier.add_labels(LabelSet.read(labels), _documents(classifier, examples, options)), run, out)


def write_label_file(source: str | Path, out: str | Path, language: str | None = None) -> LabelSet:
    """Write the labels of a run, or of a label file, in the format of the output's ending."""
    path = Path(source)
    labels = Classifier.load(path).labels if path.is_dir() else LabelSet.read(path, language=language)
    labels.write(out)
    return labels


def _documents(classifier: Classifier, fit: Path | None, options: ReadOptions | None) -> Corpus | None:
    return None if fit is None else Corpus.read(fit, options=classifier.reading(options))


def _saved(classifier: Classifier, run: str | Path, out: str | Path) -> Classifier:
    """Save the classifier, with the recipe of its training if the run has it."""
    make_folder(Path(out))
    classifier.save(out)
    recipe = artefact_folder(run).parent / "recipe.toml"
    target = Path(out) / "recipe.toml"
    if recipe.is_file() and recipe.resolve() != target.resolve():
        text = recipe.read_text(encoding="utf-8")
        with writing(target) as file:
            file.write(text)
    return classifier


def _table(pairs: Sequence[tuple[str, list[str]]]) -> dict[str, list[str]]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
        raise ConfigError(f"{brief(twice)} is given twice; give it once, with all labels")
    return found


def _sides(text: str, form: str) -> tuple[str, str]:
    """Both sides of the only equals sign that has no backslash before it."""
    sides = re.split(r"(?<!\\)=", text)
    if len(sides) != 2 or not all(side.strip() for side in sides):
        raise ConfigError(f"{brief(text)} is not {form}{_ESCAPE}")
    return sides[0], sides[1]


def _list(text: str) -> list[str]:
    return [_plain(part) for part in re.split(r"(?<!\\),", text)]


def _plain(text: str) -> str:
    return text.replace("\\=", "=").replace("\\,", ",")
