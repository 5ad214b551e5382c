"""How searches get on: accuracy after each trial, averaged over tasks and seeds."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean

from bocl.records.record import TaskRecord
from bocl.records.relevant import relevant_settings
from bocl.report.systems import Spread, Stream, System, search_kind


def searchers(stream: Stream, method: str = "bocl") -> list[System]:
    """Return a method as it is and with other searches; other variants of it are left out."""
    return [
        system
        for system in stream.systems
        if system.method == method and system.changed in ((), ("search.kind",)) and _searched(system)
    ]


def compared_searches(stream: Stream) -> list[System]:
    """Return what Figure 5 compares: searches for BOCL, and RCL where it was scored on the samples that they were."""
    on_test = tested(stream)
    return [*searchers(stream), *(rcl for rcl in searchers(stream, "rcl") if _tested(rcl) or not on_test)]


def rewarded_alike(stream: Stream) -> list[System]:
    """Return the searches for BOCL where one price of units and one goal make their rewards comparable, else none."""
    found = searchers(stream)
    settings = [relevant_settings(system.headline.runs[0].config) for system in found]
    asked = [{name: one[name] for name in one if name.startswith(("reward.", "goal."))} for one in settings]
    return found if all(one == asked[0] for one in asked) else []


def tested(stream: Stream) -> bool:
    """Return whether every search for BOCL, or else RCL, had its best children scored on test samples in the end."""
    return all(map(_tested, searchers(stream) or searchers(stream, "rcl")))


def _tested(system: System) -> bool:
    return all(task.bests for task in _searched(system))


def _searched(system: System) -> list[TaskRecord]:
    return [task for run in system.headline.runs for task in run.tasks if task.trials]


def trial_curve(
    system: System, *, on_test: bool, priced: bool = False, seeds: Collection[int] | None = None
) -> list[Spread]:
    """Return accuracy after 0, 1, … trials, over seeds: each a mean over tasks. A search that is over stays level.

    priced  less the price of units: the reward
    """
    runs = [run for run in system.headline.runs if seeds is None or run.seed in seeds]
    curves = [[best_so_far(task, on_test=on_test, priced=priced) for task in run.tasks if task.trials] for run in runs]
    length = max(len(curve) for run in curves for curve in run)
    levels = [[_levelled(curve, length) for curve in run] for run in curves if run]
    return [Spread.of([fmean(curve[trial] for curve in run) for run in levels]) for trial in range(length)]


def best_so_far(task: TaskRecord, *, on_test: bool = False, priced: bool = False) -> list[float]:
    """Return the accuracy, after each trial of a task, of the child with the best reward by then; trial 0 is z = 0.

    on_test  on test samples, which asks for a run that has scored them, instead of validation samples
    priced   less the price of its units
    """
    scored = dict(task.bests)
    found: list[float] = []
    best = -math.inf
    level = 0.0
    for number, trial in enumerate(task.trials):
        if not trial.failed and trial.reward > best:
            best, level = trial.reward, scored[number] if on_test else trial.accuracy
            level -= trial.accuracy - trial.reward if priced else 0.0
        found.append(level)
    return found


def by_the_paper(system: System) -> bool:
    """Return whether a system is BOCL as it is but for the search, which is the paper's."""
    return system.changed == ("search.kind",) and search_kind(system) == "paper"


def _levelled(curve: Sequence[float], length: int) -> list[float]:
    return [*curve, *[curve[-1]] * (length - len(curve))]
