"""What a method reports while it learns, so that a person can watch. Results never depend on it."""

from __future__ import annotations

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

    purpose  `base`, `difficulty` (the paper's meta-feature), `search`, or a step of a method's own, by name
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
    """One more pass of the round over the training samples."""

    done: int
    total: int


@dataclass(frozen=True)
class OutOfMemory:
    """A round did not fit into memory; it is tried again with fewer children at once."""

    children_at_once: int


@dataclass(frozen=True)
class TrialDone:
    """A child of the search was trained and scored."""

    number: int
    trial: Trial


Event = TaskStarted | RoundStarted | EpochDone | OutOfMemory | TrialDone | TaskDone
Callback = Callable[[Event], None]


def ignore_events(event: Event) -> None:
    """Do nothing with an event."""
