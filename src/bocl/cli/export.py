"""``bocl export``: one task of a run, in a form that other systems read."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.options import Device, Trust


def export_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run or of a saved model.")],
    out: Annotated[str, typer.Option("-o", "--out", help="A new file; of hub-folder, peft and merged a new folder.")],
    to: Annotated[
        str,
        typer.Option(
            help="pt2: a program of PyTorch; onnx; safetensors: for bocl.load_module; hub-folder: with a model card; "
            "of low-rank growth also peft: an adapter, and merged: the weights of a whole module."
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(help="Name of a task, or its number from 1; left out, all tasks in one file, to onnx only."),
    ] = None,
    device: Device = "auto",
    trust: Trust = False,
) -> None:
    """Write a task in a form that other systems read, and check it with the samples that the run stored."""
    from bocl.cli.printing import say
    from bocl.experiment.export_run import export_run
    from bocl.wording import counted

    written = export_run(run, task, out, to, device=device, trust=trust)
    many = len(written.tasks) > 1
    what = counted(len(written.tasks), "task") if many else f"task '{written.tasks[0]}'"
    say(f"{written.path}: {what} as {written.to}, {written.bytes:,} bytes in {counted(len(written.files), 'file')}")
    kind = "stored" if written.stored else "made-up"
    gap = f"differ by at most {written.difference:.1g} of the largest" if written.difference else "have the same bits"
    say(f"checked: {written.samples} {kind} samples went through it, and their logits {gap}")
