"""Members of compressed files, read in memory: nothing is unpacked to disk and no size is taken on trust."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath

from bocl.errors import DataError

MOST_MEMBERS = 100  # the published archives have five
_SLACK = 1 << 20  # bytes of headers, padding and members nobody asks for


def gunzip(data: bytes, limit: int, where: str) -> bytes:
    """Return the content of a gzip file of at most ``limit`` bytes once decompressed."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            content = stream.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{where} cannot be decompressed ({error}); get it again") from error
    if len(content) > limit:
        raise DataError(f"{where} decompresses to more than the {limit} bytes expected; do not trust it")
    return content


def tar_members(data: bytes, limits: Mapping[str, int], where: str) -> dict[str, bytes]:
    """Return the members named in ``limits`` (name → most bytes) of a .tar.gz file."""
    contents: dict[str, bytes] = {}
    try:
        with (
            _Limited(data, _SLACK + sum(limits.values()), where) as unpacked,
            tarfile.open(fileobj=unpacked, mode="r|") as archive,
        ):
            for count, member in enumerate(archive):
                _check_member(member, count, limits, where)
                stream = archive.extractfile(member) if member.name in limits else None
                if stream is not None:
                    contents[member.name] = stream.read()
    except DataError:
        raise
    except Exception as error:  # damaged headers raise nearly anything
        raise DataError(f"{where} cannot be read as a .tar.gz file ({error}); get it again") from error
    missing = [name for name in limits if name not in contents]
    if missing:
        raise DataError(f"{where} has no member {', '.join(missing)}; get it again")
    return contents


class _Limited(gzip.GzipFile):
    """Decompresses ``limit`` bytes and no more: an archive's headers are unpacked too, and may declare any size."""

    def __init__(self, data: bytes, limit: int, where: str) -> None:
        super().__init__(fileobj=io.BytesIO(data))
        self.limit, self.where = limit, where

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        if self.tell() > self.limit:
            raise DataError(f"{self.where} decompresses to more than the {self.limit} bytes expected; do not trust it")
        return content


def _check_member(member: tarfile.TarInfo, count: int, limits: Mapping[str, int], where: str) -> None:
    name = PurePosixPath(member.name)
    largest = max(limits.values())
    if name.is_absolute() or ".." in name.parts:
        problem = f"member {member.name!r} points outside the archive"
    elif not (member.isreg() or member.isdir()):
        problem = f"member {member.name!r} is a link or a device"
    elif member.size > limits.get(member.name, largest):  # skipping a member decompresses it too
        problem = f"member {member.name!r} declares {member.size} bytes"
    elif count >= MOST_MEMBERS:
        problem = f"more than {MOST_MEMBERS} members"
    else:
        return
    raise DataError(f"{where}: {problem}, unlike the published archive; do not trust it")
