"""Metrics of a whole run, from its accuracy matrix.

R    list of T rows; row t has t + 1 entries
     R[t][i] is the test accuracy on task i after learning task t, i <= t; tasks count from 0
T    the number of tasks learnt

Every metric is a mean, summed without rounding. So if no accuracy changed, transfer and forgetting are exactly 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bocl.errors import InputError

AccuracyMatrix = Sequence[Sequence[float]]


def average_accuracy(R: AccuracyMatrix) -> float:
    """Mean accuracy over all tasks at the end: ACC = 1/T · Σ_i R[T-1][i]."""
    _check(R)
    return _mean(R[-1])


def backward_transfer(R: AccuracyMatrix) -> float:
    """Mean change since each task was learnt: BWT = 1/(T-1) · Σ_{i<T-1} (R[T-1][i] - R[i][i]).

    Negative when old tasks got worse; 0.0 for a single task.
    """
    _check(R)
    return _mean(R[-1][i] - R[i][i] for i in range(len(R) - 1))


def forgetting(R: AccuracyMatrix) -> float:
    """Mean fall from each task's best: F = 1/(T-1) · Σ_{i<T-1} (max_{i<=t<T-1} R[t][i] - R[T-1][i]).

    The last task cannot be forgotten yet and is left out; 0.0 for a single task.
    """
    _check(R)
    return _mean(_fall(R, i) for i in range(len(R) - 1))


def first_task_forgetting(R: AccuracyMatrix) -> float:
    """The first task's fall from its best: max_{t<T-1} R[t][0] - R[T-1][0]; 0.0 for a single task."""
    _check(R)
    return _mean(_fall(R, i) for i in range(min(1, len(R) - 1)))


def _fall(R: AccuracyMatrix, i: int) -> float:
    last = len(R) - 1
    return max(R[t][i] for t in range(i, last)) - R[last][i]


def _mean(values: Iterable[float]) -> float:
    """Return the mean, correctly rounded before the division; 0.0 when there are no values."""
    values = list(values)
    return math.fsum(values) / len(values) if values else 0.0


def _check(R: AccuracyMatrix) -> None:
    """Raise InputError unless R is a lower triangle of finite numbers with at least one row."""
    if len(R) == 0:
        raise InputError("the accuracy matrix is empty; learn at least one task first")
    for t, row in enumerate(R):
        if len(row) != t + 1:
            raise InputError(
                f"row {t} of the accuracy matrix has {len(row)} entries, not {t + 1}: "
                "after task t there is one accuracy for each of the tasks 0 … t"
            )
        for i, value in enumerate(row):
            # None is how a journal writes NaN.
            if value is None or not math.isfinite(value):
                raise InputError(f"entry [{t}][{i}] of the accuracy matrix is {value}, not a finite number")
