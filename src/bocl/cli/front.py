"""The front of a task's trials: as a plot and a table on a terminal, or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from bocl.cli.printing import literal, make_console
from bocl.records.journal import to_json
from bocl.records.pareto import Criterion, best_within, choose, front, reward_at
from bocl.records.record import TaskRecord, Trial
from bocl.records.summary import RunSummary
from bocl.records.words import choose_reads, kept_trial
from bocl.wording import counted, percent, widths_text

COLUMNS, ROWS = 60, 12  # of the plot


def front_as_json(summary: RunSummary, record: TaskRecord, criterion: Criterion) -> Any:
    """Return every trial as JSON values, with whether it is on the front, kept or chosen."""
    best, chosen, kept = front(record.trials), choose(record.trials, criterion), kept_trial(record)

    def entry(trial: Trial) -> dict[str, Any]:
        marks = {"front": trial in best, "kept": trial is kept, "chosen": trial == chosen}
        return {**asdict(trial), "reward": _reward(trial, criterion), **marks}

    found = {
        "folder": str(summary.folder),
        "task": record.index + 1,
        "name": record.name,
        "groups": list(summary.groups),
        "criterion": asdict(criterion),
        "kept": list(record.widths),
        "chosen": list(chosen.widths),
        "front": [entry(trial) for trial in best],
        "trials": [entry(trial) for trial in record.trials],
    }
    return to_json(found, "pareto")


def print_front(summary: RunSummary, record: TaskRecord, criterion: Criterion) -> None:
    """Plot every trial; list those on the front, the one that was kept and the one that the criterion chooses."""
    best, chosen, kept = front(record.trials), choose(record.trials, criterion), kept_trial(record)
    asked = ", ".join(f"{name} {value:,}" for name, value in vars(criterion).items() if value is not None)
    shown = [trial for trial in record.trials if trial in best or trial == chosen or trial is kept]
    table = Table(box=None, pad_edge=False)
    reads = ("reads",) if choose_reads(record.trials) else ()
    for column in ("parameters", "accuracy", "reward", "added", *reads, ""):
        table.add_column(column, justify="left" if column in ("added", "reads", "") else "right", no_wrap=bool(column))
    for trial in sorted(shown, key=lambda trial: (trial.parameters, trial.accuracy)):
        marks = [
            "kept" if trial is kept else "",
            (f"by {asked}" if asked else "best reward") if trial == chosen else "",
            "" if trial in best else "not on the front",
        ]
        table.add_row(
            f"+{trial.parameters:,}",
            percent(trial.accuracy),
            f"{_reward(trial, criterion):.4f}",
            widths_text(trial.widths),
            *([trial.reads] if reads else []),
            ", ".join(mark for mark in marks if mark),
            style="bold" if trial == chosen else None,
        )
    console = make_console()
    trained = [trial for trial in record.trials if not trial.failed]
    console.print(literal(f"{summary.folder}: trials of task {record.index + 1}, {record.name}"), soft_wrap=True)
    children = counted(len(trained), "child", "children")
    console.print(f"[dim]front: {len(best)} of {children}, which no other beats[/dim]\n")
    for line in _plot(trained, kept, chosen):
        console.print(Text(line))
    console.print()
    console.print(table)
    console.print(f"[dim]units added to {literal(', '.join(summary.groups))}; accuracy on validation samples[/dim]")


def _reward(trial: Trial, criterion: Criterion) -> float:
    return trial.reward if criterion.alpha is None else reward_at(trial, criterion.alpha)


def _plot(trials: list[Trial], kept: Trial | None, chosen: Trial) -> list[str]:
    """Draw every trial, and as a staircase the best accuracy within so many parameters."""
    fewest, most = min(trial.parameters for trial in trials), max(trial.parameters for trial in trials)
    low, high = min(trial.accuracy for trial in trials), max(trial.accuracy for trial in trials)
    canvas = [[" "] * COLUMNS for _ in range(ROWS)]

    def row(trial: Trial) -> int:
        return round((ROWS - 1) * (high - trial.accuracy) / ((high - low) or 1))

    def column(trial: Trial) -> int:
        return round((COLUMNS - 1) * (trial.parameters - fewest) / ((most - fewest) or 1))

    budgets = [fewest + (most - fewest) * at // (COLUMNS - 1) for at in range(COLUMNS)]
    for at, best in enumerate(best_within(trials, budgets)):
        if best is not None:
            canvas[row(best)][at] = "─"
    for trial in trials:
        canvas[row(trial)][column(trial)] = "·"
    for mark, marked in (
        ("o", front(trials)),
        ("#", [] if kept is None else [kept]),
        ("@", [chosen]),
    ):
        for trial in marked:
            canvas[row(trial)][column(trial)] = mark
    labels = {0: f"{100 * high:.2f} %", ROWS - 1: f"{100 * low:.2f} %"}
    lines = [f"{labels.get(at, ''):>9} │{''.join(cells).rstrip()}" for at, cells in enumerate(canvas)]
    ends = f"+{fewest:,}", f"+{most:,} parameters"
    lines.append(f"{'':>9} └{'─' * COLUMNS}")
    lines.append(f"{'':>11}{ends[0]}{ends[1]:>{COLUMNS - len(ends[0])}}")
    lines.append(f"{'':>11}o front   # kept   @ chosen   · others   ─ best within so many")
    return lines
