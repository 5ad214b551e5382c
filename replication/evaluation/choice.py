"""What came of the tries, and which settings every system takes: the best by validation samples.

    tries/STREAM.json    system → its tries: settings, validation accuracy of every task after the last one, parameters

A try that failed counts as one, and is not chosen. Of equal ones the smaller network is, and then the earlier try.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from bocl.records.summary import RunSummary, find_runs, summarise
from replication.evaluation.sizes import Overrides
from replication.evaluation.tries import System, tries
from replication.records import name_of, preset_of

Tried = Mapping[str, Any]


def try_name(system: str, number: int) -> str:
    """Return the name of a try in its study."""
    return f"{system}-try-{number}"


def scored(
    systems: Sequence[System], records: Path, *, failed: Sequence[str] = (), count: int | None = None
) -> dict[str, Any]:
    """Return what came of the tries of the systems of a stream, from the journals of their runs.

    failed  names of tries that were run and broke down
    """
    (stream,) = {system.stream for system in systems}
    runs = {name_of(run): run for run in map(summarise, find_runs(records)) if preset_of(run) == stream}
    found: dict[str, Any] = {}
    for system in systems:
        wanted = {try_name(system.name, number): settings for number, settings in enumerate(tries(system, count))}
        there = [runs[name] for name in wanted if name in runs and runs[name].finished]
        lacking = wanted.keys() - {name_of(run) for run in there}
        if lacking != wanted.keys() & set(failed):
            raise SystemExit(
                f"{stream}: {', '.join(sorted(lacking))} have no record; run them, or say that they failed"
            )
        sessions = [session for run in there for session in run.sessions]
        found[system.name] = {
            "commits": sorted({session.versions["commit"] for session in sessions}),
            "machines": sorted({f"{one.machine['name']}, torch {one.versions['torch']}" for one in sessions}),
            "tries": [_score(settings, runs.get(name)) for name, settings in wanted.items()],
        }
    return found


def _score(settings: Overrides, run: RunSummary | None) -> dict[str, Any]:
    if run is None or not run.finished:
        return {"settings": list(settings), "validation": None}
    last = run.tasks[-1]
    return {
        "settings": list(settings),
        "validation": [round(accuracy, 5) for accuracy in last.validation_row],
        "parameters": last.stored,
        "seconds": round(sum(task.seconds for task in run.tasks), 1),
    }


def best(tried: Sequence[Tried]) -> int:
    """Return the number of the try that is chosen."""
    finished = [number for number, one in enumerate(tried) if one["validation"] is not None]
    return max(finished, key=lambda number: (mean(tried[number]), -tried[number]["parameters"], -number))


def mean(one: Tried) -> float:
    """Return the validation accuracy of a finished try."""
    return fmean(one["validation"])


def recorded(place: Path, stream: str) -> dict[str, Any]:
    """Return what is on record of a stream, by system; nothing where there is no record."""
    file = place / "tries" / f"{stream}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def chosen(system: System, place: Path) -> Tried:
    """Return the best try of a system."""
    tried: list[Tried] = recorded(place, system.stream)[system.name]["tries"]
    return tried[best(tried)]
