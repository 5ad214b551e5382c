"""What is in a user's folder: links are followed, hidden entries are left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bocl.errors import DataError


def visible(folder: Path) -> list[Path]:
    """Return what is in a folder, by name."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error


def files_under(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield all that is under a folder and is not a folder itself; ``above`` are the folders it lies in."""
    place = folder.resolve()
    if place in above:
        raise DataError(f"{folder} is a link to a folder that it lies in; remove the link")
    for path in visible(folder):
        if path.is_dir():
            yield from files_under(path, (*above, place))
        else:
            yield path
