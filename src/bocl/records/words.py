"""Tasks and their trials in words, as a terminal and the report show them.

What a child reads is said where that is a choice; where all children read all earlier tasks, it goes without saying.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bocl.records.record import Limit, TaskRecord, Trial
from bocl.widths import Widths
from bocl.wording import counted, percent, widths_text

_STOPS = ("25 %", "50 %")  # of the epochs: the rungs of methods/halving.py
_ALONE = {"own": "own network", "base": "base only"}  # what reads no earlier task
_MOST_NAMED = 3  # tasks, so that a line stays short


class Grown(Protocol):
    """What is said of a finished task: a ``TaskRecord``, or a ``Learned`` outside of runs."""

    @property
    def trials(self) -> tuple[Trial, ...]: ...
    @property
    def reads(self) -> tuple[int, ...] | None: ...
    @property
    def limit(self) -> Limit: ...
    @property
    def bounds(self) -> Widths: ...
    @property
    def widened(self) -> int: ...


def choose_reads(trials: Sequence[Trial]) -> bool:
    """Whether what these children read is worth saying."""
    return any(trial.reads != "all" for trial in trials)


def child_words(trial: Trial, *, say_reads: bool) -> str:
    """Return ``(15, 6)``, ``(15, 6, reads first)``, ``(15, 6, own network)`` or ``(15, 6, base only)``."""
    reads = _ALONE.get(trial.reads, f"reads {trial.reads}")
    return f"({widths_text(trial.widths)}{f', {reads}' if say_reads else ''})"


def kept_words(task: TaskRecord) -> str:
    """Return the child that a task kept, as ``child_words`` says it."""
    kept = kept_trial(task)
    return f"({widths_text(task.widths)})" if kept is None else child_words(kept, say_reads=choose_reads(task.trials))


def outcome(trial: Trial) -> str:
    """Return a child's accuracy, or why it has none."""
    if trial.stopped:
        return f"stopped at {_STOPS[min(len(trial.rungs), len(_STOPS)) - 1]} of the epochs"
    return percent(trial.accuracy)


def tasks_read(grown: Grown, index: int) -> str:
    """Return which tasks the task of this number, from 0, reads: ``own``, ``base``, ``1, 3``, ``5 tasks`` or ``all``.

    '' where it goes without saying.
    """
    every = tuple(range(index))
    reads = every if grown.reads is None else grown.reads
    if not index or (reads == every and not choose_reads(grown.trials)):
        return ""
    if not reads:
        return "base" if any(trial.reads == "base" for trial in grown.trials) else "own"
    if reads == every and index > 1:
        return "all"
    named = ", ".join(str(task + 1) for task in reads)
    return named if len(reads) <= _MOST_NAMED else counted(len(reads), "task")


def growth_words(grown: Grown, index: int) -> str:
    """Return what a task reads, what stopped its growth, and the bounds if they were widened; '' if nothing is new."""
    words = []
    if read := tasks_read(grown, index):
        words.append(_ALONE.get(read, f"reads {_numbered(read)}"))
    if stop := stopped_by(grown):
        words.append(f"growth stopped by the {stop}")
    if grown.widened:
        words.append(f"bounds widened to ({widths_text(grown.bounds)})")
    return ", ".join(words)


def stopped_by(grown: Grown) -> str:
    """Return what stopped a task's growth; '' where that is the price, as in the paper, or is not known."""
    return "" if grown.limit == "price" else grown.limit


def kept_trial(task: TaskRecord) -> Trial | None:
    """Return the trial of the child that a task kept; another may have the same widths and read other tasks."""
    reads = task.reads_tasks
    named = {"own": (), "base": (), "first": (0,), "all": tuple(range(task.index))}
    alike = [trial for trial in task.trials if trial.widths == task.widths]
    same = [trial for trial in alike if named.get(trial.reads) == reads]
    return next(iter(same or [trial for trial in alike if trial.reads == "near"]), None)


def _numbered(read: str) -> str:
    if read.isdigit():
        return f"task {read}"
    return f"tasks {read}" if "," in read else "all tasks" if read == "all" else read
