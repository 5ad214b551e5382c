"""Files and folders that exist whole or not at all, even after a crash of the machine.

Everything a run writes goes through here or through the journal, one system call after another.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

try:
    import fcntl

    CAN_LOCK = True
except ImportError:  # Windows has no fcntl; runs can be read there, not written
    CAN_LOCK = False

from bocl.errors import DamagedError, FolderError, WorkError
from bocl.records.record import StoredFile

PARTIAL = ".partial"  # ends the name of a file that is still being written
# what is ours in the folder of a model or a checkpoint
OURS = re.compile(r"(model\.json|weights-[0-9a-f]{16}\.safetensors|last)((\.[0-9a-f]{8})?\.partial)?")
FULL = (errno.ENOSPC, errno.EDQUOT)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file next to its place, wait until the disk has it, then move it there; folders are made as needed."""
    # A name of its own: another process may be writing the same file.
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        make_folder(path.parent)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, path)
        sync_directory(path.parent)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def lock_file(descriptor: int, *, wait: bool) -> None:
    """Lock an open file or folder for this process, or raise BlockingIOError if another has it and we do not wait.

    The kernel lets go of the lock when the process dies. A system without such locks holds nothing.
    """
    if CAN_LOCK:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def open_file(path: Path) -> io.BufferedReader:
    """Open a file to read it. A pipe or a device is an OSError: reading it might never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a file")
    return path.open("rb")


def describe(place: str, data: bytes) -> StoredFile:
    """Return the name, size and hash of a file with these bytes."""
    return StoredFile(place, len(data), hashlib.sha256(data).hexdigest())


def read_stored(folder: Path, stored: StoredFile) -> bytes:
    """Return the bytes of a file, or refuse one that is not as recorded; its size is checked before it is read."""
    path = folder / stored.file
    way_out = "restore it from a copy, or start again in another folder"
    try:
        size = path.stat().st_size
        if size != stored.bytes:
            raise DamagedError(f"{path} is damaged: it has {size} bytes, recorded were {stored.bytes}; {way_out}")
        with open_file(path) as file:
            data = file.read()
    except PermissionError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}; correct its permissions") from error
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}; {way_out}") from error
    if describe(stored.file, data) != stored:
        raise DamagedError(f"{path} is damaged: its hash is not the one recorded; {way_out}")
    return data


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, so that their names survive a crash.

    An empty folder counts as new: its maker may have died before its name reached the disk.
    """
    if folder == folder.parent or (folder.is_dir() and any(folder.iterdir())):
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    with suppress(PermissionError):  # a folder that was given to us in one we may not read
        sync_directory(folder.parent)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with our files in it, which nothing names any more; failing to is harmless.

    A folder with something else in it stays, and so does that.
    """
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            for inside in path.iterdir():
                if OURS.fullmatch(inside.name) and not inside.is_dir():
                    inside.unlink()
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


def sync_directory(folder: Path) -> None:
    """Make the names in ``folder`` durable: syncing a new file does not save its directory entry."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> WorkError:
    """Return the error of a disk that refuses what is written; what was written before is whole."""
    way_out = "free space on the disk" if error.errno in FULL else "check the disk"
    return WorkError(
        f"{path}: cannot be written: {error.strerror}; {way_out}, then run the same command again (a run resumes where "
        "it stopped)"
    )


def check_place(place: Path, opening: bytes, kind: str) -> None:
    """Refuse to overwrite any file but one of the same kind, which begins with ``opening``."""
    try:
        with open_file(place) as file:
            ours = file.read(len(opening)) == opening
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(f"{place} cannot be written: {error.strerror}; give another file with -o") from error
    if not ours:
        raise FolderError(f"{place} is there already and is not a {kind}; give another file with -o")
