"""``bocl predict``: labels and probabilities for samples of a task learnt before."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.options import Device

OPENING = b"sample,label"


def predict_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run or of a saved model.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Samples: .npz, .csv, .parquet, or a folder of images.")],
    task: Annotated[str, typer.Option(help="Name of the task, or its number from 1.")],
    out: Annotated[str, typer.Option("-o", "--out", help="File to write, .csv.")],
    device: Device = "auto",
) -> None:
    """Write the most likely label of every sample and the probability of every class."""
    import csv
    import io
    import os
    from pathlib import Path

    from bocl.cli.printing import say
    from bocl.errors import FolderError, InputError
    from bocl.methods.saving import load
    from bocl.methods.seen import task_number
    from bocl.records.files import check_place, write_whole
    from bocl.tasks.entries import read_inputs
    from bocl.wording import counted, csv_cell

    place = Path(out)
    check_place(place, OPENING, "file of predictions")
    if not os.path.isdir(place.parent):
        raise FolderError(f"{place.parent} is not a folder; give another file with -o")
    learner = load(run, device=device)
    by_number = task.isdecimal() and task not in [about.name for about in learner.seen]  # 2024.csv is called 2024
    if by_number and not 1 <= int(task) <= len(learner.seen):
        raise InputError(f"--task {task}: {run} has learnt tasks 1 to {len(learner.seen)}")
    number = int(task) - 1 if by_number else task_number(task, learner.seen)
    about = learner.seen[number]
    inputs, samples = read_inputs(data, about.columns)
    probabilities = learner.predict_proba(inputs, number).tolist()
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["sample", "label", *(csv_cell(f"p({label})") for label in about.class_labels)])
    for sample, row in zip(samples, probabilities, strict=True):
        best = about.class_labels[max(range(len(row)), key=row.__getitem__)]
        rows.writerow([csv_cell(sample), csv_cell(best), *(f"{value:.6f}" for value in row)])
    write_whole(place, text.getvalue().encode())
    say(f"{place}: {counted(len(samples), 'sample')} of task '{about.name}'")
