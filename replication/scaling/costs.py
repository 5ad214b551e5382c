"""Measure what a Ray cluster and its driver cost: the simulator's inputs.

python -m replication.scaling.costs [--out replication/measurements/scaling/costs.json]

Recorded runs are replayed on clusters of this machine. What the driver does for a record is given as the CPU time of
its process, which is what bounds it: it writes the records of all runs, and Python does one thing at a time. Two runs
that write little and much tell what is for the record and what for its bytes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import torch
import typer

from bocl.engines.orders import RunOrder
from bocl.experiment.config import Config, load_config
from replication.scaling import MEASUREMENTS, write_measurement
from replication.scaling.replay import Recorded, ReplayingCluster, TimedCluster, record, write_replay
from replication.scaling.simulate import Costs
from replication.speed.engines import make

SMALL = load_config("digits")
LARGE = load_config("digits", ["network.arguments={inputs=64, hidden=[1200, 600]}", "recipe.epochs=2"])
FLOOD = 40  # runs
SENT = 100_000_000  # bytes, from one node to another


@dataclass(frozen=True)
class Flood:
    """Runs replayed without waiting: as many records as the driver can take.

    records  of all runs
    bytes    of a record, on average
    cpu      seconds of the driver for a record
    wall     seconds for a record
    """

    records: int
    bytes: float
    cpu: float
    wall: float


def flood(recorded: Sequence[Recorded], runs: int, workers: int) -> Flood:
    """Let workers send records as fast as they can."""
    with tempfile.TemporaryDirectory() as place:
        data = write_replay(recorded, Path(place), pace=0.0)
        engine = ReplayingCluster(None, workers)
        before = time.process_time()
        make_all(engine, SMALL, runs, Path(place), data)
        cpu = time.process_time() - before
        wall = max(end for _, end in engine.spans) - min(begin for begin, _ in engine.spans)
    records = runs * len(recorded)
    return Flood(records, fmean(one.bytes for one in recorded), cpu / records, wall / records)


def make_all(engine: TimedCluster, config: Config, runs: int, place: Path, data: str | None) -> None:
    """Make so many runs of a config; raise if one fails."""
    failed: list[str] = []
    orders = [RunOrder.of(f"run {number}", config, place / f"run-{number}", data=data) for number in range(runs)]
    engine(orders, lambda _order, error: failed.append(error) if error else None)
    if failed:
        raise SystemExit(failed[0])


def starts(recorded: Sequence[Recorded], turns: int, runs: int) -> tuple[float, float, float]:
    """Return the seconds until a cluster is there, then until a worker is, and for a run besides its own."""
    clusters, workers, besides = [], [], []
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as place:
            data = write_replay(recorded, Path(place))
            began = time.perf_counter()
            engine = ReplayingCluster(None, 1)
            clusters.append(time.perf_counter() - began)
            make_all(engine, SMALL, runs, Path(place), data)
        workers.append(engine.spans[0][0] - engine.asked)
        own = sum(one.seconds + one.finding for one in recorded)
        besides += [end - begin - own for begin, end in engine.spans[1:]]
    return median(clusters), median(workers), median(besides)


def between_nodes(turns: int) -> float:
    """Return how many bytes a second come from another node of this machine."""
    import ray
    from ray.cluster_utils import Cluster

    node = {"object_store_memory": 4 * SENT}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **node})
    cluster.add_node(num_cpus=1, **node)
    try:
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        send = ray.remote(num_cpus=1)(lambda number: bytes([number]) * SENT)
        rates = []
        for number in range(turns + 1):
            coming = send.remote(number)
            ray.wait([coming], fetch_local=False)
            began = time.perf_counter()
            ray.get(coming)
            rates.append(SENT / (time.perf_counter() - began))
        return median(rates[1:])
    finally:
        ray.shutdown()
        cluster.shutdown()


def measure(turns: int) -> dict[str, Any]:
    """Measure everything; see ``Costs``."""
    recorded = {"small": record(SMALL), "large": record(LARGE)}
    flood(recorded["small"], 4, 2)  # what is imported only once is not the price of a record
    floods: dict[str, list[Flood]] = {name: [] for name in recorded}
    for _ in range(turns):
        for name, run in recorded.items():
            floods[name].append(flood(run, FLOOD, 2))
    small, large = (sorted(floods[name], key=lambda one: one.cpu)[turns // 2] for name in ("small", "large"))
    byte = (large.cpu - small.cpu) / (large.bytes - small.bytes)
    engine, worker, besides = starts(recorded["small"], turns, 4)
    driver = small.cpu - byte * small.bytes
    process = [make("processes", SMALL).begun - recorded["small"][0].seconds for _ in range(turns)]
    return {
        "costs": asdict(Costs(engine, worker, max(besides - driver, 0.0), driver, byte)),
        "processes": asdict(Costs(run=median(process))),
        "finding": {name: median(one.finding for one in run) for name, run in recorded.items()},
        "bytes_a_second_between_nodes": between_nodes(turns),
        "floods": {name: [asdict(one) for one in some] for name, some in floods.items()},
    }


def costs_command(
    turns: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    out: Annotated[Path, typer.Option(help="Where it is written.")] = MEASUREMENTS / "costs.json",
) -> None:
    """Measure what a Ray cluster and its driver cost."""
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    before = os.getloadavg()[0]
    found = measure(turns)
    write_measurement(out, found, before)
    typer.echo(found["costs"])


if __name__ == "__main__":
    typer.run(costs_command)
