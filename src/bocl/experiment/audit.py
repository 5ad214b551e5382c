"""The proof that earlier tasks are untouched, from a run's folder alone: journal, files, tensors, canaries, accuracy.

On the machine, device and number of threads a task was learnt with, its logits must have the same bits and
its accuracy the same value. Elsewhere bits may differ: logits may by LOGITS of the largest, accuracies by ACCURACY.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from bocl.errors import DamagedError, FolderError, InputError, WorkError
from bocl.experiment.build import build_stream
from bocl.experiment.config import Config
from bocl.experiment.proof import canary_drift, changed_tensor
from bocl.experiment.provenance import machine, versions
from bocl.methods.method import Learner
from bocl.methods.saving import load
from bocl.methods.seen import SeenTask
from bocl.methods.tensor_files import read_tensors
from bocl.records.files import read_stored
from bocl.records.journal import read_with_tail
from bocl.records.record import TaskRecord
from bocl.records.run_log import JOURNAL, RunLog, Start, check_checkpoint
from bocl.settings import parse_value
from bocl.tasks.task import TaskStream
from bocl.training.batches import to_device
from bocl.training.device import resolve_device
from bocl.training.evaluation import accuracy

LOGITS = 1e-3
ACCURACY = 0.005


class DriftError(WorkError):
    """Something is not as it was recorded."""


@dataclass(frozen=True)
class TaskAudit:
    """One task that was found as recorded; None where something was not looked at.

    tensors   how many have the hash recorded
    canaries  how far the logits are from those recorded, 0.0 for the same bits
    accuracy  on the test split, measured anew
    """

    index: int
    name: str
    tensors: int | None
    canaries: float | None
    accuracy: float | None


@dataclass(frozen=True)
class RunAudit:
    """A run that was found as recorded.

    records     lines of the journal
    torn_bytes  of a line at its end that is unfinished, and left out
    files       files that have the hash recorded
    head        hash of the journal's last line: whoever noted it elsewhere knows that the history is the same
    forgets     whether the method changes earlier tasks, so that only the last one can be held to its record
    """

    folder: Path
    records: int
    torn_bytes: int
    files: int
    head: str
    forgets: bool
    tasks: tuple[TaskAudit, ...]


def audit(folder: str | Path, *, data: str | None = None, device: str = "auto", with_accuracy: bool = True) -> RunAudit:
    """Check a run against its own records; raise DriftError naming the first thing that is not as recorded."""
    journal = Path(folder) / JOURNAL
    size = _size(journal)
    try:
        return _audit(Path(folder), data, device, with_accuracy)
    except (DamagedError, DriftError) as error:
        if _size(journal) > size:  # the run went on between two looks
            return audit(folder, data=data, device=device, with_accuracy=with_accuracy)
        raise DriftError(str(error)) from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _audit(folder: Path, data: str | None, device: str, with_accuracy: bool) -> RunAudit:
    lines, torn_bytes = read_with_tail(folder / JOURNAL)
    log = RunLog.of([line.record for line in lines], folder / JOURNAL)
    if not log.tasks:
        raise FolderError(f"{log.path} has no finished task to audit; run it again to go on")
    check_checkpoint(folder, log)
    files = _check_files(folder, log)
    resolve_device(device)  # wrong input is told before, and apart from, what the folder holds
    try:
        method: Learner = load(folder / log.checkpoint, device=device)
    except FolderError as error:
        raise DriftError(str(error)) from error
    _check_same_learner(folder, log, method)
    last = len(log.tasks) - 1
    checked = [last] if method.forgets else range(last + 1)
    stored = method.tensors_by_task()
    tensors = {task: _check_tensors(folder, log, stored[task], task) for task in checked}
    canaries = {task: _check_canaries(folder, log, method, task) for task in checked}
    _check_rows(log, method)
    accuracies = _check_accuracy(folder, log, method, data) if with_accuracy else {}
    return RunAudit(
        folder,
        len(lines),
        torn_bytes,
        files,
        lines[-1].sha256,
        method.forgets,
        tuple(
            TaskAudit(task, record.name, tensors.get(task), canaries.get(task), accuracies.get(task))
            for task, record in enumerate(log.tasks)
        ),
    )


def check_untouched(folder: Path, log: RunLog, method: Learner, row: Sequence[float]) -> None:
    """Check, once one more task is learnt or picked for and before that is recorded, that those before are untouched.

    row  test accuracy on every task, the new one last
    """
    if method.forgets:
        return
    tensors = method.tensors_by_task()
    for task, record in enumerate(log.tasks[: len(row) - 1]):
        _check_tensors(folder, log, tensors[task], task)
        _check_canaries(folder, log, method, task)
        _compare(folder, log.learnt_in[task], method, record, row[task], f"after task {len(row)}")


def _check_files(folder: Path, log: RunLog) -> int:
    """Check every file the journal names and that is still needed; return how many there are."""
    last = len(log.tasks) - 1
    stored = [proof.canaries for proof in log.proofs]
    stored.append(log.proofs[-1].checkpoint)
    stored += [entry.weights for task in (last, last + 1) for entry in log.rounds.get(task, [])]
    for file in stored:
        read_stored(folder, file)
    return len(stored) + 1  # the weights, which model.json names and loading checks


def _check_same_learner(folder: Path, log: RunLog, method: Learner) -> None:
    """Check that journal and checkpoint tell the same of what was learnt: its names, widths and numbers."""
    widths = [record.widths for record in log.tasks]
    grown = method.widths_by_task()
    for what, found, recorded in (
        ("tasks", [entry.name for entry in method.seen], [record.name for record in log.tasks]),
        ("stored parameters", sum(method.parameters().values()), log.tasks[-1].stored),
        ("widths", widths if grown is None else grown, widths),
    ):
        if found != recorded:
            raise DriftError(f"{folder}: the checkpoint has the {what} {found}, the journal {recorded}")


def _check_tensors(folder: Path, log: RunLog, tensors: Mapping[str, Tensor], task: int) -> int:
    recorded = log.proofs[task].tensors
    name = changed_tensor(tensors, recorded)
    if name is not None:
        raise DriftError(f"{folder}: task {task + 1}, '{log.tasks[task].name}': tensor {name} is not the one recorded")
    return len(recorded)


def _check_canaries(folder: Path, log: RunLog, method: Learner, task: int) -> float:
    stored = log.proofs[task].canaries
    canaries = read_tensors(folder, stored)
    try:
        drift = canary_drift(method, task, canaries)
    except InputError as error:
        raise DriftError(f"{folder / stored.file} is not what was recorded for task {task + 1}: {error}") from error
    allowed = 0.0 if _same_place(log.learnt_in[task], method) else LOGITS
    if not drift <= allowed:  # NaN is a drift too
        raise DriftError(
            f"{folder}: task {task + 1}, '{log.tasks[task].name}': the logits of its canaries are off by {drift:.2g} "
            f"of the largest; {allowed:g} is allowed here"
        )
    return drift


def _check_rows(log: RunLog, method: Learner) -> None:
    """Check that the recorded accuracies are those of tasks nobody touched."""
    if method.forgets:
        return
    for later in log.tasks:
        for record, *values in zip(log.tasks, later.row, later.validation_row, strict=False):
            first_session, session = log.learnt_in[record.index], log.learnt_in[later.index]
            alike = _same(first_session, session.machine, session.versions)
            allowed = 0.0 if alike else ACCURACY
            for value, first in zip(values, (record.row[-1], record.validation_row[-1]), strict=True):
                if abs(value - first) > allowed:
                    raise DriftError(
                        f"{log.path}: task {record.index + 1}, '{record.name}', was recorded with accuracy "
                        f"{first} and after task {later.index + 1} with {value}"
                    )


def _check_accuracy(folder: Path, log: RunLog, method: Learner, data: str | None) -> dict[int, float]:
    """Measure the last row of the accuracy matrix anew; return {task: accuracy}."""
    start = log.learnt_in[-1]
    stream = same_stream(folder, start, data)
    found = {}
    for task, record in enumerate(log.tasks):
        if method.seen[task] != SeenTask.of(stream[task]):
            raise DriftError(
                f"{folder}: task {task + 1}, '{record.name}': the checkpoint has seen other inputs than these"
            )
        last = log.tasks[-1]
        for kind, split, recorded in (
            ("validation", stream[task].validation, last.validation_row[task]),
            ("test", stream.test_split(task), last.row[task]),
        ):
            found[task] = accuracy(partial(method.predict, task=task), to_device(split, method.device))
            _compare(folder, start, method, record, found[task], "now", recorded, kind)
    return found


def same_stream(folder: Path, start: Start, data: str | None) -> TaskStream:
    """Return the stream a session ran on, or refuse other data."""
    stream = build_stream(recorded_config(start.config, folder / JOURNAL), data)
    if stream.fingerprint() != start.data:
        raise InputError(f"{folder} was made from other data than what is found now; give the data with --data")
    return stream


def recorded_config(plain: dict[str, Any], path: Path) -> Config:
    """Return the settings a run was made with, or say that another version wrote them."""
    try:
        config: Config = parse_value(Config, plain, "config")
    except InputError as error:
        raise FolderError(f"{path}: {error}; another version of bocl wrote it") from error
    return config


def _compare(
    folder: Path,
    start: Start,
    method: Learner,
    record: TaskRecord,
    found: float,
    when: str,
    recorded: float | None = None,
    kind: str = "test",
) -> None:
    recorded = record.row[-1] if recorded is None else recorded
    allowed = 0.0 if _same_place(start, method) else ACCURACY
    if not abs(found - recorded) <= allowed:
        raise DriftError(
            f"{folder}: task {record.index + 1}, '{record.name}': {kind} accuracy {found} {when}, "
            f"recorded was {recorded}"
        )


def _same_place(start: Start, method: Learner) -> bool:
    """Whether a session ran where we are: bits depend on the machine, the device, its threads and the library."""
    return _same(start, machine(method.device), versions())


def _same(start: Start, other_machine: Mapping[str, Any], other_versions: Mapping[str, str]) -> bool:
    return start.machine == other_machine and start.versions.get("torch") == other_versions.get("torch")
