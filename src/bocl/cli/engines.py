"""Options that say where runs are made: on which devices of this machine, or on which cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

    from bocl.engines.orders import Engine

ENGINES = ("ray", "slurm")

Devices = Annotated[
    str | None,
    typer.Option(help="Devices of this machine to share the work: `all` GPUs, or names, such as cuda:0,cuda:1."),
]
MixedDevices = Annotated[
    bool, typer.Option("--mixed-devices", help="Allow GPUs of different types, on which bits differ.")
]
EngineName = Annotated[
    str | None, typer.Option("--engine", help="Where runs are made: `ray` or `slurm`; else on this machine.")
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Most runs at once; else one for every device, or as many as a cluster has room for."),
]
Address = Annotated[
    str | None, typer.Option(help="With --engine ray: a cluster's address, or `auto`; else one on this machine.")
]
SlurmOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm",
        metavar="KEY=VALUE",
        help="With --engine slurm: a long option of sbatch, such as partition=gpu, time=4:00:00 or gres=gpu:1; again "
        "for another.",
    ),
]


def devices_to_share(device: str, devices: str | None, mixed: bool) -> list[torch.device] | None:
    """Return the devices that share the work, None where there is only one."""
    from bocl.errors import InputError
    from bocl.training.device import resolve_devices

    if devices is None:
        return None
    if device != "auto":
        raise InputError("--device and --devices are different ways to say where; give only one of them")
    return resolve_devices(devices, mixed=mixed)


def chosen_engine(
    name: str | None,
    *,
    device: str,
    shared: Sequence[torch.device] | None,
    mixed: bool,
    workers: int | None,
    address: str | None,
    slurm: Sequence[str] | None,
    folder: Path,
) -> Engine | None:
    """Return the engine that is asked for; None where runs are made on this machine.

    shared  the devices of ``--devices``, if any
    folder  that all its runs are in
    """
    from bocl.errors import InputError, did_you_mean

    if address is not None and name != "ray":
        raise InputError("--address is that of a Ray cluster; add --engine ray")
    if mixed and name != "ray" and shared is None:
        raise InputError("--mixed-devices allows devices of different types; add --devices or --engine ray")
    if slurm and name != "slurm":
        raise InputError("--slurm is for a cluster with Slurm; add --engine slurm")
    if name is None:
        return None
    if name not in ENGINES:
        raise InputError(f"--engine: there is no engine '{name}'{did_you_mean(name, ENGINES)}")
    if shared is not None:
        raise InputError(f"--devices are of this machine, and --engine {name} has its own; give only one of them")
    if name == "slurm":
        from bocl.engines.slurm import SlurmArray

        return SlurmArray(folder / "slurm", _parse_slurm(slurm or []), device, workers)
    from rich.console import Console

    from bocl.cli.printing import warn
    from bocl.engines.ray_engine import RayCluster

    with Console(stderr=True).status("Ray starts" if address is None else "Ray is asked"):
        return RayCluster(address, device, workers, mixed=mixed, tell=warn)


def processes(devices: Sequence[torch.device], workers: int | None = None) -> Engine:
    """Return the engine of processes that take turns on these devices."""
    from bocl.engines.run_process import RunProcesses

    return RunProcesses([str(devices[number % len(devices)]) for number in range(workers or len(devices))])


def _parse_slurm(words: Sequence[str]) -> dict[str, str]:
    from bocl.errors import InputError

    options = {}
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not name or not equals:
            raise InputError(f"--slurm {word}: write KEY=VALUE, such as partition=gpu")
        options[name] = value
    return options
