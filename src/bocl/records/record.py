"""What a run records: a trial is one trained child, a task record closes a task."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, WrapValidator

from bocl.checks import Fraction, Natural, PositiveInt
from bocl.widths import Widths

_NULL_IS_NAN = WrapValidator(lambda value, read: math.nan if value is None else read(value))
#: A number that may not exist, such as a failed trial's accuracy: NaN here, null where it is written.
Measured = Annotated[float, _NULL_IS_NAN]
MeasuredFraction = Annotated[Fraction, _NULL_IS_NAN]
ReadsKind = Literal["first", "near", "all", "own", "base"]
Measure = Literal["accuracy", "confidence"]  # what of a child is compared, on validation samples
Limit = Literal["", "tolerance", "target", "price", "budget", "bounds"]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Trial:
    """One child: the widths it added and what they were worth.

    widths      z, one entry per hidden group
    accuracy    A(z) on the validation split, in 0 … 1; NaN when the child failed
    parameters  everything the child would add to the network, head and attention included
    reward      r(z), what the search maximised, as search/problem.py defines it for its goal
    cost        units added, weighted by what they cost (methods/reward.py): what α multiplies; NaN if not recorded
    reads       whose units the child reads: `all` earlier tasks', the `first` one's, those of the one that is `near`
                and of all that it reads, or none: its `own` network, or the pretrained `base` alone
    rungs       what it was compared by after some of the epochs, where a round was halved; of a child that was stopped
                there, these are all there is
    confidence  mean probability of the right class on the validation split; NaN where it is not recorded
    """

    widths: Widths
    accuracy: Measured
    parameters: int
    reward: Measured
    cost: Measured = math.nan
    reads: ReadsKind = "all"
    rungs: tuple[Measured, ...] = ()
    confidence: Measured = math.nan

    @property
    def failed(self) -> bool:
        """Whether training this child gave no usable accuracy: it broke down, or was stopped early."""
        return math.isnan(self.accuracy)

    @property
    def stopped(self) -> bool:
        """Whether training ended early because others did better."""
        return self.failed and bool(self.rungs)


@dataclass(frozen=True)
class Experience:
    """What a finished task leaves for later searches (the paper's episodic memory, and all its trials).

    difficulty  M_t = A¹ - A²: a fresh base network's accuracy less that of the child z = 0
    best        the widths that were committed
    trials      every child that was trained, first one that is always a candidate: z = 0, or a network of its own
    """

    difficulty: Measured
    best: Widths
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Diagnostics:
    """How well a search's Gaussian process knew what it was doing.

    errors     of every trial of this task: its accuracy less the prediction without it, in standard deviations;
               about 0 ± 1 if the process is calibrated
    within_50  share of trials inside the process's own 50 % interval
    within_90  the same for 90 %
    noise      standard deviation of one measurement, in accuracy, as the process estimates it
    posterior  for each group, the probability that the best widths have 0, 1, … units in it
    gains      expected improvement, in reward, for which each trial was chosen; NaN if it was chosen otherwise
    """

    errors: tuple[float, ...]
    within_50: float
    within_90: float
    noise: float
    posterior: tuple[tuple[float, ...], ...]
    gains: tuple[Measured, ...]


@dataclass(frozen=True)
class Guesses:
    """How well tasks are guessed, from single samples, by a learner that guesses them; means over tasks.

    tasks                number of tasks whose samples were guessed: all so far, or some of many (``scoring.py``)
    named                share of test samples whose task was named correctly
    accuracy             share of test samples whose task and class both were
    validation_named     the same on validation samples, by which settings may be chosen
    validation_accuracy
    """

    tasks: PositiveInt
    named: Fraction
    accuracy: Fraction
    validation_named: Fraction
    validation_accuracy: Fraction


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
    extra_numbers     numbers kept after the task besides the parameters: to learn later tasks, and to guess tasks by
    units             how many units of each hidden group the method's own steps changed, by step
    diagnostics       of its search, if the searcher has any
    bests             (number of a trial, test accuracy) of every child that had the best reward when it was trained,
                      if the run was asked for them
    attention         mean gate of every gated layer on the units of each task so far, this one last; NaN if there
                      are none. Absent in early records
    reads             numbers of the tasks whose units it reads; None: all earlier ones, as in early records
    limit             what kept its growth from being larger: nothing larger was worth it by the goal (`tolerance`,
                      `target`, `price`), nothing larger fits the `budget`, or it reached the `bounds`; "" without a
                      search and in early records
    bounds            of its search in the end: most units it might add to each group
    widened           how often these were widened because the best child lay on them
    guesses           how well tasks are guessed after it; None where they are not, and in early records
    """

    index: int
    name: str
    widths: Widths
    validation_row: tuple[Fraction, ...]
    row: tuple[Fraction, ...]
    parameters: dict[str, int]
    stored: int
    trials: tuple[Trial, ...]
    difficulty: Measured
    samples: int
    seconds: float
    training_seconds: float
    extra_numbers: Natural = 0
    units: dict[str, Widths] = field(default_factory=dict)
    attention: dict[str, tuple[MeasuredFraction, ...]] = field(default_factory=dict)
    diagnostics: Diagnostics | None = None
    bests: tuple[tuple[int, Fraction], ...] = ()
    reads: tuple[int, ...] | None = None
    limit: Limit = ""
    bounds: Widths = ()
    widened: Natural = 0
    guesses: Guesses | None = None

    @property
    def reads_tasks(self) -> tuple[int, ...]:
        """The numbers of the tasks whose units it reads."""
        return tuple(range(self.index)) if self.reads is None else self.reads

    @property
    def searched(self) -> int:
        """How many children its search asked for: all trials but trial 0, which is always trained."""
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
    validation_row: tuple[Fraction, ...]
    row: tuple[Fraction, ...]
    parameters: dict[str, int]
    stored: int
    attention: dict[str, tuple[MeasuredFraction, ...]] = field(default_factory=dict)
    reads: tuple[int, ...] | None = None
    guesses: Guesses | None = None


@dataclass(frozen=True)
class StoredFile:
    """A file of a run: its place in the folder, its size, and the hash of what it holds."""

    file: str
    bytes: Natural
    sha256: Sha256


@dataclass(frozen=True)
class GivenTask:
    """A task of the user's own data, which is not copied: where it was, and what it must be.

    place   the file or folder; "" if it was given as arrays
    sha256  of its content
    label   its column of labels, if it was named for this task
    """

    name: str
    place: str
    sha256: Sha256
    label: str | None = None


@dataclass(frozen=True)
class Proof:
    """What shows later that a finished task is unchanged.

    tensors     sha256 of every tensor and buffer the task computes with, by name; of all that is stored if the
                method changes earlier tasks
    canaries    a few validation inputs and their logits
    checkpoint  the model.json of the learner after the task, which names and hashes its weights
    partial     whether it holds only what the task added to the checkpoint of the task before, which it names and
                hashes; in early records every checkpoint is whole
    """

    tensors: dict[str, Sha256]
    canaries: StoredFile
    checkpoint: StoredFile
    partial: bool = False


@dataclass(frozen=True)
class RoundFit:
    """How a child's training ended; ``failure`` says why one failed.

    rungs       what it was compared by each time it was compared with the others of its round; the last comparison
                stopped it if it has neither an accuracy nor a failure
    confidence  mean probability of the right class; NaN in early records
    """

    accuracy: MeasuredFraction
    loss: Measured
    epochs: int
    samples: int
    seconds: float
    failure: str = ""
    rungs: tuple[Fraction, ...] = ()
    confidence: MeasuredFraction = math.nan

    @property
    def stopped(self) -> bool:
        """Whether it was stopped because others were ahead."""
        return math.isnan(self.accuracy) and not self.failure and bool(self.rungs)


@dataclass(frozen=True)
class RoundRecord:
    """Children trained together, and the file of their tensors ``CHILD/NAME``; a failed child has none.

    task              its number, from 0
    number            of the round in its task, from 1
    purpose           `base`, `difficulty`, `search` or `final`
    children_at_once  how many were trained at once after memory ran out; null if it did not
    reads             for each child the tasks whose units it reads; none in early records: all earlier ones
    """

    task: int
    number: int
    purpose: str
    widths: Annotated[tuple[Widths, ...], Field(min_length=1)]
    seeds: tuple[int, ...]
    fits: tuple[RoundFit, ...]
    children_at_once: int | None
    weights: StoredFile
    reads: tuple[tuple[int, ...], ...] = ()
