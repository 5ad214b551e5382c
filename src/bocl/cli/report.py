"""``bocl report``: runs as one page, made from their records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from bocl.records.summary import RunSummary
    from bocl.report.sections import Report

RUNS = typer.Argument(metavar="RUN...", help="Folders of runs, or of folders of runs, or journals kept alone.")
OUT = typer.Option("-o", "--out", help="The page to write.")
ASSETS = typer.Option(help="Folder for every figure as SVG, and its numbers as CSV and LaTeX.")


def report_command(
    runs: Annotated[list[str], RUNS],
    out: Annotated[str, OUT] = "report.html",
    assets: Annotated[str | None, ASSETS] = None,
) -> None:
    """Write one page that compares runs and shows what every network did."""
    from bocl.report.sections import compare

    write_report(compare, runs, out, assets)


def write_report(
    make: Callable[[Sequence[RunSummary]], Report], runs: Sequence[str], out: str, assets: str | None
) -> None:
    """Write the page of the report that ``make`` makes of some runs, and its figures where a folder is given."""
    from bocl.cli.printing import say
    from bocl.cli.tables import tell_torn
    from bocl.errors import FolderError
    from bocl.records.files import check_place, write_whole
    from bocl.records.summary import summarise_all
    from bocl.report.assets import write_assets
    from bocl.report.page import OPENING, page
    from bocl.wording import counted

    place = Path(os.path.realpath(out))  # of a link, the file it stands for
    check_place(place, OPENING.encode(), "report of bocl")
    if assets is not None and os.path.lexists(assets) and not os.path.isdir(assets):
        raise FolderError(f"{assets} is not a folder; give one with --assets")
    summaries = list({os.path.realpath(summary.folder): summary for summary in summarise_all(runs)}.values())
    for summary in summaries:
        tell_torn(summary.folder, summary.torn_bytes)
    report = make(summaries)
    text = page(report).encode()
    if assets is not None:
        with _told("give another folder with --assets"):
            files = write_assets(report, Path(assets))
        say(f"{assets}: {counted(files, 'file')} of figures and numbers")
    with _told("give another file with -o"):
        write_whole(place, text)
    say(f"{out}: {counted(len(summaries), 'run')}, {len(text) / 1e6:.1f} MB")


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
