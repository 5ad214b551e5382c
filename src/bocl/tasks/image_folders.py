"""Images in folders: one folder per class, with train, validation and test above them where there are such parts.

    NAME/cat/1.png    NAME/dog/7.jpg              or    NAME/train/cat/1.png    NAME/test/dog/7.jpg

All images of a task have the same size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bocl.errors import DataError
from bocl.tasks.folders import files_under, visible
from bocl.tasks.own import PARTS, Pair, Parts
from bocl.tasks.pictures import SUFFIXES, read_pictures


def read_image_folder(folder: Path) -> Parts:
    """Read a folder of images per class, or one for each part."""
    inside = _folders(folder)
    if not inside:
        raise DataError(
            f"{folder} holds no folders of images; give one per class, or train and test with these in them"
        )
    if {path.name for path in inside} <= {*PARTS} and folder / "train" in inside:
        return Parts(**{path.name: _classes(path) for path in inside})
    return Parts(_classes(folder))


def read_images(folder: Path) -> tuple[NDArray[np.uint8], list[str]]:
    """Return all images under a folder, (n, channels, height, width), and their places in it."""
    paths = [path for path in files_under(folder) if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise DataError(f"{folder} holds no images ({', '.join(SUFFIXES)})")
    return _read(paths), [path.relative_to(folder).as_posix() for path in paths]


def _classes(folder: Path) -> Pair:
    images: list[Path] = []
    labels: list[Any] = []
    for kind in _folders(folder):
        paths = visible(kind)
        for path in paths:
            if path.suffix.lower() not in SUFFIXES:
                raise DataError(f"{path} is not an image ({', '.join(SUFFIXES)}); move it elsewhere")
        images += paths
        labels += [kind.name] * len(paths)
    if not images:
        raise DataError(f"{folder} holds no images in folders of its own, one per class")
    return _read(images), labels


def _read(paths: list[Path]) -> NDArray[np.uint8]:
    return read_pictures([(str(path), path) for path in paths])


def _folders(folder: Path) -> list[Path]:
    return [path for path in visible(folder) if path.is_dir()]
