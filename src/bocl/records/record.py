"""What a run records: a trial is one trained child, a task record closes a task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import WrapValidator

from bocl.settings import parse_value
from bocl.widths import Widths

#: A number that may not exist, a failed trial's accuracy for one: NaN here, null where it is written.
Measured = Annotated[float, WrapValidator(lambda value, read: math.nan if value is None else read(value))]


@dataclass(frozen=True)
class Trial:
    """One child: the widths it added and what they were worth.

    widths      z, one entry per hidden group
    accuracy    A(z) on the validation split, in 0 … 1; NaN when the child failed
    parameters  everything the child would add to the network, head and attention included
    reward      r(z), what the search made the most of: A(z) - α cost(z), or with a target as search/problem.py has it
    cost        units added, weighted by what they cost (methods/reward.py): what α multiplies; NaN where not recorded
    """

    widths: Widths
    accuracy: Measured
    parameters: int
    reward: Measured
    cost: Measured = math.nan

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

    difficulty: Measured
    best: Widths
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Diagnostics:
    """A search looked at from outside.

    errors     of every trial of this task, measured less what the process says of it without it, in standard
               deviations: about 0 ± 1 where the process is calibrated
    within_50  share of trials inside the process's own 50 % interval
    within_90  the same for 90 %
    noise      standard deviation of one measurement, in accuracy, as the process sees it
    posterior  for each group, the probability that the best widths have 0, 1, … units in it
    gains      expected improvement, in reward, for which each trial was asked; NaN where it was not asked for that
    """

    errors: tuple[float, ...]
    within_50: float
    within_90: float
    noise: float
    posterior: tuple[tuple[float, ...], ...]
    gains: tuple[Measured, ...]


@dataclass(frozen=True)
class TaskRecord:
    """A finished task.

    row               test accuracy on every task learnt so far, this one last
    validation_row    the same on validation samples, by which settings may be chosen
    parameters        what the task added to what is stored, by part
    stored            all parameters stored after the task
    samples           training samples shown, over all networks trained for it
    seconds           wall-clock time of learning it
    training_seconds  the part of it spent training; the rest is search, scoring and set-up
    extra_numbers     numbers kept after the task besides the parameters, to learn later tasks with
    units             how many units of each hidden group the method's own steps were about, by step
    diagnostics       of its search, where the searcher has any
    bests             (number of a trial, test accuracy) of every child that had the best reward when it was trained,
                      where the run was asked for them
    attention         mean gate of every gated layer on the units of each task so far, this one last; NaN where there
                      are none. Absent in early records
    """

    index: int
    name: str
    widths: Widths
    validation_row: tuple[float, ...]
    row: tuple[float, ...]
    parameters: dict[str, int]
    stored: int
    trials: tuple[Trial, ...]
    difficulty: Measured
    samples: int
    seconds: float
    training_seconds: float
    extra_numbers: int = 0
    units: dict[str, Widths] = field(default_factory=dict)
    attention: dict[str, tuple[Measured, ...]] = field(default_factory=dict)
    diagnostics: Diagnostics | None = None
    bests: tuple[tuple[int, float], ...] = ()

    @property
    def searched(self) -> int:
        """How many children its search asked for: all trials but trial 0, z = 0, which nobody asks for."""
        return max(len(self.trials) - 1, 0)


@dataclass(frozen=True)
class PickRecord:
    """Another child of the last finished task took the place of the one kept; fields as in the task's record.

    task    its number, from 0
    number  of the pick in its task, from 1
    """

    task: int
    number: int
    widths: Widths
    validation_row: tuple[float, ...]
    row: tuple[float, ...]
    parameters: dict[str, int]
    stored: int
    attention: dict[str, tuple[Measured, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredFile:
    """A file of a run: its place in the folder, its size, and the hash of what it holds."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Proof:
    """What shows later that a finished task is as it was on the day.

    tensors     sha256 of every tensor and buffer the task computes with, by name; of a method that changes
                earlier tasks, of all it stores
    canaries    a few validation inputs and their logits
    checkpoint  the model.json of the learner after the task, which names and hashes its weights
    """

    tensors: dict[str, str]
    canaries: StoredFile
    checkpoint: StoredFile


@dataclass(frozen=True)
class RoundFit:
    """How a child's training ended; ``failure`` says why one failed."""

    accuracy: Measured
    loss: Measured
    epochs: int
    samples: int
    seconds: float
    failure: str = ""


@dataclass(frozen=True)
class RoundRecord:
    """Children trained together, and the file of their tensors ``CHILD/NAME``; a failed child has none.

    task              its number, from 0
    number            of the round in its task, from 1
    purpose           `base`, `difficulty` or `search`
    children_at_once  where memory ran out: how many were trained at once instead; else null
    """

    task: int
    number: int
    purpose: str
    widths: tuple[Widths, ...]
    seeds: tuple[int, ...]
    fits: tuple[RoundFit, ...]
    children_at_once: int | None
    weights: StoredFile


def experience_from(data: Mapping[str, Any]) -> Experience:
    """Read an experience from JSON values."""
    experience: Experience = parse_value(Experience, data, "experience")
    return experience
