"""``polytag adapt``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import BadOption, FormatOption, ResumeOption, TextOption
from polytag.cli.resumable import resumable
from polytag.cli.standard_streams import note


def adapt(
    corpus: Annotated[list[Path], typer.Argument(metavar="TEXTS", help="files with texts; labels in them are ignored")],
    encoder: Annotated[str, typer.Option("--encoder", help="minilm (packaged), or a Hugging Face id or folder")] = "minilm",
    out: Annotated[Path, typer.Option("--out", help="folder of the adapted encoder")] = Path("encoder"),
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            help="masked = hidden tokens; words = of a text by a part; parts, pairs = contrastive; both = masked, pairs; "
            "auto = masked for an encoder that predicts hidden tokens, else parts",
        ),
    ] = "auto",
    epochs: Annotated[int, typer.Option("--epochs", help="passes over the texts", min=1)] = 1,
    minutes: Annotated[float, typer.Option("--minutes", help="maximum minutes of training; 0 = no limit", min=0)] = 0.0,
    batch_size: Annotated[int, typer.Option("--batch-size", help="texts per step", min=1)] = 64,
    rate: Annotated[float, typer.Option("--rate", help="learning rate", min=0)] = 3e-5,
    max_length: Annotated[
        int, typer.Option("--max-length", help="tokens of an input; longer texts are cut into pieces", min=8)
    ] = 128,
    share: Annotated[float, typer.Option("--share", help="share of the tokens that are hidden")] = 0.15,
    seed: Annotated[int, typer.Option("--seed", help="random seed")] = 0,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda")] = "auto",
    resume: ResumeOption = False,
    format: FormatOption = None,
    text: TextOption = None,
    on_bad: BadOption = "fail",
) -> None:
    """Continue the pre-training of an encoder on texts without labels."""
    from polytag.config.registry import imported
    from polytag.formats.document import ReadOptions
    from polytag.formats.document_files import Reader

    module = "polytag.transfer.adaptation"
    kind, adapted = imported(f"{module}:Adaptation", "adapt"), imported(f"{module}:adapt", "adapt")
    settings = kind(objective, epochs, minutes, batch_size, rate, max_length, share, seed, device)
    options = ReadOptions(format=format, text=text or (), on_bad=on_bad)  # type: ignore[arg-type]
    texts = [document.text for path in corpus for document in Reader(path, options)]
    with resumable():
        found = adapted(texts, encoder, out, settings, resume=resume)
    size = f"{found.steps:,} steps on {found.texts:,} texts"
    note(f"{found.objective}: loss of held-out texts {found.before:.4f} before, {found.after:.4f} after {size}")
    note(f"{out}: use it with --set encoder={out}")
