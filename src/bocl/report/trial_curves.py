"""How searches get on: accuracy and reward after each trial, averaged over tasks and seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from bocl.records.identity import relevant_settings
from bocl.records.record import TaskRecord
from bocl.records.summary import RunSummary
from bocl.report.systems import Spread, Stream, System, of_common_seeds, search_kind

Compared = list[tuple[System, list[RunSummary]]]


def searchers(stream: Stream, method: str = "bocl") -> list[System]:
    """Return a method as it is and with other searches; other variants of it are left out."""
    return [
        system
        for system in stream.systems
        if system.method == method and system.changed in ((), ("search.kind",)) and _searched(system)
    ]


def paired(systems: Sequence[System]) -> Compared:
    """Return each with its runs of the seeds that all searched with."""
    return list(zip(systems, of_common_seeds([_searched(system) for system in systems]), strict=True))


def compared_searches(stream: Stream) -> Compared:
    """Return what Figure 5 compares: searches for BOCL, and RCL's runs of their seeds if scored on the same samples."""
    own = paired(searchers(stream))
    if not own:
        return paired(searchers(stream, "rcl"))
    seeds = {run.seed for _, runs in own for run in runs}
    rivals = [(rcl, [run for run in _searched(rcl) if run.seed in seeds]) for rcl in searchers(stream, "rcl")]
    return [*own, *((rcl, runs) for rcl, runs in rivals if runs and (tested(runs) or not all_tested(own)))]


def rewarded_alike(stream: Stream) -> Compared:
    """Return the searches for BOCL if their rewards are accuracy less one price of units, else none."""
    own = paired(searchers(stream))
    settings = [relevant_settings(run.config) for _, runs in own for run in runs]
    asked = {name for one in settings for name in one if name.startswith(("reward.", "goal."))}
    unlike = any(len({str(one[name]) for one in settings if name in one}) > 1 for name in asked)
    return [] if unlike or any(one.get("goal.target") is not None for one in settings) else own


def all_tested(compared: Compared) -> bool:
    """Return whether all these searches are ``tested``."""
    return all(tested(runs) for _, runs in compared)


def tested(runs: Sequence[RunSummary]) -> bool:
    """Return whether the best children of all searches were scored on test samples, when each was over."""
    return all(task.bests for run in runs for task in run.tasks if task.trials)


def _searched(system: System) -> list[RunSummary]:
    return [run for run in system.headline.runs if any(task.trials for task in run.tasks)]


def trial_curve(runs: Sequence[RunSummary], *, on_test: bool, priced: bool = False) -> list[Spread]:
    """Return ``best_so_far`` after 0, 1, … trials, a mean over tasks, over runs. A search that is over stays level."""
    curves = [[best_so_far(task, on_test=on_test, priced=priced) for task in run.tasks if task.trials] for run in runs]
    length = max(len(curve) for run in curves for curve in run)
    levels = [[_levelled(curve, length) for curve in run] for run in curves]
    return [Spread.of([fmean(curve[trial] for curve in run) for run in levels]) for trial in range(length)]


def best_so_far(task: TaskRecord, *, on_test: bool = False, priced: bool = False) -> list[float]:
    """Return the accuracy A, after each trial of a task, of the child with the best reward r by then; trial 0 is z = 0.

    on_test  on test samples, which asks for a run that has scored them, instead of validation samples
    priced   less what its units cost, A - (A_validation - r): its reward on those samples

    It is 0 until a child was trained.
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
