"""``bocl audit``: prove from a run's folder that its earlier tasks are untouched."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bocl.experiment.audit import RunAudit


def audit_command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of runs, or of folders of runs.")],
    data: Annotated[str | None, typer.Option(help="Folder of the data files; else BOCL_DATA or the cache.")] = None,
    accuracy: Annotated[bool, typer.Option(help="Measure test accuracy anew; this needs the data.")] = True,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Check journal, files, every tensor, stored logits and accuracies of runs against their records."""
    from bocl.cli.tables import tell_torn
    from bocl.errors import FolderError
    from bocl.experiment.audit import DriftError, audit
    from bocl.records.summary import find_runs
    from bocl.wording import one_line

    results: list[dict[str, Any]] = []
    folders = [run for place in runs for run in find_runs(place)]
    for folder in folders:
        try:
            found = audit(folder, data=data, device=device, with_accuracy=accuracy)
        except (DriftError, FolderError) as error:
            if isinstance(error, FolderError) and len(folders) == 1:
                raise
            typer.echo(f"bocl: {one_line(str(error))}", err=True)
            results.append({"folder": str(folder), "drift": str(error)})
            continue
        tell_torn(folder, found.torn_bytes)
        results.append({**asdict(found), "folder": str(folder), "drift": None})
        if not as_json:
            _print_audit(found)
    if as_json:
        typer.echo(json.dumps(results, indent=1))
    if any(result["drift"] for result in results):
        raise typer.Exit(1)


def _print_audit(found: RunAudit) -> None:
    from rich.markup import escape
    from rich.table import Table

    from bocl.cli.tables import make_console
    from bocl.wording import percent

    table = Table(box=None, pad_edge=False)
    for column in ("task", "", "tensors", "canaries", "accuracy"):
        table.add_column(column, justify="left" if column in ("", "canaries") else "right", no_wrap=True)
    for task in found.tasks:
        off = task.canaries
        table.add_row(
            str(task.index + 1),
            escape(task.name),
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
    console.print(
        escape(f"{found.folder}: as recorded; {found.records} records, {found.files} files, journal head {found.head}"),
        soft_wrap=True,
    )
