"""What came of the tries, and which settings every system takes: the best by validation samples.

    tried/STREAM/SYSTEM-try-N-seed-M.jsonl   the journal of every try, or an archive of them (bocl.engines.studies)
    tries/STREAM.json                        system → its tries: settings, validation accuracy of every task after the
                                             last one, parameters

A try whose loss was not finite counts as one, and is not chosen. Of equal ones the smaller network is, and then the
earlier try.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from bocl.engines.studies import PARTS, record_name, recorded
from bocl.experiment.study import Job
from bocl.records.summary import RunSummary
from replication.evaluation.sizes import Overrides
from replication.evaluation.tries import System, preset, tries, tuning_seed

Tried = Mapping[str, Any]
BROKE_DOWN = "not finite"  # what a study says of a run that did; other failures are of the machine


def tries_of(system: System, count: int | None = None) -> list[tuple[Overrides, Job]]:
    """Return the tries of a system: the settings drawn, and the run."""
    return [
        (
            settings,
            Job(
                preset(system.stream),
                f"{system.name}-try-{number}",
                system.tried_as,
                tuning_seed(),
                (*system.always, *settings, *system.shorter),
            ),
        )
        for number, settings in enumerate(tries(system, count))
    ]


def scored(systems: Sequence[System], records: Path, count: int | None = None) -> dict[str, Any]:
    """Return what came of the tries of the systems of a stream, from the journals of their runs."""
    down, lacking = set(broken_down(records)), []
    found: dict[str, Any] = {}
    for system in systems:
        wanted = [(settings, job, recorded(job, records)) for settings, job in tries_of(system, count)]
        lacking += [job.name for _, job, run in wanted if run is None and record_name(job) not in down]
        sessions = [session for _, _, run in wanted if run for session in run.sessions]
        found[system.name] = {
            "commits": sorted({session.versions["commit"] for session in sessions}),
            "machines": sorted({f"{one.machine['name']}, torch {one.versions['torch']}" for one in sessions}),
            "tries": [_score(settings, run) for settings, _, run in wanted],
        }
    if lacking:
        some = ", ".join(lacking[:3]) + (", …" if len(lacking) > 3 else "")
        raise SystemExit(f"{systems[0].stream}: {len(lacking)} tries have no record in {records} ({some}); run them")
    return found


def broken_down(records: Path) -> Iterator[str]:
    """Yield the names of records that are missing because the loss of their run was not finite."""
    parts = records / PARTS
    for line in parts.read_text(encoding="utf-8").splitlines() if parts.exists() else ():
        yield from (name for name, reason in json.loads(line).get("failed", {}).items() if BROKE_DOWN in reason)


def _score(settings: Overrides, run: RunSummary | None) -> dict[str, Any]:
    if run is None:
        return {"settings": list(settings), "validation": None}
    last = run.tasks[-1]
    return {
        "settings": list(settings),
        "validation": [round(accuracy, 5) for accuracy in last.validation_row],
        "parameters": last.stored,
        "seconds": round(sum(task.seconds for task in run.tasks), 1),
    }


def best(tried: Sequence[Tried]) -> int | None:
    """Return the number of the try that is chosen; None if all broke down."""
    finished = [number for number, one in enumerate(tried) if one["validation"] is not None]
    return max(finished, key=lambda number: (mean(tried[number]), -tried[number]["parameters"], -number), default=None)


def mean(one: Tried) -> float:
    """Return the validation accuracy of a finished try."""
    return fmean(one["validation"])


def results_of_tries(place: Path, stream: str) -> dict[str, Any]:
    """Return what came of the tries on a stream, by system; nothing where that was not written yet."""
    file = place / "tries" / f"{stream}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def chosen(system: System, place: Path) -> Tried | None:
    """Return the best try of a system; None if all broke down."""
    tried: list[Tried] = results_of_tries(place, system.stream)[system.name]["tries"]
    number = best(tried)
    return None if number is None else tried[number]
