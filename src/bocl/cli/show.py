"""``bocl show``: what runs came to, from their records."""

from __future__ import annotations

from typing import Annotated

import typer


def show_command(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Folders of runs, or of folders of runs; journals, or .tar.xz of them."),
    ],
    task: Annotated[int | None, typer.Option(help="Show the trials of this task, numbered from 1.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show the tasks of runs, and compare the runs when there are several."""
    from bocl.cli.printing import print_json
    from bocl.cli.tables import print_runs, print_trials, tell_missing, tell_torn
    from bocl.records.summary import summarise_all

    summaries = summarise_all(runs)
    for summary in summaries:
        tell_torn(summary.folder, summary.torn_bytes)
        tell_missing(summary)
    if as_json:
        print_json([summary.as_json() for summary in summaries])
    elif task is not None:
        searched = [summary for summary in summaries if any(record.trials for record in summary.tasks)]
        for summary in searched or summaries:
            print_trials(summary, task)
    else:
        print_runs(summaries)
