"""The results of a run, from its records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bocl.errors import FolderError, InputError
from bocl.records.archives import SUFFIX, archive_of, archived_bytes, archived_runs, holds_journals
from bocl.records.journal import read, read_with_tail, to_json
from bocl.records.metrics import average_accuracy, backward_transfer, first_task_forgetting, forgetting
from bocl.records.record import TaskRecord
from bocl.records.run_log import JOURNAL, RunLog, Start, check_checkpoint


@dataclass(frozen=True)
class RunSummary:
    """One run: its settings, its finished tasks, and the figures of its accuracy matrix.

    folder      of the run, or its journal if that is kept without a folder or in an archive
    groups      names of the hidden groups, in the order of widths
    sessions    what it ran on, one entry for each time it was begun or resumed
    head        hash of the journal's last line, which speaks for all its lines
    lines       how many the journal has
    torn_bytes  of an unfinished record at the end of the journal, which is left out
    headline    whether its study lets it stand for its method; None in records that do not say
    missing     files that its journal names and that are no longer in its folder
    """

    folder: Path
    config: dict[str, Any]
    groups: tuple[str, ...]
    tasks: tuple[TaskRecord, ...]
    sessions: tuple[Start, ...]
    head: str
    lines: int
    torn_bytes: int = 0
    headline: bool | None = None
    missing: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.config["method"])

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.config["seed"])

    @property
    def low_rank(self) -> bool:
        """Whether its widths are ranks of factors."""
        return bool(self.config.get("growth", {}).get("form") == "low-rank")

    @property
    def wanted(self) -> int:
        """How many tasks the run has when it is finished."""
        return self.sessions[-1].tasks

    @property
    def finished(self) -> bool:
        """Whether all its tasks are learnt."""
        return len(self.tasks) == self.wanted

    @property
    def matrix(self) -> list[tuple[float, ...]]:
        """R[t][i]: test accuracy on task i after learning task t."""
        return [task.row for task in self.tasks]

    def figures(self) -> dict[str, Any]:
        """Return the closing figures as JSON values; None for those of guesses where tasks are not guessed."""
        guesses = self.tasks[-1].guesses
        return {
            "accuracy": average_accuracy(self.matrix),
            "backward_transfer": backward_transfer(self.matrix),
            "forgetting": forgetting(self.matrix),
            "first_task_forgetting": first_task_forgetting(self.matrix),
            "parameters": self.tasks[-1].stored,
            "extra_numbers": self.tasks[-1].extra_numbers,
            "task_named": None if guesses is None else guesses.named,
            "accuracy_without_task": None if guesses is None else guesses.accuracy,
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


def journal_of(run: Path) -> Path:
    """Return the journal of a run: the one in its folder, or the run itself if it is a journal."""
    return run if run.suffix == ".jsonl" and _is_there(run) else run / JOURNAL


def _is_there(journal: Path) -> bool:
    return archived_bytes(journal) is not None or journal.is_file()


def summarise(run: str | Path) -> RunSummary:
    """Read one run: a folder, or a journal without a folder or in an archive."""
    run = Path(run)
    journal = journal_of(run)
    if not _is_there(journal):
        raise FolderError(f"{run} is not a run: there is no {JOURNAL} in it")
    lines, torn_bytes = read_with_tail(journal)
    log = RunLog.of([line.record for line in lines], journal)
    if not log.starts:
        raise FolderError(f"{log.path} holds no finished record yet; start the run again to resume it")
    missing: tuple[str, ...] = ()
    if journal != run:
        try:
            check_checkpoint(run, log)
            missing = _missing(run, log)
        except FolderError:
            if len(read(journal)) == len(lines):
                raise
            return summarise(run)  # the run wrote more in the meantime
        if missing and len(read(journal)) > len(lines):
            return summarise(run)
    start = log.starts[0]
    return RunSummary(
        run,
        start.config,
        start.groups,
        tuple(log.tasks),
        tuple(log.starts),
        lines[-1].sha256,
        len(lines),
        torn_bytes,
        next((session.headline for session in reversed(log.starts) if session.headline is not None), None),
        missing,
    )


def _missing(folder: Path, log: RunLog) -> tuple[str, ...]:
    named = [stored.file for stored in log.files if not (folder / stored.file).is_file()]
    weights = [stored.file.replace("model.json", "weights-*.safetensors") for stored in log.checkpoints]
    return (*named, *(place for place in weights if not any(folder.glob(place))))


def find_runs(place: str | Path) -> list[Path]:
    """Return the runs in a place, by name: itself, a folder or a journal; an archive's; or those of grids in it.

    A grid is a folder with runs or archives of journals in it. The place may be a grid, or hold grids, or folders of
    grids, as a study's does.
    """
    place = Path(place)
    if archive_of(place) is not None:
        runs = archived_runs(place)
    elif not os.path.exists(place):  # unlike Path.exists, it takes any name
        raise FolderError(f"{place}: there is no such folder")
    elif _is_there(journal_of(place)):
        runs = [place]
    else:
        inside = _no_runs(place)
        grids = [place, *inside, *(folder for each in inside for folder in _no_runs(each))]
        runs = sorted(run for grid in grids for run in _runs_of(grid))
    if not runs:
        raise FolderError(f"{place} holds no runs: there is no {JOURNAL} in it or in the folders under it")
    return runs


def _runs_of(grid: Path) -> Iterator[Path]:
    """Yield the runs in a folder. A journal in the folder PLACE replaces the one of the same name in PLACE.tar.xz."""
    if os.path.isdir(grid):
        os.listdir(grid)  # glob takes a folder that cannot be read for an empty one
    yield from (path.parent for path in grid.glob(f"*/{JOURNAL}"))
    yield from grid.glob("*.jsonl")
    for archive in (path for path in grid.glob(f"*{SUFFIX}") if path.is_file() and holds_journals(path)):
        later = grid / archive.name.removesuffix(SUFFIX)
        yield from (run for run in archived_runs(archive) if not (later / run.name).is_file())


def _no_runs(place: Path) -> list[Path]:
    """Return the folders in a place that are not runs."""
    return [folder for folder in place.glob("*/") if not (folder / JOURNAL).is_file()]


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
