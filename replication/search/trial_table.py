"""A table of real trials: widths trained once with several seeds, so that searchers can be compared without training.

{"format": 1, "about": {…}, "tasks": [{"name", "bounds", "price_shares", "widths": [z …], "parameters": [… per z],
 "seen": [[per seed] … per z], "judged": [[per seed] … per z]}]}

``seen`` is the accuracy on the validation samples: a searcher is told that of one seed, drawn at random. ``judged`` is
the accuracy on samples cut from the training part. No test samples are used. A searcher may only ask for the widths of
the table (``Problem.candidates``): nothing is interpolated.

A choice is judged by the mean of ``judged`` over seeds, smoothed by a process on the means of all widths of the task.
Without smoothing, the highest of hundreds of means would be the luckiest one, which no search can be expected to find.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bocl.errors import DataError
from bocl.records.files import write_whole
from bocl.search import accuracy_model
from bocl.search.accuracy_model import Accuracies, scale
from bocl.search.lattice import lies_in
from bocl.search.problem import FloatArray, IntArray
from bocl.settings import parse_value
from bocl.widths import Widths
from replication.search.replay import ReplayTask

FORMAT = 1
LEAST_TOLERANCE = 0.003  # regret below which widths are as good as the best


@dataclass(frozen=True)
class TaskTable:
    """The trials of one task; price_shares are α_i / α, the price of a unit in each group."""

    name: str
    bounds: Widths
    price_shares: tuple[float, ...]
    widths: tuple[Widths, ...]
    parameters: tuple[int, ...]
    seen: tuple[tuple[float, ...], ...]
    judged: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a table with holes."""
        lengths = {len(self.widths), len(self.parameters), len(self.seen), len(self.judged)}
        seeds = {len(row) for row in (*self.seen, *self.judged)}
        if len(lengths) != 1 or len(seeds) != 1 or 0 in lengths | seeds:
            raise DataError(f"the table of task '{self.name}' has holes; every widths needs the same number of seeds")
        inside = all(lies_in(widths, self.bounds) for widths in self.widths)
        if not inside or len(self.price_shares) != len(self.bounds):
            raise DataError(f"the table of task '{self.name}' has widths or prices that do not fit {self.bounds}")
        if not all(0 <= value <= 1 for row in (*self.seen, *self.judged) for value in row):
            raise DataError(f"the table of task '{self.name}' has an accuracy that does not lie in 0 … 1")
        if not any(self.bounds):
            raise DataError(f"the table of task '{self.name}' has no group that can grow")
        if (0,) * len(self.bounds) not in self.widths:
            raise DataError(f"the table of task '{self.name}' lacks widths of zero, which every search begins with")


@dataclass(frozen=True)
class TrialTable:
    """Tasks in the order they were learnt."""

    tasks: tuple[TaskTable, ...]
    about: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT


def write_table(table: TrialTable, path: Path) -> None:
    """Write a table as JSON, a task per line."""
    tasks = ",\n".join(json.dumps(asdict(task), separators=(",", ":")) for task in table.tasks)
    head = json.dumps({"format": table.format, "about": table.about})[:-1]
    write_whole(path, f'{head}, "tasks": [\n{tasks}\n]}}\n'.encode())


def read_table(path: Path) -> TrialTable:
    """Read a table, or raise DataError saying what is wrong with it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is not a table of trials: {error}; `python -m replication.search table` makes one"
        ) from error
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise DataError(
            f"{path} has format {found!r}; this version reads {FORMAT}: `python -m replication.search table` makes it"
        )
    table: TrialTable = parse_value(TrialTable, data, str(path))
    if not table.tasks:
        raise DataError(f"{path} is a table without tasks; `python -m replication.search table` makes one")
    return table


def replay_tasks(table: TrialTable, alpha: float) -> list[ReplayTask]:
    """Return the tasks of a table as a search with this α sees them."""
    return [_replay_task(task, alpha) for task in table.tasks]


def denoise(task: TaskTable, accuracies: Sequence[Sequence[float]]) -> FloatArray:
    """Return (n,): smoothed accuracies of all widths of a task, from measured ones (n, seeds)."""
    inputs = scale(task.widths, task.bounds)
    means = np.array(accuracies).mean(1)
    model = accuracy_model.fit(Accuracies(inputs, np.zeros(len(inputs), dtype=np.int64), means))
    return accuracy_model.predict(model, inputs)[0]


def _replay_task(task: TaskTable, alpha: float) -> ReplayTask:
    """Return one task; widths within 0.3 points, or a standard error, of the best true reward count as the best."""
    row = {widths: place for place, widths in enumerate(task.widths)}
    prices = alpha * np.array(task.price_shares)
    seen, judged = np.array(task.seen), np.array(task.judged)  # (n, seeds)
    parameters = np.array(task.parameters, dtype=np.int64)
    seeds = judged.shape[1]

    def rows(z: IntArray) -> Sequence[int]:
        return [row[tuple(widths)] for widths in z.tolist()]

    def penalty(z: IntArray) -> FloatArray:
        paid: FloatArray = (z * prices).sum(-1)
        return paid

    def measure(z: IntArray, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        drawn = rows(z), generator.integers(seeds, size=len(z))
        return seen[drawn], judged[drawn]

    prices_paid = penalty(np.array(task.widths, dtype=np.int64))
    denoised = denoise(task, task.judged)
    rewards = denoised - prices_paid
    chosen = int(np.argmax(denoise(task, task.seen) - prices_paid))
    error = float(np.sqrt(judged.var(1, ddof=1).mean() / seeds)) if seeds > 1 else 0.0
    return ReplayTask(
        name=task.name,
        bounds=task.bounds,
        candidates=task.widths,
        parameters=lambda z: parameters[rows(z)],
        penalty=penalty,
        measure=measure,
        truth=lambda z: denoised[rows(z)],
        best_reward=float(rewards.max()),
        limit=float(rewards.max() - rewards[chosen]),
        tolerance=max(LEAST_TOLERANCE, error),
    )
