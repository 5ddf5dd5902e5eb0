"""The demo: train on the sample that ships with the package, measure, and show a few labelled documents."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from polytag.classifier import Classifier
from polytag.corpus import Corpus
from polytag.datasets import load_sample
from polytag.errors import PolytagError

MEASURED = {"micro_f1": "micro-F1", "macro_f1": "macro-F1", "subset_accuracy": "subset accuracy", "p@1": "P@1", "p@5": "P@5"}
EXCERPT = 280  # characters of a document that are shown


@dataclass(frozen=True)
class Result:
    """What came of training one model."""

    name: str
    classifier: Classifier
    metrics: Mapping[str, float]
    train_seconds: float
    test_seconds: float


@dataclass(frozen=True)
class Example:
    """A document with the labels that were predicted (best first, with their scores) and those that are true."""

    id: str
    text: str
    predicted: list[tuple[str, float]]
    truth: list[str]

    @property
    def missed(self) -> list[str]:
        """True labels that were not predicted."""
        found = {name for name, _ in self.predicted}
        return [name for name in self.truth if name not in found]


def train_and_measure(name: str, train: Corpus, valid: Corpus, test: Corpus) -> Result:
    """Train the model of this name with its defaults, and evaluate it once on the test documents."""
    start = time.perf_counter()
    classifier = Classifier(name).fit(train, valid)
    middle = time.perf_counter()
    metrics = classifier.evaluate(test)
    return Result(name, classifier, metrics, middle - start, time.perf_counter() - middle)


def pick_examples(classifier: Classifier, test: Corpus, count: int = 3) -> list[Example]:
    """Documents from evenly spread places of the test split, not chosen by how well they went."""
    rows = [(2 * number + 1) * len(test) // (2 * count) for number in range(min(count, len(test)))]
    part = test.subset(rows)
    documents = zip(part.ids, part.texts, part.label_lists(), strict=True)
    stream = classifier.stream(((name, text, truth), text) for name, text, truth in documents)
    return [
        Example(name, text, list(zip(found.labels, found.scores, strict=True)), truth) for (name, text, truth), found in stream
    ]


def results_table(results: Sequence[Result]) -> Table:
    """One model a row; the best of several in bold."""
    table = Table("model", *MEASURED.values(), "training", "evaluation", box=None, header_style="dim", pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    best = {key: max(result.metrics[key] for result in results) for key in MEASURED}
    for result in results:
        values = [(result.metrics[key], len(results) > 1 and result.metrics[key] == best[key]) for key in MEASURED]
        cells = [Text(f"{value:.4f}", "bold" if marked else "") for value, marked in values]
        table.add_row(result.name, *cells, f"{result.train_seconds:.1f} s", f"{result.test_seconds:.1f} s")
    return table


def example_view(example: Example) -> RenderableType:
    """A document's beginning, then its labels: + right, - wrong, ? missed."""
    text = " ".join(example.text.split())
    shown = text if len(text) <= EXCERPT else text[:EXCERPT].rsplit(" ", 1)[0] + " ..."
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, score in example.predicted:
        right = name in example.truth
        table.add_row(Text("+" if right else "-", "green" if right else "red"), name, f"{score:.2f}")
    for name in example.missed:
        table.add_row(Text("?", "yellow"), Text(name, "dim"), Text("missed", "dim"))
    return Group(Text(example.id, "bold"), Padding(Group(Text(shown, "italic"), table), (0, 0, 1, 2)))


def demo(models: Sequence[str], corpora: tuple[Corpus, Corpus, Corpus], console: Console, examples: int = 3) -> list[Result]:
    """Train every model on the same documents, print one table, and show what the first one says about some documents."""
    train, valid, test = corpora
    sizes = f"{len(train):,} + {len(valid):,} documents to learn from, {len(test):,} to measure on, {len(train.labels):,} labels"
    console.print(f"Debian package descriptions and their tags: {sizes}.", highlight=False, soft_wrap=True)
    console.print("The first run also compiles the kernels; that takes some seconds.\n", highlight=False, style="dim")
    results = []
    for name in models:
        with console.status(f"training {name} ..."):
            results.append(train_and_measure(name, train, valid, test))
    console.print(results_table(results))
    console.print(
        f"\n{examples} test documents, labelled by {results[0].name} (+ right, - not in the tags, ? missed):\n", highlight=False
    )
    for example in pick_examples(results[0].classifier, test, examples):
        console.print(example_view(example))
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m polytag.demo", description=__doc__)
    parser.add_argument("models", nargs="*", default=["br"], help="names of models to train [default: br]")
    parser.add_argument("--examples", type=int, default=3, help="labelled documents to show [default: 3]")
    told = parser.parse_args(arguments)
    try:
        demo(told.models or ["br"], load_sample(), _console(), told.examples)
    except PolytagError as error:
        print(f"polytag: {error}", file=sys.stderr)
        return 2
    return 0


def _console() -> Console:
    """As wide as the terminal, and of a fixed width in a log."""
    console = Console()
    return console if console.is_terminal else Console(width=110)


if __name__ == "__main__":
    sys.exit(main())
