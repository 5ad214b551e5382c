"""``bocl run``: run a preset or config, one run per method and seed, resuming what was begun."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli import engines
from bocl.cli.options import Data, Device, GoalTolerance, Methods, Overrides, complete_preset, tolerance_overrides


def run_command(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[PRESET|CONFIG]", help="A preset by name, or a .toml file.", autocompletion=complete_preset
        ),
    ] = None,
    overrides: Overrides = None,
    alpha: Annotated[str | None, typer.Option(help="Price of a unit: short for --set reward.alpha=…")] = None,
    budget: Annotated[
        str | None, typer.Option(help="Most parameters each task after the first may add: goal.budget.")
    ] = None,
    total_budget: Annotated[
        str | None, typer.Option(help="Most parameters stored after the last task: goal.total_budget.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Accuracy to reach with the smallest network: goal.target.")
    ] = None,
    tolerance: GoalTolerance = None,
    methods: Methods = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, separated by commas; else the config's own.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder of the runs; else runs/NAME.")] = None,
    device: Device = "auto",
    at_once: Annotated[int, typer.Option(help="Runs side by side on one GPU; times are then not each run's own.")] = 1,
    data: Data = None,
    devices: engines.Devices = None,
    mixed_devices: engines.MixedDevices = False,
    engine: engines.EngineName = None,
    workers: engines.Workers = None,
    address: engines.Address = None,
    slurm: engines.SlurmOptions = None,
    audit: Annotated[bool, typer.Option(help="Prove after every task that earlier ones are untouched.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Learn the tasks of a preset or config in a row; run the same command again to resume.

    A config is code: the function that it names as its network is imported and called.
    """
    from bocl.cli.comma_lists import parse_methods, parse_seeds
    from bocl.cli.printing import print_json, warn
    from bocl.cli.tables import print_runs
    from bocl.engines.grids import run_grid_on
    from bocl.engines.spread import spread_over
    from bocl.errors import InputError
    from bocl.experiment.grid import plan, run_grid, split_over
    from bocl.progress.display import Display
    from bocl.progress.watch import watching
    from bocl.records.interrupts import Terminated, stopping_on_terminate
    from bocl.records.run_log import JOURNAL
    from bocl.records.summary import summarise
    from bocl.wording import counted

    shared = engines.devices_to_share(device, devices, mixed_devices)
    if at_once > 1 and (shared is not None or engine is not None):
        raise InputError("--at-once is about one GPU; leave it out with --devices and --engine")
    if workers is not None and engine is None:
        raise InputError("--workers are those of an engine; add --engine ray or slurm, or use --devices")
    goals = {"--alpha": alpha, "--target": target, "--tolerance": tolerance}
    given = [option for option, value in goals.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are different ways to say what is wanted: give only one of them")
    short = {"reward.alpha": alpha, "goal.budget": budget, "goal.total_budget": total_budget, "goal.target": target}
    shown = [f"{name}={value}" for name, value in short.items() if value is not None]
    grid = plan(
        source,
        [*(overrides or []), *shown, *tolerance_overrides(tolerance)],
        methods=parse_methods(methods),
        seeds=parse_seeds(seeds),
        out=out,
        device="cpu" if engine else device,
        data=data,
        at_once=at_once,
        tell=warn,
    )
    if tolerance is not None and any(one.method == "rcl" for one, _ in grid):
        warn("rcl takes a price, not a tolerance: it runs with its usual reward.alpha")
    made_on = engines.chosen_engine(
        engine,
        device=device,
        shared=shared,
        mixed=mixed_devices,
        workers=workers,
        address=address,
        slurm=slurm,
        folder=grid[0][1].parent,
    )
    if len(grid) == 1:
        places = made_on.most_parts if made_on else len(shared or [device])
        grid = [(split_over(config, folder, places), folder) for config, folder in grid]
        parts = grid[0][0].search.parts
        if places > parts and (shared or workers):
            warn(f"the rounds of this run are trained in {counted(parts, 'part')}; no more devices than that have work")
    elif shared is not None:
        made_on = engines.processes(shared)
    try:
        with stopping_on_terminate():
            if made_on is not None:
                with watching([folder for _, folder in grid]) as console:
                    failed = run_grid_on(made_on, grid, data=data, audit=audit, tell=Display(console=console).say)
            else:
                first = device if shared is None else str(shared[0])
                with Display(runs=len(grid)) as display, spread_over(shared, grid[0][0]) as trainer:
                    failed = run_grid(
                        grid,
                        device=first,
                        data=data,
                        watch=lambda one, place: display.watch(one.method, one.seed, one.stream.name, place),
                        audit=audit,
                        at_once=at_once,
                        trainer=trainer,
                    )
    except KeyboardInterrupt as stop:
        warn(str(stop) or "stopped; run the same command again to resume after the last finished round")
        raise typer.Exit(143 if isinstance(stop, Terminated) else 130) from None
    if len(grid) == len(failed) == 1:
        raise failed.popitem()[1]
    summaries = [summarise(folder) for _, folder in grid if folder not in failed or (folder / JOURNAL).is_file()]
    if as_json:
        errors = {folder: {"error": str(error)} for folder, error in failed.items()}
        runs = [summary.as_json() | errors.get(summary.folder, {}) for summary in summaries]
        print_json(runs)
    else:
        print_runs(summaries)
    if failed:
        told = [f"{folder}: {error}" for folder, error in failed.items()]
        warn(f"{len(failed)} of {counted(len(grid), 'run')} failed:", *told)
        raise typer.Exit(1)
