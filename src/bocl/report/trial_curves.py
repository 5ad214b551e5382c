"""How searches progress: accuracy and reward after each trial, averaged over tasks and seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from bocl.records.record import TaskRecord
from bocl.records.summary import RunSummary
from bocl.report.charts import Axis, Plot, Point, Series
from bocl.report.figures import percent_with_sd, spaced
from bocl.report.style import style_of
from bocl.report.systems import Spread, StreamResults, System, of_common_seeds
from bocl.wording import counted

Compared = list[tuple[System, list[RunSummary]]]


def accuracy_against_trials(stream: StreamResults) -> Plot:
    """For every system that searches, accuracy of the best child after each trial, averaged over tasks.

    On test samples if all runs have scored them, else on validation samples.
    """
    return plot_trials(f"trials-{stream.slug}", stream.label, paired(filter(searched, stream.systems)))


def plot_trials(name: str, title: str, compared: Compared, *, priced: bool = False) -> Plot:
    """Plot each ``trial_curve`` from trial 1; trial 0 adds no units and is far below, whatever the search."""
    on_test = all_tested(compared)
    series = []
    for system, runs in compared:
        found = [
            Point(
                trial,
                spread.mean,
                f"{system.name}, {counted(trial, 'trial')}: {percent_with_sd(spread)}",
                y_sd=spread.sd,
            )
            for trial, spread in enumerate(trial_curve(runs, on_test=on_test, priced=priced))
        ][1:]
        if found:
            series.append(Series(system.name, style_of(system), tuple(found), joined="steps"))
    samples, figure = "test" if on_test else "validation", "reward" if priced else "accuracy"
    upward = spaced(Axis(f"{samples} {figure}, best so far (%)", "percent"), series)
    return Plot(name, title, Axis("trials per task", "count"), upward, tuple(series))


def searched(system: System) -> list[RunSummary]:
    """Return the runs of a system's headline that hold trials."""
    return [run for run in system.headline.runs if any(task.trials for task in run.tasks)]


def paired(systems: Iterable[System]) -> Compared:
    """Return each system with its runs of the seeds that all systems searched with."""
    found = list(systems)
    return list(zip(found, of_common_seeds([*map(searched, found)]), strict=True))


def all_tested(compared: Compared) -> bool:
    """Return whether all these searches are ``tested``."""
    return all(tested(runs) for _, runs in compared)


def tested(runs: Sequence[RunSummary]) -> bool:
    """Return whether the best children of all searches were scored on test samples, after each search."""
    return all(task.bests for run in runs for task in run.tasks if task.trials)


def trial_curve(runs: Sequence[RunSummary], *, on_test: bool, priced: bool = False) -> list[Spread]:
    """Return ``best_so_far`` after 0, 1, … trials, averaged over tasks and runs. An ended search stays level."""
    curves = [[best_so_far(task, on_test=on_test, priced=priced) for task in run.tasks if task.trials] for run in runs]
    length = max(len(curve) for run in curves for curve in run)
    levels = [[[*curve, *[curve[-1]] * (length - len(curve))] for curve in run] for run in curves]
    return [Spread.of([fmean(curve[trial] for curve in run) for run in levels]) for trial in range(length)]


def best_so_far(task: TaskRecord, *, on_test: bool = False, priced: bool = False) -> list[float]:
    """Return, after each trial of a task, the accuracy A of the child with the best reward r so far; trial 0 is z = 0.

    on_test  on test samples, which the run must have scored, instead of validation samples
    priced   less what its units cost, A - (A_validation - r): its reward on those samples

    It is 0 until a child has been trained.
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
