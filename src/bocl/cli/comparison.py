"""Methods side by side: one row each, mean ± standard deviation over seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from bocl.cli.printing import literal
from bocl.records.identity import relevant_settings
from bocl.records.summary import RunSummary
from bocl.report.figures import hundredths, whole, with_sd
from bocl.report.systems import Spread
from bocl.wording import counted, duration, millions, points

WIDE = 126  # columns of a terminal that has room for every spread and for attention apart


def print_comparison(console: Console, summaries: Sequence[RunSummary]) -> None:
    """Print one row per method and config; runs that are not finished are named below and left out of the means."""
    groups = {label: [run for run in runs if run.finished] for label, runs in _labelled(summaries).items()}
    wide = console.width >= WIDE
    rows = {label: _row(runs, wide) for label, runs in groups.items() if runs}
    if not any(run.tasks[-1].guesses for runs in groups.values() for run in runs):
        for row in rows.values():
            del row["task\nnamed"], row["ACC without\nthe task"]
    if not any(run.tasks[-1].extra_numbers for runs in groups.values() for run in runs):
        for row in rows.values():
            del row["extra"]
    console.print()
    if rows:
        table = Table(box=None, pad_edge=False, collapse_padding=not wide)
        table.add_column("method", no_wrap=True)
        for column in next(iter(rows.values())):
            table.add_column(column, justify="right", no_wrap=True)
        for label, row in rows.items():
            table.add_row(literal(label), *row.values())
        console.print(table)
        spread = "mean ± sd over seeds; " if max(map(len, groups.values())) > 1 else ""
        console.print(f"[dim]{spread}ACC in %, BWT and what it forgot in points[/dim]")
        if "task\nnamed" in next(iter(rows.values())):
            told = "task named: in %, of single samples; ACC without the task: in %, task and class both right"
            console.print(f"[dim]{told}[/dim]")
        if "extra" in next(iter(rows.values())):
            console.print("[dim]extra: numbers kept besides the parameters[/dim]")
        console.print()
    for run in summaries:
        if not run.finished:
            done = f"{len(run.tasks)} of {counted(run.wanted, 'task')}"
            console.print(literal(f"not finished, left out: {run.folder} ({done}); run it again to resume"))
    for folder in dict.fromkeys(run.folder.parent for run in summaries):
        console.print(f"runs in {literal(str(folder))}; [bold]bocl show RUN[/bold] shows one task by task")


def _labelled(summaries: Sequence[RunSummary]) -> dict[str, list[RunSummary]]:
    """Return the runs by what differs between them, seeds apart: by method, or by folder and method."""
    groups: dict[tuple[str, str], list[RunSummary]] = {}
    for run in summaries:
        settings = json.dumps([run.method, relevant_settings(run.config)], sort_keys=True)
        groups.setdefault((str(run.folder.parent), settings), []).append(run)
    one_folder = len({folder for folder, _ in groups}) == 1
    labelled: dict[str, list[RunSummary]] = {}
    for runs in groups.values():
        label = runs[0].method if one_folder else f"{runs[0].folder.parent.name}/{runs[0].method}"
        labelled[str(runs[0].folder) if label in labelled else label] = runs
    return labelled


def _row(runs: Sequence[RunSummary], wide: bool) -> dict[str, str]:
    """Return the cells of one row, by column."""
    figures = [run.figures() for run in runs]

    def cell(name: str, say: Callable[[float], str], *, sd: bool = False) -> str:
        values = [figure[name] for figure in figures]
        if None in values:  # tasks are not guessed
            return ""
        spread = Spread.of(values)
        return with_sd(spread, say) if sd else say(spread.mean)

    return {
        "seeds": str(len(runs)),
        "ACC": cell("accuracy", hundredths, sd=True),
        "task\nnamed": cell("task_named", hundredths, sd=wide),
        "ACC without\nthe task": cell("accuracy_without_task", hundredths, sd=wide),
        "BWT": cell("backward_transfer", points, sd=wide),
        "forgot\ntask 1": cell("first_task_forgetting", points, sd=wide),
        "parameters": cell("parameters", whole, sd=wide),
        "extra": cell("extra_numbers", lambda count: millions(count) if count else "0"),
        **({"attention": cell("attention", whole)} if wide else {}),
        "samples": cell("samples", millions),
        "time": cell("seconds", duration),
    }
