"""What Ray adds to a run: one run at a time, made by a process and by a worker of a Ray cluster, in turn.

python -m replication.speed.engines [PRESET] [--set a.b=c] [--turns 10] [--out FILE.json]

The time of a run is that from its first record to its last, in the folder that was asked for: start-up is apart. A
ratio is that of two runs, one after the other. Others may use the machine, too, so the load is on record with the
ratios, and their spread says how far to trust them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import torch
import typer

from bocl.engines.orders import Engine, RunOrder
from bocl.engines.ray_engine import RayCluster
from bocl.engines.run_process import RunProcesses
from bocl.experiment.config import Config, load_config
from bocl.experiment.provenance import machine, versions
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL

ENGINES: dict[str, Callable[[], Engine]] = {
    "processes": lambda: RunProcesses(["cpu"]),
    "ray": lambda: RayCluster(None, "cpu", 1),
}
POLL = 0.002  # seconds


@dataclass(frozen=True)
class Made:
    """One run.

    ready   seconds until the engine was there: of Ray, until a cluster was started
    begun   seconds from then to the run's first record
    run     seconds from its first record to its last
    rounds  how many rounds it has
    """

    engine: str
    ready: float
    begun: float
    run: float
    rounds: int


def make(name: str, config: Config) -> Made:
    """Make one run on an engine, in a folder that passes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        asked = time.time()
        engine = ENGINES[name]()
        ready = time.time()
        first: list[float] = []
        watch = threading.Thread(target=_see_first_record, args=(folder / JOURNAL, first), daemon=True)
        watch.start()
        told: list[str] = []
        engine([RunOrder.of(name, config, folder)], lambda _order, error: told.append(error))
        if told != [""]:
            raise SystemExit(f"{name}: {told}")
        last = (folder / JOURNAL).stat().st_mtime
        rounds = sum(record["kind"] == "round" for record in read(folder / JOURNAL))
    return Made(name, ready - asked, first[0] - ready, last - first[0], rounds)


def _see_first_record(journal: Path, seen: list[float]) -> None:
    while not (journal.is_file() and journal.stat().st_size):
        time.sleep(POLL)
    seen.append(journal.stat().st_mtime)


def compared(made: Sequence[Made]) -> dict[str, Any]:
    """Return how long runs took on Ray as a share of what they took in a process, turn by turn, and start-ups."""
    pairs = list(zip(*([one for one in made if one.engine == name] for name in ENGINES), strict=True))
    ratios = [ray.run / process.run for process, ray in pairs]
    low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    fastest = {name: min(one.run for one in made if one.engine == name) for name in ENGINES}
    return {
        "turns": len(pairs),
        "rounds": made[0].rounds,
        "ratio": middle,
        "quarters": [low, high],
        "range": [min(ratios), max(ratios)],
        "of_the_fastest": fastest["ray"] / fastest["processes"],
        "seconds": {name: median(one.run for one in made if one.engine == name) for name in ENGINES},
        "fastest_seconds": fastest,
        "seconds_to_first_record": {name: median(one.begun for one in made if one.engine == name) for name in ENGINES},
        "seconds_to_start_ray": median(ray.ready for _, ray in pairs),
    }


def describe(found: dict[str, Any]) -> str:
    """Say in one line what came of it."""
    low, high = found["quarters"]
    return (
        f"{found['rounds']} rounds, {found['turns']} turns: on Ray {found['ratio']:.3f} times as long as in a process "
        f"(half of the turns {low:.3f} to {high:.3f}; the fastest of each {found['of_the_fastest']:.3f}); "
        f"{found['seconds']['processes']:.2f} s in a process"
    )


def engines_command(
    preset: Annotated[str, typer.Argument(help="A preset or config.")] = "digits",
    override: Annotated[list[str] | None, typer.Option("--set", help="A setting, such as recipe.epochs=600.")] = None,
    turns: Annotated[int, typer.Option(min=1, help="Pairs of runs.")] = 10,
    out: Annotated[Path | None, typer.Option(help="File of measurements, to which this one is added.")] = None,
) -> None:
    """Make a run by turns in a process and on Ray, and compare."""
    torch.set_num_threads(1)
    config = load_config(preset, override or ())
    before, made = os.getloadavg()[0], []
    for _ in range(turns):
        for name in ENGINES:
            made.append(make(name, config))
            typer.echo(f"{name:9}  {made[-1].run:8.2f} s", err=True)
    found = compared(made)
    typer.echo(describe(found))
    if out is not None:
        record = {
            "command": f"python -m replication.speed.engines {' '.join(sys.argv[1:]).partition(' --out')[0]}".strip(),
            "date": date.today().isoformat(),
            "versions": versions(),
            "machine": machine(torch.device("cpu")),
            "cores": os.cpu_count(),
            "load": [before, os.getloadavg()[0]],
            **found,
            "made": [asdict(one) for one in made],
        }
        earlier = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else []
        out.write_text(json.dumps([*earlier, record], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(engines_command)
