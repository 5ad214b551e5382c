"""What a run records: a trial is one trained child, a task record closes a task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Widths = tuple[int, ...]  # z: units added to each hidden group


@dataclass(frozen=True)
class Trial:
    """One child: the widths it added and what they were worth.

    widths      z, one entry per hidden group
    accuracy    A(z) on the validation split, in 0 … 1; NaN when the child failed
    parameters  everything the child would add to the network, head and attention included
    reward      r(z) = A(z) - penalty(z)
    """

    widths: Widths
    accuracy: float
    parameters: int
    reward: float

    @property
    def failed(self) -> bool:
        """Whether training this child gave no usable accuracy."""
        return math.isnan(self.accuracy)


@dataclass(frozen=True)
class Experience:
    """What a finished task leaves for later searches (the paper's episodic memory, and all its trials).

    difficulty  M_t = A¹ - A²: a fresh base network's accuracy less that of the child z = 0
    best        the widths that were committed
    trials      every child that was trained, z = 0 first
    """

    difficulty: float
    best: Widths
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class TaskRecord:
    """A finished task.

    row         test accuracy on every task learnt so far, this one last
    parameters  what the task added to what is stored, by part
    stored      all parameters stored after the task
    samples     training samples shown, over all networks trained for it
    seconds     wall-clock time of learning it
    training_seconds  the part of it spent training; the rest is search, scoring and set-up
    """

    index: int
    name: str
    widths: Widths
    validation_accuracy: float
    row: tuple[float, ...]
    parameters: dict[str, int]
    stored: int
    trials: tuple[Trial, ...]
    difficulty: float
    samples: int
    seconds: float
    training_seconds: float


def task_record_from(data: Mapping[str, Any]) -> TaskRecord:
    """Read a finished task from JSON values."""
    fields = {name: value for name, value in data.items() if name in TaskRecord.__dataclass_fields__}
    fields["widths"], fields["row"] = tuple(data["widths"]), tuple(data["row"])
    fields["trials"] = tuple(trial_from(trial) for trial in data["trials"])
    fields["difficulty"] = _number(data["difficulty"])
    return TaskRecord(**fields)


def _number(value: float | None) -> float:
    """Read a number whose NaN is written as null."""
    return math.nan if value is None else value


def trial_from(data: Mapping[str, Any]) -> Trial:
    """Read a trial from JSON values."""
    return Trial(tuple(data["widths"]), _number(data["accuracy"]), data["parameters"], _number(data["reward"]))


def experience_from(data: Mapping[str, Any]) -> Experience:
    """Read an experience from JSON values."""
    return Experience(data["difficulty"], tuple(data["best"]), tuple(trial_from(trial) for trial in data["trials"]))
