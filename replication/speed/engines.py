"""What Ray adds to a run: one run at a time, made by a process and by a worker of a Ray cluster, in turn.

python -m replication.speed.engines [PRESET] [--set a.b=c] [--turns 10] [--out FILE.json]

A run is measured from its first record to its last, in the folder that was asked for: start-up is apart. A ratio is
that of two runs, one after the other: of the seconds that passed, and of the CPU time of all processes that have a part
in it, Ray's own too. On a machine that others use, a turn begins when they are quiet, and counts if they stay so. If
they never do, all turns count, and the record says what others used.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import torch
import typer

from bocl.engines.orders import Engine, RunOrder
from bocl.engines.ray_engine import RayCluster
from bocl.engines.run_process import RunProcesses
from bocl.experiment.config import Config, load_config
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL
from replication.measured import made_by

ENGINES: dict[str, Callable[[], Engine]] = {
    "processes": lambda: RunProcesses(["cpu"]),
    "ray": lambda: RayCluster(None, "cpu", 1),
}
POLL = 0.005  # seconds
LOOK = 3.0  # seconds
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Made:
    """One run.

    ready   seconds until the engine was there: of Ray, until a cluster was started
    begun   seconds from then to the run's first record
    run     seconds from its first record to its last
    cpu     seconds that this process and all it started computed meanwhile
    others  how many cores other processes used meanwhile
    rounds  how many rounds it has
    """

    engine: str
    ready: float
    begun: float
    run: float
    cpu: float
    others: float
    rounds: int


def make(name: str, config: Config) -> Made:
    """Make one run on an engine, in a folder that passes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        asked = time.time()
        engine = ENGINES[name]()
        ready = time.time()
        seen: list[tuple[float, float, float]] = []  # when the journal had grown, and CPU times by then: ours, all
        over = threading.Event()
        watch = threading.Thread(target=_see_records, args=(folder / JOURNAL, seen, over))
        watch.start()
        told: list[str] = []
        engine([RunOrder.of(name, config, folder)], lambda _order, error: told.append(error))
        over.set()
        watch.join()
        if told != [""]:
            raise SystemExit(f"{name}: {told[0]}")
        rounds = sum(record["kind"] == "round" for record in read(folder / JOURNAL))
    (first, *before), (last, *after) = seen[0], seen[-1]
    ours, all_of_it = (now - then for then, now in zip(before, after, strict=True))
    others = max(all_of_it - ours, 0.0) / (last - first)
    return Made(name, ready - asked, first - ready, last - first, ours, others, rounds)


def _see_records(journal: Path, seen: list[tuple[float, float, float]], over: threading.Event) -> None:
    size = 0
    while not over.wait(POLL):
        with suppress(FileNotFoundError):
            found = journal.stat()
            if found.st_size != size:
                size = found.st_size
                seen.append((found.st_mtime, cpu_seconds(), machine_seconds()))


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all that it started, directly or not, as far as it goes on record."""
    parents, ticks = {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = place.read_text().rpartition(") ")[2].split()
            pid = int(place.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))  # with children that have ended
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks[pid] for pid in ours) / TICKS


def machine_seconds() -> float:
    """Return the CPU time of everyone on this machine."""
    user, nice, system, _idle, _waiting, *more = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + sum(more)) / TICKS


def wait_for_quiet(cores: float, patience: float) -> None:
    """Wait until others use no more than so many cores, but not for ever."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        before = machine_seconds()
        time.sleep(LOOK)
        if (machine_seconds() - before) / LOOK <= cores:
            return


def compared(made: Sequence[Made], most_others: float) -> dict[str, Any]:
    """Return what runs took on Ray as a share of what they took in a process, turn by turn, and start-ups.

    most_others  cores that others may have used in either run of a turn; turns with more count if there are no others
    """
    turns = list(zip(*([one for one in made if one.engine == name] for name in ENGINES), strict=True))
    pairs = [pair for pair in turns if max(one.others for one in pair) <= most_others] or turns
    made = [one for pair in pairs for one in pair]
    fastest = {name: min(one.run for one in made if one.engine == name) for name in ENGINES}
    return {
        "turns": len(turns),
        "counted": len(pairs),
        "most_others": most_others,
        "others": max(one.others for one in made),
        "rounds": made[0].rounds,
        "seconds_ratio": _quarters([ray.run / process.run for process, ray in pairs]),
        "cpu_ratio": _quarters([ray.cpu / process.cpu for process, ray in pairs]),
        "fastest_ratio": fastest["ray"] / fastest["processes"],
        "seconds": {name: median(one.run for one in made if one.engine == name) for name in ENGINES},
        "cpu_seconds": {name: median(one.cpu for one in made if one.engine == name) for name in ENGINES},
        "seconds_to_first_record": {name: median(one.begun for one in made if one.engine == name) for name in ENGINES},
        "seconds_to_start_ray": median(ray.ready for _, ray in pairs),
    }


def describe(found: dict[str, Any]) -> str:
    """Say in one line what came of it."""
    (low, middle, high), (least, cpu, most) = found["seconds_ratio"], found["cpu_ratio"]
    return (
        f"{found['rounds']} rounds, {found['counted']} of {found['turns']} turns; on Ray, as a share of a process: "
        f"seconds {middle:.3f} ({low:.3f} to {high:.3f} in half of the turns; {found['fastest_ratio']:.3f}, of the "
        f"fastest), CPU time {cpu:.3f} ({least:.3f} to {most:.3f}); {found['seconds']['processes']:.2f} s in a process"
    )


def _quarters(ratios: Sequence[float]) -> list[float]:
    """Return the lower quartile, the median and the upper quartile."""
    return list(quantiles(ratios, n=4, method="inclusive")) if len(ratios) > 1 else list(ratios) * 3


def engines_command(
    preset: Annotated[str, typer.Argument(help="A preset or config.")] = "digits",
    override: Annotated[list[str] | None, typer.Option("--set", help="A setting, such as recipe.epochs=600.")] = None,
    turns: Annotated[int, typer.Option(min=1, help="Pairs of runs.")] = 10,
    quiet: Annotated[float, typer.Option(min=0, help="Cores that others may use in a turn that counts.")] = 0.2,
    patience: Annotated[float, typer.Option(min=0, help="Most seconds to wait for quiet before a turn.")] = 600.0,
    out: Annotated[Path | None, typer.Option(help="File of measurements, to which this one is added.")] = None,
) -> None:
    """Make a run by turns in a process and on Ray, and compare."""
    torch.set_num_threads(1)
    config = load_config(preset, override or ())
    made: list[Made] = []
    for _ in range(turns):
        wait_for_quiet(quiet, patience)
        for name in ENGINES:
            made.append(make(name, config))
            typer.echo(f"{name:9}  {made[-1].run:8.2f} s  others {made[-1].others:.2f}", err=True)
    found = compared(made, quiet)
    typer.echo(describe(found))
    if out is not None:
        record = {**made_by(), **found, "made": [asdict(one) for one in made]}
        earlier = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else []
        out.write_text(json.dumps([*earlier, record], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(engines_command)
