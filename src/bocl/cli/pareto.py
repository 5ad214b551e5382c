"""``bocl pareto``: accuracy against parameters, from the trials of one task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bocl.cli.pick import Alpha, Budget, Target

if TYPE_CHECKING:
    from bocl.records.pareto import Criterion
    from bocl.records.record import TaskRecord, Trial
    from bocl.records.summary import RunSummary

COLUMNS, ROWS = 60, 12  # of the plot


def pareto_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run.")],
    task: Annotated[int | None, typer.Option(help="The task, from 1; else the last finished one.")] = None,
    alpha: Alpha = None,
    budget: Budget = None,
    target: Target = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show which trials of a task no other beats in accuracy and parameters; what is wanted is marked, not trained."""
    from bocl.records.pareto import Criterion
    from bocl.records.summary import find_run, searched_task, summarise

    summary = summarise(find_run(run))
    record = searched_task(summary, len(summary.tasks) if task is None else task)
    criterion = Criterion(alpha, budget, target)
    if as_json:
        typer.echo(json.dumps(_as_json(summary, record, criterion), indent=1, allow_nan=False))
    else:
        _print_front(summary, record, criterion)


def _as_json(summary: RunSummary, record: TaskRecord, criterion: Criterion) -> dict[str, Any]:
    from dataclasses import asdict

    from bocl.records.journal import to_json
    from bocl.records.pareto import choose, front, reward_at

    best, chosen = front(record.trials), choose(record.trials, criterion)

    def entry(trial: Trial) -> dict[str, Any]:
        reward = trial.reward if criterion.alpha is None else reward_at(trial, criterion.alpha)
        marks = {"front": trial in best, "kept": trial.widths == record.widths, "chosen": trial == chosen}
        return {**asdict(trial), "reward": reward, **marks}

    found: Any = to_json(
        {
            "folder": str(summary.folder),
            "task": record.index + 1,
            "name": record.name,
            "groups": list(summary.groups),
            "wish": asdict(criterion),
            "kept": list(record.widths),
            "chosen": list(chosen.widths),
            "front": [entry(trial) for trial in best],
            "trials": [entry(trial) for trial in record.trials],
        },
        "pareto",
    )
    return dict(found)


def _print_front(summary: RunSummary, record: TaskRecord, criterion: Criterion) -> None:
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from bocl.cli.tables import make_console
    from bocl.records.pareto import choose, front, reward_at
    from bocl.wording import counted, percent, widths_text

    best, chosen = front(record.trials), choose(record.trials, criterion)
    asked = ", ".join(f"{name} {value:,}" for name, value in vars(criterion).items() if value is not None)
    shown = [trial for trial in record.trials if trial in best or trial == chosen or trial.widths == record.widths]
    table = Table(box=None, pad_edge=False)
    for column in ("parameters", "accuracy", "reward", "added", ""):
        table.add_column(column, justify="left" if column in ("added", "") else "right", no_wrap=bool(column))
    for trial in sorted(shown, key=lambda trial: (trial.parameters, trial.accuracy)):
        marks = [
            "kept" if trial.widths == record.widths else "",
            (f"by {asked}" if asked else "best reward") if trial == chosen else "",
            "" if trial in best else "not on the front",
        ]
        table.add_row(
            f"+{trial.parameters:,}",
            percent(trial.accuracy),
            f"{trial.reward if criterion.alpha is None else reward_at(trial, criterion.alpha):.4f}",
            widths_text(trial.widths),
            ", ".join(mark for mark in marks if mark),
            style="bold" if trial == chosen else None,
        )
    console = make_console()
    trained = [trial for trial in record.trials if not trial.failed]
    console.print(escape(f"{summary.folder}: trials of task {record.index + 1}, {record.name}"), soft_wrap=True)
    children = counted(len(trained), "child", "children")
    console.print(f"[dim]front: {len(best)} of {children}, which no other beats[/dim]\n")
    for line in _plot(trained, record, chosen):
        console.print(Text(line))
    console.print()
    console.print(table)
    console.print(f"[dim]units added to {escape(', '.join(summary.groups))}; accuracy on validation samples[/dim]")


def _plot(trials: list[Trial], record: TaskRecord, chosen: Trial) -> list[str]:
    """Draw every trial, and the best accuracy within as many parameters as a staircase."""
    from bocl.records.pareto import best_within, front

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
        ("#", [trial for trial in trials if trial.widths == record.widths]),
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
