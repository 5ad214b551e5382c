"""``bocl learn``: add one task to a run, or begin one."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.options import Device, GoalTolerance, Overrides, tolerance_overrides


def learn_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of the run; a new one begins a run.")],
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="Its data: .npz, .csv, .parquet, or a folder (see the guide).")
    ],
    name: Annotated[str | None, typer.Option(help="Name of the task; else that of the file.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of labels in tables and datasets; else label.")] = None,
    network: Annotated[
        str | None, typer.Option(help="For a new run: mlp, convnet, lenet, resnet or package.module:function.")
    ] = None,
    standardise: Annotated[
        bool | None, typer.Option(help="For a new run: scale floats to 0 ± 1; else those of tables are.")
    ] = None,
    tolerance: GoalTolerance = None,
    overrides: Overrides = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Learn one more task; run the same command again to resume. Data stays where it is."""
    from bocl.cli.printing import print_json, warn
    from bocl.cli.tables import print_runs
    from bocl.experiment.open_run import open_from_overrides
    from bocl.records.interrupts import Terminated, stopping_on_terminate
    from bocl.records.summary import summarise

    scaled = None if standardise is None else str(standardise).lower()
    short = {"network": network, "stream.standardise": scaled}
    given = [f"{key}={value}" for key, value in short.items() if value is not None]
    given += tolerance_overrides(tolerance)
    opened = open_from_overrides(run, [*given, *(overrides or [])], device=device)
    try:
        with stopping_on_terminate():
            opened.learn_file(task, name, verbose=True, label=label)
    except KeyboardInterrupt as stop:
        warn("stopped; run the same command again to resume after the last finished round")
        raise typer.Exit(143 if isinstance(stop, Terminated) else 130) from None
    summary = summarise(run)
    if as_json:
        print_json(summary.as_json())
    else:
        print_runs([summary])
