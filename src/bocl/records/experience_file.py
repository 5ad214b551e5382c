"""memory.json: what searches of finished tasks tried, carried from one run to another.

{"format": 1, "tasks": [{"difficulty": …, "best": z, "trials": [{"widths", "accuracy", "parameters", "reward"} …]} …]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bocl.errors import DataError
from bocl.records.files import write_whole
from bocl.records.journal import to_json
from bocl.records.record import Experience
from bocl.records.summary import RunSummary
from bocl.settings import parse_value

FORMAT = 1


def experience_of(runs: Sequence[RunSummary]) -> list[Experience]:
    """Return what the searches of runs tried, task by task in the order of the runs."""
    return [Experience(task.difficulty, task.widths, task.trials) for run in runs for task in run.tasks if task.trials]


def write_experience(tasks: Sequence[Experience], path: Path) -> None:
    """Write experience as JSON."""
    content = to_json({"format": FORMAT, "tasks": [asdict(task) for task in tasks]}, "memory")
    write_whole(path, f"{json.dumps(content, separators=(',', ':'))}\n".encode())


def read_experience(path: str | Path) -> tuple[Experience, ...]:
    """Read experience, or raise DataError saying what is wrong with it; nothing in the file is trusted."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"memory {path} cannot be read: {error}; `bocl memory RUN -o FILE` makes one") from error
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise DataError(f"memory {path} has format {found!r}; this version reads {FORMAT}: `bocl memory RUN -o FILE`")
    memory: _Memory = parse_value(_Memory, data, f"memory {path}")
    for task in memory.tasks:
        _check(task, path)
    return memory.tasks


@dataclass(frozen=True)
class _Memory:
    """What the file holds."""

    format: int
    tasks: tuple[Experience, ...]


def _check(task: Experience, path: str | Path) -> None:
    """Refuse widths that no network has, and accuracies that no child has."""
    for trial in task.trials:
        if len(trial.widths) != len(task.best) or min(trial.widths, default=-1) < 0:
            raise DataError(f"memory {path}: widths {trial.widths} are not one number, 0 or more, per hidden group")
        if not trial.failed and not (0 <= trial.accuracy <= 1 and math.isfinite(trial.reward)):
            raise DataError(f"memory {path}: widths {trial.widths} have accuracy {trial.accuracy}; it lies in 0 … 1")
