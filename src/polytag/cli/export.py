"""``polytag export``."""

from __future__ import annotations

from typing import Annotated

import typer

from polytag.cli.options import RunArgument
from polytag.cli.standard_streams import note


def export(
    run: RunArgument,
    onnx: Annotated[bool, typer.Option("--onnx", help="export for ONNX Runtime; required, as the only format")] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="quantise matrix products to 8 bits: faster, slightly less accurate")
    ] = False,
) -> None:
    """Export a trained network for faster inference on a CPU."""
    from polytag.classifier import Classifier
    from polytag.errors import ConfigError
    from polytag.storage.artefact import artefact_folder

    if not onnx:
        raise ConfigError("no export format given; the only one is ONNX: add --onnx")
    model = Classifier.load(run).model
    folder = model.export(artefact_folder(run), int8=int8)
    note(f"exported {'in 8 bits' if int8 else 'in float32'}: {folder}")
