"""The proof that earlier tasks are untouched, from a run's folder: journal, files, tensors, canaries, accuracy.

Where the machine, the device, its threads and the version of PyTorch are those a task was learnt with, its logits must
have the same bits and its accuracy the same value. Elsewhere logits may differ by LOGITS of the largest, and accuracies
by ACCURACY.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from bocl.errors import DamagedError, FolderError, InputError, WorkError
from bocl.experiment.build import module_to_load
from bocl.experiment.given import Recorded, recorded_stream
from bocl.experiment.proof import canary_drift, changed_tensor, checked_again
from bocl.experiment.provenance import machine, versions
from bocl.experiment.store import recorded_config
from bocl.methods.method import Learner
from bocl.methods.saving import load
from bocl.methods.seen import SeenTask
from bocl.methods.tensor_files import read_tensors
from bocl.records.files import read_stored
from bocl.records.journal import read_with_tail
from bocl.records.record import TaskRecord
from bocl.records.run_log import JOURNAL, RunLog, Start, check_checkpoint
from bocl.tasks.task import TaskStream
from bocl.training.batches import to_device
from bocl.training.device import resolve_device
from bocl.training.evaluation import accuracy
from bocl.training.surroundings import usual_surroundings

LOGITS = 1e-3
ACCURACY = 0.005


class DriftError(WorkError):
    """Something is not as it was recorded."""


@dataclass(frozen=True)
class TaskAudit:
    """One task that was found as recorded; None for what was not checked.

    tensors   how many have the hash recorded
    canaries  how far the logits are from those recorded, 0.0 for the same bits
    accuracy  on the test split, measured again
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
    torn_bytes  of an unfinished line at its end, which is left out
    files       files that have the hash recorded
    head        hash of the journal's last line: noted elsewhere, it proves that the history is the same
    forgets     whether the method changes earlier tasks, so that only the last one can be checked
    left_out    why accuracies were not measured, if their data is not at hand
    """

    folder: Path
    records: int
    torn_bytes: int
    files: int
    head: str
    forgets: bool
    tasks: tuple[TaskAudit, ...]
    left_out: str = ""


@usual_surroundings()
def audit(
    folder: str | Path,
    *,
    data: str | None = None,
    device: str = "auto",
    with_accuracy: bool = True,
    trust: bool = False,
    stream: TaskStream | None = None,
    network: nn.Module | None = None,
) -> RunAudit:
    """Check a run against its own records; raise DriftError naming the first thing that is not as recorded.

    trust    whether a stream or a network that is code of the user's may be run
    stream   the data of a run that was given its stream as an object
    network  the module that a run adapts, if it was given as an object
    """
    refuse_journal(Path(folder), "audit")
    journal = Path(folder) / JOURNAL
    size = _size(journal)
    try:
        return _audit(Path(folder), data, device, with_accuracy, trust, stream, network)
    except (DamagedError, DriftError) as error:
        if _size(journal) > size:  # the run wrote more in the meantime
            options: Any = {"with_accuracy": with_accuracy, "trust": trust, "stream": stream, "network": network}
            return audit(folder, data=data, device=device, **options)
        raise DriftError(str(error)) from error


def refuse_journal(run: Path, wanted: str) -> None:
    """Refuse a journal that is kept without its folder: it has no weights to work on."""
    if run.suffix == ".jsonl" and not run.is_dir():
        raise FolderError(f"{run} is a journal without its run's folder, so there are no weights to {wanted}")


def _size(path: Path) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0  # unlike Path.is_file, it takes any name


def _audit(
    folder: Path,
    data: str | None,
    device: str,
    with_accuracy: bool,
    trust: bool,
    given: TaskStream | None,
    network: nn.Module | None,
) -> RunAudit:
    lines, torn_bytes = read_with_tail(folder / JOURNAL)
    log = RunLog.of([line.record for line in lines], folder / JOURNAL)
    if not log.tasks:
        raise FolderError(f"{log.path} has no finished task to audit; run it again to resume")
    check_checkpoint(folder, log)
    files = check_files(folder, log)
    resolve_device(device)  # a wrong device is the caller's mistake, not a drift
    module = module_to_load(recorded_config(log.starts[0].config, log.path), trust=trust, given=network)
    try:
        method: Learner = load(folder / log.checkpoint, device=device, network=module)
    except FolderError as error:
        raise DriftError(str(error)) from error
    tensors, canaries = check_learner(folder, log, method)
    if not method.forgets:
        _check_rows(log)
    found = same_data(folder, log.learnt_in[-1], data, trust=trust, given=given) if with_accuracy else Recorded(None)
    accuracies = _check_accuracy(folder, log, method, found)
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
        "; ".join(dict.fromkeys(found.missing.values())),
    )


def check_untouched(folder: Path, log: RunLog, method: Learner, row: Sequence[float]) -> None:
    """Check that earlier tasks are untouched, some in turn, when one more is learnt or picked for and not yet recorded.

    row  test accuracy on every task, the new one last
    """
    if method.forgets:
        return
    for task in checked_again(len(row) - 1):
        record = log.tasks[task]
        _check_tensors(folder, log, method, task)
        _check_canaries(folder, log, method, task)
        allowed = _tolerance(ACCURACY, log.learnt_in[task], *_here(method))
        _compare(folder, record, "test", record.row[-1], row[task], f"after task {len(row)}", allowed)


def check_files(folder: Path, log: RunLog) -> int:
    """Check every file that the journal names and that is still needed; return their number."""
    for file in log.files:
        read_stored(folder, file)
    return len(log.files) + len(log.checkpoints)  # the weights, which each model.json names and loading checks


def check_learner(folder: Path, log: RunLog, method: Learner) -> tuple[dict[int, int], dict[int, float]]:
    """Check what a learner stores and answers; return {task: tensors} and {task: how far its canaries are off}."""
    _check_same_learner(folder, log, method)
    checked = range(len(log.tasks))[-1:] if method.forgets else range(len(log.tasks))
    tensors = {task: _check_tensors(folder, log, method, task) for task in checked}
    return tensors, {task: _check_canaries(folder, log, method, task) for task in checked}


def _check_same_learner(folder: Path, log: RunLog, method: Learner) -> None:
    """Check that journal and checkpoint agree on what was learnt: names, widths and numbers of parameters."""
    widths = [record.widths for record in log.tasks]
    grown = method.widths_by_task()
    for what, found, recorded in (
        ("tasks", [entry.name for entry in method.seen], [record.name for record in log.tasks]),
        ("stored parameters", sum(method.parameters().values()), log.tasks[-1].stored),
        ("widths", widths if grown is None else grown, widths),
    ):
        if found != recorded:
            raise DriftError(f"{folder}: the checkpoint has the {what} {found}, the journal {recorded}")


def _check_tensors(folder: Path, log: RunLog, method: Learner, task: int) -> int:
    recorded = log.proofs[task].tensors
    name = changed_tensor(method.tensors_of(task), recorded)
    if name is not None:
        raise DriftError(f"{_about(folder, log.tasks[task])}: tensor {name} is not the one recorded")
    return len(recorded)


def _check_canaries(folder: Path, log: RunLog, method: Learner, task: int) -> float:
    stored = log.proofs[task].canaries
    canaries = read_tensors(folder, stored)
    try:
        drift = canary_drift(method, task, canaries)
    except InputError as error:
        raise DriftError(f"{folder / stored.file} is not what was recorded for task {task + 1}: {error}") from error
    allowed = _tolerance(LOGITS, log.learnt_in[task], *_here(method))
    if not drift <= allowed:  # NaN is a drift too
        raise DriftError(
            f"{_about(folder, log.tasks[task])}: the logits of its canaries are off by {drift:.2g} of the largest; "
            f"{allowed:g} is allowed here"
        )
    return drift


def _check_rows(log: RunLog) -> None:
    """Check that no recorded accuracy changed after its task was learnt."""
    for later in log.tasks:
        session = log.learnt_in[later.index]
        for task, record in enumerate(log.tasks[: later.index]):
            allowed = _tolerance(ACCURACY, log.learnt_in[task], session.machine, session.versions)
            for kind, first, now in (
                ("test", record.row[-1], later.row[task]),
                ("validation", record.validation_row[-1], later.validation_row[task]),
            ):
                _compare(log.path, record, kind, first, now, f"after task {later.index + 1}", allowed)


def _check_accuracy(folder: Path, log: RunLog, method: Learner, data: Recorded) -> dict[int, float]:
    """Measure the last row of the accuracy matrix again, as far as the data is at hand; return {task: accuracy}."""
    last, stream = log.tasks[-1], data.stream
    allowed = _tolerance(ACCURACY, log.learnt_in[-1], *_here(method))
    found: dict[int, float] = {}
    for task, record in enumerate(log.tasks):
        if stream is None or task in data.missing:
            continue
        if method.seen[task] != SeenTask.of(stream[task]):
            raise DriftError(f"{_about(folder, record)}: the checkpoint has seen other inputs than these")
        for kind, split, recorded in (
            ("validation", stream[task].validation, last.validation_row[task]),
            ("test", stream.test_split(task), last.row[task]),
        ):
            found[task] = accuracy(partial(method.logits, task=task), to_device(split, method.device))
            _compare(folder, record, kind, recorded, found[task], "now", allowed)
    return found


def same_data(folder: Path, start: Start, data: str | None, **options: Any) -> Recorded:
    """Return the data that a session ran on, as ``recorded_stream`` does, or refuse other data."""
    found = recorded_stream(recorded_config(start.config, folder / JOURNAL), start, data, **options)
    if found.stream is not None and found.stream.fingerprint() != start.data:
        raise InputError(f"{folder} was made from other data than what is found now; give the data with --data")
    return found


def _compare(
    place: Path, record: TaskRecord, kind: str, recorded: float, found: float, when: str, allowed: float
) -> None:
    if not abs(found - recorded) <= allowed:
        raise DriftError(f"{_about(place, record)}: {kind} accuracy {found} {when}, recorded was {recorded}")


def _about(place: Path, record: TaskRecord) -> str:
    return f"{place}: task {record.index + 1}, '{record.name}'"


def _here(method: Learner) -> tuple[dict[str, Any], dict[str, str]]:
    return machine(method.device), versions()


def _tolerance(
    otherwise: float, start: Start, other_machine: Mapping[str, Any], other_versions: Mapping[str, str]
) -> float:
    """Return 0.0 if a session ran in that place: bits depend on the machine, the device, its threads and PyTorch."""
    same = start.machine == other_machine and start.versions.get("torch") == other_versions.get("torch")
    return 0.0 if same else otherwise
