"""The user's own tasks on record: where each came from and what it was, so that a change shows by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bocl.errors import DataError, FolderError
from bocl.experiment.build import build_stream, stream_of_entries
from bocl.experiment.config import OWN_STREAM, Config
from bocl.records.record import GivenTask
from bocl.records.run_log import RunLog, Start
from bocl.tasks.entries import Entry, find_entry
from bocl.tasks.entry_stream import EntryStream
from bocl.tasks.task import TaskStream
from bocl.wording import counted


def given_tasks(stream: TaskStream) -> tuple[GivenTask, ...]:
    """Return what goes on record of a stream of files; nothing of other streams, whose data has one fingerprint."""
    if not isinstance(stream, EntryStream):
        return ()
    return tuple(GivenTask(entry.name, str(entry.path), entry.sha256) for entry in stream.entries)


def check_given(log: RunLog, given: Sequence[GivenTask]) -> None:
    """Refuse tasks other than those that a run has begun, by name."""
    if not log.starts or not (given or log.starts[-1].given):
        return
    if len(given) < log.begun:
        raise FolderError(
            f"{log.path} has begun {counted(log.begun, 'task')}, but {len(given)} are given; give all of them, in order"
        )
    for number, (then, now) in enumerate(zip(log.starts[-1].given[: log.begun], given, strict=False), start=1):
        if then.name != now.name:
            raise FolderError(
                f"task {number} of {log.path} is '{then.name}', not '{now.name}'; tasks keep their order, and new ones "
                "come last"
            )
        if then.sha256 != now.sha256:
            raise FolderError(
                f"{now.place or now.name} has changed since task {number}, '{now.name}', was begun; restore it, or "
                "begin another run in another folder"
            )


def recorded_stream(
    config: Config, start: Start, data: str | None, *, first: int = 0, trust: bool = False
) -> TaskStream | None:
    """Return the stream that a session ran on, or None if it is not at hand.

    data   the folder of the data; of files of the user's own, the one in which they lie now
    first  number, from 0, of the first task that is needed of such files
    trust  whether a stream that is code of the user's may be run
    """
    if start.given:
        entries = [_entry(task, data) for task in start.given]
        needed = zip(start.given[first:], entries[first:], strict=True)
        if not all(task.place and os.path.exists(entry.path) for task, entry in needed):
            return None
        for entry in entries[first:]:
            if find_entry(entry.path).sha256 != entry.sha256:
                raise DataError(f"{entry.path} has changed since task '{entry.name}' was learnt from it; restore it")
        return stream_of_entries(config, entries)
    if config.stream.name == OWN_STREAM or (config.stream.is_code and not trust):
        return None
    return build_stream(config, data)


def _entry(task: GivenTask, data: str | None) -> Entry:
    place = Path(task.place)
    return Entry(task.name, place if data is None else Path(data) / place.name, task.sha256)
