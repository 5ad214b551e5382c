"""A journal as points on curves: a name, a step and a value each. A journal only grows, and so do its points.

accuracy/average, accuracy/1 spring …    test accuracy on all tasks so far and on each, after every task
validation/average                       the same on validation samples
guesses/named, guesses/accuracy          how well tasks are guessed after every task, where they are
parameters/stored, parameters/added      after every task
seconds/learning, seconds/training       of every task
search/task 2/accuracy, …/loss           of every child trained for a task, in order; also base/… and difficulty/…
pick 1/accuracy/average …                what took their place when another child was picked
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bocl.records.journal import read_with_tail
from bocl.records.record import RoundRecord, TaskRecord
from bocl.records.run_log import RunLog
from bocl.records.summary import journal_of


@dataclass(frozen=True)
class Point:
    """One value of a curve; no two points have the same name and step."""

    name: str
    step: int
    value: float


@dataclass(frozen=True)
class TrackedRun:
    """What trackers are told of a run.

    identity  the hash of its first record, which no other run has and which stays when its folder moves
    finished  whether all tasks it knows of are learnt
    """

    identity: str
    facts: dict[str, str]
    points: tuple[Point, ...]
    finished: bool


def read_points(run: Path) -> TrackedRun | None:
    """Read a run, also while it is under way; None if its first record is not written yet."""
    path = journal_of(run)
    lines, _ = read_with_tail(path)
    if not lines:
        return None
    log, points = RunLog(path), list[Point]()
    for line in lines:
        log.take(line.record)
        match line.record["kind"]:
            case "round":
                task = len(log.tasks)
                points += _of_round(task, log.rounds[task])
            case "task":
                points += _of_task(log.tasks)
                points += _of_costs(log.tasks[-1])
            case "pick":
                points += _of_task(log.tasks, f"pick {log.picks[len(log.tasks) - 1]}/")
    config = log.starts[0].config
    facts = {"method": config["method"], "seed": config["seed"], "stream": config["stream"].get("name", "")}
    finite = tuple(point for point in points if math.isfinite(point.value))
    texts = {name: str(value) for name, value in facts.items()}
    return TrackedRun(lines[0].sha256, texts, finite, len(log.tasks) == log.starts[-1].tasks)


def _of_round(task: int, rounds: list[RoundRecord]) -> Iterator[Point]:
    """Yield the children of the last of a task's rounds."""
    *before, last = rounds
    first = Counter({entry.purpose: 0 for entry in rounds})
    for entry in before:
        first[entry.purpose] += len(entry.fits)
    for step, fit in enumerate(last.fits, start=first[last.purpose]):
        yield Point(f"{last.purpose}/task {task + 1}/accuracy", step, fit.accuracy)
        yield Point(f"{last.purpose}/task {task + 1}/loss", step, fit.loss)


def _of_task(tasks: list[TaskRecord], prefix: str = "") -> Iterator[Point]:
    record = tasks[-1]
    step = record.index + 1
    yield Point(f"{prefix}accuracy/average", step, fmean(record.row))
    yield Point(f"{prefix}validation/average", step, fmean(record.validation_row))
    for number, (task, accuracy) in enumerate(zip(tasks, record.row, strict=True), start=1):
        yield Point(f"{prefix}accuracy/{number} {_plain(task.name)}", step, accuracy)
    if record.guesses is not None:
        yield Point(f"{prefix}guesses/named", step, record.guesses.named)
        yield Point(f"{prefix}guesses/accuracy", step, record.guesses.accuracy)
    yield Point(f"{prefix}parameters/stored", step, record.stored)
    yield Point(f"{prefix}parameters/added", step, sum(record.parameters.values()))


def _of_costs(record: TaskRecord) -> Iterator[Point]:
    yield Point("seconds/learning", record.index + 1, record.seconds)
    yield Point("seconds/training", record.index + 1, record.training_seconds)


def _plain(name: str) -> str:
    """Return a task's name with characters that every tracker takes."""
    return re.sub(r"[^\w .-]", "_", name)[:100]
