"""Simulate a study of 10,000 runs on 1 to 1,000 GPUs, from measured costs and from journals of runs on a GPU.

python -m replication.scaling.study [--out replication/measurements/scaling/study.json]

The study is the paper's comparison, nine systems on three streams, with as many seeds as 10,000 runs make. Every run
takes what it took when it had a GPU to itself.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from replication.scaling import MEASUREMENTS
from replication.scaling.profiles import profiles
from replication.scaling.simulate import Costs, Steps, simulate

RUNS = 10_000
PRESETS = ("permuted-mnist", "mixed-mnist", "split-cifar100")
GPUS = (1, 8, 64, 1000)
DRIVERS = 4  # that share a large study


@cache
def costs() -> dict[str, Costs]:
    """Return what was measured of every engine."""
    measured = json.loads((MEASUREMENTS / "costs.json").read_text(encoding="utf-8"))
    return {"ray": Costs(**measured["costs"]), "processes": Costs(**measured["processes"])}


@cache
def study(runs: int = RUNS) -> list[Steps]:
    """Return the runs of the study, seed after seed."""
    return list(islice(cycle([run for preset in PRESETS for run in profiles(preset)]), runs))


def outcome(engine: str, gpus: int, drivers: int = 1, *, longest_first: bool = False) -> dict[str, Any]:
    """Return what the study comes to.

    drivers        commands that share it, each with its part of the runs and of the GPUs
    longest_first  whether runs are given in the order of how long they take
    """
    runs = study(RUNS // drivers)
    if longest_first:
        runs = sorted(runs, key=lambda run: -sum(seconds for seconds, _ in run))
    found = simulate(runs, gpus // drivers, costs()[engine])
    return {
        "engine": engine,
        "gpus": gpus,
        "drivers": drivers,
        "longest_first": longest_first,
        "runs": len(runs),
        **asdict(found),
        "efficiency": found.efficiency,
        "driver_share": found.driver_share,
    }


def study_command(
    out: Annotated[Path, typer.Option(help="Where it is written.")] = MEASUREMENTS / "study.json",
) -> None:
    """Simulate the study on different clusters."""
    found = [outcome("processes", gpus) for gpus in GPUS if gpus <= 8]
    found += [outcome("ray", gpus) for gpus in GPUS]
    found += [outcome("ray", GPUS[-1], drivers=DRIVERS), outcome("ray", GPUS[-1], DRIVERS, longest_first=True)]
    kinds = [run for preset in PRESETS for run in profiles(preset)]
    records = [step for run in kinds for step in run]
    about = {
        "kinds": len(kinds),
        "seconds_of_a_run": sum(seconds for seconds, _ in records) / len(kinds),
        "longest_seconds": max(sum(seconds for seconds, _ in run) for run in kinds),
        "records_of_a_run": len(records) / len(kinds),
        "bytes_of_a_run": sum(size for _, size in records) / len(kinds),
    }
    out.write_text(json.dumps({**about, "outcomes": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(study_command)
