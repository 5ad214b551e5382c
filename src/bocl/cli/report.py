"""``bocl report``: runs as one page, made from their records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer


def report_command(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Folders of runs, or of folders of runs, or journals kept alone."),
    ],
    out: Annotated[str, typer.Option("-o", "--out", help="The page to write.")] = "report.html",
    assets: Annotated[
        str | None, typer.Option(help="Folder for every figure as SVG and PDF, and its numbers as CSV and LaTeX.")
    ] = None,
) -> None:
    """Write one page with the paper's figures, its claims beside ours, and what every network did."""
    import os

    from bocl.cli.tables import tell_torn
    from bocl.errors import FolderError
    from bocl.records.files import check_place, write_whole
    from bocl.records.summary import summarise_all
    from bocl.report.page import OPENING, page
    from bocl.wording import counted

    place = Path(os.path.realpath(out))  # of a link, the file it stands for
    check_place(place, OPENING.encode(), "report of bocl")
    if assets is not None and os.path.lexists(assets) and not os.path.isdir(assets):
        raise FolderError(f"{assets} is not a folder; give one with --assets")
    summaries = list({os.path.realpath(summary.folder): summary for summary in summarise_all(runs)}.values())
    for summary in summaries:
        tell_torn(summary.folder, summary.torn_bytes)
    text = page(summaries).encode()
    if assets is not None:
        from bocl.report.assets import write_assets

        with _told("give another folder with --assets"):
            files = write_assets(summaries, Path(assets))
        typer.echo(f"{assets}: {counted(files, 'file')} of figures and numbers")
    with _told("give another file with -o"):
        write_whole(place, text)
    typer.echo(f"{out}: {counted(len(summaries), 'run')}, {len(text) / 1e6:.1f} MB")


@contextmanager
def _told(way_out: str) -> Iterator[None]:
    """Call a place that takes no files wrong input; a full disk is no one's mistake."""
    from bocl.errors import FolderError, WorkError
    from bocl.records.files import FULL

    try:
        yield
    except WorkError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno not in FULL:
            failed = error.__cause__
            raise FolderError(f"{failed.filename} cannot be written: {failed.strerror}; {way_out}") from error
        raise
