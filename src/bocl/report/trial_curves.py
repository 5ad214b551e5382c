"""How searches get on: accuracy after each trial, averaged over tasks and seeds."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean

from bocl.records.record import TaskRecord
from bocl.records.relevant import relevant_settings
from bocl.report.systems import Spread, Stream, System


def searchers(stream: Stream, method: str = "bocl") -> list[System]:
    """Return a method as it is and with other searches; other variants of it are left out."""
    return [
        system
        for system in stream.systems
        if system.method == method and system.changed in ((), ("search.kind",)) and _searched(system)
    ]


def tested(stream: Stream) -> bool:
    """Return whether every search that is compared had its best children scored on test samples, once it was over."""
    compared = [*searchers(stream), *searchers(stream, "rcl")]
    return all(task.bests for system in compared for task in _searched(system))


def search_kind(system: System) -> str:
    """Return the name of a system's search."""
    return str(relevant_settings(system.headline.runs[0].config).get("search.kind"))


def _searched(system: System) -> list[TaskRecord]:
    return [task for run in system.headline.runs for task in run.tasks if task.trials]


def trial_curve(system: System, *, on_test: bool, seeds: Collection[int] | None = None) -> list[Spread]:
    """Return accuracy after 0, 1, … trials, over seeds: each a mean over tasks. A search that is over stays level."""
    runs = [run for run in system.headline.runs if seeds is None or run.seed in seeds]
    curves = [[best_so_far(task, on_test=on_test) for task in run.tasks if task.trials] for run in runs]
    length = max(len(curve) for run in curves for curve in run)
    levels = [[_levelled(curve, length) for curve in run] for run in curves if run]
    return [Spread.of([fmean(curve[trial] for curve in run) for run in levels]) for trial in range(length)]


def best_so_far(task: TaskRecord, *, on_test: bool = False) -> list[float]:
    """Return the accuracy, after each trial of a task, of the child with the best reward by then; trial 0 is z = 0.

    On validation samples, or ``on_test`` samples, which asks for a run that has scored them.
    """
    scored = dict(task.bests)
    found: list[float] = []
    best = -math.inf
    level = 0.0
    for number, trial in enumerate(task.trials):
        if not trial.failed and trial.reward > best:
            best, level = trial.reward, scored[number] if on_test else trial.accuracy
        found.append(level)
    return found


def by_the_paper(system: System) -> bool:
    """Return whether a system is BOCL as it is but for the search, which is the paper's."""
    return system.changed == ("search.kind",) and search_kind(system) == "paper"


def _levelled(curve: Sequence[float], length: int) -> list[float]:
    return [*curve, *[curve[-1]] * (length - len(curve))]
