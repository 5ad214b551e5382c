"""``bocl predict``: labels and probabilities for samples of a task learnt before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bocl.cli.options import Device, Trust

if TYPE_CHECKING:
    from bocl.methods.method import Learner

OPENING = b"sample,label"
Predicted = tuple[list[str], list[list[Any]]]  # names of columns, and a row for every sample


def predict_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run or of a saved model.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Samples: .npz, .csv, .parquet, or a folder of images.")],
    out: Annotated[str, typer.Option("-o", "--out", help="File to write, .csv.")],
    task: Annotated[
        str | None, typer.Option(help="Name of the task, or its number from 1; else it is guessed (guess.map).")
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="All samples are of one task, which is guessed.")
    ] = False,
    device: Device = "auto",
    trust: Trust = False,
) -> None:
    """Write the most likely label of every sample and the probability of every class.

    Without a task it writes the task guessed for every sample and its probability, and the label's in that task.
    """
    import csv
    import io
    import os
    from pathlib import Path

    from bocl.cli.printing import say
    from bocl.errors import FolderError
    from bocl.experiment.load_run import load_run, named_task
    from bocl.methods.unnamed import check_guesses
    from bocl.records.files import check_place, write_whole
    from bocl.tasks.entries import read_inputs
    from bocl.wording import counted, csv_cell

    place = Path(out)
    check_place(place, OPENING, "file of predictions")
    if not os.path.isdir(place.parent):
        raise FolderError(f"{place.parent} is not a folder; give another file with -o")
    learner = load_run(run, device=device, trust=trust)
    number = None if task is None else named_task(learner, task, run)
    if number is None:
        check_guesses(learner)
    about = learner.seen[number or 0]
    inputs, samples = read_inputs(data, about.columns, texts=learner.text is not None)
    header, rows = _of_task(learner, inputs, number) if number is not None else _guessed(learner, inputs, together)
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["sample", "label", *map(csv_cell, header)])
    table.writerows([csv_cell(sample), *map(csv_cell, row)] for sample, row in zip(samples, rows, strict=True))
    write_whole(place, text.getvalue().encode())
    of = "guessed tasks" if number is None else f"task '{about.name}'"
    say(f"{place}: {counted(len(samples), 'sample')} of {of}")


def _of_task(learner: Learner, inputs: Any, number: int) -> Predicted:
    """Return the label of every sample, and the probability of every class."""
    labels = learner.classes(number)
    probabilities = learner.predict_proba(inputs, number).tolist()
    rows = [[labels[max(range(len(row)), key=row.__getitem__)], *_shares(*row)] for row in probabilities]
    return [f"p({label})" for label in labels], rows


def _guessed(learner: Learner, inputs: Any, together: bool) -> Predicted:
    """Return the label of every sample in the task that is guessed for it, both with their probabilities."""
    guess = learner.predict_task(inputs, together=together)
    probabilities = learner.predict_proba(inputs, together=together).tolist()
    rows = []
    for task, of_tasks, of_labels in zip(
        guess.tasks.tolist(), guess.probabilities.tolist(), probabilities, strict=True
    ):
        best = max(range(len(of_labels)), key=of_labels.__getitem__)
        rows.append([learner.classes(task)[best], learner.seen[task].name, *_shares(of_tasks[task], of_labels[best])])
    return ["task", "p(task)", "p(label)"], rows


def _shares(*values: float) -> list[str]:
    return [f"{value:.6f}" for value in values]
