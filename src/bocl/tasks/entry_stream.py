"""A stream of tasks in files and folders of the user's, each read when it is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from bocl.errors import DataError
from bocl.tasks.entries import Entry, find_entry, is_table, read_entry
from bocl.tasks.own import Cuts, make_own_task
from bocl.tasks.task import Split, Task, checked_index
from bocl.tasks.texts import TextFormat


class EntryStream:
    """Tasks in order, one per entry.

    entries      where each task's data is, and what it must be
    label        the column of labels, in tables and datasets
    standardise  whether floats are scaled; None: those of tables are, because columns have units of their own
    text         the column of texts in tables, and how they become token ids
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        cuts: Cuts,
        *,
        label: str | None = None,
        standardise: bool | None = None,
        text: tuple[str, TextFormat] | None = None,
    ) -> None:
        self.entries = tuple(entries)
        self._cuts, self._label, self._standardise, self._text = cuts, label, standardise, text
        self._read_last: dict[int, tuple[Task, Split]] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Task]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Task:
        return self._read(index)[0]

    def test_split(self, index: int) -> Split:
        """Return the sealed samples of task ``index``."""
        return self._read(index)[1]

    def fingerprint(self) -> str:
        """Return a sha256 of the names and contents of all entries."""
        return fingerprint_of_tasks((entry.name, entry.sha256) for entry in self.entries)

    def _read(self, index: int) -> tuple[Task, Split]:
        kept = self._read_last.get(checked_index(index, len(self)))
        if kept is not None:
            return kept
        entry = self.entries[index]
        if find_entry(entry.path).sha256 != entry.sha256:
            raise DataError(
                f"{entry.path} has changed since task '{entry.name}' began; restore it, or begin another run"
            )
        parts, columns = read_entry(entry, entry.label or self._label, self._text)
        scaled = is_table(entry.path) if self._standardise is None else self._standardise
        cuts = replace(self._cuts, standardise=scaled)
        task, test = make_own_task(entry.name, index, parts, cuts, partial(_part_name, entry))
        made = replace(task, columns=columns, text=self._text[1] if self._text else None), test
        # The next task is read while one is learnt, and its test samples are asked for afterwards: two are enough.
        self._read_last = {**dict([*self._read_last.items()][-1:]), index: made}
        return made


def fingerprint_of_tasks(tasks: Iterable[tuple[str, str]]) -> str:
    """Return a sha256 of tasks, each given by its name and the sha256 of its content."""
    lines = (f"{name}\n{sha256}\n" for name, sha256 in tasks)
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def _part_name(entry: Entry, part: str) -> str:
    return str(entry.path) if part == "train" else f"{entry.path}, {part}"
