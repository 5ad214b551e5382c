"""Files and folders that are there whole or not at all, also after a crash of the machine.

Everything a run writes goes through here or through the journal, one system call after another.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from bocl.errors import WorkError

PARTIAL = ".partial"  # ends the name of a file that is still being written
FULL = (errno.ENOSPC, errno.EDQUOT)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, and the folders it needs, beside its place, wait until the disk has it, then move it there."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        make_folder(path.parent)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, path)
        sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, so that their names survive a crash."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_directory(folder.parent)


def remove(path: Path) -> None:
    """Remove a file or a folder that nothing names any more; what cannot be removed now is harmless."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def sync_directory(folder: Path) -> None:
    """Make the names in ``folder`` durable: syncing a new file alone does not save its directory entry."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> WorkError:
    """Return the error of a disk that does not take what a run writes; what it took before is whole."""
    way_out = "free space on the disk" if error.errno in FULL else "see to the disk"
    return WorkError(
        f"{path}: cannot be written: {error.strerror}; {way_out}, then run the same command again: it goes on "
        "where it stopped"
    )
