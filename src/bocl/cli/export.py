"""``bocl export``: one task of a run, in a form that other libraries read."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.options import Device, Run, Trust


def export_command(
    run: Run,
    task: Annotated[str, typer.Option(help="Name of a task, or its number from 1.")],
    out: Annotated[str, typer.Option("-o", "--out", help="A new folder.")],
    to: Annotated[
        str, typer.Option(help="peft: an adapter that PEFT loads; merged: the weights of a whole module.")
    ] = "peft",
    device: Device = "auto",
    trust: Trust = False,
) -> None:
    """Write one task of a run that grew by low-rank factors as a PEFT adapter, or as merged weights."""
    from bocl.cli.printing import say
    from bocl.experiment.load_run import load_run, named_task
    from bocl.methods.exporting import export

    learner = load_run(run, device=device, trust=trust)
    number = named_task(learner, task, run)
    folder = export(learner, number, out, to)
    written = ", ".join(sorted(path.name for path in folder.iterdir()))
    say(f"{folder}: task '{learner.seen[number].name}' as {to}: {written}")
