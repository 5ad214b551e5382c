"""Files that are there whole or not at all, also after a crash of the machine."""

from __future__ import annotations

import os
from pathlib import Path

from bocl.errors import WorkError


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside its place, wait until the disk has it, then move it there."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise WorkError(f"{path}: cannot be written: {error.strerror}") from error


def sync_directory(folder: Path) -> None:
    """Make the names in ``folder`` durable: syncing a new file alone does not save its directory entry."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
