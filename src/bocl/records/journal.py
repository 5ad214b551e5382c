"""An append-only journal: one record per line, on the disk before ``append`` returns.

A line is a JSON object that any tool can read:

    {"before":"9c1e…","sha256":"0f3a…","record":{"kind":"task","index":0}}

``sha256`` is that of ``before`` and the record's bytes exactly as they stand in the line; ``before`` is the
``sha256`` of the line before, 64 zeros in the first. So the lines are a chain: a line that is edited, left out,
doubled or moved shows, and the last hash, the *head*, speaks for the whole history. Both come first and have
a fixed length, so the bytes they speak for are found without parsing them.

``encode``, ``decode`` and ``scan`` turn records into lines and back and touch no file; ``Journal`` is the file.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bocl.errors import DamagedError, FolderError, InputError, WorkError
from bocl.records.archives import archived_bytes
from bocl.records.files import CAN_LOCK, FULL, cannot_write, lock_file, open_file, sync_directory, write_whole

FORMAT = 4  # of a run's folder; 1 had no chain, 2 other names for some fields, 3 a whole learner in every checkpoint
READABLE = (2, 3, 4)
BEGINNING = "0" * 64  # what the first line has before it

_OPENING = b'{"before":"'
_HEADER = re.compile(re.escape(_OPENING) + rb'([0-9a-f]{64})","sha256":"([0-9a-f]{64})","record":')
_ENDING = b"}\n"
_OPENING_OF_FORMAT_1 = b'{"check":"'


# Records: one line each.


@dataclass(frozen=True)
class Line:
    """One line as it was read: the hash of the line before, its own, and the record."""

    before: str
    sha256: str
    record: dict[str, Any]


def encode(record: Mapping[str, object], before: str = BEGINNING) -> tuple[bytes, str]:
    """Return the line for ``record``, newline included, and its hash; equal records give equal bytes.

    Floats come back as the same bits, tuples as lists. JSON has no NaN: it is written as ``null``, because
    a NaN here is a measurement that does not exist (a failed trial's accuracy) and must not stop a run.
    An infinity is refused: ``null`` would hide a number that is wrong.
    """
    plain = to_json(record, "record")
    payload = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    sha256 = _hash(before, payload)
    head = f'{before}","sha256":"{sha256}","record":'.encode("ascii")
    return b"".join((_OPENING, head, payload, _ENDING)), sha256


def decode(line: bytes) -> Line | None:
    """Return what is in ``line`` (newline included), or None when the line is damaged or cut short."""
    header = _HEADER.match(line)
    if header is None or not line.endswith(_ENDING):
        return None
    payload = line[header.end() : -len(_ENDING)]
    before, sha256 = header[1].decode("ascii"), header[2].decode("ascii")
    if sha256 != _hash(before, payload):
        return None
    try:
        record = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return Line(before, sha256, record) if isinstance(record, dict) else None


def scan(data: bytes, path: Path) -> tuple[list[Line], int]:
    """Return the lines in a journal's bytes and the length of its intact part; ``path`` is for messages.

    Whatever follows the intact part is a torn tail: what an append leaves when its process or machine dies.
    Damage anywhere else, and a line that does not follow the one before it, is refused.
    """
    if data.startswith(_OPENING_OF_FORMAT_1):
        raise FolderError(
            f"{path} has format 1, of an earlier bocl; this version reads format {FORMAT}: "
            "read it with the version that wrote it, or run it again in another folder"
        )
    lines: list[Line] = []
    head, start = BEGINNING, 0
    while start < len(data):
        newline = data.find(b"\n", start)
        end = len(data) if newline < 0 else newline + 1
        line = decode(data[start:end])
        if line is None:
            if end == len(data) and _may_be_torn(data[start:], first=start == 0):
                break
            raise DamagedError(
                f"{path}, line {len(lines) + 1}: damaged, its checksum does not match; "
                "restore the file from a copy, or start again in another folder"
            )
        if line.before != head:
            raise DamagedError(
                f"{path}, line {len(lines) + 1}: it does not follow the line before it, so a line was removed, "
                "added, moved or edited; restore the file from a copy, or start again in another folder"
            )
        lines.append(line)
        head, start = line.sha256, end
    return lines, start


def _may_be_torn(tail: bytes, *, first: bool) -> bool:
    """Whether a damaged last line can be one unfinished append, so that cutting it loses no record."""
    if _HEADER.search(tail, 1):
        return False  # two lines run together by a damaged newline: the first of them was finished
    if tail.endswith(_ENDING) and b"\0" not in tail:
        return False  # an unfinished append lacks its end, or the zeros of unwritten blocks stand in it
    # A file whose only line does not even begin like ours is not a journal, and is not touched.
    return not first or _OPENING.startswith(tail[: len(_OPENING)])


def _hash(before: str, payload: bytes) -> str:
    return hashlib.sha256(before.encode("ascii") + payload).hexdigest()


def to_json(value: object, where: str) -> object:
    """Return ``value`` as JSON can hold it, NaN as null, or raise InputError naming the place inside the record."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise InputError(f"{where}: {value} cannot be journalled; write a finite number or None")
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"{where}: the key {key!r} cannot be journalled; keys are strings")
        return {key: to_json(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise InputError(
        f"{where}: a {type(value).__name__} cannot be journalled; "
        "convert it to a number, a string, a list or a dict first"
    )


# The journal itself.


class Journal:
    """The one writer of a journal file; open it with ``Journal.open`` and close it, or use ``with``.

    path     the file
    records  what the file held when it was opened, oldest first
    head     the hash of the last line, which speaks for all lines
    """

    def __init__(self, path: Path, descriptor: int, lines: list[Line], intact: int, files: ExitStack) -> None:
        self.path = path
        self.records = [line.record for line in lines]
        self.head = lines[-1].sha256 if lines else BEGINNING
        self._descriptor = descriptor
        self._intact = intact  # bytes of whole lines; a torn tail may follow them
        self._files = files  # closes the file, then lets go of the lock
        self._open = True

    @classmethod
    def open(cls, path: str | Path) -> Journal:
        """Lock the journal and read what is there; a new file is made when needed.

        A torn tail stays until ``mend`` or the first append: whoever opens a journal and refuses it changes nothing.
        """
        path = Path(path)
        with ExitStack() as files:
            descriptor = _open_locked(path, path, files)
            lock = path.with_name(f"{path.name}.lock")  # what earlier versions lock, and one may be at work
            if os.path.lexists(lock):
                _open_locked(lock, path, files)
            try:
                # An empty file may be one whose maker died before its name reached the disk, so it counts as new.
                if os.fstat(descriptor).st_size == 0:
                    sync_directory(path.parent)
                data = _bytes_of(path)
                lines, intact = scan(data, path)
            except OSError as error:
                raise cannot_write(path, error) from error
            return cls(path, descriptor, lines, intact, files.pop_all())

    def check_place(self) -> None:
        """Stop if the file is no longer at its path: what is written next to it now would not be found later."""
        try:
            there = os.path.samestat(os.lstat(self.path), os.fstat(self._descriptor))
        except OSError:
            there = False
        if there:
            return
        if os.fstat(self._descriptor).st_nlink == 0 and self.path.parent.is_dir() and not os.path.lexists(self.path):
            write_whole(self.path, os.pread(self._descriptor, self._intact, 0))  # nobody else has it any more
            found = "was removed during the run, which stops here; it is back: run the same command again to resume"
        else:
            found = (
                "was moved or replaced during the run, which stops here; what was recorded is whole: move the folder "
                "back and run the same command again to resume"
            )
        self.close()
        raise WorkError(f"{self.path} {found}")

    def append(self, record: Mapping[str, object]) -> None:
        """Write one line in one call; when this returns, the record survives a crash of the machine.

        After a failed write the journal is closed.
        """
        line, sha256 = encode(record, self.head)
        if not self._open:
            raise WorkError(f"{self.path}: the journal is closed; open it again to append")
        self.check_place()
        self.mend()
        try:
            if os.write(self._descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, "the disk took only part of the line")
            os.fsync(self._descriptor)
        except OSError as error:
            # The caller learns that the line is not there, so it must not turn up later. Should even this
            # fail, the next open cuts off whatever part of the line remains.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._intact)
            self.close()
            raise cannot_write(self.path, error) from error
        self.head, self._intact = sha256, self._intact + len(line)

    def mend(self) -> None:
        """Cut off a torn tail."""
        try:
            if os.fstat(self._descriptor).st_size > self._intact:
                os.ftruncate(self._descriptor, self._intact)
                os.fsync(self._descriptor)
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def close(self) -> None:
        """Release the file and its lock; closing twice is harmless."""
        self._open = False
        self._files.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_locked(path: Path, journal: Path, files: ExitStack) -> int:
    """Open and lock a file for the one writer of a journal; the kernel frees the lock when the process dies.

    A link is refused: what it leads to is not the run's.
    """
    if not CAN_LOCK:
        raise FolderError(f"{journal}: a run is written under a POSIX file lock, which this system does not have")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno in FULL:
            raise cannot_write(path, error) from error
        reason = "it is a link, and what it leads to is not the run's" if path.is_symlink() else error.strerror
        raise FolderError(f"{path}: cannot be opened for writing: {reason}") from error
    files.callback(os.close, descriptor)
    try:
        lock_file(descriptor, wait=False)
    except BlockingIOError as error:
        raise FolderError(
            f"{journal}: the run is in use by another process; wait until it ends or choose another folder"
        ) from error
    except OSError as error:
        raise FolderError(f"{path}: cannot be locked: {error.strerror}; choose a local folder") from error
    return descriptor


def read(path: str | Path) -> list[dict[str, Any]]:
    """Return the records of a journal without locking it, even while it is being written.

    A last line that is still being written, or was torn by a crash, is left out; the file is not changed.
    """
    return [line.record for line in read_with_tail(path)[0]]


def read_with_tail(path: str | Path) -> tuple[list[Line], int]:
    """Return the lines of a journal, and how many bytes of an unfinished line follow them."""
    path = Path(path)
    data = _bytes_of(path)
    lines, intact = scan(data, path)
    return lines, len(data) - intact


def _bytes_of(path: Path) -> bytes:
    archived = archived_bytes(path)
    if archived is not None:
        return archived
    try:
        with open_file(path) as file:
            return file.read()
    except OSError as error:
        raise FolderError(f"{path}: cannot be read: {error.strerror}; is this a run's folder?") from error
