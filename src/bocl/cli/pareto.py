"""``bocl pareto``: accuracy against parameters, from the trials of one task."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.options import Alpha, Budget, Run, Target, Tolerance


def pareto_command(
    run: Run,
    task: Annotated[int | None, typer.Option(help="The task, from 1; else the last finished one.")] = None,
    alpha: Alpha = None,
    budget: Budget = None,
    target: Target = None,
    tolerance: Tolerance = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show which trials of a task no other beats in accuracy and parameters, and mark a choice; nothing is trained."""
    from bocl.cli.front import front_as_json, print_front
    from bocl.cli.printing import print_json
    from bocl.records.pareto import Criterion
    from bocl.records.summary import find_run, searched_task, summarise

    summary = summarise(find_run(run))
    record = searched_task(summary, len(summary.tasks) if task is None else task)
    criterion = Criterion(alpha, budget, target, tolerance)
    if as_json:
        print_json(front_as_json(summary, record, criterion))
    else:
        print_front(summary, record, criterion)
