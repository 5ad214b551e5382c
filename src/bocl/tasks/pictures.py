"""Pictures → bytes (channels, height, width), read with Pillow, the extra `images`.

Grey pictures have one channel, all others three; what is transparent loses its transparency.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bocl.checks import exceeds_memory
from bocl.errors import DataError
from bocl.extras import needed

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
# Whatever a file is called, Pillow goes by its content, and it runs another program for some formats.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")


def read_pictures(pictures: Sequence[tuple[str, Path | bytes]]) -> NDArray[np.uint8]:
    """Return pictures of one size, (n, channels, height, width); each comes with its name in messages."""
    pillow = needed("PIL.Image", "images", f"{pictures[0][0]} is an image")
    first = _pixels(pillow, *pictures[0])
    if excess := exceeds_memory(len(pictures) * first.size):
        raise DataError(f"{len(pictures)} images like {pictures[0][0]} take {excess}; give smaller ones, or fewer")
    found = np.empty((len(pictures), *first.shape), dtype=np.uint8)
    for row, (name, source) in enumerate(pictures):
        pixels = _pixels(pillow, name, source) if row else first
        if pixels.shape != first.shape:
            raise DataError(
                f"{name} has {_size(pixels)}, but {pictures[0][0]} has {_size(first)}; bring all images to the same "
                "size, and all to grey or all to colour"
            )
        found[row] = pixels
    return found


def _pixels(pillow: Any, name: str, source: Path | bytes) -> NDArray[np.uint8]:
    if isinstance(source, Path) and not source.is_file():  # to open a pipe is to wait for whoever writes to it
        raise DataError(f"{name} is not a file")
    try:
        with pillow.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            mode = image.mode
            if mode[0] not in "IF":
                opaque = image.convert("RGBA") if mode == "P" and "transparency" in image.info else image
                pixels = np.asarray(opaque.convert("L" if mode in ("1", "L", "LA") else "RGB"))
    except Exception as error:  # a damaged image raises nearly anything, and a huge one DecompressionBombError
        raise DataError(f"{name} cannot be read as an image: {' '.join(str(error).split())}") from error
    if mode[0] in "IF":
        raise DataError(
            f"{name} has pixels of more than 8 bits (mode {mode}); convert it to 8 bits, or keep the task as .npz"
        )
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _size(pixels: NDArray[np.uint8]) -> str:
    channels, height, width = pixels.shape
    return f"{width} x {height} pixels in {'grey' if channels == 1 else 'colour'}"
