"""Finds data files and checks that they are the published ones.

Folders are searched in this order: the one given as ``data``, the one named by BOCL_DATA, the user's cache. What is in
none of them is downloaded into the cache. A file is trusted only by its hash.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from bocl.errors import DataError
from bocl.tasks.download import download

ENVIRONMENT_VARIABLE = "BOCL_DATA"
LARGEST = 200_000_000  # bytes of a file or of a member of an archive; the largest published one has 169 million


@dataclass(frozen=True)
class PublishedFile:
    """A file as its authors publish it."""

    place: str  # below a data folder: "MNIST/raw/train-labels-idx1-ubyte.gz"
    hash: str  # "sha256:…", or "md5:…" if the authors give nothing better
    mirrors: tuple[str, ...] = ()  # full addresses, tried in turn
    command: str = ""  # with which people fetch one that has no mirrors


@dataclass(frozen=True)
class FoundFile:
    """A file on disk and the hash it must have."""

    path: Path
    hash: str


def obtain(what: str, editions: Sequence[tuple[PublishedFile, ...]], data: Path | str | None) -> tuple[FoundFile, ...]:
    """Return the files of the first edition that is complete in some folder, or download one.

    ``editions`` are different forms of the same data, best first. Only a single file with mirrors can be downloaded.
    """
    folders = search_folders(data)
    for folder in folders:
        for edition in editions:
            if all((folder / file.place).is_file() for file in edition):
                return tuple(FoundFile(folder / file.place, file.hash) for file in edition)
    failures: list[str] = []
    for edition in editions:
        for file in edition if len(edition) == 1 else ():
            target = folders[-1] / file.place
            if download(file.mirrors, target, file.hash, LARGEST, failures):
                return (FoundFile(target, file.hash),)
    forms = " or ".join(" and ".join(file.place for file in edition) for edition in editions)
    tried = f" and not downloaded ({'; '.join(failures)})" if failures else ""
    commands = [f"fetch it with {file.command}, then " for edition in editions for file in edition if file.command]
    raise DataError(
        f"{what} was not found in {', '.join(str(folder) for folder in folders)}{tried}; {''.join(commands[:1])}"
        f"put {forms} in a folder and give that as data or in {ENVIRONMENT_VARIABLE}"
    )


def search_folders(data: Path | str | None) -> list[Path]:
    """Return the folders to look in, the cache last; a folder that the user named must exist."""
    folders = []
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    for source, folder in (("data", data), (ENVIRONMENT_VARIABLE, named)):
        if folder:
            path = Path(os.path.expanduser(folder))  # like os.path.isdir, it never raises
            if not os.path.isdir(path):
                raise DataError(f"{source} is {str(folder)!r}, which is not a folder; create it or correct the path")
            folders.append(path)
    return [*folders, cache_folder()]


def cache_folder() -> Path:
    """Return the user's cache folder, where downloads are kept."""
    return Path(platformdirs.user_cache_dir("bocl", appauthor=False))


def read_verified(file: FoundFile) -> bytes:
    """Return the content of a file after checking its hash. It is read once: what is checked is what is used."""
    try:
        with file.path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except OSError as error:
        raise DataError(f"{file.path} cannot be read ({error}); correct its permissions or remove it") from error
    verify_bytes(content, file.hash, str(file.path))
    return content


def verify_bytes(content: bytes, wanted: str, where: str) -> None:
    """Refuse the bytes of a file, or of a member of an archive, if they have another hash."""
    algorithm, _, digest = wanted.partition(":")
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != digest:
        raise DataError(
            f"{where} is not the published file: its {algorithm} is {found}, not {digest}; delete or "
            "move it, and it will be looked for elsewhere or downloaded again"
        )
