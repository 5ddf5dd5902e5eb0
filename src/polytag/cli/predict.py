"""``polytag predict``."""

from __future__ import annotations

from typing import Annotated

import typer

from polytag.cli.options import (
    AskOption,
    AskUntilOption,
    BadOption,
    ClusterOption,
    FormatOption,
    Reading,
    RunArgument,
    TextOption,
    asked,
)
from polytag.cli.standard_streams import note


def predict(
    run: RunArgument,
    documents: Annotated[
        list[str],
        typer.Argument(metavar="IN", help="documents to label; - = standard input; with --cluster files, folders or patterns"),
    ],
    out: Annotated[
        str, typer.Option("--out", help="output file of JSON lines; - = standard output; with --cluster a folder")
    ] = "-",
    top: Annotated[int | None, typer.Option("--top", help="number of best labels, instead of the predicted set", min=1)] = None,
    ask: AskOption = None,
    ask_until: AskUntilOption = None,
    format: FormatOption = None,
    text: TextOption = None,
    on_bad: BadOption = "fail",
    cluster: ClusterOption = None,
    workers: Annotated[int, typer.Option("--workers", help="models on the cluster; 0 = one per core or GPU", min=0)] = 0,
    gpus: Annotated[float, typer.Option("--gpus", help="GPUs per worker", min=0)] = 0.0,
) -> None:
    """Label documents: JSON lines with id, labels and scores, in the order of the input."""
    options = Reading(format=format, text=text, on_bad=on_bad).options()
    if cluster is not None:
        from polytag.cluster.batch_prediction import predict_folder

        if "-" in (out, *documents):
            raise typer.BadParameter("a cluster reads files and writes a folder; name them with IN and --out")
        done = predict_folder(
            run, documents, out, cluster=cluster, top=top, ask=asked(ask, ask_until), options=options, workers=workers, gpus=gpus
        )
        before = f"; {done.before:,} pieces were finished before" if done.before else ""
        note(f"labelled {done.read:,} documents in {done.pieces:,} pieces, {done.bad:,} bad lines{before}: {out}")
        return
    if len(documents) > 1 or workers or gpus:
        raise typer.BadParameter("several inputs, --workers and --gpus need --cluster; name one file, or add --cluster local")
    from polytag.verbs.prediction import predict_file

    counts = predict_file(run, documents[0], out, top=top, ask=asked(ask, ask_until), options=options)
    skipped = f", {counts.bad:,} bad {'line' if counts.bad == 1 else 'lines'} skipped" if counts.bad else ""
    note(f"labelled {counts.read:,} {'document' if counts.read == 1 else 'documents'}{skipped}")
