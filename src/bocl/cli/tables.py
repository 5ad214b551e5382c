"""Results as tables on a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table

from bocl.cli.comparison import print_comparison
from bocl.cli.printing import literal, make_console, warn
from bocl.records.record import TaskRecord
from bocl.records.summary import RunSummary, journal_of, searched_task
from bocl.records.words import choose_reads, growth_words, kept_trial, outcome, stopped_by, tasks_read
from bocl.wording import counted, duration, percent, points, widths_text

if TYPE_CHECKING:
    from bocl.experiment.audit import RunAudit


def tell_torn(folder: Path, bytes_left_out: int) -> None:
    """Print a warning if a journal ends in an unfinished record."""
    if bytes_left_out:
        left_out = f"{counted(bytes_left_out, 'byte')} of it left out here, and cut off when it is run again"
        warn(f"{journal_of(folder)}: its last record is unfinished; {left_out}")


def tell_missing(summary: RunSummary) -> None:
    """Print a warning if files that a journal names are gone."""
    if summary.missing:
        first, number = summary.folder / summary.missing[0], len(summary.missing)
        gone = f"{first} is missing" if number == 1 else f"{first} and {counted(number - 1, 'other file')} are missing"
        warn(f"{gone}; results come from the journal, but the run cannot be resumed or audited")


def print_runs(summaries: Sequence[RunSummary]) -> None:
    """Print one run task by task, or several side by side."""
    console = make_console()
    if len(summaries) == 1:
        _print_run(console, summaries[0])
    else:
        print_comparison(console, summaries)


def print_trials(summary: RunSummary, number: int) -> None:
    """Print every child that was trained for one task, and mark the one that was kept."""
    task = searched_task(summary, number)
    title = literal(f"{summary.folder}: trials of task {number}, {task.name}")
    table = Table(title=title, title_justify="left", box=None)
    reads = ("reads",) if choose_reads(task.trials) else ()
    for column in ("trial", "added", *reads, "accuracy", "parameters", "reward", ""):
        table.add_column(column, justify="left" if column in ("added", "reads", "") else "right")
    kept = kept_trial(task)
    for index, trial in enumerate(task.trials):
        table.add_row(
            str(index),
            widths_text(trial.widths),
            *([trial.reads] if reads else []),
            "" if trial.stopped else percent(trial.accuracy),
            f"+{trial.parameters:,}",
            "" if trial.failed else f"{trial.reward:.4f}",
            outcome(trial).removesuffix(" of the epochs") if trial.stopped else "kept" if trial is kept else "",
        )
    console = make_console()
    console.print(table)
    console.print(f"[dim]{literal(_what_was_added(summary, ()))}[/dim]")
    if any(trial.stopped for trial in task.trials):
        console.print("[dim]stopped at this share of the epochs, because others did better[/dim]")
    if words := growth_words(task, task.index):
        console.print(f"what was kept: {words}")
    if not math.isnan(task.difficulty):
        console.print(f"difficulty M = {task.difficulty:.4f} (a fresh network's accuracy less that of trial 0)")


def print_audit(found: RunAudit) -> None:
    """Print what was checked of each task, and the journal head that speaks for all."""
    table = results_table("task", "", "tensors", "canaries", "accuracy", left=("", "canaries"))
    for task in found.tasks:
        off = task.canaries
        table.add_row(
            str(task.index + 1),
            literal(task.name),
            "-" if task.tensors is None else f"{task.tensors} the same",
            "-" if off is None else "the same bits" if off == 0 else f"within {off:.1g}",
            "-" if task.accuracy is None else percent(task.accuracy),
        )
    console = make_console()
    console.print()
    console.print(table)
    if found.forgets:
        row = " and its last row" if any(task.accuracy is not None for task in found.tasks) else ""
        console.print(f"[dim]this method changes earlier tasks: what it stores now{row} can be checked[/dim]")
    checked = f"as recorded; {found.records} records, {found.files} files, journal head {found.head}"
    console.print(literal(f"{found.folder}: {checked}"), soft_wrap=True)


def results_table(*columns: str, left: Sequence[str] = ()) -> Table:
    """Return a table without lines; ``left`` names the columns that are not aligned to the right.

    In a narrow terminal the column of names, which has no title, becomes narrower, so that figures stay whole.
    """
    table = Table(box=None, pad_edge=False)
    for column in columns:
        side: Literal["left", "right"] = "left" if column in left else "right"
        table.add_column(literal(column), justify=side, no_wrap=bool(column), overflow="ellipsis")
    return table


def _print_run(console: Console, summary: RunSummary) -> None:
    if not summary.tasks:
        console.print(literal(f"{summary.folder}: no task is finished yet"))
        return
    final = summary.tasks[-1].row
    steps = tuple(dict.fromkeys(step for task in summary.tasks for step in task.units))
    reads = ("reads",) if any(tasks_read(task, task.index) for task in summary.tasks) else ()
    columns = ("task", "", "added", *steps, *reads, "learnt", "now", "parameters", "trials", "time")
    table = results_table(*columns, left=("", "added", *steps, *reads))
    for task, now in zip(summary.tasks, final, strict=True):
        table.add_row(
            str(task.index + 1),
            literal(task.name),
            widths_text(task.widths),
            *(widths_text(task.units.get(step, ())) for step in steps),
            *([tasks_read(task, task.index)] if reads else []),
            percent(task.row[-1]),
            percent(now),
            f"+{sum(task.parameters.values()):,}",
            str(task.searched) if task.trials else "",
            duration(task.seconds),
        )
    figures = summary.figures()
    parts = Counter[str](base=summary.sessions[0].base_stored)
    for task in summary.tasks:
        parts.update(task.parameters)
    console.print()
    console.print(table)
    console.print(f"[dim]{literal(_what_was_added(summary, steps))}[/dim]")
    if reads:
        what = "factors it reads, or the base alone" if summary.low_rank else "units it reads, or its own network"
        console.print(f"[dim]reads: tasks whose {what}[/dim]")
    for line in _ends_of_growth(summary.tasks):
        console.print(f"[dim]{line}[/dim]")
    console.print()
    closing = Table.grid(padding=(0, 2))
    closing.add_row("average accuracy (ACC)", percent(figures["accuracy"]))
    if (guesses := summary.tasks[-1].guesses) is not None:
        of = "" if guesses.tasks == len(final) else f" (samples of {guesses.tasks} of {len(final)} tasks)"
        closing.add_row("task named correctly", percent(guesses.named) + of)
        closing.add_row("accuracy without the task", percent(guesses.accuracy) + of)
    closing.add_row("backward transfer (BWT)", f"{points(figures['backward_transfer'])} points")
    closing.add_row("forgetting", f"{points(figures['forgetting'])} points")
    named = ", ".join(f"{part} {number:,}" for part, number in parts.items() if number)
    closing.add_row("parameters", literal(f"{figures['parameters']:,} ({named})"))
    if figures["extra_numbers"]:
        closing.add_row("kept besides them", f"{figures['extra_numbers']:,} numbers")
    closing.add_row("time", duration(figures["seconds"]))
    if not summary.finished:
        done = f"{len(summary.tasks)} of {counted(summary.wanted, 'task')}"
        closing.add_row("unfinished", f"{done}; run it again to resume")
    closing.add_row("folder", literal(str(summary.folder)))
    console.print(closing)


def _what_was_added(summary: RunSummary, steps: Sequence[str]) -> str:
    """Say what the numbers under *added* count, and in the order of which groups."""
    groups = ", ".join(summary.groups)
    if summary.low_rank:
        return f"ranks added to {groups}"
    return f"units {', '.join(('added', *steps))} in {groups}" if steps else f"units added to {groups}"


def _ends_of_growth(tasks: Sequence[TaskRecord]) -> list[str]:
    """Say what stopped the growth of which tasks, and whose bounds were widened."""
    by_limit: dict[str, list[str]] = {}
    for task in tasks:
        if stop := stopped_by(task):
            by_limit.setdefault(stop, []).append(str(task.index + 1))
    lines = []
    if by_limit:
        ends = [f"{stop} (task{'s' if len(found) > 1 else ''} {', '.join(found)})" for stop, found in by_limit.items()]
        lines.append(f"growth stopped by: {', '.join(ends)}")
    if wider := [f"({widths_text(task.bounds)}) for task {task.index + 1}" for task in tasks if task.widened]:
        lines.append(f"bounds widened to {', '.join(wider)}")
    return lines
