"""``polytag evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import AskOption, AskUntilOption, JsonOption, Reading, RunArgument, asked


def evaluate(
    run: RunArgument,
    test: Annotated[Path, typer.Argument(metavar="TEST", help="labelled documents")],
    reading: Reading,
    ask: AskOption = None,
    ask_until: AskUntilOption = None,
    json: JsonOption = False,
) -> None:
    """Evaluate a trained model on labelled documents."""
    from polytag.classifier import Classifier
    from polytag.cli.tables import metrics_table, print_result
    from polytag.corpus import Corpus

    classifier = Classifier.load(run)
    corpus = Corpus.read(test, labels=classifier.labels, options=classifier.reading(reading.options()))
    print_result(classifier.evaluate(corpus, ask=asked(ask, ask_until)), metrics_table, json)
