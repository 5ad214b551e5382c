"""What a method reports while it learns, so that a person can watch. Results never depend on it.

    TaskStarted  RoundStarted  EpochDone …  TrialDone …  RoundStarted  …  TaskDone

The first and the last come from a run; a learner outside of runs tells only what is between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bocl.records.record import TaskRecord, Trial
from bocl.widths import Widths


@dataclass(frozen=True)
class TaskStarted:
    """A run begins a task or resumes it: ``recalled`` of its rounds are trained already."""

    index: int
    tasks: int
    name: str
    recalled: int = 0


@dataclass(frozen=True)
class TaskDone:
    """A task was learnt, scored and recorded."""

    record: TaskRecord


@dataclass(frozen=True)
class RoundStarted:
    """Training of several networks together begins.

    purpose  `base`, `difficulty` (the paper's meta-feature), `search`, `final` (what was chosen, on
             all samples), or a step of a method's own, by name
    widths   of each network
    trial    number of the first of them in this task's search, from 1; 0 outside a search
    trials   the most that this task's search may make
    """

    purpose: str
    widths: tuple[Widths, ...]
    trial: int = 0
    trials: int = 0


@dataclass(frozen=True)
class EpochDone:
    """One more pass over the training samples, of networks that are trained together: those of the round, or a part.

    losses      mean training loss of each in this epoch
    accuracies  of each on the validation samples, where every epoch is validated (``recipe.patience``)
    """

    done: int
    total: int
    losses: tuple[float, ...] = ()
    accuracies: tuple[float, ...] = ()


@dataclass(frozen=True)
class OutOfMemory:
    """A round did not fit into memory; it is tried again with fewer children at once."""

    children_at_once: int


@dataclass(frozen=True)
class TrialDone:
    """A child of the search was trained and scored; the loss is the mean of its last epoch."""

    number: int
    trial: Trial
    loss: float = math.nan


Event = TaskStarted | RoundStarted | EpochDone | OutOfMemory | TrialDone | TaskDone
Callback = Callable[[Event], None]


def ignore_events(event: Event) -> None:
    """Do nothing with an event."""


def in_turn(*callbacks: Callback) -> Callback:
    """Return a callback that calls these, one after another."""

    def call(event: Event) -> None:
        for callback in callbacks:
            callback(event)

    return call
