"""``polytag explain`` as a function: explain a text, or every document of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.errors import DataError
from polytag.explain.explanation import Explanation
from polytag.explain.nearest import Neighbourhood
from polytag.formats.document_files import SUFFIXES, Reader, ReadOptions
from polytag.formats.streams import reading, stem_and_suffix


@dataclass(frozen=True)
class Question:
    """What is asked about every text: labels (none = the decided ones), method, and the corpus of nearest documents."""

    labels: Sequence[str] = ()
    exact: bool = False
    near: Path | None = None
    neighbours: int = 3


def explain_texts(
    run: str | Path, source: str, question: Question, options: ReadOptions | None = None
) -> Iterator[tuple[str | None, Explanation]]:
    """Explain a text, the text of a file or of standard input (``-``), or every document of a file, with its id."""
    classifier = Classifier.load(run)
    options = classifier.reading(options)
    near = None
    if question.near is not None:
        near = Neighbourhood(Corpus.read(question.near, labels=classifier.labels, options=options))
    for name, text in texts_of(source, options):
        found = classifier.explain(text, list(question.labels) or None, exact=question.exact)
        yield name, found if near is None else near.added_to(found, question.neighbours)


def texts_of(source: str, options: ReadOptions) -> Iterator[tuple[str | None, str]]:
    """Id and text of each document; a text has no id.

    A file of documents is known by its ending, such as ``.jsonl``, or by a given format. Any other file is one text.
    """
    documents = options.format is not None or stem_and_suffix(source)[1] in SUFFIXES
    if source == "-" or _is_file(source):
        if documents:
            yield from ((document.id, document.text) for document in Reader(source, options, need_labels=False))
            return
        with reading(source) as file:
            yield None, file.read()
    elif documents and not any(character.isspace() for character in source):
        raise DataError(f"{source}: no such file; give a text, a file or - for standard input")
    else:
        yield None, source


def _is_file(source: str) -> bool:
    """Whether a file has this name; a long text is no name."""
    try:
        return Path(source).is_file()
    except (OSError, ValueError):
        return False
