"""prior_trials.json: the trials of finished tasks, carried from one run to another.

{"format": 1, "groups": ["fc1", …], "tasks": [{"difficulty": …, "best": z, "trials": [{"widths", "accuracy", …} …]} …]}
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bocl.errors import DataError, InputError
from bocl.records.files import open_file, write_whole
from bocl.records.journal import to_json
from bocl.records.record import Experience
from bocl.records.summary import RunSummary
from bocl.settings import parse_value
from bocl.wording import counted, shown

FORMAT = 1
MOST_WIDTH = 10**9  # far beyond any network


@dataclass(frozen=True)
class PriorTrials:
    """What the file holds.

    tasks   the trials of each
    groups  names of the hidden groups of the network that was searched; none in early files
    """

    format: int
    tasks: tuple[Experience, ...]
    groups: tuple[str, ...] = ()


def prior_trials_of(runs: Sequence[RunSummary]) -> PriorTrials:
    """Return the trials of runs that share a network, task by task in the order of the runs."""
    searched = [run for run in runs if any(task.trials for task in run.tasks)]
    if not searched:
        raise InputError(f"no task of {', '.join(str(run.folder) for run in runs)} was searched: there are no trials")
    first = searched[0]
    for run in searched:
        if run.groups != first.groups:
            names = [f"{one.folder} has the hidden groups {', '.join(one.groups)}" for one in (first, run)]
            raise InputError(f"{', '.join(names)}: no run can start from both; give runs of one network")
    tasks = [Experience(task.difficulty, task.widths, task.trials) for run in searched for task in run.tasks]
    return PriorTrials(FORMAT, tuple(task for task in tasks if task.trials), first.groups)


def write_prior_trials(found: PriorTrials, path: Path) -> None:
    """Write them as JSON."""
    content = to_json(asdict(found), "prior_trials")
    write_whole(path, f"{json.dumps(content, separators=(',', ':'))}\n".encode())


def read_prior_trials(path: str | Path, groups: Sequence[str]) -> tuple[Experience, ...]:
    """Return the trials in a file for a network with these hidden groups, or raise DataError; nothing is trusted."""
    content = _bytes(path)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"cannot be read: {error}") from error
    form = data.get("format") if isinstance(data, dict) else None
    if form != FORMAT:
        raise _unusable(path, f"has format {form!r}, and this version reads {FORMAT}")
    found: PriorTrials = parse_value(PriorTrials, data, f"prior_trials {path}")
    if not found.tasks:
        raise _unusable(path, "holds no task")
    if found.groups and found.groups != tuple(groups):
        raise DataError(
            f"prior_trials {path} comes from a network with the hidden groups {', '.join(found.groups)}; this one has "
            f"{', '.join(groups)}; take the trials of runs with the same network"
        )
    check_experience(found.tasks, len(groups), f"prior_trials {path}")
    return found.tasks


def fingerprint(path: str | Path) -> str:
    """Return the sha256 of the file."""
    return hashlib.sha256(_bytes(path)).hexdigest()


def check_experience(tasks: Sequence[Experience], groups: int, source: str) -> None:
    """Refuse widths that no network of so many hidden groups has, and numbers that no search can have found."""
    for number, task in enumerate(tasks, start=1):
        where = f"{source}, task {number} of {len(tasks)}"
        tried = [trial.widths for trial in task.trials]
        for widths in (task.best, *tried):
            if len(widths) != groups:
                theirs = counted(len(widths), "hidden group")
                raise DataError(
                    f"{where}: widths {shown(widths)} are for a network with {theirs}; this one has {groups}; "
                    "take the trials of runs with the same network"
                )
            if not all(0 <= width <= MOST_WIDTH for width in widths):
                raise DataError(f"{where}: widths {shown(widths)} are not numbers of units, 0 or more")
        children = [(trial.widths, trial.reads) for trial in task.trials]
        if len(set(children)) < len(children):
            twice = next(widths for widths, reads in children if children.count((widths, reads)) > 1)
            raise DataError(f"{where}: widths {twice} are there twice; every child is trained once")
        if tried and task.best not in tried:
            raise DataError(f"{where}: widths {task.best} were kept but never trained")
        if abs(task.difficulty) > 1:  # NaN is one that was not measured
            raise DataError(f"{where}: difficulty is {task.difficulty}; a difference of accuracies lies in -1 … 1")
        for trial in task.trials:
            if not trial.failed and not (0 <= trial.accuracy <= 1 and math.isfinite(trial.reward)):
                raise DataError(f"{where}: widths {trial.widths} have accuracy {trial.accuracy}; it lies in 0 … 1")


def _bytes(path: str | Path) -> bytes:
    try:
        with open_file(Path(path)) as file:
            return file.read()
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise _unusable(path, f"cannot be read: {reason}") from error


def _unusable(path: str | Path, why: str) -> DataError:
    return DataError(f"prior_trials {path} {why}; `bocl trials RUN -o FILE` makes one")
