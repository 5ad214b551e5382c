"""A task of a run, written for another system and checked with the samples and logits that the run stored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from bocl.experiment.audit import RunAudit, audit
from bocl.experiment.load_run import load_run, named_task
from bocl.methods.exporting.canaries import Canaries
from bocl.methods.exporting.card import Recorded
from bocl.methods.exporting.export import Exported, export
from bocl.methods.method import Learner
from bocl.methods.tensor_files import read_tensors
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL, RunLog


def export_run(
    folder: str | Path, task: str | None, path: str | Path, to: str, *, device: str = "auto", trust: bool = False
) -> Exported:
    """Export one task of a run, or of a folder that ``save`` wrote, by name or by number from 1; None is all tasks.

    trust  whether a network that is code of the run's maker may be run
    """
    learner = load_run(folder, device=device, trust=trust)
    number = None if task is None else named_task(learner, task, str(folder))
    return export_from(Path(folder), learner, number, path, to, device=device, trust=trust)


def export_from(
    folder: Path,
    learner: Learner,
    number: int | None,
    path: str | Path,
    to: str,
    *,
    device: str,
    trust: bool = False,
    network: nn.Module | None = None,
) -> Exported:
    """Export a task of the learner in a folder; None is all tasks.

    network  the module that a run adapts, if it was given as an object
    """
    place = folder / JOURNAL
    if not os.path.isfile(place):
        return export(learner, number, path, to)
    log = RunLog.of(read(place), place)
    numbers = range(len(learner.seen)) if number is None else [number]
    canaries = _stored(folder, log, numbers, forgets=learner.forgets)
    recorded = None
    if to == "hub-folder" and number is not None:
        audited = audit(folder, device=device, with_accuracy=False, trust=trust, network=network)
        recorded = _recorded(audited, log, number)
    return export(learner, number, path, to, canaries=canaries, recorded=recorded)


def _stored(folder: Path, log: RunLog, numbers: Sequence[int], *, forgets: bool) -> dict[int, Canaries]:
    """Return the canaries of tasks; of a method that changes earlier tasks, they hold for the last one only."""
    last = len(log.tasks) - 1
    found = {}
    for number in numbers:
        if not forgets or number == last:
            tensors = read_tensors(folder, log.proofs[number].canaries)
            found[number] = Canaries(tensors["inputs"], tensors["logits"])
    return found


def _recorded(audited: RunAudit, log: RunLog, number: int) -> Recorded:
    (about,) = (task for task in audited.tasks if task.index == number)
    record, last, start = log.tasks[number], log.tasks[-1], log.learnt_in[number]
    return Recorded(
        accuracy=last.row[number],
        learnt=record.row[number],
        validation=last.validation_row[number],
        stream=str(start.config["stream"]["name"]),
        data=start.data,
        head=audited.head,
        records=audited.records,
        tensors=about.tensors,
        canaries=about.canaries,
        made_by=start.versions,
        time=start.time,
        seed=int(start.config["seed"]),
    )
