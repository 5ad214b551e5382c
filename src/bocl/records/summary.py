"""What a run came to, from its records alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bocl.errors import FolderError, InputError
from bocl.records.journal import read_lines, read_with_tail, to_json
from bocl.records.metrics import average_accuracy, backward_transfer, first_task_forgetting, forgetting
from bocl.records.record import TaskRecord
from bocl.records.run_log import JOURNAL, RunLog, check_checkpoint


@dataclass(frozen=True)
class RunSummary:
    """One run: its settings, its finished tasks, and the figures of its accuracy matrix.

    groups      names of the hidden groups, in the order of widths
    torn_bytes  of a record at the end of the journal that is unfinished, and left out here
    """

    folder: Path
    config: dict[str, Any]
    groups: tuple[str, ...]
    tasks: tuple[TaskRecord, ...]
    torn_bytes: int = 0

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.config["method"])

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.config["seed"])

    @property
    def wanted(self) -> int:
        """How many tasks the run has when it is finished."""
        return int(self.config["stream"]["tasks"])

    @property
    def finished(self) -> bool:
        """Whether all its tasks are learnt."""
        return len(self.tasks) == self.wanted

    @property
    def matrix(self) -> list[tuple[float, ...]]:
        """R[t][i]: test accuracy on task i after learning task t."""
        return [task.row for task in self.tasks]

    def figures(self) -> dict[str, Any]:
        """Return the closing figures as JSON values."""
        return {
            "accuracy": average_accuracy(self.matrix),
            "backward_transfer": backward_transfer(self.matrix),
            "forgetting": forgetting(self.matrix),
            "first_task_forgetting": first_task_forgetting(self.matrix),
            "parameters": self.tasks[-1].stored,
            "memory": self.tasks[-1].memory,
            "attention": sum(task.parameters.get("attention", 0) for task in self.tasks),
            "samples": sum(task.samples for task in self.tasks),
            "seconds": sum(task.seconds for task in self.tasks),
        }

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "folder": str(self.folder),
            "method": self.method,
            "seed": self.seed,
            "finished": self.finished,
            "groups": list(self.groups),
            "tasks": [to_json(asdict(task), "task") for task in self.tasks],
            "figures": self.figures() if self.tasks else None,
        }


def summarise(folder: str | Path) -> RunSummary:
    """Read one run's folder."""
    folder = Path(folder)
    if not (folder / JOURNAL).is_file():
        raise FolderError(f"{folder} is not a run: there is no {JOURNAL} in it")
    lines, torn_bytes = read_with_tail(folder / JOURNAL)
    log = RunLog.of([line.record for line in lines], folder / JOURNAL)
    if not log.starts:
        raise FolderError(f"{log.path} holds no finished record yet; start the run again to resume it")
    try:
        check_checkpoint(folder, log)
    except FolderError:
        if len(read_lines(folder / JOURNAL)) == len(lines):
            raise
        return summarise(folder)  # the run went on between the two looks
    return RunSummary(folder, log.starts[0].config, log.starts[0].groups, tuple(log.tasks), torn_bytes)


def find_runs(folder: str | Path) -> list[Path]:
    """Return the runs in a folder: itself, or those of the grid it holds, by name."""
    folder = Path(folder)
    if not os.path.exists(folder):  # unlike Path.exists, it takes any name
        raise FolderError(f"{folder}: there is no such folder")
    if (folder / JOURNAL).is_file():
        return [folder]
    runs = sorted(path.parent for path in folder.glob(f"*/{JOURNAL}"))
    if not runs:
        raise FolderError(f"{folder} holds no runs: there is no {JOURNAL} in it or in the folders under it")
    return runs


def find_run(folder: str | Path) -> Path:
    """Return the one run in a folder."""
    runs = find_runs(folder)
    if len(runs) > 1:
        raise FolderError(f"{folder} holds {len(runs)} runs; give one of them, such as {runs[0]}")
    return runs[0]


def searched_task(summary: RunSummary, number: int) -> TaskRecord:
    """Return a finished task by its number from 1; refuse one that was learnt without a search."""
    if not 1 <= number <= len(summary.tasks):
        done = f"has finished tasks 1 to {len(summary.tasks)}" if summary.tasks else "has no finished task yet"
        raise InputError(f"--task {number}: {summary.folder} {done}")
    task = summary.tasks[number - 1]
    if not task.trials:
        raise InputError(f"--task {number}: '{task.name}' was learnt by {summary.method} without a search")
    return task


def summarise_all(folders: Sequence[str | Path]) -> list[RunSummary]:
    """Read every run in these folders."""
    return [summarise(run) for folder in folders for run in find_runs(folder)]
