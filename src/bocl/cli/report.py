"""``bocl report``: runs as one page, made from their records."""

from __future__ import annotations

from typing import Annotated

import typer


def report_command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Folders of runs or of grids of runs, or journals kept alone.")
    ],
    out: Annotated[str, typer.Option("-o", "--out", help="The page to write.")] = "report.html",
    assets: Annotated[
        str | None, typer.Option(help="Folder for every figure as SVG and PDF, and its numbers as CSV and LaTeX.")
    ] = None,
) -> None:
    """Write one page with the paper's figures, its claims beside ours, and what every network did."""
    from pathlib import Path

    from bocl.checks import counted
    from bocl.cli.tables import tell_torn
    from bocl.errors import FolderError
    from bocl.records.files import write_whole
    from bocl.records.summary import summarise_all
    from bocl.report.page import page

    place = Path(out)
    if place.is_dir():
        raise FolderError(f"{place} is a folder; give the page's file with -o, such as {place / 'report.html'}")
    if assets is not None and Path(assets).exists() and not Path(assets).is_dir():
        raise FolderError(f"{assets} is a file; give a folder with --assets")
    summaries = list({summary.folder.resolve(): summary for summary in summarise_all(runs)}.values())
    for summary in summaries:
        tell_torn(summary.folder, summary.torn_bytes)
    text = page(summaries).encode()
    if assets is not None:
        from bocl.report.assets import write_assets

        files = write_assets(summaries, Path(assets))
        typer.echo(f"{assets}: {counted(files, 'file')} of figures and numbers")
    write_whole(place, text)
    typer.echo(f"{place}: {counted(len(summaries), 'run')}, {len(text) / 1e6:.1f} MB")
