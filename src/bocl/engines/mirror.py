"""A run's folder, kept in a second place while the run goes on in the first.

``FolderChanges`` says in the first place what is new after every record, and ``Mirror`` does the same in the second, in
the order in which the run itself writes: files, then the journal's lines, then what is stale goes. So the second place
holds at any moment what the first one held after some record, and a run can be resumed from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bocl.experiment.config import Config
from bocl.experiment.store import open_journal
from bocl.records.files import PARTIAL, remove, write_whole
from bocl.records.journal import decode
from bocl.records.run_log import JOURNAL


@dataclass(frozen=True)
class Change:
    """What is new in a folder.

    files    place → content, of files that are new or others than before
    lines    that were added to the journal
    removed  places of files that are gone
    """

    files: dict[str, bytes] = field(default_factory=dict)
    lines: bytes = b""
    removed: tuple[str, ...] = ()


class FolderChanges:
    """Finds what is new in a run's folder since the last time it was asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read = 0  # bytes of the journal
        self._seen: dict[str, tuple[int, int, int]] = {}

    def __call__(self) -> Change:
        """Return what is new."""
        now = {place: _stamp(self._folder / place) for place in _places(self._folder)}
        new = [place for place, stamp in now.items() if self._seen.get(place) != stamp]
        change = Change(
            {place: (self._folder / place).read_bytes() for place in new},
            _bytes_from(self._folder / JOURNAL, self._read),
            tuple(place for place in self._seen if place not in now),
        )
        self._seen, self._read = now, self._read + len(change.lines)
        return change


class Mirror:
    """The second place. It holds the journal's lock, so nobody else writes there.

    records  how many were taken so far
    """

    def __init__(self, folder: Path, config: Config) -> None:
        self._folder = folder
        self._journal, _ = open_journal(folder, config)
        self.records = 0

    def content(self) -> dict[str, bytes]:
        """Return every file of the folder by its place, the journal too."""
        return {place: (self._folder / place).read_bytes() for place in (*_places(self._folder), JOURNAL)}

    def take(self, change: Change) -> None:
        """Do what was done in the first place."""
        for place, content in change.files.items():
            write_whole(self._folder / place, content)
        for line in change.lines.splitlines(keepends=True):
            found = decode(line)
            assert found is not None
            self._journal.append(found.record)
            assert self._journal.head == found.sha256
            self.records += 1
        for place in change.removed:
            remove(self._folder / place)
            with suppress(OSError):  # other files are still in its folder
                (self._folder / place).parent.rmdir()

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()


def write_content(folder: Path, content: Mapping[str, bytes]) -> FolderChanges:
    """Write the files of a folder, and return what finds changes of it from there on."""
    for place, data in content.items():
        if place != JOURNAL or data:
            write_whole(folder / place, data)
    changes = FolderChanges(folder)
    changes()
    return changes


def _places(folder: Path) -> list[str]:
    """Return the places of all files but the journal, and but those that are being written."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    places = (path.relative_to(folder).as_posix() for path in files if not path.name.endswith((PARTIAL, ".lock")))
    return sorted(place for place in places if place != JOURNAL)


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns  # a file that is written anew is another one


def _bytes_from(path: Path, start: int) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        file.seek(start)
        return file.read()
