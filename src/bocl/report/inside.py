"""What one network did: how it grew, what each task reused, what each search tried and kept."""

from __future__ import annotations

import math

from bocl.records.pareto import front
from bocl.records.record import TaskRecord, Trial
from bocl.records.summary import RunSummary
from bocl.records.words import child_words, choose_reads, growth_words, kept_trial, outcome
from bocl.report.charts import Axis, GrowthChart, HeatMap, Plot, Point, Series
from bocl.report.scale import by_errors
from bocl.report.style import Style, plain_style
from bocl.wording import counted, percent, widths_text


def growth(run: RunSummary, name: str) -> GrowthChart:
    """Units each task added to every layer."""
    tasks, added = tuple(task.name for task in run.tasks), tuple(task.widths for task in run.tasks)
    style = plain_style(run.method)
    return GrowthChart(f"{name}-growth", "Units by layer and task", style, run.groups, tasks, added)


def accuracy_matrix(run: RunSummary, name: str) -> HeatMap:
    """R[t][i]: test accuracy on task i after learning task t."""
    tasks, value = _numbered(len(run.tasks)), Axis("test accuracy (%)", "percent")
    labels = ("Accuracy matrix", "after task", "on task")
    return HeatMap(f"{name}-accuracy", *labels, value, tasks, tasks, tuple(run.matrix))


def reuse(run: RunSummary, name: str) -> list[HeatMap]:
    """How far the gates of each task are open to the units of earlier tasks and its own; a map for each gated layer."""
    value, columns = Axis("mean gate (%)", "percent"), _numbered(len(run.tasks))
    maps = []
    for layer in dict.fromkeys(layer for task in run.tasks for layer in task.attention):
        gated = [task for task in run.tasks if layer in task.attention]
        rows, cells = tuple(str(task.index + 1) for task in gated), tuple(task.attention[layer] for task in gated)
        labels = (f"Gates before {layer}", "task", "units of task")
        maps.append(HeatMap(f"{name}-attention-{layer}", *labels, value, rows, columns, cells))
    return maps


def searches(run: RunSummary, name: str) -> list[Plot]:
    """Every child of each task's search: what it would add and how accurate it was, with the front of the best."""
    searched = [task for task in run.tasks if any(not trial.failed for trial in task.trials)]
    values = [trial.accuracy for task in searched for trial in task.trials if not trial.failed]
    y_range = (min(values), max(values)) if values else None
    return [_search(run, task, f"{name}-search-{task.index + 1:02d}", y_range) for task in searched]


def _search(run: RunSummary, task: TaskRecord, name: str, y_range: tuple[float, float] | None) -> Plot:
    style, kept, say_reads = plain_style(run.method), kept_trial(task), choose_reads(task.trials)
    tried = [
        Point(trial.parameters, trial.accuracy, _tell(number, trial, say_reads), ringed=trial is kept)
        for number, trial in enumerate(task.trials)
        if not trial.failed
    ]
    best = [Point(trial.parameters, trial.accuracy) for trial in front(task.trials)]
    added = widths_text(task.widths) if kept is None else _child(kept, say_reads)
    return Plot(
        name,
        f"task {task.index + 1}: {counted(task.searched, 'trial')}, kept {added}",
        Axis("parameters added", "count"),
        by_errors(Axis("validation (%)", "percent"), y_range or ()),
        (
            Series("front", Style("muted"), tuple(best), joined="steps", marked=False),
            Series("trials", style, tuple(tried), joined="no"),
        ),
        small=True,
        y_range=y_range,
    )


def task_rows(run: RunSummary) -> tuple[tuple[str, ...], ...]:
    """One row for each task: name, units added, accuracy then and now, parameters, trials, difficulty, growth.

    The last says what a task reads and what stopped its growth, and is left out where nothing is said of any.
    """
    final = run.tasks[-1].row if run.tasks else ()
    words = [growth_words(task, task.index) for task in run.tasks]
    return tuple(
        (
            str(task.index + 1),
            task.name,
            widths_text(task.widths),
            percent(task.row[-1]),
            percent(now),
            f"{sum(task.parameters.values()):+,}",
            str(task.searched) if task.trials else "",
            "" if math.isnan(task.difficulty) else f"{100 * task.difficulty:.1f}",
            *([words[task.index]] if any(words) else []),
        )
        for task, now in zip(run.tasks, final, strict=True)
    )


def _tell(number: int, trial: Trial, say_reads: bool) -> str:
    return f"trial {number}: {_child(trial, say_reads)} → {outcome(trial)}, +{trial.parameters:,}"


def _child(trial: Trial, say_reads: bool) -> str:
    return child_words(trial, say_reads=say_reads).strip("()")


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(number + 1) for number in range(count))
