"""``bocl predict``: labels and probabilities for samples of a task learnt before."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.options import Device, Trust

OPENING = b"sample,label"


def predict_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run or of a saved model.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Samples: .npz, .csv, .parquet, or a folder of images.")],
    task: Annotated[str, typer.Option(help="Name of the task, or its number from 1.")],
    out: Annotated[str, typer.Option("-o", "--out", help="File to write, .csv.")],
    device: Device = "auto",
    trust: Trust = False,
) -> None:
    """Write the most likely label of every sample and the probability of every class."""
    import csv
    import io
    import os
    from pathlib import Path

    from bocl.cli.printing import say
    from bocl.errors import FolderError
    from bocl.experiment.load_run import load_run, named_task
    from bocl.records.files import check_place, write_whole
    from bocl.tasks.entries import read_inputs
    from bocl.wording import counted, csv_cell

    place = Path(out)
    check_place(place, OPENING, "file of predictions")
    if not os.path.isdir(place.parent):
        raise FolderError(f"{place.parent} is not a folder; give another file with -o")
    learner = load_run(run, device=device, trust=trust)
    number = named_task(learner, task, run)
    about = learner.seen[number]
    inputs, samples = read_inputs(data, about.columns, texts=learner.text is not None)
    probabilities = learner.predict_proba(inputs, number).tolist()
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["sample", "label", *(csv_cell(f"p({label})") for label in about.class_labels)])
    for sample, row in zip(samples, probabilities, strict=True):
        best = about.class_labels[max(range(len(row)), key=row.__getitem__)]
        rows.writerow([csv_cell(sample), csv_cell(best), *(f"{value:.6f}" for value in row)])
    write_whole(place, text.getvalue().encode())
    say(f"{place}: {counted(len(samples), 'sample')} of task '{about.name}'")
