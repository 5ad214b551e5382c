"""Images in folders: one folder per class, with train, validation and test above them where there are such parts.

    NAME/cat/1.png    NAME/dog/7.jpg              or    NAME/train/cat/1.png    NAME/test/dog/7.jpg

Pictures are read with Pillow, the extra `images`, as bytes (channels, height, width): grey ones have one channel, all
others three. All of a task have the same size.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bocl.errors import DataError
from bocl.tasks.extras import needed
from bocl.tasks.own import PARTS, Pair, Parts

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
GREY = ("1", "L", "LA", "I", "I;16", "F")


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
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES)
    if not paths:
        raise DataError(f"{folder} holds no images ({', '.join(PICTURES)})")
    return _stacked(paths), [path.relative_to(folder).as_posix() for path in paths]


def _classes(folder: Path) -> Pair:
    images, labels = [], []
    for kind in _folders(folder):
        paths = sorted(path for path in kind.iterdir() if not path.name.startswith("."))
        for path in paths:
            if path.suffix.lower() not in PICTURES:
                raise DataError(f"{path} is not an image ({', '.join(PICTURES)}); move it elsewhere")
        images += paths
        labels += [kind.name] * len(paths)
    if not images:
        raise DataError(f"{folder} holds no images in folders of its own, one per class")
    return _stacked(images), labels


def _folders(folder: Path) -> list[Path]:
    if not os.path.isdir(folder):
        raise DataError(f"{folder} is not a folder of images")
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _stacked(paths: list[Path]) -> NDArray[np.uint8]:
    pillow = needed("PIL.Image", "images", f"{paths[0]} is an image")
    first = _pixels(pillow, paths[0])
    found = np.empty((len(paths), *first.shape), dtype=np.uint8)
    for row, path in enumerate(paths):
        pixels = first if row == 0 else _pixels(pillow, path)
        if pixels.shape != first.shape:
            raise DataError(
                f"{path} has {_size(pixels)}, but {paths[0]} has {_size(first)}; bring all images to the same size"
            )
        found[row] = pixels
    return found


def _pixels(pillow: Any, path: Path) -> NDArray[np.uint8]:
    try:
        with pillow.open(path) as image:
            pixels = np.asarray(image.convert("L" if image.mode in GREY else "RGB"))
    except Exception as error:  # a damaged image raises nearly anything, and a huge one DecompressionBombError
        raise DataError(f"{path} cannot be read as an image: {' '.join(str(error).split())}") from error
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _size(pixels: NDArray[np.uint8]) -> str:
    channels, height, width = pixels.shape
    return f"{width} x {height} pixels in {'grey' if channels == 1 else 'colour'}"
