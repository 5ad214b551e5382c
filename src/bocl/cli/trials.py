"""``bocl trials``: what the searches of some runs tried, as a file for the searches of another run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bocl.cli.options import Runs


def trials_command(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("prior_trials.json"),
) -> None:
    """Write every trial of runs to a file that another run starts from: `bocl run … --set prior_trials=FILE`."""
    from bocl.cli.printing import say
    from bocl.records.files import check_place
    from bocl.records.prior_trials import prior_trials_of, write_prior_trials
    from bocl.records.summary import summarise_all
    from bocl.wording import counted

    check_place(out, b'{"format":', "file of trials of bocl")
    found = prior_trials_of(summarise_all(runs))
    write_prior_trials(found, out)
    children = counted(sum(len(task.trials) for task in found.tasks), "child", "children")
    say(f"{children} of {counted(len(found.tasks), 'task')} written to {out}")
