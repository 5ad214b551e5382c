"""What a task costs late in a long stream: writing and checking it, searching, training.

python -m replication.speed.long_stream [--tasks 200] [--method bocl] [--set a.b=c]

Tasks are permutations of the digits, learnt by a tiny network, so that hardly anything is left but what a run does
around training. A time is that of the fastest quarter of twenty tasks around a number: others may use the machine, too.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated

import typer

from bocl.experiment.audit import audit
from bocl.experiment.config import config_with
from bocl.experiment.run import run
from bocl.records.events import Event, TaskDone
from bocl.records.run_log import JOURNAL

SETTINGS = (
    "network.build=mlp",
    "network.arguments={inputs=64, hidden=[6, 5]}",
    "stream.name=permuted-digits",
    "recipe.epochs=2",
    "recipe.batch_size=128",
    "search.trials=4",
    "search.patience=4",
    "search.bounds=4",
)
AROUND = 10  # tasks before and after a number


@dataclass(frozen=True)
class Point:
    """What one task took.

    safety    seconds of journal, files, hashes, canaries and checks
    search    seconds of learning less training; the files of rounds are written in it, and count above as well
    training  seconds
    whole     seconds from the record before to its own
    written   bytes of checkpoint and journal
    stored    parameters after it
    """

    safety: float
    search: float
    training: float
    whole: float
    written: int
    stored: int


def measure_stream(method: str, tasks: int, overrides: tuple[str, ...], folder: Path) -> list[Point]:
    """Run so many tasks and return what each took."""
    config = config_with([*SETTINGS, *overrides, f"method={method}", f"stream.tasks={tasks}"])
    points: list[Point] = []
    spent, ended, held = [0.0, 0.0], [time.perf_counter()], [0]

    def listen(event: Event) -> None:
        if not isinstance(event, TaskDone):
            return
        record = event.record
        now, size = time.perf_counter(), (folder / JOURNAL).stat().st_size
        (checkpoint,) = folder.glob(f"checkpoints/task-{record.index + 1:02d}")
        written = size - held[-1] + sum(path.stat().st_size for path in checkpoint.iterdir())
        safety, search = spent[-1] - spent[-2], record.seconds - record.training_seconds
        points.append(Point(safety, search, record.training_seconds, now - ended[-1], written, record.stored))
        held.append(size)
        ended.append(time.perf_counter())

    run(config, folder, device="cpu", callback=listen, on_cost=spent.append)
    return points


def fastest(points: list[Point], at: int, name: str) -> float:
    """Return in milliseconds what the fastest quarter of the tasks around number ``at`` took at most."""
    around = points[max(at - AROUND, 0) : at + AROUND]
    return float(1000 * quantiles((getattr(point, name) for point in around), n=4)[0])


def describe(points: list[Point], at: int) -> str:
    """Say in one line what the tasks around number ``at`` took."""
    times = "".join(f"{fastest(points, at, name):14.1f}" for name in ("safety", "search", "training", "whole"))
    written = median(point.written for point in points[max(at - AROUND, 0) : at + AROUND]) / 1000
    return f"{at:4} {points[at - 1].stored:9,}{times}{written:12.1f}"


def long_stream_command(
    tasks: Annotated[int, typer.Option(help="How many tasks.")] = 200,
    method: Annotated[str, typer.Option(help="Which method.")] = "bocl",
    override: Annotated[list[str] | None, typer.Option("--set", help="A setting, such as growth.reads=all.")] = None,
) -> None:
    """Measure a long stream and print what tasks took."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        points = measure_stream(method, tasks, tuple(override or ()), folder)
        typer.echo(f"{method}: milliseconds a task, of the fastest quarter around each")
        typer.echo("task    stored  journal+proof        search      training         whole  kB written")
        early, late = 20, tasks - AROUND
        for at in sorted({early, tasks // 4, tasks // 2, tasks * 3 // 4, late}):
            typer.echo(describe(points, at))
        times = fastest(points, late, "safety") / fastest(points, early, "safety")
        typer.echo(f"journal, proof and audit: {times:.2f} times from task {early} to task {late}")
        began = time.perf_counter()
        audit(folder, device="cpu", with_accuracy=False)
        typer.echo(f"an audit of all, without accuracies: {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    typer.run(long_stream_command)
