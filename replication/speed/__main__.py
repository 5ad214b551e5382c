"""What training costs: `bocl bench` (compiled, too, on a GPU), the time of a whole run split up, and more if asked for.

python -m replication.speed [--quick] [--growth] [--agreement] [--run PRESET] [--json]
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from bocl.benchmarks.speed import measure
from bocl.cli.main import main
from bocl.experiment.config import load_config
from bocl.records.journal import to_json
from bocl.training.device import resolve_device
from replication.speed.agreement import measure_agreement
from replication.speed.growth_cost import TaskCost, measure_growth
from replication.speed.whole_run import measure_run

app = typer.Typer(name="python -m replication.speed", add_completion=False, rich_markup_mode=None)
TOLD = (1, 2, 10, 20, 30, 40, 50)  # tasks whose cost is printed


@app.command()
def speed_command(
    quick: Annotated[bool, typer.Option(help="Fewer samples: seconds instead of minutes.")] = False,
    growth: Annotated[bool, typer.Option(help="Also measure how cost grows over 50 tasks.")] = False,
    agreement: Annotated[bool, typer.Option(help="Also compare accuracies with a plain float32 loop.")] = False,
    run: Annotated[str, typer.Option(metavar="PRESET", help="The whole run whose time is split up.")] = "digits",
    data: Annotated[str | None, typer.Option(help="Folder of the data files; else BOCL_DATA or the cache.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Measure children one by one and together, and a whole run."""
    place = resolve_device(device)
    load_config(run)  # a wrong name is told now, not after minutes

    def tell(line: str) -> None:
        if not as_json:
            typer.echo(line)

    def tell_cost(cost: TaskCost) -> None:
        if cost.task in TOLD:
            tell(cost.describe())

    rows = measure(place, quick=quick, compiled=place.type == "cuda", tell=lambda row: tell(row.describe()))
    result: dict[str, Any] = {"rows": [asdict(row) for row in rows]}
    cost = measure_run(run, ["stream.tasks=2"] if quick else [], device=device, data=data)
    result["run"] = asdict(cost)
    tell(cost.describe())
    if growth:
        costs = measure_growth(place, tasks=6 if quick else 50, tell=tell_cost)
        result["growth"] = [asdict(cost) for cost in costs]
    if agreement:
        pairs = measure_agreement(place, data=data, tell=lambda pair: tell(pair.describe()))
        result["agreement"] = [asdict(pair) for pair in pairs]
    if as_json:
        typer.echo(json.dumps(to_json(result, "speed"), indent=1))


if __name__ == "__main__":
    main(app)
