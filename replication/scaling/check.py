"""Hold the simulator to real studies on this machine: how long it says they take, and how long they took.

python -m replication.scaling.check [--out replication/measurements/scaling/check.json]

Runs of `digits` are made on a Ray cluster by 1, 2 and 4 workers. What the simulator is told of each is what its journal
says that its rounds and tasks took, as of runs on a GPU (``profiles.py``). So the cores that workers share, with each
other and with others who use the machine, are in what it is told; who waits for whom, and for how long, is not. Then a
run is recorded, and replayed (``replay.py``) by up to 16 workers that wait where others train, in the end so shortly
that the driver cannot follow. The clock starts when all workers are there.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from bocl.records.run_log import JOURNAL
from replication.scaling import MEASUREMENTS, write_measurement
from replication.scaling.costs import SMALL, make_all
from replication.scaling.profiles import profile
from replication.scaling.replay import Recorded, ReplayingCluster, TimedCluster, record, steps, write_replay
from replication.scaling.simulate import Costs, Steps, simulate

TRAINING = (1, 2, 4)  # workers
WAITING = ((1, 0.5), (2, 0.5), (4, 0.5), (16, 0.5), (16, 0.01))  # workers, and how long they wait for what took 1.0


def took(kind: type[TimedCluster], workers: int, runs: int, place: Path, data: str | None) -> float:
    """Return the seconds from when all workers are there until the last run is known to have ended."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": workers, "include_dashboard": False})
    try:
        engine = kind(cluster.address, workers)
        make_all(engine, SMALL, runs, place, data)
        return max(end for _, end in engine.spans) - engine.began
    finally:
        cluster.shutdown()


def compare(
    workers: int, runs: int, costs: Costs, recorded: Sequence[Recorded] = (), pace: float | None = None
) -> dict[str, Any]:
    """Make a study and simulate it: at a pace, a recorded run is replayed; otherwise runs are made."""
    with tempfile.TemporaryDirectory() as place:
        if pace is not None:
            data = write_replay(recorded, Path(place), pace)
            measured = took(ReplayingCluster, workers, runs, Path(place), data)
            known: list[Steps] = [tuple((pace * seconds, size) for seconds, size in steps(recorded))] * runs
        else:
            measured = took(TimedCluster, workers, runs, Path(place), None)
            known = [profile(Path(place) / f"run-{number}" / JOURNAL) for number in range(runs)]
        predicted = simulate(known, workers, costs)
    return {
        "pace": pace,
        "workers": workers,
        "runs": runs,
        "seconds_of_a_run": sum(seconds for run in known for seconds, _ in run) / runs,
        "predicted": predicted.seconds,
        "measured": measured,
        "ratio": predicted.seconds / measured,
        "load": round(os.getloadavg()[0], 2),
    }


def check_command(
    runs: Annotated[int, typer.Option(min=1, help="Runs of a study.")] = 12,
    turns: Annotated[int, typer.Option(min=1, help="How often each is made.")] = 3,
    out: Annotated[Path, typer.Option(help="Where it is written.")] = MEASUREMENTS / "check.json",
) -> None:
    """Make studies, and compare how long they took with what the simulator says."""
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    before = os.getloadavg()[0]
    measured = json.loads((MEASUREMENTS / "costs.json").read_text(encoding="utf-8"))["costs"]
    costs = Costs(**{**measured, "engine": 0.0, "worker": 0.0})
    recorded = record(SMALL)
    found = []
    for _ in range(turns):
        for workers in TRAINING:
            found.append(compare(workers, runs, costs))
            typer.echo(found[-1], err=True)
        for workers, pace in WAITING:
            found.append(compare(workers, max(runs, 4 * workers), costs, recorded, pace))
            typer.echo(found[-1], err=True)
    write_measurement(out, {"studies": found}, before)


if __name__ == "__main__":
    typer.run(check_command)
