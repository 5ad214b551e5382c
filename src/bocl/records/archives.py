"""Journals kept together in a ``.tar.xz``, which is read in place and decompressed once in a process.

    RESULTS.tar.xz               stands for all its runs
    RESULTS.tar.xz/NAME.jsonl    is one of them

An archive may come from anybody: it may hold only plain ``*.jsonl`` files without folders, within the limits below.
It is decompressed in memory, and no size that it declares is trusted.
"""

from __future__ import annotations

import io
import lzma
import os
import tarfile
from functools import lru_cache
from pathlib import Path

from bocl.errors import DamagedError, FolderError
from bocl.records.files import open_file

SUFFIX = ".tar.xz"
MOST_JOURNALS = 10_000
MOST_BYTES = 1 << 29  # of all journals together
_MOST_DICTIONARY = 1 << 28  # bytes that decompressing may hold besides them


def archive_of(path: Path) -> Path | None:
    """Return the archive that a path is or leads into, or None."""
    return next((each for each in (path, *path.parents) if each.name.endswith(SUFFIX) and os.path.isfile(each)), None)


def archived_bytes(path: Path) -> bytes | None:
    """Return the journal at ``ARCHIVE.tar.xz/NAME.jsonl``, or None."""
    archive = archive_of(path)
    return None if archive is None else _journals(archive).get(str(path.relative_to(archive)))


def archived_runs(place: Path) -> list[Path]:
    """Return the runs of an archive by name, or the one run in it that ``place`` names."""
    archive = archive_of(place)
    if archive is None:
        raise FolderError(f"{place} is not in an archive of journals, *{SUFFIX}")
    if place == archive:
        return [archive / name for name in sorted(_journals(archive))]
    if archived_bytes(place) is None:
        raise FolderError(f"{archive} holds no journal {place.relative_to(archive)}")
    return [place]


def _journals(archive: Path) -> dict[str, bytes]:
    try:
        stamp = archive.stat()
        return _read(archive, stamp.st_mtime_ns, stamp.st_size)
    except OSError as error:
        raise FolderError(f"{archive}: cannot be read: {error.strerror}") from error


@lru_cache(maxsize=8)
def _read(archive: Path, _changed: int, _size: int) -> dict[str, bytes]:
    with open_file(archive) as file:
        data = _decompressed(file.read(), archive)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            found = _members(tar, archive)
            end = tar.offset
    except FolderError:
        raise
    except Exception as error:  # damaged headers raise nearly anything
        raise _damaged(archive, str(error)) from error
    if data[end:].strip(b"\0"):  # tarfile stops silently at a damaged header
        raise _damaged(archive, "what follows its last journal is not a journal")
    return found


def holds_journals(archive: Path) -> bool:
    """Whether the first thing in an archive is a journal; any other .tar.xz in a folder of runs is somebody else's."""
    try:
        with lzma.open(archive) as file:
            name = file.read(tarfile.BLOCKSIZE)[:100].rstrip(b"\0")
    except (OSError, EOFError, lzma.LZMAError):
        return False
    return name.endswith(b".jsonl") and b"/" not in name


def _decompressed(data: bytes, archive: Path) -> bytes:
    most = MOST_BYTES + 2048 * MOST_JOURNALS  # headers and padding
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_DICTIONARY)
    try:
        content = decompressor.decompress(data, most + 1)
    except lzma.LZMAError as error:
        raise _damaged(archive, str(error)) from error
    if len(content) > most:
        raise FolderError(f"{archive} decompresses to more than {most:,} bytes; do not trust it")
    if not decompressor.eof or decompressor.unused_data:
        raise _damaged(archive, "it is cut short, or continues after its end")
    return content


def _members(tar: tarfile.TarFile, archive: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for member in tar:
        name = member.name
        plain = member.isreg() and not member.issparse() and name.endswith(".jsonl") and "/" not in name
        content = tar.extractfile(member) if plain else None
        if content is None:
            raise FolderError(f"{archive} holds {name!r}; it may hold plain *.jsonl files only, without folders")
        if name in found:
            raise FolderError(f"{archive} holds {name!r} twice")
        if len(found) == MOST_JOURNALS:
            raise FolderError(f"{archive} holds more than {MOST_JOURNALS:,} journals; do not trust it")
        found[name] = content.read()
    return found


def _damaged(archive: Path, why: str) -> DamagedError:
    return DamagedError(f"{archive} is damaged: {why}; restore it from a copy")
