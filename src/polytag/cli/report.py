"""``polytag report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polytag.cli.options import Reading


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="runs, or their model folders; the first is the baseline")],
    reading: Reading,
    out: Annotated[Path, typer.Option("--out", help="file of the report: .html, or .md or .tex for its tables alone")] = Path(
        "report.html"
    ),
    test: Annotated[Path | None, typer.Option("--test", help="labelled documents that no run was trained on")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="file for the tables as Markdown")] = None,
    latex: Annotated[Path | None, typer.Option("--latex", help="file for the tables as LaTeX")] = None,
    pictures: Annotated[Path | None, typer.Option("--pictures", help="folder for the pictures as SVG and PNG")] = None,
    audit: Annotated[Path | None, typer.Option("--audit", help="lines that `polytag audit --out F.jsonl` wrote")] = None,
    projection: Annotated[
        str, typer.Option("--map", help="projection of the label map: auto, tsne, umap or pca; auto = tsne if installed")
    ] = "auto",
    static: Annotated[
        bool, typer.Option("--static", help="pictures without JavaScript, although the extra is installed")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="seed of the resampling and of the label map")] = 0,
) -> None:
    """Write one HTML file about runs: metrics, curves, analyses, label map, case studies and the comparison."""
    from polytag.cli.standard_streams import note
    from polytag.verbs.reporting import report_runs

    outputs = [path for path in (out, _ending(markdown, ".md"), _ending(latex, ".tex")) if path is not None]
    draft = report_runs(
        runs, test, outputs, pictures=pictures, audit=audit, options=reading.options(), interactive=False if static else None,
        method=projection, seed=seed,  # type: ignore[arg-type]
    )  # fmt: skip
    if not draft.interactive and not static:
        note("pictures are static; install the extra 'report' for interactive ones: pip install 'polytag[report]'")
    for path in outputs:
        typer.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB" if path.suffix.startswith(".htm") else path)


def _ending(path: Path | None, suffix: str) -> Path | None:
    """The file for tables; its ending says the format."""
    from polytag.errors import ConfigError

    if path is not None and path.suffix.lower() != suffix:
        raise ConfigError(f"{path}: this file must end in {suffix}; rename it")
    return path
