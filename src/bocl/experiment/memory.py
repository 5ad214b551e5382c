"""Rounds trained once: what the journal holds is read from its file, everything else is trained and written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bocl.errors import FolderError, NetworkError
from bocl.experiment.store import RunStore
from bocl.methods.method import join_tensors, part_tensors
from bocl.methods.rounds import TrainedChild, train_round
from bocl.networks.check import check_tensors
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Widths
from bocl.networks.growth import Growth, shapes
from bocl.records.events import Event, Listener, OutOfMemory, RoundStarted
from bocl.records.record import RoundFit, RoundRecord, Trial
from bocl.training.batches import DeviceTask
from bocl.training.trainer import Effort, Fit


class RoundMemory:
    """Trains the rounds of one task, in the order they are asked for; takes the place of ``train_round``.

    Everything a round depends on follows from the run's settings, seed and earlier rounds. So a resumed run
    asks for the rounds of the one before it, and the n-th of the journal is the n-th asked for.

    recalled_seconds  what training the rounds took that were not trained again
    """

    def __init__(self, store: RunStore, task: int) -> None:
        self.recalled_seconds = 0.0
        self._store = store
        self._task = task
        self._number = 0
        self._purpose = ""

    def hearing(self, listen: Listener) -> Listener:
        """Return a listener that notes what a round is for, which methods tell before they train it."""

        def hear(event: Event) -> None:
            if isinstance(event, RoundStarted):
                self._purpose = event.purpose
            listen(event)

        return hear

    def __call__(
        self,
        network: ExpandableNetwork,
        task: DeviceTask,
        widths: Sequence[Widths],
        *,
        classes: int,
        seeds: Sequence[int],
        listen: Listener,
        most_at_once: int | None = None,
        **options: Any,
    ) -> list[TrainedChild]:
        """Train a round, or recall it; see ``train_round``."""
        self._number += 1
        known = self._store.log.rounds.get(self._task, [])
        if self._number <= len(known):
            return self._recall(known[self._number - 1], network, widths, classes, seeds)
        at_once = self._store.log.halvings.get((self._task, self._number))

        def hear(event: Event) -> None:
            nonlocal at_once
            if isinstance(event, OutOfMemory):
                at_once = event.children_at_once
                self._store.halve(self._task, self._number, at_once)
            listen(event)

        most = at_once or most_at_once
        children = train_round(
            network, task, widths, classes=classes, seeds=seeds, listen=hear, most_at_once=most, **options
        )
        if self._purpose == "base" and all(child.failure for child in children):
            return children  # this ends the run; running it again tries again
        facts = {
            "task": self._task,
            "number": self._number,
            "purpose": self._purpose,
            "widths": list(widths),
            "seeds": list(seeds),
            "fits": [asdict(_written(child)) for child in children],
            "children_at_once": at_once,
        }
        self._store.remember(facts, join_tensors([child.growth.tensors for child in children]))
        return children

    def _recall(
        self,
        record: RoundRecord,
        network: ExpandableNetwork,
        widths: Sequence[Widths],
        classes: int,
        seeds: Sequence[int],
    ) -> list[TrainedChild]:
        where = f"{self._store.log.path}: round {record.number} of task {record.task + 1}"
        for what, old, new in (("widths", record.widths, widths), ("seeds", record.seeds, seeds)):
            if tuple(old) != tuple(new):
                raise FolderError(
                    f"{where} was trained with the {what} {list(old)}, and now {list(new)} are asked for: "
                    "another version of bocl, another machine, or a searcher that is not deterministic; go on with "
                    "what began the run, or start again in another folder"
                )
        growths = read_growths(self._store, record, network, network.widths, classes)
        children = []
        for growth, fit in zip(growths, record.fits, strict=True):
            effort = Effort(fit.samples, fit.seconds)
            children.append(TrainedChild(growth, Fit(fit.accuracy, fit.loss, fit.epochs, effort), fit.failure))
            self.recalled_seconds += fit.seconds
        return children


def read_growths(
    store: RunStore, record: RoundRecord, network: ExpandableNetwork, before: Widths, classes: int
) -> list[Growth]:
    """Return what the children of a round added to the network when it had the widths ``before``, from its file.

    A child that failed has no tensors.
    """
    found = store.recall(record)
    try:
        parts = part_tensors(found, len(record.widths))
        for z, fit, tensors in zip(record.widths, record.fits, parts, strict=True):
            check_tensors(tensors, {} if fit.failure else shapes(network.graph, before, z, classes, network.settings))
    except NetworkError as error:
        raise FolderError(
            f"{store.folder / record.weights.file} does not hold the children of its round: {error}; "
            "restore the folder from a copy, or start again in another"
        ) from error
    return [
        Growth(z, classes, {name: tensor.to(network.device) for name, tensor in tensors.items()})
        for z, tensors in zip(record.widths, parts, strict=True)
    ]


def read_child(
    store: RunStore, network: ExpandableNetwork, before: Widths, trials: Sequence[Trial], widths: Widths, classes: int
) -> Growth:
    """Return what a trained child of the last task added to the network when it had the widths ``before``.

    Trials are the children of the task's rounds, in order, but for a base network trained before them to measure
    how hard the task is; that one can have any widths.
    """
    rounds = store.log.rounds.get(len(network.tasks) - 1, [])
    children = [(entry, at) for entry in rounds for at in range(len(entry.widths))]
    found = {entry.widths[at]: (entry, at) for entry, at in children[len(children) - len(trials) :]}
    if widths not in found:
        raise FolderError(f"{store.log.path} names no round with the widths {widths}; pick another child")
    entry, at = found[widths]
    return read_growths(store, entry, network, before, classes)[at]


def _written(child: TrainedChild) -> RoundFit:
    fit = child.fit
    loss = fit.loss if math.isfinite(fit.loss) else math.nan  # a loss that ran away is as good as none
    return RoundFit(fit.accuracy, loss, fit.epochs, fit.effort.samples, fit.effort.seconds, child.failure)
