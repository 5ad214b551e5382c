"""Measure what Ray adds where rounds are long: a run of `digits`, replayed at such a pace that rounds take 30 s.

python -m replication.scaling.waiting [--out replication/measurements/scaling/waiting.json]

The worker waits where others train, so it does not matter who else computes on the machine. All else is done as for a
real run. In a process, the run would take what it waits; on Ray, it takes from when a worker is given it until its end
is known.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Annotated

import torch
import typer

from bocl.experiment.config import load_config
from replication.scaling import MEASUREMENTS, write_measurement
from replication.scaling.costs import make_all
from replication.scaling.replay import ReplayingCluster, record, steps, write_replay

SETTINGS = ["stream.tasks=2", "search.trials=4"]


def waiting_command(
    seconds: Annotated[float, typer.Option(min=0.1, help="Of an average round.")] = 30.0,
    runs: Annotated[int, typer.Option(min=1, help="How often it is made, at once, by as many workers.")] = 2,
    out: Annotated[Path, typer.Option(help="Where it is written.")] = MEASUREMENTS / "waiting.json",
) -> None:
    """Make runs with long rounds on Ray, and compare with what they wait."""
    torch.set_num_threads(1)
    before = os.getloadavg()[0]
    config = load_config("digits", SETTINGS)
    recorded = record(config)
    rounds = [one.seconds for one in recorded if b'"kind":"round"' in one.change.lines.replace(b" ", b"")]
    pace = seconds / fmean(rounds)
    waits = pace * sum(one for one, _ in steps(recorded))
    with tempfile.TemporaryDirectory() as place:
        engine = ReplayingCluster(None, runs)
        make_all(engine, config, runs, Path(place), write_replay(recorded, Path(place), pace))
    found = [(end - begin) / waits for begin, end in engine.spans]
    about = {"settings": SETTINGS, "seconds_of_a_round": seconds, "rounds": len(rounds), "records": len(recorded)}
    write_measurement(out, {**about, "waits": waits, "ratios": found}, before)
    typer.echo(f"{len(rounds)} rounds, {waits:.1f} s of waiting: {', '.join(f'{one:.5f}' for one in found)}")


if __name__ == "__main__":
    typer.run(waiting_command)
