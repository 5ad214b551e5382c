"""The user's own tasks on record: where each came from and what it was, so that a change shows by name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bocl.errors import DataError, FolderError
from bocl.experiment.build import build_stream, stream_of_entries
from bocl.experiment.config import OWN_STREAM, Config
from bocl.records.record import GivenTask
from bocl.records.run_log import RunLog, Start
from bocl.tasks.entries import Entry, find_entry
from bocl.tasks.entry_stream import EntryStream
from bocl.tasks.images import fingerprint_of
from bocl.tasks.task import Split, Task, TaskStream, checked_index
from bocl.wording import counted


def given_tasks(stream: TaskStream) -> tuple[GivenTask, ...]:
    """Return what goes on record of a stream of files; nothing of other streams, whose data has one fingerprint."""
    if not isinstance(stream, EntryStream):
        return ()
    return tuple(
        GivenTask(entry.name, "" if entry.path == Path() else str(entry.path), entry.sha256, entry.label)
        for entry in stream.entries
    )


def check_given(log: RunLog, given: Sequence[GivenTask]) -> None:
    """Refuse tasks other than those that a run has begun, by name."""
    if not log.starts or not (given or log.starts[-1].given):
        return
    if len(given) < log.begun:
        raise FolderError(
            f"{log.path} has begun {counted(log.begun, 'task')}, but {len(given)} are given; give all of them, in order"
        )
    for number, (then, now) in enumerate(zip(log.starts[-1].given[: log.begun], given, strict=False), start=1):
        if number > len(log.tasks) and then.name != now.name:
            data = then.place or "its arrays"
            raise FolderError(f"task '{then.name}' of {log.path} is unfinished; finish it first, from {data}")
        if then.name != now.name:
            raise FolderError(
                f"task {number} of {log.path} is '{then.name}', not '{now.name}'; tasks keep their order, and new ones "
                "come last"
            )
        if (then.sha256, then.label) != (now.sha256, now.label):
            raise FolderError(
                f"{now.place or now.name} has changed since task {number}, '{now.name}', was begun; restore it, or "
                "begin another run in another folder"
            )


@dataclass(frozen=True, eq=False)
class Recorded:
    """The data of a session, as far as it is at hand.

    stream   its tasks; None if none is at hand
    missing  {number of a task: why its data is not at hand}
    """

    stream: TaskStream | None
    missing: dict[int, str] = field(default_factory=dict)


def recorded_stream(
    config: Config,
    start: Start,
    data: str | None,
    *,
    first: int = 0,
    trust: bool = False,
    given: TaskStream | None = None,
) -> Recorded:
    """Return the data that a session ran on; refuse what has changed, by name.

    data   the folder of the data; of files of the user's own, one in which they lie now
    first  number, from 0, of the first task that is needed
    trust  whether a stream that is code of the user's may be run
    given  the data of tasks that were given as arrays or as an object
    """
    every = range(first, start.tasks)
    if start.given:
        stream = _GivenStream(config, start, data, given)
        return Recorded(stream, {number: why for number in every if (why := stream.why_missing(number))})
    if config.stream.name == OWN_STREAM and given is None:
        return Recorded(None, dict.fromkeys(every, "the stream was given as an object"))
    if config.stream.is_code and not trust:
        return Recorded(None, dict.fromkeys(every, "the stream is code, which --trust lets run"))
    return Recorded(build_stream(config, data) if given is None else given)


class _GivenStream:
    """Tasks on record: files that may have moved, and arrays that may be given again."""

    def __init__(self, config: Config, start: Start, data: str | None, given: TaskStream | None) -> None:
        self._start = start
        self._given = {given[number].name: number for number in range(len(given))} if given is not None else {}
        self._stream = given
        self._files = stream_of_entries(config, [_entry(task, data) for task in start.given])

    def why_missing(self, number: int) -> str:
        """Say why the data of a task is not at hand, '' if it is; refuse what has changed."""
        task, path = self._start.given[number], self._files.entries[number].path
        if task.place and not os.path.exists(path):
            return f"{task.place} is not there (--data FOLDER says where it is)"
        if task.place and find_entry(path).sha256 != task.sha256:
            raise DataError(f"{path} has changed since task '{task.name}' was learnt from it; restore it")
        if not task.place and task.name not in self._given:
            return f"the data of task '{task.name}', which was given as arrays, is not there"
        if not task.place and array_fingerprint(*self._arrays(number)) != task.sha256:
            raise DataError(f"the samples of task '{task.name}' are not those it was learnt from")
        return ""

    def _arrays(self, number: int) -> tuple[Task, Split]:
        assert self._stream is not None
        place = self._given[self._start.given[number].name]
        return self._stream[place], self._stream.test_split(place)

    def __len__(self) -> int:
        return len(self._start.given)

    def __getitem__(self, index: int) -> Task:
        in_file = self._start.given[checked_index(index, len(self))].place
        return self._files[index] if in_file else replace(self._arrays(index)[0], index=index)

    def test_split(self, index: int) -> Split:
        in_file = self._start.given[checked_index(index, len(self))].place
        return self._files.test_split(index) if in_file else self._arrays(index)[1]

    def fingerprint(self) -> str:
        return self._start.data


def array_fingerprint(task: Task, test: Split) -> str:
    """Return a sha256 of all that a task given as arrays holds."""
    parts = [array.numpy() for split in (task.train, task.validation, test) for array in (split.raw, split.labels)]
    about = f"{task.labels}\n{task.class_weights}\n{fingerprint_of(*parts)}"
    return hashlib.sha256(about.encode()).hexdigest()


def _entry(task: GivenTask, data: str | None) -> Entry:
    """Return where a task's file is now: in the folder that is given, or where it was."""
    was = Path(task.place)
    places = [was] if data is None else [Path(data) / was, Path(data) / was.name, was]
    found = next((place for place in places if os.path.exists(place)), was)
    return Entry(task.name, found, task.sha256, task.label)
