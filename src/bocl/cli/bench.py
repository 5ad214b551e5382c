"""``bocl bench``: what training costs on this machine, side by side."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer


def bench_command(
    context: typer.Context,
    quick: Annotated[bool, typer.Option(help="Fewer samples: seconds instead of minutes.")] = False,
    growth: Annotated[bool, typer.Option(help="Also measure how cost grows over 50 tasks.")] = False,
    agreement: Annotated[bool, typer.Option(help="Also compare accuracies with a plain float32 loop.")] = False,
    run: Annotated[str, typer.Option(metavar="PRESET", help="The whole run whose time is split up.")] = "digits",
    data: Annotated[str | None, typer.Option(help="Folder of the data files; else BOCL_DATA or the cache.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Measure a plain loop, an eager loop on the device, and ours, on the same data and widths; and a whole run."""
    if context.invoked_subcommand is not None:
        return
    from bocl.benchmarks.agreement import measure_agreement
    from bocl.benchmarks.growth import measure_growth
    from bocl.benchmarks.speed import CHILDREN, measure
    from bocl.benchmarks.speed import as_json as rows_as_json
    from bocl.benchmarks.whole_run import measure_run
    from bocl.experiment.config import load_config
    from bocl.records.journal import to_json
    from bocl.training.device import resolve_device
    from bocl.wording import counted

    place = resolve_device(device)
    load_config(run)  # a wrong name is told now, not after minutes
    few = (1, 8) if quick else (1, 4, 8, 16) if place.type == "cpu" else CHILDREN

    def tell(row: Any) -> None:
        if not as_json:
            typer.echo(
                f"{row.network:6} {row.mode:6} {counted(row.children, 'child', 'children'):>12}  "
                f"{1e3 * row.seconds_per_child_epoch:10.2f} ms per child and epoch  "
                f"{row.samples_per_second:12,.0f} samples/s  {row.speedup_over_plain:7.2f} x plain"
            )

    def tell_cost(cost: Any) -> None:
        if not as_json and cost.task in (1, 2, 10, 20, 30, 40, 50):
            typer.echo(
                f"{cost.mode:8} task {cost.task:3}  {cost.seconds:8.3f} s  {cost.parameters:10,} parameters stored"
            )

    result: dict[str, Any] = rows_as_json(measure(place, quick=quick, children=few, tell=tell))
    cost = measure_run(run, ["stream.tasks=2"] if quick else [], device=device, data=data)
    result["run"] = asdict(cost)
    if not as_json:
        typer.echo(cost.describe())
    if growth:
        costs = measure_growth(place, tasks=6 if quick else 50, tell=tell_cost)
        result["growth"] = [asdict(cost) for cost in costs]
    if agreement:
        pairs = measure_agreement(place, data=data, tell=lambda pair: None if as_json else typer.echo(pair.describe()))
        result["agreement"] = [asdict(pair) for pair in pairs]
    if as_json:
        typer.echo(json.dumps(to_json(result, "bench"), indent=1))
