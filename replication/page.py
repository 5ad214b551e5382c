"""``python -m replication.page RECORDS -o report.html``: our runs next to the paper's figures and claims."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.main import main
from bocl.cli.report import ASSETS, OUT, RUNS, write_report
from replication.sections import replicate

app = typer.Typer(name="python -m replication.page", add_completion=False, rich_markup_mode=None)


@app.command()
def page(
    records: Annotated[list[str], RUNS],
    out: Annotated[str, OUT] = "report.html",
    assets: Annotated[str | None, ASSETS] = None,
) -> None:
    """Write one page with the paper's figures, its claims next to ours, and what every network did."""
    write_report(replicate, records, out, assets)


if __name__ == "__main__":
    main(app)
