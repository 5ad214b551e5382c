"""Results as tables on a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bocl.errors import InputError
from bocl.records.record import Widths
from bocl.records.summary import RunSummary


def percent(value: float) -> str:
    """Return an accuracy as a percentage."""
    return "failed" if math.isnan(value) else f"{100 * value:.2f} %"


def points(value: float) -> str:
    """Return a difference of accuracies in points; exactly nothing is a plain 0."""
    return "0" if value == 0 else f"{100 * value:+.2f}"


def duration(seconds: float) -> str:
    """Return a time as a person would say it."""
    if seconds < 600:
        return f"{seconds:.1f} s" if seconds < 60 and not isinstance(seconds, int) else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def widths_text(widths: Widths) -> str:
    """Return units added, one number per hidden group."""
    return ", ".join(map(str, widths))


def make_console() -> Console:
    """Return the console for results: as wide as the terminal, and wide enough for any table where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=200)


def print_runs(summaries: Sequence[RunSummary]) -> None:
    """Print one run task by task, or several side by side."""
    console = make_console()
    if len(summaries) == 1:
        _print_run(console, summaries[0])
    else:
        _print_comparison(console, summaries)


def print_trials(summary: RunSummary, number: int) -> None:
    """Print every child that was trained for one task, the one that was kept marked."""
    if not 1 <= number <= len(summary.tasks):
        raise InputError(f"--task {number}: {summary.folder} has finished tasks 1 to {len(summary.tasks)}")
    task = summary.tasks[number - 1]
    if not task.trials:
        raise InputError(f"--task {number}: '{task.name}' was learnt by {summary.method} without a search")
    table = Table(
        title=escape(f"{summary.folder}: trials of task {number}, {task.name}"), title_justify="left", box=None
    )
    for column in ("trial", "added", "accuracy", "parameters", "reward", ""):
        table.add_column(column, justify="left" if column in ("added", "") else "right")
    for index, trial in enumerate(task.trials):
        table.add_row(
            str(index),
            widths_text(trial.widths),
            percent(trial.accuracy),
            f"+{trial.parameters:,}",
            "" if trial.failed else f"{trial.reward:.4f}",
            "kept" if trial.widths == task.widths else "",
        )
    console = make_console()
    console.print(table)
    console.print(f"[dim]units added to {escape(', '.join(summary.groups))}[/dim]")
    console.print(f"difficulty M = {task.difficulty:.4f} (a fresh network's accuracy less that of trial 0)")


def _print_run(console: Console, summary: RunSummary) -> None:
    if not summary.tasks:
        console.print(escape(f"{summary.folder}: no task is finished yet"))
        return
    final = summary.tasks[-1].row
    table = Table(box=None, pad_edge=False)
    for column in ("task", "", "added", "learnt", "now", "parameters", "trials", "time"):
        table.add_column(column, justify="left" if column in ("", "added") else "right", no_wrap=True)
    for task, now in zip(summary.tasks, final, strict=True):
        table.add_row(
            str(task.index + 1),
            escape(task.name),
            widths_text(task.widths),
            percent(task.row[-1]),
            percent(now),
            f"+{sum(task.parameters.values()):,}",
            str(len(task.trials) or ""),
            duration(task.seconds),
        )
    figures = summary.figures()
    parts: dict[str, int] = {}
    for task in summary.tasks:
        for part, number in task.parameters.items():
            parts[part] = parts.get(part, 0) + number
    console.print()
    console.print(table)
    console.print(f"[dim]units added to {escape(', '.join(summary.groups))}[/dim]\n")
    closing = Table.grid(padding=(0, 2))
    closing.add_row("average accuracy (ACC)", percent(figures["accuracy"]))
    closing.add_row("backward transfer (BWT)", f"{points(figures['backward_transfer'])} points")
    closing.add_row("forgetting", f"{points(figures['forgetting'])} points")
    named = ", ".join(f"{part} {number:,}" for part, number in parts.items() if number)
    closing.add_row("parameters", f"{figures['parameters']:,} ({named})")
    closing.add_row("time", duration(figures["seconds"]))
    if len(summary.tasks) < summary.wanted:
        closing.add_row("unfinished", f"{len(summary.tasks)} of {summary.wanted} tasks; run it again to resume")
    closing.add_row("folder", escape(str(summary.folder)))
    console.print(closing)


def _print_comparison(console: Console, summaries: Sequence[RunSummary]) -> None:
    table = Table(box=None, pad_edge=False)
    columns = ("method", "seeds", "ACC", "BWT", "forgetting", "task 1 now", "parameters", "samples", "time")
    for column in columns:
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    by_method: dict[str, list[RunSummary]] = {}
    for summary in summaries:
        if summary.tasks:
            by_method.setdefault(summary.method, []).append(summary)
    for method, runs in by_method.items():
        figures = [run.figures() for run in runs]
        mean = {name: fmean(figure[name] for figure in figures) for name in figures[0]}
        spread = f" ± {100 * stdev(figure['accuracy'] for figure in figures):.2f}" if len(runs) > 1 else ""
        unfinished = sum(len(run.tasks) < run.wanted for run in runs)
        table.add_row(
            method + (f" ({unfinished} unfinished)" if unfinished else ""),
            str(len(runs)),
            percent(mean["accuracy"]) + spread,
            points(mean["backward_transfer"]),
            points(mean["forgetting"]),
            percent(fmean(run.tasks[-1].row[0] for run in runs)),
            f"{mean['parameters']:,.0f}",
            f"{mean['samples']:,.0f}",
            duration(mean["seconds"]),
        )
    console.print()
    console.print(table)
    console.print()
    for folder in dict.fromkeys(summary.folder.parent for summary in summaries):
        console.print(f"runs in {escape(str(folder))}; [bold]bocl show RUN[/bold] shows one task by task")
