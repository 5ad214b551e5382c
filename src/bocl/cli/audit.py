"""``bocl audit``: prove from a run's folder that its earlier tasks are untouched."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from bocl.cli.options import Data, Device, Runs, Trust


def audit_command(
    runs: Runs,
    data: Data = None,
    accuracy: Annotated[bool, typer.Option(help="Measure test accuracy again; this needs the data.")] = True,
    device: Device = "auto",
    trust: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Check journal, files, every tensor, stored logits and accuracies of runs against their records."""
    from bocl.cli.printing import print_json, warn
    from bocl.cli.tables import print_audit, tell_torn
    from bocl.errors import FolderError
    from bocl.experiment.audit import DriftError, audit
    from bocl.records.summary import find_runs

    results: list[dict[str, Any]] = []
    folders = [run for place in runs for run in find_runs(place)]
    for folder in folders:
        try:
            found = audit(folder, data=data, device=device, with_accuracy=accuracy, trust=trust)
        except (DriftError, FolderError) as error:
            if isinstance(error, FolderError) and len(folders) == 1:
                raise
            warn(str(error))
            results.append({"folder": str(folder), "drift": str(error)})
            continue
        tell_torn(folder, found.torn_bytes)
        if found.left_out:
            warn(f"{folder}: accuracies were not measured again: {found.left_out}")
        results.append({**asdict(found), "folder": str(folder), "drift": None})
        if not as_json:
            print_audit(found)
    if as_json:
        print_json(results)
    if any(result["drift"] for result in results):
        raise typer.Exit(1)
