"""Rounds trained once: a round in the journal is read from its file, any other is trained and written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from bocl.errors import FolderError, NetworkError
from bocl.experiment.store import RunStore
from bocl.methods.round_trainer import LocalTrainer
from bocl.methods.rounds import Round, RoundTrainer, TrainedChild, ignore
from bocl.networks.by_task import join_tensors, part_tensors
from bocl.networks.check import check_tensors
from bocl.networks.growing import GrowingNetwork
from bocl.networks.growth import Growth
from bocl.records.events import Callback, ignore_events
from bocl.records.record import RoundFit, RoundRecord, TaskRecord, Trial
from bocl.training.batches import DeviceTask
from bocl.training.trainer import Effort, Fit


class RoundArchive:
    """A round trainer for one task of a run: it keeps every round that another trainer trains.

    A round depends only on the run's settings, seed and earlier rounds. So a resumed run asks for the same rounds
    again, and the n-th round in the journal is the n-th that is asked for.

    recalled_seconds  that training took of the rounds read from files
    """

    def __init__(self, store: RunStore, task: int, trainer: RoundTrainer | None = None) -> None:
        self.recalled_seconds = 0.0
        self._store = store
        self._task = task
        self._trainer = trainer or LocalTrainer()
        self._number = 0

    def __call__(
        self,
        asked: Round,
        network: GrowingNetwork,
        data: DeviceTask,
        callback: Callback = ignore_events,
        on_halving: Callable[[int], None] = ignore,
    ) -> list[TrainedChild]:
        """Train a round, or recall it; see ``RoundTrainer``."""
        self._number += 1
        trained = self._store.log.rounds.get(self._task, [])
        if self._number <= len(trained):
            return self._recall(trained[self._number - 1], asked, network)
        place = (self._task, self._number)
        at_once = self._store.log.halvings.get(place)
        if at_once is not None:
            asked = replace(asked, children_at_once=at_once)

        def halve(children_at_once: int) -> None:
            self._store.halve(*place, children_at_once)
            on_halving(children_at_once)

        children = self._trainer(asked, network, data, callback, halve)
        if asked.purpose in ("base", "final") and all(child.failure for child in children):
            return children  # this ends the run; the next start tries again
        facts = {
            "task": self._task,
            "number": self._number,
            "purpose": asked.purpose,
            "widths": list(asked.widths),
            "seeds": list(asked.seeds),
            "fits": [_written(child) for child in children],
            "children_at_once": self._store.log.halvings.get(place),
            "reads": list(asked.reads),
        }
        self._store.keep_round(facts, join_tensors([child.growth.tensors for child in children]))
        return children

    def _recall(self, record: RoundRecord, asked: Round, network: GrowingNetwork) -> list[TrainedChild]:
        where = f"{self._store.log.path}: round {record.number} of task {record.task + 1}"
        reads = record.reads or asked.reads  # early records have none: they read all, or nothing
        for what, old, new in (
            ("widths", record.widths, asked.widths),
            ("seeds", record.seeds, asked.seeds),
            ("tasks to read", reads, asked.reads),
        ):
            if old != new:
                raise FolderError(
                    f"{where} was trained with the {what} {list(old)}, and now {list(new)} are asked for: "
                    "another version of bocl, another machine, or a searcher that is not deterministic; resume with "
                    "what began the run, or start again in another folder"
                )
        growths = read_growths(self._store, record, network, asked.reads, asked.classes)
        children = []
        for growth, fit in zip(growths, record.fits, strict=True):
            effort = Effort(fit.samples, fit.seconds)
            ended = Fit(fit.accuracy, fit.loss, fit.epochs, effort, fit.confidence)
            children.append(TrainedChild(growth, ended, fit.failure, fit.rungs))
            self.recalled_seconds += fit.seconds
        return children


def read_growths(
    store: RunStore,
    record: RoundRecord,
    network: GrowingNetwork,
    reads: Sequence[tuple[int, ...]],
    classes: int,
) -> list[Growth]:
    """Return what the children of a round added; one that failed or was stopped has no tensors.

    reads  for each of them the tasks whose units it reads
    """
    try:
        parts = part_tensors(store.recall(record), len(record.widths))
        for z, fit, tensors, read in zip(record.widths, record.fits, parts, reads, strict=True):
            check_tensors(tensors, {} if fit.failure or fit.stopped else network.space(classes, read).shapes(z))
    except NetworkError as error:
        raise FolderError(
            f"{store.folder / record.weights.file} does not hold the children of its round: {error}; "
            "restore the folder from a copy, or start again in another"
        ) from error
    return [
        Growth(z, classes, {name: tensor.to(network.device) for name, tensor in tensors.items()}, read)
        for z, tensors, read in zip(record.widths, parts, reads, strict=True)
    ]


def read_child(store: RunStore, network: GrowingNetwork, trials: Sequence[Trial], number: int, classes: int) -> Growth:
    """Return what child ``number`` of the last task's trials added to the network.

    Trials are the children of the task's rounds, in order. A base network may have been trained before them, to
    measure how hard the task is.
    """
    entry, at = _round_of(store, len(network.tasks) - 1, trials, number)
    return read_growths(store, entry, network, _reads(entry), classes)[at]


def reads_of_child(store: RunStore, task: TaskRecord, number: int) -> tuple[int, ...]:
    """Return the tasks whose units child ``number`` of a task's trials reads."""
    entry, at = _round_of(store, task.index, task.trials, number)
    return _reads(entry)[at]


def _round_of(store: RunStore, task: int, trials: Sequence[Trial], number: int) -> tuple[RoundRecord, int]:
    """Return the round of a trial, and its place there."""
    rounds = store.log.rounds.get(task, [])
    searched = [entry for entry in rounds if entry.purpose != "final"]
    children = [(entry, at) for entry in searched for at in range(len(entry.widths))][-len(trials) :]
    if len(children) == len(trials):
        entry, at = children[number]
        if entry.widths[at] == trials[number].widths:
            return entry, at
    raise FolderError(f"{store.log.path} names no round with the widths {trials[number].widths}; pick another child")


def _reads(entry: RoundRecord) -> tuple[tuple[int, ...], ...]:
    """Return what each child of a round reads; in early records that is all, which a first network has none of."""
    return entry.reads or (tuple(range(entry.task)),) * len(entry.widths)


def _written(child: TrainedChild) -> dict[str, Any]:
    fit = child.fit
    loss = fit.loss if math.isfinite(fit.loss) else math.nan  # a loss that ran away is as good as none
    samples, seconds = fit.effort.samples, fit.effort.seconds
    written = asdict(
        RoundFit(fit.accuracy, loss, fit.epochs, samples, seconds, child.failure, child.rungs, fit.confidence)
    )
    return written if child.rungs else {name: value for name, value in written.items() if name != "rungs"}
