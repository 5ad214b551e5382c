"""``bocl study``: the runs of a study, several processes at once, one line for each."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli import engines
from bocl.cli.options import Data, Device, Overrides


def study_command(
    sources: Annotated[list[str], typer.Argument(metavar="STUDY...", help="Studies, .toml files.")],
    out: Annotated[str, typer.Option("--out", "-o", help="Work folder of the runs, where they are resumed.")],
    on: Annotated[
        str | None,
        typer.Option(
            help="Presets instead of a study's, separated by commas; a run that names only others is left out."
        ),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Only runs of these names, separated by commas.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds instead of a study's, separated by commas.")] = None,
    overrides: Overrides = None,
    workers: engines.Workers = None,
    records: Annotated[
        str | None,
        typer.Option(
            help="Folder that keeps the journals of finished runs, or archives of them; a run whose journal is there, "
            "of the same settings, is not made again."
        ),
    ] = None,
    device: Device = "auto",
    devices: engines.Devices = None,
    mixed_devices: engines.MixedDevices = False,
    engine: engines.EngineName = None,
    address: engines.Address = None,
    slurm: engines.SlurmOptions = None,
    data: Data = None,
) -> None:
    """Make the runs of one study or several; run the same command again to resume."""
    import shlex
    import sys
    from pathlib import Path

    from bocl.cli.comma_lists import parse_seeds, parse_words
    from bocl.cli.printing import say, warn
    from bocl.engines.studies import run_jobs
    from bocl.errors import ConfigError
    from bocl.experiment.study import jobs, load_study
    from bocl.progress.display import Display
    from bocl.progress.watch import watching
    from bocl.records.interrupts import Terminated, stopping_on_terminate
    from bocl.training.device import resolve_device
    from bocl.wording import counted

    studies = {source: load_study(source) for source in sources}
    wanted = jobs(
        list(studies.values()),
        on=None if on is None else parse_words("--on", on),
        names=None if only is None else parse_words("--only", only),
        seeds=parse_seeds(seeds),
        overrides=overrides or [],
        data=data,
    )
    shared = engines.devices_to_share(device, devices, mixed_devices)
    made_on = engines.chosen_engine(
        engine,
        device=device,
        shared=shared,
        mixed=mixed_devices,
        workers=workers,
        address=address,
        slurm=slurm,
        folder=Path(out),
    ) or engines.processes(shared or [resolve_device(device)], workers)
    for source, study in studies.items():
        if study.alone and made_on.shares_device > 1:
            raise ConfigError(f"{source} measures how long runs take on a device of their own; leave out --workers")
    try:
        with stopping_on_terminate(), watching([Path(out) / job.run_place for job in wanted]) as console:
            on_one_terminal = console.is_terminal and sys.stdout.isatty()
            failed = run_jobs(
                wanted,
                Path(out),
                made_on,
                records=None if records is None else Path(records),
                data=data,
                command=shlex.join(["bocl", *sys.argv[1:]]),
                tell=Display(console=console).say if on_one_terminal else say,
            )
    except KeyboardInterrupt as stop:
        warn(str(stop) or "stopped; run the same command again to resume")
        raise typer.Exit(143 if isinstance(stop, Terminated) else 130) from None
    if failed:
        warn(f"{failed} of {counted(len(wanted), 'run')} failed")
        raise typer.Exit(1)
