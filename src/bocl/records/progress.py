"""How far runs are, read from their journals while others write them: nothing is locked, nothing is written.

A journal is only looked through for what is shown. Its hashes are checked, and what is read of its records; the rest is
for ``run_log.py``, which takes several times as long.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from bocl.checks import Fraction
from bocl.errors import BoclError, FolderError, InputError
from bocl.records.earlier import upgrade
from bocl.records.journal import read
from bocl.records.record import RoundFit, RoundRecord
from bocl.records.run_log import JOURNAL, Start, read_start
from bocl.records.summary import journal_of
from bocl.settings import parse_value

_Seconds = Annotated[float, Field(ge=0, le=1e9)]
_Tasks = Annotated[int, Field(le=10**9)]
_Row = Annotated[tuple[Fraction, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Progress:
    """What a run's journal says of how far it is.

    folder    of the run
    changed   when its journal was last written to, in seconds since 1970
    stamp     of its journal, by which a change shows
    method    "" until its first record is there
    stream    name of its stream
    alike     the same for all runs of one method, stream, network and recipe, whatever else differs: those of a preset
    tasks     how many it has to learn, as far as its last session knew; 0 until its first record is there
    seconds   that each finished task took
    accuracy  mean test accuracy over the finished tasks, by now; None before the first
    rounds    of the task under way that are on record
    children  that were trained in them
    spent     seconds that training them took
    node      name of the host of its last session; "" in early records
    device    of its last session
    problem   why its journal cannot be read; "" if it can

    A session that resumes a run is recorded with the first thing it adds; until then all this is of the one before.
    """

    folder: Path
    changed: float
    stamp: tuple[int, int]
    method: str = ""
    seed: int = 0
    stream: str = ""
    alike: str = ""
    tasks: int = 0
    seconds: tuple[float, ...] = ()
    accuracy: float | None = None
    rounds: int = 0
    children: int = 0
    spent: float = 0.0
    node: str = ""
    device: str = ""
    problem: str = ""

    @property
    def done(self) -> int:
        """How many tasks are finished."""
        return len(self.seconds)

    @property
    def finished(self) -> bool:
        """Whether all tasks are learnt that its last session knew."""
        return self.done >= self.tasks > 0


def progress_in(places: Iterable[str | Path], before: Sequence[Progress] = ()) -> list[Progress]:
    """Return how far the runs are in these places: runs, or folders with runs at any depth, by name.

    before  what an earlier call returned: a journal that was read then and has not changed since is not read again
    """
    known = {run.folder: run for run in before}
    folders = dict.fromkeys(folder for place in places for folder in runs_under(Path(place)))
    found = (progress_of(folder, known.get(folder)) for folder in folders)
    return [run for run in found if run is not None]


def progress_of(folder: Path, before: Progress | None = None) -> Progress | None:
    """Return how far a run is, None where there is no journal yet; ``before`` as in ``progress_in``."""
    journal = journal_of(folder)
    try:
        found = journal.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return Progress(folder, 0.0, (0, 0), problem=f"{journal}: cannot be read: {error.strerror}")
    stamp = (found.st_mtime_ns, found.st_size)
    if before is not None and before.stamp == stamp and not before.problem:
        return before
    facts: dict[str, Any] = {}
    try:
        facts = _facts(read(journal), journal)
    except BoclError as error:
        facts["problem"] = str(error)
    return Progress(folder, found.st_mtime, stamp, **facts)


def runs_under(place: Path) -> list[Path]:
    """Return the runs in a place by name: itself, or the folders under it with a journal, or that cannot be read.

    Links to folders are not followed: they may lead in circles.
    """
    if not os.path.exists(place):  # unlike Path.exists, it takes any name
        raise FolderError(f"{place}: there is no such folder")
    if os.path.isfile(journal_of(place)):
        return [place]
    os.listdir(place)  # a folder that cannot be read is told, and so is a file
    found: list[Path] = []
    for folder, inside, files in os.walk(place, onerror=lambda error: found.append(Path(error.filename))):
        if JOURNAL in files:
            found.append(Path(folder))
            inside.clear()
    return sorted(found)


def _facts(records: Iterable[dict[str, Any]], journal: Path) -> dict[str, Any]:
    """Return what records say, as fields of ``Progress``."""
    facts: dict[str, Any] = {}
    seconds: list[float] = []
    rounds: list[tuple[int, dict[str, Any]]] = []  # of the task under way, with their lines
    trained: list[RoundFit] = []
    line = 0
    try:
        for line, record in enumerate(map(upgrade, records), start=1):
            match record.pop("kind", None):
                case "start":
                    facts |= _session(read_start(record))
                case _ if line == 1:
                    raise InputError("the first record must be a start")
                case "task":
                    seconds.append(parse_value(_Seconds, record.get("seconds"), "task.seconds"))
                    facts["accuracy"] = fmean(parse_value(_Row, record.get("row"), "task.row"))
                    rounds.clear()
                case "pick":
                    facts["accuracy"] = fmean(parse_value(_Row, record.get("row"), "pick.row"))
                case "round":
                    rounds.append((line, record))
        for line, record in rounds:  # only these count, so only these are checked  # noqa: B007
            trained += parse_value(RoundRecord, record, "round").fits
    except InputError as error:
        return {"problem": f"{journal}, line {line}: not a record of a run: {error}"}
    spent = sum(fit.seconds for fit in trained)
    return {**facts, "seconds": tuple(seconds), "rounds": len(rounds), "children": len(trained), "spent": spent}


def _session(start: Start) -> dict[str, Any]:
    config = start.config
    alike = json.dumps([config.get(name) for name in ("method", "stream", "network", "recipe")], sort_keys=True)
    return {
        "method": config["method"],
        "seed": config["seed"],
        "stream": str(config["stream"].get("name", "")),
        "alike": hashlib.sha256(alike.encode()).hexdigest(),
        "tasks": parse_value(_Tasks, start.tasks, "start.config.stream.tasks"),
        "node": start.node,
        "device": str(start.machine.get("device", "")),
    }
