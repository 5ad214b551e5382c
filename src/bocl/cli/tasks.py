"""``bocl tasks``: what a run has learnt."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.options import Run


def tasks_command(
    run: Run,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tasks as JSON.")] = False,
) -> None:
    """List the tasks of a run: their names, labels and samples, and where their data was."""
    from dataclasses import asdict

    from bocl.cli.printing import literal, make_console, print_json
    from bocl.cli.tables import results_table
    from bocl.methods.saving import load
    from bocl.records.summary import find_run, summarise
    from bocl.wording import percent, shortened

    summary = summarise(find_run(run))
    seen = load(summary.folder, device="cpu").seen if summary.tasks else []
    given = {task.name: task.place for task in summary.sessions[-1].given}
    rows = list(zip(seen, summary.tasks, strict=True))
    if as_json:
        more = [{"accuracy": record.row[-1], "data": given.get(record.name, "")} for record in summary.tasks]
        print_json([asdict(about) | entry for about, entry in zip(seen, more, strict=True)])
        return
    table = results_table("task", "", "test", "classes", "samples", "data", left=("", "classes", "samples", "data"))
    for number, (about, record) in enumerate(rows, start=1):
        labels = ", ".join(map(str, about.class_labels))
        kind = "bytes" if about.in_bytes else "floats" if about.padding is None else "tokens"
        table.add_row(
            str(number),
            literal(about.name),
            percent(record.row[-1]),
            literal(f"{about.classes}: {shortened(labels)}"),
            " x ".join(map(str, about.shape)) + f" {kind}",
            literal(given.get(about.name, "")),
        )
    make_console().print(table if rows else literal(f"{summary.folder}: no task is finished yet"))
